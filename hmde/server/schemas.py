"""What requests hold, in the words of OpenAI's embeddings, and of Cohere's and Jina's reranking."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PositiveInt, StringConstraints, model_validator

from hmde.index import Ranking

Query = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Body(BaseModel):
    """The JSON object of a request. A field that is null counts as not given: clients in other languages send all."""

    @model_validator(mode="before")
    @classmethod
    def known_and_not_null(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        given = {name: value for name, value in fields.items() if value is not None}
        for name in given:
            if name not in cls.model_fields:
                like = get_close_matches(name, cls.model_fields, 1)
                meant = f"did you mean {like[0]}? " if like else ""
                raise ValueError(f"{name} is no field of this request; {meant}there are {', '.join(cls.model_fields)}")
        return given


class SearchRequest(Body):
    query: Query
    ranking: Annotated[Ranking | None, Field(description="`late` if the index keeps sentences, else `dense`.")] = None
    languages: Annotated[list[str] | None, Field(description="Only documents in these, as ISO 639-1 codes.")] = None
    where: Annotated[
        str | None,
        Field(description="Only documents that meet this condition in SQL on metadata, id, title, language and text."),
    ] = None
    hits: Annotated[int, Field(ge=1, le=100, description="Documents, at most.")] = 5
    offset: Annotated[int, Field(ge=0, le=1000, description="Leave out so many of the best.")] = 0
    sentences: Annotated[int | None, Field(ge=0, description="Best sentences of each; all if not given.")] = None
    text: Annotated[bool, Field(description="With the whole text of each document.")] = False


class NamedModel(Body):
    """Fields that clients of other servers send, and that change nothing here: there is one model."""

    model: str | None = None
    user: str | None = None


class EmbeddingsRequest(NamedModel):
    input: str | Annotated[list[str], Field(min_length=1)]
    input_type: Literal["document", "query"] = "document"
    dimensions: Annotated[PositiveInt | None, Field(description="The first so many, L2-normalised again.")] = None
    encoding_format: Literal["float", "base64"] = "float"


class RerankDocument(BaseModel):
    text: str


class RerankRequest(NamedModel):
    query: Query
    documents: Annotated[list[str | RerankDocument], Field(min_length=1)]
    top_n: Annotated[PositiveInt | None, Field(description="The best so many documents; all if not given.")] = None
    return_documents: bool = False
