"""Data sets: the project's own format (files.py), and what turns published ones into it."""
