"""Search an index with LangChain: `search.Index` as its retriever.

    pip install --editable '.[search]' langchain-core   (in a clone of the repository)
    python examples/langchain_retriever.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a folder or file that `hmde index` reads. The index is
kept in the folder `index`.
"""

import sys
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from hmde import Documents, Index


class IndexRetriever(BaseRetriever):
    index: Any
    options: dict[str, Any]  # of `Index.search`, such as {"hits": 3, "where": "year > 2020"}

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [
            Document(found.text, id=found.id, metadata={**found.metadata, "title": found.title, "score": score})
            for found, score, _ in self.index.search(query, **self.options)
        ]


model, documents, question = sys.argv[1:]
index = Index("index", model, dtype="float32")
index.update(Documents(Path(documents)))
retriever = IndexRetriever(index=index, options={"hits": 3, "ranking": "dense"})

print(question)
for document in retriever.invoke(question):
    print(f"  {document.metadata['score']:.3f}  {document.metadata['title']}")
