"""Coded sentence vectors, beside a computation number by number."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st

from hmde.index.codes import cosines, decode, encode, in_words, smallest_differences
from hmde.index.encoder import cut

LEVELS = [-2.152, -1.344, -0.7560, -0.2451, 0.2451, 0.7560, 1.344, 2.152]


def hashed_signs(size: int) -> np.ndarray:
    bits = "".join(f"{byte:08b}" for byte in hashlib.shake_128(b"signs").digest(size // 8 + 1))
    return np.array([-1.0 if bit == "1" else 1.0 for bit in bits[:size]])


def turned(difference: np.ndarray) -> np.ndarray:
    """The orthonormal cosine transform of numbers that have changed their signs."""
    return scipy.fft.dct(hashed_signs(len(difference)) * difference, norm="ortho")


def decoded_one_by_one(vector: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """The nearest levels of the numbers of a turned difference, as long as it was to the 255th part of 2."""
    difference = turned(vector.astype(float) - centre)
    length = math.sqrt(sum(number**2 for number in difference))
    scale = length / math.sqrt(len(vector))
    levels = np.array([min(LEVELS, key=lambda level: abs(level - number / scale)) for number in difference])
    coded = levels * round(length * 255 / 2) / 255 * 2 / math.sqrt(len(vector))
    result = centre + hashed_signs(len(vector)) * scipy.fft.idct(coded, norm="ortho")
    return result / math.sqrt(sum(result**2))


def unit_vectors(count: int, size: int, seed: int) -> np.ndarray:
    return cut(np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32), size)


@pytest.mark.parametrize("size", [1, 7, 8, 64, 100, 384])
def test_each_number_becomes_the_nearest_of_eight_levels(size: int) -> None:
    centre, *vectors = unit_vectors(21, size, size)
    decoded = decode(encode(np.array(vectors), centre), centre)
    assert decoded.dtype == np.float32
    differing = [place for place, vector in enumerate(vectors) if (vector != centre).any()]
    expected = [decoded_one_by_one(vectors[place], centre) for place in differing]
    np.testing.assert_allclose(decoded[differing], expected, atol=1e-3)
    found = cosines(centre, encode(np.array(vectors), centre), centre)
    np.testing.assert_allclose(found, decoded @ centre, atol=1e-5)
    assert found.dtype == np.float32


@pytest.mark.parametrize("size", [31, 32, 384])
def test_the_same_codes_have_the_same_cosine_wherever_they_stand(size: int) -> None:
    centre, query, vector = unit_vectors(3, size, seed=0)
    for count in range(2, 20):
        codes = encode(np.repeat(vector[None], count, axis=0), centre)
        assert len({*cosines(query, codes, centre).tolist()}) == 1


@given(st.integers(0, 5), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_codes_take_three_bits_a_number_and_a_byte(count: int, size: int, seed: int) -> None:
    centre, *vectors = unit_vectors(count + 1, size, seed)
    codes = encode(np.array(vectors).reshape(count, size), centre)
    width = math.ceil(size / 8)
    assert [plane.shape for plane in codes] == [(count, width), (count, 2 * width), (count, 1)]
    assert {plane.dtype for plane in codes} == {np.dtype(np.uint8)}
    np.testing.assert_allclose(np.linalg.norm(decode(codes, centre), axis=1), 1, rtol=1e-5)


def test_the_centre_itself_is_kept_as_it_is() -> None:
    (centre,) = unit_vectors(1, 24, 0)
    np.testing.assert_allclose(decode(encode(centre[None], centre), centre)[0], centre, atol=1e-6)


def test_less_is_lost_of_vectors_that_lie_near_the_centre() -> None:
    centre, *others = unit_vectors(1001, 384, 0)
    for share in (0.0, 0.5, 0.9):
        vectors = cut(share * centre + (1 - share) * np.array(others), 384)
        errors = np.square(decode(encode(vectors, centre), centre) - vectors).sum(axis=1)
        differences = np.square(vectors - centre).sum(axis=1)
        # The squared error of Max's eight levels for a normal distribution is .03454, table I. Being as long as the
        # vector leaves less of it.
        assert 0.02 < (errors / differences).mean() < 0.036


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_documents_are_ordered_by_the_dot_product_of_rounded_query_and_signs(
    counts: list[int], size: int, seed: int
) -> None:
    query, centre, *vectors = unit_vectors(2 + sum(counts), size, seed)
    difference = turned(query.astype(float) - centre)
    step = 0.586 * math.sqrt(sum(difference**2) / size) or 1
    rounded = [min(range(-7, 8, 2), key=lambda odd: abs(odd - 2 * number / step)) for number in difference]
    sentences, best = iter(vectors), []
    for count in counts:
        rows = [next(sentences) for _ in range(count)]
        products = [
            sum(r if n > 0 else -r for r, n in zip(rounded, turned(row.astype(float) - centre))) for row in rows
        ]
        best.append(max(products))
    words = in_words(encode(np.array(vectors).reshape(-1, size), centre).signs)
    found = smallest_differences(query, centre, words, np.cumsum([0, *counts])[:-1])
    # A product of size * 7 is that of no difference, and each differing bit takes twice its weight from it.
    np.testing.assert_allclose(7 * size - 2 * found.astype(int), best, atol=2)


def test_many_sentences_are_compared_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    centre, *vectors = unit_vectors(101, 64, 0)
    words, firsts = in_words(encode(np.array(vectors), centre).signs), np.arange(0, 100, 4)
    expected = smallest_differences(vectors[42], centre, words, firsts)
    monkeypatch.setattr("hmde.index.codes.SENTENCES_AT_ONCE", 7)
    assert smallest_differences(vectors[42], centre, words, firsts).tolist() == expected.tolist()
    assert expected.argmin() == 10
