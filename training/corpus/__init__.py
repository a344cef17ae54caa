"""Training triples from articles (paper, section 3.1); see `training.corpus.build`."""

from training.corpus.build import main
from training.corpus.join import TRIPLE_COLUMNS
from training.corpus.tables import ARTICLE_COLUMNS

__all__ = ["ARTICLE_COLUMNS", "TRIPLE_COLUMNS", "main"]
