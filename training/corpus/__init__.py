"""Training data from text: triples of documents (paper, section 3.1), see `build`."""

from training.corpus.article_tables import ARTICLE_COLUMNS
from training.corpus.build import main
from training.corpus.hard_negatives import TRIPLE_COLUMNS

__all__ = ["ARTICLE_COLUMNS", "TRIPLE_COLUMNS", "main"]
