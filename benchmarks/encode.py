"""How fast documents are encoded, how near that comes to what the machine can multiply, and what memory it takes.

    python -m benchmarks.encode --documents FOLDER --encoder runs/e5-small --output runs/benchmark

From texts to vectors, tokenization included. The ways to encode share one sentence encoder and dtype. A way that ends
in _float32 is the same in float32, one that ends in _tokens the same from tokens on: what is left for a GPU to do.

    hmde       encode_documents, each sentence read by itself (paper)
    passages   the same, sentences read together in passages of 512 tokens, as the recipes for CPUs have it; of fewer
               in passages_128 and passages_256
    padded     the scheme of the reference research code: every sentence padded to the longest of a batch, every
               document to the most sentences, one sentence position of all documents at a time. The same vectors.
    windows    sentence-transformers on windows of 128 tokens that overlap by a third, and their mean (paper, 3.3)
    flat       an encoder of the same sizes on the first 4,096 tokens of each document as one sequence. Speed alone: its
               positions beyond the encoder's own are untrained.

They take turns over several rounds; what is reported is the median, of ratios the median ratio within a round.
Writes results.json, with recipe and machine, and results.md, the tables.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from datasets import load_dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModel, AutoTokenizer, BatchEncoding

from common.command_line import options_from
from common.device import Dtype, device, dtype_of
from evaluation.tables import Table, environment, write_report
from modeling_hmde import HMDEForDocumentEmbedding, HMDETokenizer
from modeling_hmde.configuration_hmde import SentencePooling
from modeling_hmde.packing_hmde import bucket_by_length
from modeling_hmde.segmentation_hmde import sentence_spans

Kind = Literal["short", "mixed", "long"]
WayName = Literal[
    "hmde", "passages", "passages_128", "passages_256", "padded", "windows", "flat",
    "hmde_float32", "passages_float32", "padded_float32",
    "hmde_tokens", "passages_tokens",
]  # fmt: skip

WINDOW, FLAT, PASSAGE = 128, 4096, 512  # tokens


@dataclass
class EncodeBenchmarkRecipe:
    """What is encoded, by what, and how often.

    Args:
        documents: folder of article tables, <language>.parquet or .jsonl, with a column `text`.
        encoder: folder or Hub name of the sentence encoder.
        output: folder to write.
        pooling: how the sentence encoder's vector is read from it.
        document_prompt: put before each sentence, window or document.
        kinds: documents measured: `short`, the shortest quarter; `long`, the longest; `mixed`, all.
        num_documents: of each kind, drawn by a fixed seed.
        max_sentences: each document is cut to so many, for all systems.
        sentences: how many sentences a single document has whose time is measured; `flat` reads 4,096 tokens of it.
        systems: ways to encode that are compared, hmde among them.
        dtype: of weights and activations of all ways that do not say float32; auto is bfloat16 where the hardware
            multiplies it.
        batch_size: documents together in `padded`, windows together in `windows`: sentence-transformers' default.
        rounds: how often each system has its turn.
        threads: of a processor; 0 for as many as torch takes.
    """

    documents: str
    encoder: str
    output: str
    pooling: SentencePooling = "mean"
    document_prompt: str = "passage: "
    kinds: list[Kind] = field(default_factory=lambda: ["short", "mixed", "long"])
    num_documents: int = 48
    max_sentences: int = 32
    sentences: list[int] = field(default_factory=lambda: [1, 8, 32, 128, 512])
    systems: list[WayName] = field(default_factory=lambda: ["hmde", "passages", "padded", "windows", "flat"])
    dtype: Dtype = "auto"
    batch_size: int = 32
    rounds: int = 3
    threads: int = 0

    def __post_init__(self) -> None:
        if "hmde" not in self.systems:
            raise ValueError(f"systems is {self.systems}; the others are compared with hmde, so name it too")
        if min(self.rounds, self.num_documents, self.batch_size) < 1:
            raise ValueError("rounds, num_documents and batch_size must be at least 1")


@dataclass
class Document:
    text: str
    language: str


@dataclass
class Way:
    """A way to encode documents.

    Args:
        encode: documents -> (documents, hidden).
        work: documents -> the real tokens and the floating point operations that these take.
        dtype: of weights and activations.
    """

    encode: Callable[[Sequence[Document]], np.ndarray]
    work: Callable[[Sequence[Document]], tuple[int, float]]
    dtype: torch.dtype


@dataclass
class Measured:
    """One turn of one way to encode."""

    seconds: float
    tokens: int
    utilisation: float  # operations of real tokens a second, over the peak measured just before
    memory: float  # MiB above what was held before

    @classmethod
    def turn(cls, way: Way, documents: Sequence[Document]) -> Measured:
        peak = matmul_peak(way.dtype)
        tokens, operations = way.work(documents)
        before = reset_peak_memory()
        began = time.perf_counter()
        way.encode(documents)
        seconds = time.perf_counter() - began
        return cls(seconds, tokens, operations / seconds / peak, (peak_memory() - before) / 2**20)


def main(argv: list[str] | None = None) -> None:
    recipe = options_from(EncodeBenchmarkRecipe, argv)
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    print(environment())
    documents = read_documents(Path(recipe.documents))
    sets = {kind: draw(documents, kind, recipe) for kind in recipe.kinds}
    one_document = {str(count): [first_sentences(documents, count)] for count in recipe.sentences}
    with torch.no_grad():
        ways: dict[str, Way] = {name: load_way(name, recipe) for name in recipe.systems}
        for way in ways.values():
            way.encode(one_document[str(min(recipe.sentences))])  # first calls prepare what later ones use
        turns = measure(ways, sets | one_document, recipe)
        cosines = {kind: lowest_cosine(ways, sets[kind]) for kind in sets} if "padded" in ways else {}
    results = {
        "lowest_cosine_to_padded": cosines,
        "turns": {
            name: {row: [asdict(turn) for turn in of_row] for row, of_row in of.items()} for name, of in turns.items()
        },
    }
    write_report(Path(recipe.output), asdict(recipe), results, tables(turns, recipe))
    if cosines:
        print(f"Lowest cosine of hmde and padded: {min(cosines.values()):.6f}")


def measure(
    ways: dict[str, Way], sets: dict[str, list[Document]], recipe: EncodeBenchmarkRecipe
) -> dict[str, dict[str, list[Measured]]]:
    """By way and set of documents, its turns in the order of the rounds."""
    turns: dict[str, dict[str, list[Measured]]] = {name: {row: [] for row in sets} for name in ways}
    for _ in range(recipe.rounds):
        for row, documents in sets.items():
            for name, way in ways.items():
                turns[name][row].append(Measured.turn(way, documents))
    return turns


def tables(turns: dict[str, dict[str, list[Measured]]], recipe: EncodeBenchmarkRecipe) -> list[Table]:
    kinds, lengths = recipe.kinds, [str(count) for count in recipe.sentences]

    def table(title: str, row_name: str, rows: Sequence[str], value: Callable[[Measured, Measured], float]) -> Table:
        """The median over the rounds of `value(turn, turn of hmde in the same round)`."""
        scores = {
            name: {row: statistics.median(map(value, of_way[row], turns["hmde"][row])) for row in rows}
            for name, of_way in turns.items()
        }
        dtype = str(dtype_of(recipe.dtype)).removeprefix("torch.")
        return Table(f"{title}, {dtype} where a name does not say float32", row_name, scores)

    return [
        table("Documents a second", "documents", kinds, lambda turn, _: recipe.num_documents / turn.seconds),
        table("How many times as long as hmde", "documents", kinds, lambda turn, hmde: turn.seconds / hmde.seconds),
        table("Thousand real tokens a second", "documents", kinds, lambda turn, _: turn.tokens / turn.seconds / 1000),
        table(
            "Share of the matrix multiplication peak, real tokens only",
            "documents",
            kinds,
            lambda turn, _: turn.utilisation,
        ),
        table(
            "Memory in MiB above the model",
            "documents, or sentences of one",
            [*kinds, *lengths],
            lambda turn, _: turn.memory,
        ),
        table("Milliseconds of one document", "sentences", lengths, lambda turn, _: 1000 * turn.seconds),
    ]


# --- documents -------------------------------------------------------------------------------------------------------


def read_documents(folder: Path) -> list[Document]:
    """All documents of a folder of article tables, shuffled by a fixed seed.

    Raises:
        ValueError: there is no table in it, or one without a column `text`.
    """
    files = sorted([*folder.glob("*.parquet"), *folder.glob("*.jsonl")])
    if not files:
        raise ValueError(f"{folder} has no <language>.parquet or <language>.jsonl; give a folder of article tables")
    documents = []
    for file in files:
        builder = "parquet" if file.suffix == ".parquet" else "json"
        rows = load_dataset(builder, data_files=str(file), split="train")
        if "text" not in rows.column_names:
            raise ValueError(f"{file} has no column text, only {', '.join(rows.column_names)}")
        documents += [Document(text, file.stem) for text in rows["text"]]
    random.Random(0).shuffle(documents)
    return documents


def draw(documents: Sequence[Document], kind: Kind, recipe: EncodeBenchmarkRecipe) -> list[Document]:
    """Documents of a kind, each cut to its first sentences."""
    by_length = sorted(documents, key=lambda document: len(document.text))
    quarter = len(by_length) // 4
    among = {"short": by_length[:quarter], "mixed": by_length, "long": by_length[-quarter:]}[kind]
    if len(among) < recipe.num_documents:
        raise ValueError(f"num_documents is {recipe.num_documents}, but only {len(among)} are {kind}; ask for fewer")
    cut = []
    for document in random.Random(0).sample(among, recipe.num_documents):
        spans = islice(sentence_spans(document.text, document.language), recipe.max_sentences)
        cut.append(Document(document.text[: max(end for _, end in spans)], document.language))
    return cut


def first_sentences(documents: Sequence[Document], count: int) -> Document:
    """One document of so many sentences, one a line, which are the lines of several documents."""
    lines = (line for document in documents for line in document.text.split("\n") if 20 < len(line) < 200)
    return Document("\n".join(line.replace(".", ",") for line in islice(lines, count)), "en")


# --- ways to encode --------------------------------------------------------------------------------------------------


def load_way(name: WayName, recipe: EncodeBenchmarkRecipe) -> Way:
    """A way to encode by its name; see the module's description."""
    if name.endswith("_float32"):
        recipe = replace(recipe, dtype="float32")
    loaders: dict[str, Callable[[EncodeBenchmarkRecipe], Way]] = {
        "hmde": by_hmde,
        "hmde_tokens": partial(by_hmde, from_tokens=True),
        "passages": partial(by_hmde, passage_length=PASSAGE),
        "passages_128": partial(by_hmde, passage_length=128),
        "passages_256": partial(by_hmde, passage_length=256),
        "passages_tokens": partial(by_hmde, passage_length=PASSAGE, from_tokens=True),
        "padded": by_padded_scheme,
        "windows": by_windows,
        "flat": by_flat_encoder,
    }
    return loaders[name.removesuffix("_float32")](recipe)


def untrained_hmde(
    recipe: EncodeBenchmarkRecipe, **options: str | int
) -> tuple[HMDEForDocumentEmbedding, HMDETokenizer]:
    model = HMDEForDocumentEmbedding.from_sentence_encoder(
        recipe.encoder,
        dtype=dtype_of(recipe.dtype),
        sentence_pooling=recipe.pooling,
        document_norm="pre",
        max_sentences=max(recipe.max_sentences, *recipe.sentences),
        **options,
    )
    tokenizer = HMDETokenizer.from_sentence_encoder(
        recipe.encoder,
        max_sentences=max(recipe.max_sentences, *recipe.sentences),
        sentence_prompt=recipe.document_prompt,
    )
    return model.to(device()), tokenizer  # type: ignore[arg-type]


class RememberedTokens:
    """A tokenizer that has each document's tokens ready after the first time. In all else it is the tokenizer."""

    def __init__(self, tokenizer: HMDETokenizer) -> None:
        self.tokenizer = tokenizer
        self.rows: dict[tuple[str, str], list[int]] = {}

    def __call__(self, texts: list[str], language: Sequence[str]) -> BatchEncoding:
        keys = list(zip(texts, language))
        new = list(dict.fromkeys(key for key in keys if key not in self.rows))
        if new:
            new_texts, languages = zip(*new)
            self.rows |= zip(new, self.tokenizer(list(new_texts), language=list(languages)).input_ids)
        return BatchEncoding({"input_ids": [self.rows[key] for key in keys]})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


def by_hmde(recipe: EncodeBenchmarkRecipe, passage_length: int = 0, from_tokens: bool = False) -> Way:
    model, tokenizer = untrained_hmde(recipe, passage_length=passage_length)
    if from_tokens:  # the work is counted before the time, so that the tokens are there when they are asked for
        tokenizer = RememberedTokens(tokenizer)  # type: ignore[assignment]

    def encode(documents: Sequence[Document]) -> np.ndarray:
        texts, languages = [document.text for document in documents], [document.language for document in documents]
        return model.encode_documents(texts, tokenizer, language=languages)

    return Way(encode, lambda documents: hierarchical_work(model, tokenizer, documents), model.dtype)


def by_padded_scheme(recipe: EncodeBenchmarkRecipe) -> Way:
    model, tokenizer = untrained_hmde(recipe, attn_implementation="sdpa")
    sentence_encoder, document_encoder = model.hmde.sentence_encoder, model.hmde.document_encoder

    def sentence_vectors(ids: Tensor, mask: Tensor) -> Tensor:
        """(documents, tokens) twice, one sentence of each document -> (documents, hidden)."""
        output = sentence_encoder(input_ids=ids, attention_mask=mask)
        if recipe.pooling == "pooler":
            return output.pooler_output
        states, mask = output.last_hidden_state, mask.unsqueeze(-1)
        return states[:, 0] if recipe.pooling == "cls" else (states * mask).sum(dim=1) / mask.sum(dim=1)

    def encode(documents: Sequence[Document]) -> np.ndarray:
        vectors = []
        for first in range(0, len(documents), recipe.batch_size):
            batch = laid_out(tokenizer, documents[first : first + recipe.batch_size])
            ids, lengths = (torch.from_numpy(part).to(model.device) for part in batch.values())
            ids[:, :, 0] = tokenizer.start_token_id  # stands alone where a document has no sentence
            mask = (ids != tokenizer.pad_token_id).long()
            # One sentence position of all documents at a time.
            sentences = [sentence_vectors(ids[:, index], mask[:, index]) for index in range(ids.shape[1])]
            _, embeddings = document_encoder(torch.stack(sentences, dim=1), lengths)
            vectors.append(nn.functional.normalize(embeddings.float(), dim=-1).cpu())
        return torch.cat(vectors).numpy()

    return Way(encode, lambda documents: hierarchical_work(model, tokenizer, documents), model.dtype)


def by_windows(recipe: EncodeBenchmarkRecipe) -> Way:
    model = SentenceTransformer(recipe.encoder, device=device(), model_kwargs={"dtype": dtype_of(recipe.dtype)})
    model.max_seq_length = WINDOW
    encoder: Any = model[0].auto_model
    tokenizer = model.tokenizer
    special = len(tokenizer(recipe.document_prompt).input_ids)

    def windows(documents: Sequence[Document]) -> Iterator[list[str]]:
        room = WINDOW - special
        texts = [document.text for document in documents]
        for text, offsets in zip(
            texts, tokenizer(texts, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
        ):
            firsts = range(0, max(len(offsets) - room // 3, 1), room - room // 3)
            parts = [offsets[first : first + room] for first in firsts]
            yield [text[part[0][0] : part[-1][1]] if part else "" for part in parts]

    def encode(documents: Sequence[Document]) -> np.ndarray:
        of_documents = list(windows(documents))
        vectors = model.encode(
            [window for of_document in of_documents for window in of_document],
            prompt=recipe.document_prompt,
            batch_size=recipe.batch_size,
            show_progress_bar=False,
        )
        bounds = np.cumsum([len(of_document) for of_document in of_documents])[:-1]
        return np.stack([part.mean(axis=0) for part in np.split(vectors, bounds)])

    def work(documents: Sequence[Document]) -> tuple[int, float]:
        texts = [recipe.document_prompt + window for of_document in windows(documents) for window in of_document]
        lengths = [min(len(ids), WINDOW) for ids in tokenizer(texts).input_ids]
        return sum(lengths), operations(encoder, lengths)

    return Way(encode, work, dtype_of(recipe.dtype))


def by_flat_encoder(recipe: EncodeBenchmarkRecipe) -> Way:
    config = AutoConfig.from_pretrained(recipe.encoder, max_position_embeddings=FLAT + 2)
    loading = {"dtype": dtype_of(recipe.dtype), "attn_implementation": "sdpa", "ignore_mismatched_sizes": True}
    model = AutoModel.from_pretrained(recipe.encoder, config=config, **loading).to(device()).eval()
    tokenizer = AutoTokenizer.from_pretrained(recipe.encoder)

    def tokenize(documents: Sequence[Document]) -> list[list[int]]:
        texts = [recipe.document_prompt + document.text for document in documents]
        return tokenizer(texts, truncation=True, max_length=FLAT).input_ids

    def encode(documents: Sequence[Document]) -> np.ndarray:
        rows = tokenize(documents)
        buckets = bucket_by_length(torch.tensor([len(row) for row in rows]), FLAT)
        vectors = []
        for bucket in buckets:
            ids = pad_sequence([torch.tensor(rows[index]) for index in bucket], True, tokenizer.pad_token_id).to(
                device()
            )
            mask = ids != tokenizer.pad_token_id
            states = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
            vectors.append(((states * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)).float().cpu())
        return nn.functional.normalize(torch.cat(vectors)[torch.cat(buckets).argsort()], dim=-1).numpy()

    def work(documents: Sequence[Document]) -> tuple[int, float]:
        lengths = [len(row) for row in tokenize(documents)]
        return sum(lengths), operations(model, lengths)

    return Way(encode, work, dtype_of(recipe.dtype))


def laid_out(tokenizer: HMDETokenizer, documents: Sequence[Document], passage_length: int = 0) -> dict[str, np.ndarray]:
    """See `HMDETokenizer.by_passage`."""
    rows = tokenizer([document.text for document in documents], language=[document.language for document in documents])
    return tokenizer.by_passage(rows.input_ids, passage_length)


def lowest_cosine(ways: dict[str, Way], documents: Sequence[Document]) -> float:
    return float((ways["hmde"].encode(documents) * ways["padded"].encode(documents)).sum(axis=1).min())


# --- work, speed and memory ------------------------------------------------------------------------------------------


def hierarchical_work(
    model: HMDEForDocumentEmbedding, tokenizer: HMDETokenizer, documents: Sequence[Document]
) -> tuple[int, float]:
    inputs = laid_out(tokenizer, documents, model.config.passage_length)
    tokens = (inputs["input_ids"] != tokenizer.pad_token_id).sum(axis=2).ravel().tolist()
    states = (1 + (inputs["sentence_lengths"] > 0).sum(axis=1)).tolist()
    work = operations(model.hmde.sentence_encoder, tokens) + operations(model.hmde.document_encoder, states)
    return sum(tokens), work


def operations(encoder: nn.Module, lengths: Sequence[int]) -> float:
    """Additions and multiplications of a transformer's matrix products over sequences of so many real tokens."""
    weights = sum(module.weight.numel() for module in encoder.modules() if isinstance(module, nn.Linear))
    config: Any = encoder.config
    layers = max(len(part) for part in encoder.modules() if isinstance(part, nn.ModuleList))
    return 2 * weights * sum(lengths) + 4 * config.hidden_size * layers * sum(length**2 for length in lengths)


def matmul_peak(dtype: torch.dtype) -> float:
    """Operations a second of the fastest of a few matrix products: of large square matrices, and of the states of many
    tokens with the weights of small and base-sized encoders.

    On a GPU several products are timed together, or the time to start one would count.
    """
    if device() == "cuda":
        at_once, rounds = 10, 5
        sizes = [(4096, 4096, 4096), (8192, 8192, 8192), (65_536, 384, 1536), (65_536, 768, 3072)]
    else:
        at_once, rounds = 1, 2
        sizes = [(1024, 1024, 1024), (2048, 2048, 2048), (4096, 384, 1536), (4096, 768, 3072)]
    best = 0.0
    for rows, inner, columns in sizes:
        states = torch.randn(rows, inner, device=device()).to(dtype)
        weights = torch.randn(columns, inner, device=device()).to(dtype)
        for _ in range(rounds):
            synchronize()
            began = time.perf_counter()
            for _ in range(at_once):
                states @ weights.T
            synchronize()
            best = max(best, at_once * 2 * rows * inner * columns / (time.perf_counter() - began))
    return best


def synchronize() -> None:
    if device() == "cuda":
        torch.cuda.synchronize()


def reset_peak_memory() -> int:
    """Begins to record the highest memory anew, and returns what is held now, in bytes."""
    if device() == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    ctypes.CDLL(None).malloc_trim(0)  # what earlier systems freed counts for nobody
    Path("/proc/self/clear_refs").write_text("5")
    return status_bytes("VmRSS")


def peak_memory() -> int:
    return torch.cuda.max_memory_allocated() if device() == "cuda" else status_bytes("VmHWM")


def status_bytes(name: str) -> int:
    """A line of Linux's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main()
