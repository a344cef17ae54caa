"""The kinds of systems and tasks that a recipe can name. A new kind is a module and a line here or, elsewhere,

    SYSTEMS["longformer"] = SystemKind("replications.longformer.system", takes=("model", "pooling"))
    TASKS["reranking"] = "replications.reranking"

Options that only such a kind has, and the section of its tasks, stand in a recipe that extends `EvaluationRecipe`, see
replications/evaluation_recipe.py. Imports nothing heavy: a module is imported when its kind is first used.

The module of a kind of systems has

    check(name, options)                refuses a bad model by a ValueError that begins with the name
    load(options, dtype)                the system, see evaluation/systems

The module of a kind of tasks has

    read(task)                          its data, checked
    evaluate_system(system, task, data, run)        a result, of a system that its options take
"""

from __future__ import annotations

from typing import NamedTuple


class SystemKind(NamedTuple):
    """
    module: what computes it.
    takes: the options that a recipe may give, see SystemOptions; `model` it must give, if it is among them.
    ranks: whether it ranks whole collections and has no vectors to give.
    """

    module: str
    takes: tuple[str, ...] = ()
    ranks: bool = False


_HMDE = SystemKind("evaluation.systems.hmde", takes=("model",))
# Sentence encoders that were never trained on documents; each kind reads a document in its own way.
_FIRST = SystemKind(
    "evaluation.systems.pieces", takes=("model", "pooling", "query_prompt", "document_prompt", "max_length")
)
_PIECES = _FIRST._replace(takes=(*_FIRST.takes, "max_pieces"))
_NEAREST = "evaluation.systems.nearest_piece"
_SEARCH = _HMDE._replace(module="evaluation.systems.search", ranks=True)

SYSTEMS = {
    # A trained HMDE, which knows its own pooling, prompts and lengths.
    "hmde": _HMDE,
    # The first tokens of a document as one sentence.
    "first": _FIRST,
    # The mean over windows of tokens that overlap by a third (LaBSE-Seg; paper, section 3.3).
    "windows": _PIECES,
    # The mean over sentences, split as an HMDE splits them.
    "sentences": _PIECES,
    # The mean over the tokens of sentences that are read together, up to max_length tokens at a time.
    "passages": _PIECES,
    # A document's score is that of its nearest sentence, read by itself, or of its nearest window. The kinds from here
    # on skip queries that are whole documents.
    "nearest_sentence": _HMDE._replace(module=_NEAREST, ranks=True),
    "nearest_window": _PIECES._replace(module=_NEAREST, ranks=True),
    # Scores every document by its own vector and its nearest sentence, without BM25. `late` approximates this.
    "document_and_sentence": _HMDE._replace(module=_NEAREST, ranks=True),
    # What a user of an index of hmde gets from an HMDE and BM25. Behind the documents that these rank follow the
    # others, ranked by their vectors.
    "hybrid": _SEARCH,
    # As `hybrid`, with the vectors of the kind `first`.
    "hybrid_first": _FIRST._replace(module=_SEARCH.module, ranks=True),
    # As `hybrid`, and the best of a document's sentences count too.
    "late": _SEARCH,
    # The words that query and document share. Skips pairs of two languages.
    "bm25": SystemKind("evaluation.systems.bm25", ranks=True),
}

TASKS = {"retrieval": "evaluation.tasks.retrieval", "classification": "evaluation.tasks.classification"}
