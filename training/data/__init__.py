"""Triples of documents to batches of token ids."""
