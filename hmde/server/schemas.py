"""What requests hold, in the words of OpenAI's embeddings, and of Cohere's and Jina's reranking."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, StringConstraints, model_validator

from hmde.index import Ranking
from modeling_hmde.segmentation_hmde import replace_surrogates

QUESTION_CHARACTERS = 8192
TEXTS = 2048  # as many as OpenAI takes and its clients send


def _text_of(given: Any) -> Any:
    """A text, which may come as {"text": ...}. A lone surrogate, half of a character, becomes U+FFFD."""
    text = given.get("text") if isinstance(given, dict) else given
    return replace_surrogates(text) if isinstance(text, str) else text


def _listed(given: Any) -> Any:
    """A list, of which the only text may come by itself."""
    return [given] if isinstance(given, str) else given


Query = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=QUESTION_CHARACTERS)]
Text = Annotated[str, StringConstraints(max_length=100_000), BeforeValidator(_text_of)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=TEXTS), BeforeValidator(_listed)]


class Body(BaseModel):
    """The JSON object of a request. A field that is null counts as not given: clients in other languages send all."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def without_nulls(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if value is not None}


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
    input: Texts
    input_type: Literal["document", "query"] = "document"
    dimensions: Annotated[PositiveInt | None, Field(description="The first so many, L2-normalised again.")] = None
    encoding_format: Literal["float", "base64"] = "float"


class RerankRequest(NamedModel):
    query: Query
    documents: Texts
    top_n: Annotated[PositiveInt | None, Field(description="The best so many documents; all if not given.")] = None
    return_documents: bool = False
