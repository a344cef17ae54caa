"""Search across languages from the terminal.

Imports run upwards in this list: files, documents, bm25 (texts); encoder (the model); index (the stored table),
precomputed (embeddings made before), highlight (HTML); ranking, update, postgres; server; and the commands __main__ and
encode_collection.
"""
