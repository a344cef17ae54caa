"""A teacher, and the vectors that it gives to texts, which are computed once for all epochs, runs and students."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from hmde.common.device import dtype_of
from hmde.common.files import locked
from hmde.common.fingerprints import fingerprint, fingerprint_of_code, fingerprint_of_model
from hmde.common.saved_models import check_is_hmde, load_hmde
from training.data.kinds import DOCUMENTS, SENTENCES, Kind
from training.encoder import TwoPathEncoder
from training.loop.cached_gradients import Chunk, Embeddings, Rows, embed_in_chunks
from training.losses.loss import Start


class Teacher:
    """An HMDE that keeps the vectors it has made in a file of SQLite, in float16, which processes and runs may share.
    One that is killed loses the vectors of its last batch.

    Args:
        encoder: it is not trained.
        file: for the vectors of this encoder alone.
        max_tokens: to encode at once.
    """

    def __init__(self, encoder: TwoPathEncoder, file: Path, max_tokens: int) -> None:
        self.encoder = encoder
        self.max_tokens = max_tokens
        with locked(file):  # SQLite does not wait for another process that sets the journal mode
            self.database = sqlite3.connect(file, timeout=600)
            self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("CREATE TABLE IF NOT EXISTS vectors (row BLOB PRIMARY KEY, vectors BLOB)")

    def __call__(self, batch: Chunk) -> Embeddings:
        """What the encoder makes of a batch: float32, without gradient."""
        keys = {kind: keys_of(kind, rows) for kind, rows in batch.items()}
        kept = self._read({*chain(*keys.values())})
        lacking: Chunk = {}
        for kind, rows in batch.items():
            new = list({key: row for row, key in enumerate(keys[kind]) if key not in kept}.values())
            if new:
                lacking[kind] = {part: tensor[new] for part, tensor in rows.items()}
        if lacking:
            kept |= self._make(lacking)
        device = self.encoder.model.device
        embeddings = {
            kind: torch.from_numpy(np.stack([kept[key][0] for key in keys_of_kind])).to(device).float()
            for kind, keys_of_kind in keys.items()
        }
        sentences = [torch.tensor(kept[key][1:]) for key in keys[DOCUMENTS]]
        return embeddings | {SENTENCES: pad_sequence(sentences, batch_first=True).to(device).float()}

    def _make(self, lacking: Chunk) -> dict[bytes, np.ndarray]:
        """Encode rows, and write their vectors to the file."""
        embeddings = embed_in_chunks(self.encoder, lacking, self.max_tokens)
        made: dict[bytes, np.ndarray] = {}
        for kind, rows in lacking.items():
            vectors = embeddings[kind].unsqueeze(1)
            if kind == DOCUMENTS:
                vectors = torch.cat([vectors, embeddings[SENTENCES]], dim=1)
            made |= {
                key: vectors_of_row[vectors_of_row.any(dim=1)].numpy()
                for key, vectors_of_row in zip(keys_of(kind, rows), vectors.half().cpu())
            }
        with self.database:
            values = ((key, vectors.tobytes()) for key, vectors in made.items())
            self.database.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", values)
        return made

    def _read(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:
        """The stored vectors of each row (1 + sentences, hidden), float16: its own first; behind that of a document,
        those of its sentences."""
        kept = {}
        for key in keys:
            for (value,) in self.database.execute("SELECT vectors FROM vectors WHERE row = ?", (key,)):
                kept[key] = np.frombuffer(value, np.float16).reshape(-1, self.encoder.model.config.hidden_size)
        return kept


def keys_of(kind: Kind, rows: Rows) -> list[bytes]:
    """A key for each row: a hash of how it is read, its tokens, and the sentences that they are in."""
    real = rows["attention_mask"].bool()
    columns = [rows[part] for part in ("input_ids", "sentence_ids")]
    texts = [[column[row][real[row]].cpu().numpy().tobytes() for column in columns] for row in range(len(real))]
    return [hashlib.sha256(b"".join([" ".join(kind).encode(), *text])).digest() for text in texts]


def load_teacher(name: str, start: Start) -> Teacher:
    """An HMDE whose vectors a student learns. It is not trained, and has the dtype that is fastest.

    Args:
        name: Hub name or folder.
        start: the student, and where the triples lie: the file of the vectors goes into `<folder>-teacher-vectors`.

    Raises:
        ValueError: there is no such HMDE, or student and teacher differ in their tokens or in the size of vectors.
    """
    check_is_hmde("teacher", name)
    dtype = dtype_of("auto")
    model, own_tokenizer = load_hmde(name, dtype)
    size, teacher_size = start.model.config.hidden_size, model.config.hidden_size
    if size != teacher_size:
        raise ValueError(f"vectors of the teacher {name} have {teacher_size} values and those of the student {size}")
    if own_tokenizer.get_vocab() != start.tokenizer.get_vocab():
        raise ValueError(f"the teacher {name} has other tokens than the student; start the student from the teacher")
    encoder = TwoPathEncoder(model, sentences=True).requires_grad_(False).eval().to(start.device)
    file = f"{fingerprint(fingerprint_of_code(), fingerprint_of_model(name), dtype)}.sqlite"
    return Teacher(encoder, Path(f"{start.folder}-teacher-vectors", file), start.max_tokens)
