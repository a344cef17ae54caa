"""How good document embeddings are: retrieval across languages and zero-shot classification, beside baselines."""
