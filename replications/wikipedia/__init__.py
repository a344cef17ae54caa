"""Wikipedia, from which the paper's corpora are made (section 3.1): articles, concepts and categories."""
