"""Turns text into a trained HMDE: corpus, objectives, the training loop, fine-tuning."""
