"""Encode a collection with Ray Data: each worker loads the model once.

    pip install torch transformers sentencex 'ray[data]'
    python ray_encode.py MODEL DOCUMENTS OUTPUT WORKERS

MODEL is a saved HMDE (folder or Hub name). DOCUMENTS and OUTPUT are folders of Parquet, which may lie in an object
store (s3://bucket/folder): `id`, `text` and `language` become `id` and `embedding`.
"""

import sys

import numpy as np
import ray
from transformers import AutoModel, AutoTokenizer


class Encoder:
    def __init__(self, name: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
        self.model = AutoModel.from_pretrained(name, trust_remote_code=True)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        languages = list(batch["language"])
        embeddings = self.model.encode_documents(list(batch["text"]), self.tokenizer, language=languages)
        return {"id": batch["id"], "embedding": embeddings}


if __name__ == "__main__":
    model, documents, output, workers = sys.argv[1:]
    rows = ray.data.read_parquet(documents).select_columns(["id", "text", "language"])
    pool = ray.data.ActorPoolStrategy(size=int(workers))
    # Half a CPU for each worker: if they had all CPUs, they would wait without end for the tasks that read and write.
    # With GPUs, add num_gpus=1 and move the model there.
    encoded = rows.map_batches(Encoder, fn_constructor_args=[model], batch_size=32, compute=pool, num_cpus=0.5)
    encoded.write_parquet(output)
