"""txtai: the vectors of its sentence-transformers method, and an error of each pooling of tokens that it has itself."""

import json
import sys

import pytest
from txtai import Embeddings

folder, documents_file, question = sys.argv[1:]
with open(documents_file, encoding="utf-8") as lines:
    documents = [json.loads(line) for line in lines]
texts = [document["text"] for document in documents]

for method in (None, "transformers", "meanpooling", "maxpooling", "pooling"):
    for pooled in (texts, ["One sentence."]):
        embeddings = Embeddings(path=folder, method=method, vectors={"trust_remote_code": True})
        with pytest.raises((RuntimeError, ValueError), match=r"expanded size|2 dimensional vectors"):
            embeddings.batchtransform(pooled)

embeddings = Embeddings(path=folder, method="sentence-transformers", vectors={"trust_remote_code": True})
cosines = embeddings.batchtransform(texts, "data") @ embeddings.transform(question, "query")

print(question)
for place in cosines.argsort()[::-1][:3]:
    print(f"  {cosines[place]:.3f}  {documents[place]['title']}")
