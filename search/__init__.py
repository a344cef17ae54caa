"""Search across languages from the terminal: documents.py reads, index.py encodes and ranks, __main__.py talks."""
