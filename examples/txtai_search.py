"""Search with txtai: a saved HMDE by its sentence-transformers method.

    pip install txtai sentence-transformers sentencex
    python txtai_search.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a JSON-lines file whose lines have a "title" and a "text".
"""

import json
import sys

from txtai import Embeddings

model_name, documents_file, question = sys.argv[1:]
with open(documents_file, encoding="utf-8") as lines:
    documents = [json.loads(line) for line in lines]
# Without this method, txtai pools tokens itself and stops with an error: HMDE gives vectors of sentences.
embeddings = Embeddings(path=model_name, method="sentence-transformers", vectors={"trust_remote_code": True})
embeddings.index(document["text"] for document in documents)

print(question)
# txtai leaves out documents whose cosine is not above 0.
for place, cosine in embeddings.search(question, 3):
    print(f"  {cosine:.3f}  {documents[place]['title']}")
