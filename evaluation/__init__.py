"""Judges systems: texts to vectors, vectors to scores, scores to a report."""
