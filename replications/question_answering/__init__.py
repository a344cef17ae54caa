"""Answers across languages: MLQA (InfoXLM, section 4.2)."""
