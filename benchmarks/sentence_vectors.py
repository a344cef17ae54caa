"""What the sentence vectors of documents find, by their size: all documents are ranked, exactly.

    python -m benchmarks.sentence_vectors --model MODEL --data FOLDER --pairs '[en-de]' [--key value ...]

A row is a way to store sentence vectors: cut to their first numbers, as float16, int8 (each scaled to its largest
number) or the codes of an index. The columns are, for each pair, the mean reciprocal rank of the first relevant
document by the best sentence alone, and by `late_score` of its cosine and the document's (`late`). The first rows are
the document's vector alone; sentences that a second pass reads each by itself; and these sentences with the document
vector that the second pass makes of them. With `--token_encoder`, documents are also ranked by the token
vectors of a sentence encoder that was not trained for it: by the mean, over a query's tokens, of the cosine with the
nearest token of the document, as ColBERT has it (Khattab and Zaharia 2020, equation 3, divided by the number of
tokens). No approximate index takes part. Writes results.md, and results.json, which also has the bytes of twenty
sentences in each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import common.threads

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer

from benchmarks.measure import timed, write_results
from common.command_line import options_from, run
from common.device import Dtype, dtype_of
from common.numbers import PositiveInt
from common.progress import progress_bar
from common.saved_models import load_hmde
from evaluation.datasets.languages import POOL, languages_of
from evaluation.datasets.retrieval_sets import QuerySource, RetrievalSet, read_retrieval_set
from evaluation.tables import Table
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer, late_score
from search.codes import decode, encode
from search.encoder import Encoder, cut, sentence_of_probe

# The bytes of a vector, by its size.
BYTES: dict[str, Callable[[int], int]] = {
    "float16": lambda size: 2 * size,
    "int8": lambda size: size,
    "codes": lambda size: sum(plane.shape[1] for plane in encode(np.empty((0, size)), np.empty(size))),
}
SENTENCES = 20  # of the document whose bytes are shown


@dataclass
class SentenceVectorsBenchmark:
    """Rank all documents by sentence vectors of several sizes."""

    model: str
    """A saved HMDE."""

    data: str
    """A retrieval set, see evaluation/datasets/retrieval_sets.py."""

    pairs: list[str]
    """`<query language>-<document language>`."""

    split: str | None = None
    """Split of the set's qrels."""

    query_source: QuerySource = "queries"
    """What serves as a query."""

    sizes: list[PositiveInt] = field(default_factory=lambda: [384, 256, 128, 64])
    """To how many numbers vectors are cut."""

    max_documents: PositiveInt | None = None
    """Documents of a language: those that are relevant, filled up with the first others. All if not given."""

    alone: bool = True
    """Also read each sentence by itself."""

    token_encoder: str | None = None
    """A sentence encoder, by whose token vectors documents are ranked too."""

    dtype: Dtype = "auto"
    """The dtype of weights and activations."""

    output: str = "runs/sentence-vectors"
    """A folder for the results."""


def stored(vectors: np.ndarray, kind: str, centre: np.ndarray) -> np.ndarray:
    """Vectors (vectors, size) as they are after being stored, L2-normalised.

    Args:
        centre: (size,), of codes.
    """
    if kind == "codes":
        return decode(encode(vectors, centre), centre)
    if kind == "float16":
        return cut(vectors.astype(np.float16).astype(np.float32), vectors.shape[1])
    scaled = vectors / np.abs(vectors).max(axis=1, keepdims=True).clip(min=1e-12)
    return cut((127 * scaled).round(), vectors.shape[1])


def mrr(scores: np.ndarray, relevant: Sequence[Sequence[int]]) -> float:
    """
    Args:
        scores: (queries, documents).
        relevant: the columns of each query's relevant documents.
    """
    ranks = [1 + min(int((row > row[column]).sum()) for column in columns) for row, columns in zip(scores, relevant)]
    return float(np.mean(1 / np.array(ranks)))


def best_sentences(queries: np.ndarray, sentences: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """(queries, documents), the cosine of each document's best sentence.

    Args:
        queries, sentences: (queries, size) and (sentences, size), L2-normalised.
        counts: of the sentences of each document.
    """
    return np.maximum.reduceat(queries @ sentences.T, np.cumsum([0, *counts[:-1]]), axis=1)


def token_scores(encoder: str, dtype: torch.dtype, queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
    """(queries, documents), by token vectors; documents are read in windows of 512 tokens."""
    model = AutoModel.from_pretrained(encoder, dtype=dtype).eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder)

    @torch.inference_mode()
    def tokens(text: str) -> Tensor:
        """(tokens, hidden), L2-normalised."""
        windows = tokenizer(
            text, truncation=True, max_length=512, return_overflowing_tokens=True, padding=True, return_tensors="pt"
        )
        inputs = {name: windows[name] for name in ("input_ids", "attention_mask")}
        hidden_states = model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
        return F.normalize(hidden_states.float(), dim=-1)

    asked = [tokens(f"query: {query}") for query in queries]
    lengths = [len(rows) for rows in asked]
    stacked = torch.cat(asked)
    scores = []
    with progress_bar("token vectors", len(texts)) as progress:
        for text in texts:
            nearest = (stacked @ tokens(f"passage: {text}").T).amax(dim=1)
            scores.append(torch.stack([best.mean() for best in nearest.split(lengths)]))
            progress.update()
    return torch.stack(scores, dim=1).numpy()


def pair_scores(
    benchmark: SentenceVectorsBenchmark,
    model: HMDEForDocumentEmbedding,
    tokenizer: HMDETokenizer,
    data: RetrievalSet,
    pair: str,
) -> dict[str, dict[str, float]]:
    """By column, then by row of the table."""
    _, document_language = languages_of(pair)
    queries, judgements = data.judged_queries(pair), data.judgements(pair)
    wanted = {id for grades in judgements.values() for id, grade in grades.items() if grade > 0}
    documents = data.documents[document_language]
    ids = sorted(documents, key=lambda id: id not in wanted)[
        : max(len(wanted), benchmark.max_documents or len(documents))
    ]
    column_of = {id: column for column, id in enumerate(ids)}
    relevant = [[column_of[id] for id, grade in judgements[query].items() if grade > 0] for query in queries]
    texts = [documents[id] for id in ids]
    query_vectors = model.encode_queries(list(queries.values()), tokenizer)

    def read() -> tuple[np.ndarray, np.ndarray, list[int]]:
        vectors, found = model.encode_documents(texts, tokenizer, language=document_language, sentences=True)
        sentences = [document.vectors.numpy() for document in found]
        return vectors, np.concatenate(sentences), [len(rows) for rows in sentences]

    with timed() as one_pass:
        vectors, sentences, counts = read()
    cosines = query_vectors @ vectors.T
    sentence_column, late_column = f"{pair}, best sentence", f"{pair}, late"
    columns: dict[str, dict[str, float]] = {sentence_column: {}, late_column: {}}
    columns[late_column]["document alone"] = mrr(cosines, relevant)

    def add(row: str, best: np.ndarray, document_cosines: np.ndarray = cosines) -> None:
        columns[sentence_column][row] = mrr(best, relevant)
        columns[late_column][row] = mrr(late_score(document_cosines, best), relevant)

    if benchmark.alone:
        passage_length, model.config.passage_length = model.config.passage_length, 0
        with timed() as second_pass:
            alone_vectors, alone, counts_alone = read()
        model.config.passage_length = passage_length
        best = best_sentences(query_vectors, alone, counts_alone)
        add("sentences alone", best)
        add("sentences and document of sentences alone", best, query_vectors @ alone_vectors.T)
        print(f"{pair}: {len(ids)} documents, one pass {one_pass.seconds:.0f} s, second {second_pass.seconds:.0f} s")
    if benchmark.token_encoder is not None:
        scores = token_scores(benchmark.token_encoder, model.dtype, list(queries.values()), texts)
        columns[late_column]["tokens"] = mrr(scores, relevant)
    probe = sentence_of_probe(Encoder(benchmark.model, model, tokenizer).probe())
    for size in benchmark.sizes:
        for kind in BYTES:
            kept = stored(cut(sentences, size), kind, cut(probe, size))
            add(f"{size} {kind}", best_sentences(cut(query_vectors, size), kept, counts))
    return columns


def main(argv: list[str] | None = None) -> None:
    benchmark = options_from(SentenceVectorsBenchmark, argv)
    for pair in benchmark.pairs:
        if languages_of(pair)[1] == POOL:
            raise ValueError(f"pairs has {pair}, and documents are ranked in one language here; leave it out")
    data = read_retrieval_set(benchmark.data, benchmark.pairs, benchmark.split, benchmark.query_source)
    model, tokenizer = load_hmde(benchmark.model, dtype_of(benchmark.dtype))
    sizes = {f"{size} {kind}": SENTENCES * BYTES[kind](size) for size in benchmark.sizes for kind in BYTES}
    columns: dict[str, dict[str, float]] = {}
    for pair in benchmark.pairs:
        columns |= pair_scores(benchmark, model, tokenizer, data, pair)
    title = f"MRR of {benchmark.model} on {benchmark.data}, {benchmark.query_source}"
    table = Table(title, "sentence vectors", columns)
    write_results(benchmark, table.to_markdown(), bytes=sizes, mrr=columns)


if __name__ == "__main__":
    run(main)
