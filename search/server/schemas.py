"""What requests hold, in the words of OpenAI's embeddings, and of Cohere's and Jina's reranking."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, PositiveInt

from search.options import Ranking

Text = Annotated[str, Field(min_length=1)]


class SearchRequest(BaseModel):
    query: Text
    ranking: Annotated[Ranking | None, Field(description="`late` if the index keeps sentences, else `dense`.")] = None
    languages: Annotated[list[str] | None, Field(description="Only documents in these, as ISO 639-1 codes.")] = None
    where: Annotated[
        str | None,
        Field(description="Only documents that meet this condition in SQL on metadata, id, title, language and text."),
    ] = None
    hits: Annotated[int, Field(ge=1, le=100, description="Documents, at most.")] = 5
    sentences: Annotated[int | None, Field(ge=0, description="Best sentences of each; all if not given.")] = None


class EmbeddingsRequest(BaseModel):
    input: str | Annotated[list[str], Field(min_length=1)]
    input_type: Literal["document", "query"] = "document"
    dimensions: Annotated[PositiveInt | None, Field(description="The first so many, L2-normalised again.")] = None
    encoding_format: Literal["float", "base64"] = "float"


class RerankDocument(BaseModel):
    text: str


class RerankRequest(BaseModel):
    query: Text
    documents: Annotated[list[str | RerankDocument], Field(min_length=1)]
    top_n: Annotated[PositiveInt | None, Field(description="The best so many documents; all if not given.")] = None
    return_documents: bool = False
