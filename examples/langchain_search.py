"""Search with LangChain: a saved HMDE as its Hugging Face embeddings.

    pip install langchain-huggingface sentence-transformers sentencex
    python langchain_search.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a JSON-lines file whose lines have a "title" and a "text".
"""

import json
import sys

from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_huggingface import HuggingFaceEmbeddings

model_name, documents_file, question = sys.argv[1:]
embeddings = HuggingFaceEmbeddings(
    model_name=model_name,
    model_kwargs={"trust_remote_code": True},
    query_encode_kwargs={"task": "query"},  # a query passes the sentence encoder alone
)

store = InMemoryVectorStore(embeddings)
with open(documents_file, encoding="utf-8") as lines:
    articles = [json.loads(line) for line in lines]
store.add_documents([Document(article["text"], metadata={"title": article["title"]}) for article in articles])

print(question)
for document, cosine in store.similarity_search_with_score(question, k=3):
    print(f"  {cosine:.3f}  {document.metadata['title']}")
