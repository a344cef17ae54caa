"""Sentence vectors as an index keeps them: three bits a number, 145 bytes for 384 numbers.

All vectors of a model share a direction, in which they do not differ. So what is coded is a vector's difference from a
centre, which is one of them. Its numbers may differ much in size, as those of principal components do. So it is turned:
the numbers of a cosine transform, taken after half of the signs have changed, are sums of all and have about the same
size (Ailon and Chazelle, "Approximate Nearest Neighbors and the Fast Johnson-Lindenstrauss Transform", STOC 2006).
Scaled so that the mean of their squares is 1, they lie about as a normal distribution has them, and each becomes the
nearest of the eight levels that lose least of such a distribution (Max, "Quantizing for Minimum Distortion", IRE
Transactions on Information Theory, 1960). The sign of a number takes one bit, its magnitude two, and the length of the
difference a byte.

The signs stand apart, because they alone tell nearly which vectors are near to a query (Charikar, "Similarity
Estimation Techniques from Rounding Algorithms", STOC 2002). To compare them takes about fifteen nanoseconds a vector,
so that a query is compared with all sentences of an index.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import NamedTuple

import numpy as np

# What the magnitudes of numbers become, and the limits between them.
MAGNITUDES = np.array([0.2451, 0.7560, 1.344, 2.152], np.float32)
LIMITS = (MAGNITUDES[1:] + MAGNITUDES[:-1]) / 2
LEVELS = np.concatenate([-MAGNITUDES, MAGNITUDES])

# The step between eight equally distant levels that lose least, for the numbers of a query (Max, table II).
QUERY_STEP = 0.5860

# Sentences whose signs are compared at once: few enough for the cache of a processor.
SENTENCES_AT_ONCE = 2**16

# The length of a difference in one byte; two vectors of length 1 differ by 2 at most.
STEPS = 255 / 2


class Codes(NamedTuple):
    """Coded vectors.

    Args:
        signs: (vectors, size / 8), uint8, a bit for each number of a turned difference: 1 where it is positive.
        magnitudes: (vectors, size / 4), uint8, the high bits of all magnitudes, then their low bits.
        lengths: (vectors, 1), uint8.
    """

    signs: np.ndarray
    magnitudes: np.ndarray
    lengths: np.ndarray


def encode(vectors: np.ndarray, centre: np.ndarray) -> Codes:
    """Codes of vectors (vectors, size) by a centre (size,), all L2-normalised. Bits fill up a size that is no multiple
    of 8."""
    differences = (vectors - centre) @ turn(len(centre))
    lengths = np.linalg.norm(differences, axis=1, keepdims=True)
    magnitudes = np.abs(differences) / _scale(differences)
    levels = sum((magnitudes > limit).view(np.uint8) for limit in LIMITS)
    signs, high, low = (np.packbits(bits, axis=1) for bits in (differences > 0, levels & 2, levels & 1))
    return Codes(signs, np.hstack([high, low]), (STEPS * lengths).round().astype(np.uint8))


def decode(codes: Codes, centre: np.ndarray) -> np.ndarray:
    """(vectors, size), float32, L2-normalised: what is left of vectors after `encode`."""
    return _turned_vectors(codes, centre) @ turn(len(centre)).T


def cosines(query: np.ndarray, codes: Codes, centre: np.ndarray) -> np.ndarray:
    """(vectors,), float32: of a query (size,), L2-normalised, with what `decode` gives. It is the query that is turned,
    in a third of the time."""
    return cosines_of(_turned_vectors(codes, centre), query @ turn(len(centre)))


def cosines_of(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """(vectors,): of a query (size,) with vectors (vectors, size), all L2-normalised. Equal vectors have equal cosines,
    wherever they stand, which a matrix product (`@`) does not promise."""
    return np.einsum("vs,s->v", vectors, query)


def _turned_vectors(codes: Codes, centre: np.ndarray) -> np.ndarray:
    size, half = len(centre), codes.magnitudes.shape[1] // 2
    levels = np.zeros((len(codes.signs), size), np.uint8)
    for plane in (codes.signs, codes.magnitudes[:, :half], codes.magnitudes[:, half:]):
        levels = 2 * levels + np.unpackbits(plane, axis=1, count=size)
    vectors = centre @ turn(size) + LEVELS[levels] * (codes.lengths / np.float32(STEPS * size**0.5))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@cache
def turn(size: int) -> np.ndarray:
    """(size, size), float32, orthogonal and always the same: what a difference is multiplied by before it is coded."""
    places = np.arange(size)
    cosines = np.cos(np.pi / size * np.outer(places + 0.5, places)) * (2 / size) ** 0.5
    cosines[:, 0] /= 2**0.5
    bits = np.frombuffer(hashlib.shake_128(b"signs").digest(-(-size // 8)), np.uint8)
    signs = 1.0 - 2 * np.unpackbits(bits, count=size)
    return (signs[:, None] * cosines).astype(np.float32)


def in_words(signs: np.ndarray) -> np.ndarray:
    """(vectors, bytes) -> (words, vectors), uint64: signs as `smallest_differences` compares them. The same 64 signs of
    all vectors follow one another, which is what processors read fastest."""
    words = np.zeros((-(-signs.shape[1] // 8), len(signs), 8), np.uint8)
    for number, word in enumerate(words):
        part = signs[:, 8 * number : 8 * number + 8]
        word[:, : part.shape[1]] = part
    return words.view(np.uint64)[..., 0]


def smallest_differences(query: np.ndarray, centre: np.ndarray, words: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """How much a query differs from that sentence of a document whose signs are most like it.

    The numbers of the query's turned difference are rounded to three bits. For each k from 0 to 2, the places are
    counted in which bit k differs from the sign of the sentence, and the counts, each times 2 ** k, are added up. The
    sum falls as the dot product of the rounded query and the signs, 1 and -1, rises.

    Args:
        query, centre: (size,), L2-normalised.
        words: (words, sentences), uint64, by `in_words`, of all documents.
        firsts: (documents,), the place of each document's first sentence; each document has one at least.

    Returns:
        (documents,), uint16, which holds the sum of vectors of up to 9,362 numbers.
    """
    difference = (query - centre) @ turn(len(centre))
    numbers = np.clip(np.floor(difference / (QUERY_STEP * _scale(difference))) + 4, 0, 7).astype(np.uint8)
    planes = [in_words(np.packbits(numbers & bit)[None]) for bit in (4, 2, 1)]
    sums = np.zeros(words.shape[1], np.uint16)
    for first in range(0, len(sums), SENTENCES_AT_ONCE):
        block = slice(first, first + SENTENCES_AT_ONCE)
        for plane in planes:
            sums[block] *= 2
            for word, query_word in zip(words[:, block], plane):
                sums[block] += np.bitwise_count(word ^ query_word)
    return np.minimum.reduceat(sums, firsts)


def _scale(differences: np.ndarray) -> np.ndarray:
    """(..., 1), the root of the mean square of the numbers of differences (..., size), and never zero."""
    mean = np.square(differences).mean(axis=-1, keepdims=True)
    return np.maximum(np.sqrt(mean), np.finfo(np.float32).tiny)
