"""The checker of certificates proves exactly what is true, and has the package's numbers.

`benchmarks/certificates_soundness.py` runs the same comparisons on as many problems as asked for.
"""

from collections import Counter

import pytest
from certificate_agreement import Compared, compare_all, compare_free, uniform_free_data
from whole_space import whole_space_data

# Each proof, refused and infeasible claims, constraints, ZeRO in runs, chunks and any order of
# layers are among them.
SEEDS = (1, 2, 3, 6, 18, 28, 31, 33, 34, 36, 45, 157, 167)
FREE_SEEDS = (3, 6, 10, 12)


def test_claims_spaces_and_numbers_are_those_of_search() -> None:
    """Under all objectives the optimum is provable, one more is not, and all numbers agree."""
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        found = compare_all(whole_space_data(seed), seed)
        assert not found.differences, (seed, found.differences[:1])
        counts += found.counts
    assert counts["problems"] == len(SEEDS)
    for made in ("sum", "room", "thresholds", "chunks"):
        assert counts[f"groups by {made}"]
        assert counts[f"refused: {made} for all"]
    assert counts["intervals"] > 100
    assert counts["problems without a plan"]


@pytest.mark.parametrize("seed", FREE_SEEDS)
def test_bounds_of_the_free_family_are_below_its_optimum(seed: int) -> None:
    """What is proved of the free family is at most the integer program's optimum."""
    compared = Compared()
    compare_free(uniform_free_data(seed), compared)
    assert not compared.differences
    assert compared.counts["it is at most the optimum"] == 1
