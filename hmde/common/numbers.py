"""Types of options that are numbers in a range. The command line refuses other values and names the option."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # to a type checker they are plain numbers
    PositiveInt = int
    NonNegativeInt = int
    PositiveFloat = float
    NonNegativeFloat = float
    Share = float
    Seed = int
else:
    from jsonargparse.typing import (
        NonNegativeFloat,
        NonNegativeInt,
        PositiveFloat,
        PositiveInt,
        restricted_number_type,
    )

    Share = restricted_number_type("Share", float, [(">=", 0), ("<", 1)])  # a part that is never the whole
    Seed = restricted_number_type("Seed", int, [(">=", 0), ("<", 2**32)])  # what NumPy takes

__all__ = ["NonNegativeFloat", "NonNegativeInt", "PositiveFloat", "PositiveInt", "Seed", "Share"]
