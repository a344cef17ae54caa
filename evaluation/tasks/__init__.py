"""Tasks: retrieval and classification of documents, from vectors to scores."""
