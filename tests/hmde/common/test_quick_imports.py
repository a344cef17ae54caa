"""The garbage collector rests while modules are imported, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from hmde.common.quick_imports import quick_imports

import pytest


@pytest.fixture(autouse=True)
def _unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_garbage_is_collected_again_after_the_imports_whether_they_succeed_or_not() -> None:
    with quick_imports():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    with pytest.raises(ImportError), quick_imports():
        raise ImportError("no such module")
    assert gc.isenabled()
