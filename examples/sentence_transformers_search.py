"""Search with sentence-transformers.

    pip install sentence-transformers sentencex
    python sentence_transformers_search.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a JSON-lines file whose lines have a "title" and a "text".
"""

import json
import sys

from sentence_transformers import SentenceTransformer

model_name, documents_file, question = sys.argv[1:]
model = SentenceTransformer(model_name, trust_remote_code=True)

with open(documents_file, encoding="utf-8") as lines:
    documents = [json.loads(line) for line in lines]
vectors = model.encode_document([document["text"] for document in documents])
cosines = model.similarity(model.encode_query(question), vectors)[0]

print(question)
for place in cosines.argsort(descending=True)[:3]:
    print(f"  {cosines[place]:.3f}  {documents[place]['title']}")
