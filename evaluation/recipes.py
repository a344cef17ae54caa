"""What can be asked of an evaluation: systems, tasks, and the comparison of all systems on all tasks.

Imports nothing heavy, so that a command shows its options and refuses a bad recipe at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

IndexKind = Literal["flat", "ivf", "hnsw"]
SoughtBy = Literal["queries", "sentences", "documents", "late_sentences"]

# Kinds of systems that rank and have no vectors to give.
RANKING_KINDS = ("bm25", "hybrid", "late")

MEASURES = ("accuracy", "macro_f1")
ANSWER_MEASURES = ("f1", "exact_match")
ANSWER_LANGUAGES = ("en", "es", "de", "ar", "hi", "vi", "zh")  # of MLQA
MULTILABEL_MEASURES = ("r_precision", "micro_f1")


@dataclass
class SystemRecipe:
    """A system as a recipe names it.

    Args:
        kind: `hmde`, or a way to use a sentence encoder that was never trained on documents: `first` reads the first
            tokens of a document as one sentence; `windows` takes the mean over windows of 128 tokens that overlap by a
            third, at most 32 of them (LaBSE-Seg; paper, section 3.3); `sentences` takes the mean over the first 128
            sentences, split as an HMDE splits them; `weighted_sentences` weights that mean by the tokens of each
            sentence; `passages` does so too and reads sentences together, up to 512 tokens at a time. Or
            `sentence_transformers`, a model of that library as its own configuration says; `longformer`, a model that
            replications/longformer/pretrain.py wrote; `bm25`,
            which skips pairs of two languages. Or what a user of an index of
            search/ gets from an HMDE: `hybrid`, `late`. Behind the documents that these rank stand the others by their
            vectors. They rank whole collections, for queries that are questions or sentences; other tasks are skipped.
        model: folder or Hub name, of the HMDE or of the encoder. Leave it out for `bm25`.
        pooling: how the vector of a text is read from the encoder: cls, mean or pooler. For `longformer` cls (as in
            the paper) or mean. An `hmde` and a `sentence_transformers` model know their own.
        sentence_layer: the layer of a sentence encoder, counted from 1, that it is read from; the last if not given.
        query_prompt: text put before each query, such as e5's "query: ". An HMDE knows its own.
        document_prompt: text put before each piece of a document, such as e5's "passage: ". An HMDE knows its own.
        max_length: tokens of a piece, including start token, end token and prompt. The default is 512 for `first`, and
            128 for windows and sentences. For `passages` it is the longest passage, 512 by default. For
            `sentence_transformers` it limits the whole document.
        global_attention: for `longformer`, whether the first token sees the whole document. The paper's code says no.
        query_path: for an HMDE, what encodes a query, see HMDEConfig. The model's own if not given.
        trust_remote_code: for `sentence_transformers`, whether code from the model's folder may run.
    """

    kind: Literal[
        "hmde",
        "first",
        "windows",
        "sentences",
        "weighted_sentences",
        "passages",
        "sentence_transformers",
        "longformer",
        "bm25",
        "hybrid",
        "late",
    ]
    model: str = ""
    pooling: Literal["cls", "mean", "pooler"] | None = None
    sentence_layer: int | None = None
    query_prompt: str = ""
    document_prompt: str = ""
    max_length: int | None = None
    global_attention: bool = True
    query_path: Literal["sentence_encoder", "document_encoder"] | None = None
    trust_remote_code: bool = False

    @property
    def is_hmde(self) -> bool:
        return self.kind in ("hmde", "hybrid", "late")


@dataclass
class RetrievalTask:
    """Queries and collections to compare systems on.

    Args:
        data: folder of the data set, or whatever its format reads.
        pairs: `<query language>-<document language>`, such as en-de. `en-all` searches the pool of the document
            languages of all other pairs, and reports how many of the first ten are in the query's own language.
        format: of `data`; evaluation/datasets/files.py describes hmde, evaluation/datasets/conversion.py the others.
        split: of the qrels: qrels.<split>.tsv selects the queries or, if documents give the queries, the documents.
            Without a split: qrels.tsv and all documents.
        sought_by: what the queries are: `queries`; `sentences`, and then the documents are sentences too; whole
            `documents` (mate retrieval); or `late_sentences`, from the last third of long documents. The last two
            seek the document with the same id in another language.
        training_languages: document languages that the systems were trained on; they are averaged apart from others.
        measure: the one in the tables; the results have all.
        depth: documents that a query ranks at most.
        rerank: folder of <pair>.run files whose first documents are ranked anew. Without it: full ranking.
        rerank_depth: how many documents of a run are ranked anew.
        index: `flat` compares a query with all documents, exactly; `ivf` and `hnsw` are for large collections.
    """

    data: str
    pairs: list[str]
    format: str = "hmde"
    split: str | None = None
    sought_by: SoughtBy = "queries"
    training_languages: list[str] = field(default_factory=list)
    measure: Literal["MAP", "nDCG@10", "MRR", "Recall@100", "P@1"] = "MAP"
    depth: int = 1000
    rerank: str | None = None
    rerank_depth: int = 100
    index: IndexKind = "flat"

    def __post_init__(self) -> None:
        for name in ("depth", "rerank_depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")

    @property
    def protocol(self) -> str:
        if self.rerank is None:
            return "full ranking by cosine" if self.index == "flat" else f"full ranking by cosine, {self.index} index"
        return f"re-ranking of the first {self.rerank_depth} of {Path(self.rerank).name}"


@dataclass
class ClassificationTask:
    """Labelled documents to compare systems on.

    Args:
        data: folder of <language>.<part>.tsv, label TAB text: .train.tsv and .dev.tsv of each train language,
            .test.tsv of each test language; or whatever its format reads.
        test_languages: languages to test on.
        train_languages: languages that have labels to learn from; if none, only `finetuned` classifiers are tested.
        text_pairs: whether a text is two with a tab between, such as a premise and a hypothesis.
        format: of `data`; evaluation/datasets/files.py describes hmde, evaluation/datasets/conversion.py the others.
        classifier: above frozen vectors: a `logistic_regression`, or the small network that LASER, the lightweight
            encoder and T-MDE report (`mlp`), whose scores are means over five runs.
        resamples: draw so many training sets of the same size from each training set, with replacement, and train on
            each too. The averages over these draws are rows of their own, and two systems are compared on them by a
            paired t-test (T-MDE, table 4.12). They differ less from one near model to the next.
        multilabel: whether a text may have several labels. If so, only frozen vectors are tested, by R-precision and
            micro-F1.
        finetuned: classifiers that were trained as a whole, by name: the folders or Hub names of one or more runs,
            whose scores are averaged.
        finetuned_on: languages that these were trained on; the first train language if not given.
        measure: the one in the tables; the results have all. r_precision and micro_f1 are for several labels a text.
    """

    data: str
    test_languages: list[str]
    train_languages: list[str] = field(default_factory=lambda: ["en"])
    text_pairs: bool = False
    format: str = "hmde"
    classifier: Literal["logistic_regression", "mlp"] = "logistic_regression"
    resamples: int = 0
    multilabel: bool = False
    finetuned: dict[str, list[str]] = field(default_factory=dict)
    finetuned_on: list[str] = field(default_factory=list)
    measure: Literal["accuracy", "macro_f1", "r_precision", "micro_f1"] = "accuracy"

    def __post_init__(self) -> None:
        self.finetuned_on = self.finetuned_on or self.train_languages[:1]
        for name in ("test_languages", "finetuned_on"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; name at least one")
        if self.measure not in self.measures:
            raise ValueError(
                f"measure is {self.measure}; with multilabel={self.multilabel} it is {' or '.join(self.measures)}"
            )
        if self.resamples < 0 or self.resamples == 1:
            raise ValueError(f"resamples is {self.resamples}; a t-test needs at least 2, 0 leaves it out")
        if self.multilabel and self.resamples:
            raise ValueError("resamples are of one label a text; leave them out, or multilabel")
        if self.multilabel and self.classifier == "mlp":
            raise ValueError("the mlp predicts one label a text; leave classifier out, or multilabel")
        if self.multilabel and self.finetuned:
            raise ValueError("finetuned classifiers predict one label a text; leave them out, or multilabel")

    @property
    def measures(self) -> tuple[str, str]:
        """The measures of the task. The first has a value for each document."""
        return MULTILABEL_MEASURES if self.multilabel else MEASURES


@dataclass
class QuestionTask:
    """Questions whose answer stands in a text in the same language, to test models on that learnt from English ones.

    Args:
        data: folder MLQA_V1, as its archive unpacks (github.com/facebookresearch/MLQA).
        finetuned: models that replications/question_answering/finetune.py wrote, by name: the folders or Hub names
            of one or more runs, whose scores are averaged.
        languages: of questions and texts, those of MLQA.
        split: test or dev.
        measure: the one in the tables; the results have both.
    """

    data: str
    finetuned: dict[str, list[str]]
    languages: list[str] = field(default_factory=lambda: list(ANSWER_LANGUAGES))
    split: Literal["test", "dev"] = "test"
    measure: Literal["f1", "exact_match"] = "f1"

    def __post_init__(self) -> None:
        if not self.languages or not self.finetuned:
            raise ValueError("languages or finetuned is empty; name at least one of each")
        unknown = sorted(set(self.languages) - set(ANSWER_LANGUAGES))
        if unknown:
            raise ValueError(f"MLQA has no language {', '.join(unknown)}; it has {', '.join(ANSWER_LANGUAGES)}")


@dataclass
class EvaluationRecipe:
    """A comparison: every system on every task.

    Args:
        output: folder to write. What an earlier run left there and is still valid is not computed again.
        systems: by name; see SystemRecipe.
        retrieval: tasks by name; see RetrievalTask.
        classification: tasks by name; see ClassificationTask.
        questions: tasks by name; see QuestionTask.
        published: file of published numbers to show beside ours; evaluation/published.py describes it.
        reference: the system against which the others are tested for significance. By default the last one.
        model_cards: systems whose model cards get their results (`model-index`). Each must be a folder.
        dtype: of weights and activations: float32, bfloat16, or auto, which is bfloat16 where the processor or the GPU
            multiplies it in hardware and float32 elsewhere.
    """

    output: str
    systems: dict[str, SystemRecipe]
    retrieval: dict[str, RetrievalTask] = field(default_factory=dict)
    classification: dict[str, ClassificationTask] = field(default_factory=dict)
    questions: dict[str, QuestionTask] = field(default_factory=dict)
    published: str | None = None
    reference: str | None = None
    model_cards: list[str] = field(default_factory=list)
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"

    def __post_init__(self) -> None:
        names = [*self.retrieval, *self.classification, *self.questions]
        if not names:
            raise ValueError("retrieval, classification and questions are all empty; name at least one task")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"task {name} is named twice; give the tasks of all kinds names of their own")
        for task_name, task in self.classification.items():
            if task.text_pairs and task.train_languages:
                raise ValueError(
                    f"task {task_name} has text_pairs, which have no frozen vectors; set train_languages to []"
                )
        for name in [*self.model_cards, *([self.reference] if self.reference else [])]:
            if name not in self.systems:
                raise ValueError(f"{name} is no system of this recipe; it has {', '.join(self.systems)}")
