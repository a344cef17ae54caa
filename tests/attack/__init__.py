"""Attacks on the code: killed processes, damaged files, hostile texts. See tests/attack/__main__.py."""
