"""What the commands and `Index.search` do unless they are told otherwise, on which scripts rely."""

from __future__ import annotations

import inspect

from hmde.commands.options import QueryOptions, ServeOptions
from hmde.index.index import Index


def test_five_documents_with_two_sentences_each_are_shown() -> None:
    options = QueryOptions("index", "question")
    assert (options.hits, options.sentences) == (5, 2)
    assert inspect.signature(Index.search).parameters["hits"].default == options.hits


def test_a_server_listens_to_its_own_machine_only() -> None:
    options = ServeOptions("index")
    assert (options.host, options.port) == ("127.0.0.1", 8000)
