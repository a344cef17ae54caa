"""Losses to weights. Knows no documents: a stage hands it batches, losses by name, an evaluation and a way to save."""
