"""Measurements, one file a question. `make gpu` runs those of a GPU; docs/journal has the numbers."""
