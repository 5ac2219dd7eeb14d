"""The committed best known results are what the package finds now."""

from pathlib import Path

import pytest
from known_results import INSTANCES, instance_paths, recorded, solved_record

from nest_opt.cost.units import to_s

PATHS = instance_paths()


def test_every_instance_is_recorded() -> None:
    """Instances and records pair up: tiny ones, paper ones and networks."""
    assert set(recorded()) == set(PATHS)
    assert sum(name.startswith("tiny/") for name in PATHS) >= 10
    assert sum(name.startswith("paper/") for name in PATHS) == 75
    assert sum(name.startswith("networks/") for name in PATHS) == 5


@pytest.mark.parametrize("name", PATHS)
def test_best_known_result_is_found(name: str) -> None:
    """Digest, status, value to the picosecond, degrees and stages are the recorded ones."""
    path: Path = PATHS[name]
    assert solved_record(path) == recorded()[name]


def test_instances_page_shows_the_recorded_values() -> None:
    """The page lists every instance once, with the recorded value or `infeasible`."""
    page = INSTANCES.parent / "docs" / "instances.md"
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `") and line.count("|") == 5
    ]
    shown = {cells[0].strip("`"): cells[2] for cells in rows}
    expected = {}
    for name, entry in recorded().items():
        value_ps = entry["objective"]["value_ps"]
        folder, _, stem = name.partition("/")
        if folder == "paper":
            continue
        expected[stem] = f"{to_s(int(value_ps)):.4f}" if value_ps else "infeasible"
    assert len(rows) == len(shown)
    assert shown == expected
