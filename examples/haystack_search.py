"""Search with Haystack: a saved HMDE in its sentence-transformers embedders.

    pip install sentence-transformers-haystack sentencex
    python haystack_search.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a JSON-lines file whose lines have a "title" and a "text".
"""

import json
import sys

from haystack import Document
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack_integrations.components.embedders.sentence_transformers import (
    SentenceTransformersDocumentEmbedder,
    SentenceTransformersTextEmbedder,
)

model_name, documents_file, question = sys.argv[1:]
document_embedder = SentenceTransformersDocumentEmbedder(model=model_name, trust_remote_code=True, progress_bar=False)
query_embedder = SentenceTransformersTextEmbedder(
    model=model_name,
    trust_remote_code=True,
    progress_bar=False,
    encode_kwargs={"task": "query"},  # a query passes the sentence encoder alone
)
for embedder in (document_embedder, query_embedder):
    embedder.warm_up()

with open(documents_file, encoding="utf-8") as lines:
    articles = [json.loads(line) for line in lines]
documents = [Document(content=article["text"], meta={"title": article["title"]}) for article in articles]
store = InMemoryDocumentStore(embedding_similarity_function="cosine")
store.write_documents(document_embedder.run(documents)["documents"])
retriever = InMemoryEmbeddingRetriever(store, top_k=3)

print(question)
for document in retriever.run(query_embedder.run(question)["embedding"])["documents"]:
    print(f"  {document.score:.3f}  {document.meta['title']}")
