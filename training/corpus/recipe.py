"""The options of `python -m training.corpus`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jsonargparse.typing import ClosedUnitInterval

from hmde.common.numbers import NonNegativeInt, PositiveFloat, PositiveInt, Seed, Share

SPLITS = ("train", "dev", "test")


@dataclass(kw_only=True)
class CorpusRecipe:
    """Triples from articles in several languages."""

    articles: str
    """Folder of one table a language, <language>.jsonl or <language>.parquet, with the columns concept_id, language,
    title, text and split, none of them null, and if there are some, categories, source and license. For `documents`,
    what `hmde encode` has read; rows of tables that have a concept_id keep it, and their split."""

    output: str
    """Folder to write. It must not exist, or be one that this command wrote."""

    languages: list[str]
    """ISO 639-1 codes. Pairs are made between all of them. In YAML, `no` needs quotes."""

    source: Literal["tables", "documents"] = "tables"
    """Tables of articles, or documents of any kind, whose links and hard negatives a model finds."""

    embeddings: str | None = None
    """For `documents`: the folder that `hmde encode` wrote of them."""

    model: str | None = None
    """For `documents`: the HMDE that made the embeddings; the released model if not given."""

    min_margin: PositiveFloat = 1.1
    """For `documents`: how much nearer two documents must be to each other than to their neighbours, as a ratio. A
    higher one links fewer and errs less; mates.json of the corpus says how many pairs others would keep."""

    category_limit: PositiveInt = 10_000
    """Number of articles above which a category is drawn less often, in proportion."""

    min_sentences: PositiveInt = 5
    """Shorter documents are dropped."""

    sentences_per_document: NonNegativeInt = 0
    """Also make triples of up to this many lines of each document of train: a line, the line at its place in another
    language, where both documents have as many lines, and another line of the anchor's document as hard negative."""

    dev_fraction: Share = 0.05
    """For `documents`: part of the concepts. What dev and test leave is for training."""

    test_fraction: Share = 0.01
    """Likewise."""

    num_triples: PositiveInt | None = None
    """Draw this many of the triples; all if not given."""

    pair_exponent: ClosedUnitInterval = 1.0
    """With num_triples, a pair of languages with n triples has a share in proportion to n^pair_exponent."""

    threads: PositiveInt | None = None
    """Threads of DuckDB; one for each core if not given."""

    memory_limit: str = "4GB"
    """Memory of DuckDB. What exceeds it goes to disk."""

    seed: Seed = 42
    """Seed of every draw."""

    def __post_init__(self) -> None:
        if len(set(self.languages)) < max(len(self.languages), 2):
            raise ValueError(f"languages are {self.languages}; name at least two, each once")
        if self.pair_exponent != 1.0 and self.num_triples is None:
            raise ValueError("pair_exponent has an effect on the draw of num_triples only; set num_triples too")
