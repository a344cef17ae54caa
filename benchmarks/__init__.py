"""Measurements, one file a question. `make gpu` runs those of a GPU; docs/speed.md has the numbers."""
