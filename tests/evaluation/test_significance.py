"""Significance: against formulas written out."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy import stats

from evaluation.significance import paired_p_values


def values(*numbers: float) -> dict[str, float]:
    return {f"q{place}": number for place, number in enumerate(numbers)}


def test_a_p_value_is_that_of_the_paired_t_test() -> None:
    first, second = values(0.9, 0.5, 0.7, 0.4), values(0.5, 0.4, 0.6, 0.5)
    differences = [0.4, 0.1, 0.1, -0.1]
    mean = sum(differences) / 4
    deviation = math.sqrt(sum((difference - mean) ** 2 for difference in differences) / 3)
    expected = 2 * stats.t.sf(mean / (deviation / 2), df=3)
    assert paired_p_values({"en-de": first}, {"en-de": second}) == {"en-de": pytest.approx(expected)}


def test_values_of_nought_and_one_are_tested_as_any_others() -> None:
    ones = [1, 1, 1, 1, 0, 0, 0, 0]
    deviation = math.sqrt(sum((one - 0.5) ** 2 for one in ones) / 7)
    expected = 2 * stats.t.sf(0.5 / (deviation / math.sqrt(8)), df=7)
    assert paired_p_values({"a": values(*ones)}, {"a": values(*[0] * 8)}) == {"a": pytest.approx(expected)}


def test_p_values_are_corrected_for_the_number_of_rows() -> None:
    draw = np.random.default_rng(0)
    base = {row: values(*draw.random(20)) for row in ("a", "b", "c")}
    other = {row: {item: value + shift + 0.2 * draw.random() for item, value in base[row].items()}
             for row, shift in (("a", 0.5), ("b", -0.08), ("c", -0.1))}  # fmt: skip
    single = {row: paired_p_values({row: base[row]}, {row: other[row]})[row] for row in base}
    ordered = sorted(single, key=single.__getitem__)
    expected, lowest = {}, 1.0
    for rank in (3, 2, 1):
        lowest = min(lowest, single[ordered[rank - 1]] * 3 / rank)
        expected[ordered[rank - 1]] = lowest
    assert paired_p_values(base, other) == pytest.approx(expected)
    assert any(expected[row] > single[row] for row in base)


def test_equal_values_do_not_differ_and_constant_differences_surely_do() -> None:
    same = values(0.5, 0.25)
    assert paired_p_values({"a": same, "only": same}, {"a": same}) == {"a": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # SciPy's, of a variance of nought
        assert paired_p_values({"a": values(0.5, 0.75)}, {"a": values(0.25, 0.5)}) == {"a": 0.0}
    assert paired_p_values({"a": values(0.5)}, {"a": values(0.25)}) == {"a": 1.0}
    assert paired_p_values({}, {}) == {}


def test_items_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="not tested on the same items of en-de"):
        paired_p_values({"en-de": values(1, 2)}, {"en-de": values(1, 2, 3)})
