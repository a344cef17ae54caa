"""Your own articles, as `python -m training.corpus` reads them: the title of an article in one language seeks its text
in another. With `query_source` late_sentences or documents, a sentence or the whole text seeks it. So nothing need be
labelled to measure models on texts such as yours.

`data` is a folder of one table a language, `<language>.parquet` or `<language>.jsonl`, with the columns `concept_id`,
`title`, `text` and, for a task with a `split`, `split`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from evaluation.datasets.files import write_documents, write_qrels, write_queries
from evaluation.datasets.languages import POOL, query_and_document_languages
from evaluation.recipes import RetrievalTask
from hmde.common.records import malformed, rows


def convert(task: RetrievalTask, output: Path) -> None:
    query_languages, document_languages = query_and_document_languages(task.pairs)
    concepts: dict[str, None] = {}
    for language in dict.fromkeys([*query_languages, *document_languages]):
        if language == POOL:
            continue
        parquet = Path(task.data) / f"{language}.parquet"
        table = parquet if parquet.exists() else parquet.with_suffix(".jsonl")  # which may be missing
        articles = list(read_articles(table, task.split))
        write_documents(output, language, ((concept, without_title(title, text)) for concept, title, text in articles))
        counts = Counter(title for _, title, _ in articles)
        # A title of several articles does not say which of them it seeks.
        titles = [(concept, title) for concept, title, _ in articles if title.strip() and counts[title] == 1]
        if titles:
            write_queries(output, language, titles)
        concepts |= dict.fromkeys(concept for concept, _, _ in articles)
    write_qrels(output, task.split, (f"{concept}\t0\t{concept}\t1\n" for concept in concepts))


def read_articles(path: Path, split: str | None) -> Iterator[tuple[str, str, str]]:
    """Concept, title and text of the articles of a split, or of all.

    Raises:
        ValueError: the file is missing or damaged, or an article lacks a column.
    """
    columns = ["concept_id", "title", "text", *(["split"] if split else [])]
    for number, article in rows(path, columns):
        fields = [article.get(column) if isinstance(article, dict) else None for column in columns]
        if not all(isinstance(field, str) for field in fields):
            raise malformed(path, number, f"is no article; it needs {', '.join(columns)}, all strings")
        concept, title, text, *own_split = map(str, fields)
        if not split or own_split == [split]:
            yield concept, title, text


def without_title(title: str, text: str) -> str:
    """
    >>> without_title("The Moon", "The Moon\\nIt circles the Earth.")
    'It circles the Earth.'
    """
    first_line, _, rest = text.partition("\n")
    return rest if first_line.strip() == title.strip() else text
