"""Search with Chroma: a saved HMDE as the embedding function of a collection.

    pip install chromadb torch transformers sentencex
    python chroma_search.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a JSON-lines file whose lines have a "title" and a "text".
"""

import json
import sys

import chromadb
from chromadb import Documents, EmbeddingFunction, Embeddings
from transformers import AutoModel, AutoTokenizer


class HMDEFunction(EmbeddingFunction[Documents]):
    """Sends queries through the sentence encoder alone; Chroma's own function would encode them as documents."""

    def __init__(self, name: str) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
        self._model = AutoModel.from_pretrained(name, trust_remote_code=True)

    def __call__(self, input: Documents) -> Embeddings:
        return list(self._model.encode_documents(input, self._tokenizer))

    def embed_query(self, input: Documents) -> Embeddings:
        return list(self._model.encode_queries(input, self._tokenizer))


model_name, documents_file, question = sys.argv[1:]
with open(documents_file, encoding="utf-8") as lines:
    articles = [json.loads(line) for line in lines]
client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
collection = client.create_collection(
    "articles", embedding_function=HMDEFunction(model_name), configuration={"hnsw": {"space": "cosine"}}
)
collection.add(
    ids=[str(place) for place in range(len(articles))],
    documents=[article["text"] for article in articles],
    metadatas=[{"title": article["title"]} for article in articles],
)
found = collection.query(query_texts=[question], n_results=3, include=["metadatas", "distances"])

print(question)
for metadata, distance in zip(found["metadatas"][0], found["distances"][0]):
    print(f"  {1 - distance:.3f}  {metadata['title']}")
