"""Search an index with LlamaIndex: `search.Index` as its retriever.

    pip install --editable '.[search]' llama-index-core   (in a clone of the repository)
    python examples/llama_index_retriever.py MODEL DOCUMENTS QUESTION

MODEL is a saved HMDE (folder or Hub name), DOCUMENTS a folder or file that `hmde index` reads. The index is
kept in the folder `index`.
"""

import sys
from pathlib import Path
from typing import Any

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from hmde import Documents, Index


class IndexRetriever(BaseRetriever):
    def __init__(self, index: Index, **options: Any) -> None:
        """Options are those of `Index.search`, such as hits=3 and where="year > 2020"."""
        super().__init__()
        self.index, self.options = index, options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(
                node=TextNode(id_=found.id, text=found.text, metadata={**found.metadata, "title": found.title}),
                score=score,
            )
            for found, score, _ in self.index.search(query_bundle.query_str, **self.options)
        ]


model, documents, question = sys.argv[1:]
index = Index("index", model, dtype="float32")
index.update(Documents(Path(documents)))

print(question)
for found in IndexRetriever(index, hits=3, ranking="dense").retrieve(question):
    print(f"  {found.score:.3f}  {found.node.metadata['title']}")
