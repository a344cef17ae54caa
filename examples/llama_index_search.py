"""Search with LlamaIndex: a saved HMDE as its Hugging Face embedding.

    pip install llama-index-embeddings-huggingface sentencex
    python llama_index_search.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a JSON-lines file whose lines have a "title" and a "text".
"""

import json
import sys

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.embeddings.huggingface import HuggingFaceEmbedding


class HMDEEmbedding(HuggingFaceEmbedding):
    """Sends queries through the sentence encoder alone; LlamaIndex would encode them as documents."""

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._model.encode_query(query, normalize_embeddings=self.normalize).tolist()


model_name, documents_file, question = sys.argv[1:]
embedding = HMDEEmbedding(model_name=model_name, trust_remote_code=True)

with open(documents_file, encoding="utf-8") as lines:
    articles = [json.loads(line) for line in lines]
# A node is a whole document: splitting it would undo what the document encoder is for.
nodes = [TextNode(text=article["text"], metadata={"title": article["title"]}) for article in articles]
for node in nodes:
    node.excluded_embed_metadata_keys = ["title"]
index = VectorStoreIndex(nodes, embed_model=embedding)

print(question)
for found in index.as_retriever(similarity_top_k=3).retrieve(question):
    print(f"  {found.score:.3f}  {found.node.metadata['title']}")
