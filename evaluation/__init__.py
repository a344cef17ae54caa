"""Judges systems: texts to vectors, vectors to scores, scores to a report."""

from foundation.moved import refuse_old_names

refuse_old_names()
