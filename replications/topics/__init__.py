"""Topics of documents by more than a logistic regression: fine-tuning with all weights (HMDE paper, section 3.2), and
a support vector machine."""
