"""Sentence encoders trained on pairs of sentences: pairs, batches, encoder, losses, and the stage that joins them."""
