"""Topics of documents, as papers learn them: fine-tuning with all weights (HMDE paper, section 3.2)."""
