"""Whether two systems differ by more than chance. Knows values by query or document, no systems."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import stats


def paired_p_values(
    first: Mapping[str, Mapping[str, float]], second: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """The p-value of each row: the probability of a difference at least as large between equal systems. Two-sided
    paired t-tests over the items of each row, then Benjamini and Hochberg's correction for the number of rows.

    Args:
        first, second: value by row (a pair of languages) and item (a query or document). Rows that both have count.

    Raises:
        ValueError: the items of a row differ.
    """
    rows = [row for row in first if row in second]
    p_values = []
    for row in rows:
        if first[row].keys() != second[row].keys():
            raise ValueError(f"the two systems were not tested on the same items of {row}; evaluate both anew")
        differences = np.array([first[row][item] - second[row][item] for item in first[row]])
        if len(differences) < 2 or not differences.any():
            p_values.append(1.0)
        elif np.ptp(differences) == 0:  # all differ by the same, where t is infinite
            p_values.append(0.0)
        else:
            p_values.append(float(stats.ttest_1samp(differences, 0).pvalue))
    return dict(zip(rows, map(float, stats.false_discovery_control(p_values))))
