"""Search with ONNX Runtime, without PyTorch.

    pip install onnxruntime transformers sentencex
    python onnx_search.py MODEL DOCUMENTS QUESTION

MODEL is the folder of a saved HMDE into which `hmde export --model MODEL` has written its
exports, DOCUMENTS a JSON-lines file whose lines have a "title" and a "text".
"""

import json
import sys

import numpy as np
from onnxruntime import InferenceSession
from transformers import AutoConfig, AutoTokenizer

folder, documents_file, question = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
session = InferenceSession(f"{folder}/onnx/model.onnx")


def embed(texts: list[str], output: str, **options: bool) -> np.ndarray:
    """Vectors of unit length."""
    (vectors,) = session.run([output], tokenizer.by_passage(tokenizer(texts, **options), config))
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


with open(documents_file, encoding="utf-8") as lines:
    documents = [json.loads(line) for line in lines]
vectors = embed([document["text"] for document in documents], "document_embeddings")
if config.query_path == "document_encoder":
    (query,) = embed([question], "document_embeddings")
else:
    ((query,),) = embed([question], "sentence_embeddings", as_queries=True)
cosines = vectors @ query

print(question)
for place in cosines.argsort()[::-1][:3]:
    print(f"  {cosines[place]:.3f}  {documents[place]['title']}")
