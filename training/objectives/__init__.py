"""Embeddings to losses."""
