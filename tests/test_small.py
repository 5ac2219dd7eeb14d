"""The small instances: problems that an exact search of the free family settles."""

import sys
from pathlib import Path

import pytest

from nest_opt import exact, solve
from nest_opt.problem.files import read_problem

ROOT = Path(__file__).resolve().parent.parent
SMALL = ROOT / "instances" / "small"
sys.path.insert(0, str(ROOT / "benchmarks"))

from small_instances import problems, text  # noqa: E402

# Values in ps, aligned and free, of those that are settled within a second or two.
SETTLED = {
    "four-fast-nodes": (710_724_791_584, 710_724_791_584),
    "replicas-share-a-node": (15_023_000_000_000, 12_053_000_000_000),
}


def test_files_are_what_the_generator_writes() -> None:
    """Each file is the generator's, each problem has a file, and says why it is there."""
    expected = {data["name"]: text(data) for data in problems()}
    assert {path.stem: path.read_text() for path in SMALL.glob("*.json")} == expected
    assert all(read_problem(path).note for path in SMALL.glob("*.json"))


@pytest.mark.parametrize("name", SETTLED)
def test_settled(name: str) -> None:
    """Both families have the optima that they are known to have."""
    problem = read_problem(SMALL / f"{name}.json")
    solved, free = solve(problem), exact(problem, family="free")
    assert (solved.bound_ps, free.bound_ps) == SETTLED[name]
    assert (solved.status, free.status) == ("optimal", "optimal")
