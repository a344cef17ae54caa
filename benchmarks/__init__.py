"""Measurements, one file a question. docs/journal has the numbers."""
