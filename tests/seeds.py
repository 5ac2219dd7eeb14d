"""How many random problems the tests try.

The test command takes about a quarter of the seeds. With the environment variable
`NEST_OPT_ALL_SEEDS` set to anything, all are taken, which takes three times as long.
"""

import os
from collections.abc import Iterable

import pytest

ALL_SEEDS = bool(os.environ.get("NEST_OPT_ALL_SEEDS"))


def thinned(seeds: Iterable[int]) -> list[int]:
    """Return the seeds that this run takes.

    Knuth's multiplicative hash picks them, since generators of problems choose by what is left
    when a seed is divided: every third seed might have one objective alone.
    """
    return [seed for seed in seeds if ALL_SEEDS or seed * 2654435761 % 2**32 < 2**30]


def enough(occurrences: int) -> int:
    """Return how often this run must see what all seeds show so often, at least once."""
    return occurrences if ALL_SEEDS else max(1, occurrences // 6)


# For tests that say what all seeds have between them; `enough` serves those of single features.
of_all_seeds = pytest.mark.skipif(not ALL_SEEDS, reason="all seeds: set NEST_OPT_ALL_SEEDS=1")
