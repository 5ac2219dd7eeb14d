"""docs/paper.md: what it shows is what its CSV files say, and nothing beats the optimum there."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """Return the benchmark as a module."""
    folder = str(ROOT / "benchmarks")
    sys.path.append(folder)
    try:
        return importlib.import_module("paper")
    finally:
        sys.path.remove(folder)


@pytest.fixture(scope="module")
def results(program: ModuleType) -> Any:
    """Return the rows of the committed CSV files."""
    return program.committed()


def test_the_page_is_made_of_the_rows(program: ModuleType, results: Any) -> None:
    """Every sentence and table of the default cost model is what the CSV files give."""
    page = program.PAGE.read_text(encoding="utf-8")
    assert program.page_text(results, page) == page


def test_every_problem_is_there(program: ModuleType, results: Any) -> None:
    """A row for every planner on every instance, and for every ablation where links are slower.

    Of the sizes, and of the ratios, that there are any rows of.
    """
    asked = program.tasks()
    some = {row[2:5] for row in (*results.planners, *results.ablations)}
    for rows, sharded in ((results.planners, False), (results.ablations, True)):
        names = ["nest_opt", *([] if sharded else program.render.BASELINES)]
        expected = {
            (*task[:4], name)
            for task in asked
            if task.sharded == sharded and (*task[2:4], "0,1,2,3" if sharded else "0") in some
            for name in (*names, *program.render.ABLATIONS)
        }
        assert {(*row[:4], row.planner) for row in rows} == expected
        assert len(rows) == len(expected)


def test_no_row_is_below_the_optimum(results: Any) -> None:
    """Every optimum has the value of its bound, and no plan of a planner a lower one."""
    for row in (*results.planners, *results.ablations):
        if row.planner == "nest_opt":
            assert row.value_ps == row.bound_ps
        assert not row.value_ps or int(row.value_ps) >= int(row.bound_ps)
        assert bool(row.value_ps) != row.plan.startswith("none: ")
        assert not row.placed_ps or int(row.bound_ps) <= int(row.placed_ps) <= int(row.value_ps)


def test_the_best_plan_without_levels(program: ModuleType, results: Any) -> None:
    """Of each problem the least time of the four planners that know none, in the CSV file too."""
    found = program.render.best_agnostic(results.ablations)
    path = FIGURES / "paper_agnostic.csv"
    assert found == program.render.read_rows(path, program.render.Agnostic)
    by_problem = {each[:5]: each.excess for each in found}
    for row in results.ablations:
        if row.planner in program.render.AGNOSTIC and row.value_ps:
            assert row.excess >= by_problem[row[:5]]


def test_shares_as_they_are_printed(program: ModuleType) -> None:
    """No difference is a tie; one that rounds to nothing is not called one."""
    texts = [program.render.percent(share) for share in (0.0, 1e-9, 5e-4, 0.1234)]
    assert texts == ["tie", "<0.05%", "0.1%", "12.3%"]
    assert program.render.mean([1.0, 1.0]) == pytest.approx(1.0)


def test_a_block_without_a_place_is_an_error(program: ModuleType) -> None:
    """A page that lost a marker is not written without its table."""
    page = "a\n<!-- one -->\nold\n<!-- end of one -->\nb"
    replaced = program.render.with_blocks(page, {"one": ["new"]})
    assert replaced == "a\n<!-- one -->\n\nnew\n\n<!-- end of one -->\nb"
    with pytest.raises(ValueError, match="block 'two'"):
        program.render.with_blocks(page, {"two": ["new"]})


def test_figures_are_the_same_in_every_run(
    program: ModuleType, results: Any, tmp_path: Path
) -> None:
    """Two drawings have the same bytes, and each figure has its data beside it."""
    pytest.importorskip("matplotlib")
    drawn = [tmp_path / name for name in ("one.svg", "two.svg")]
    for path in drawn:
        program.render.ablations_figure(results.ablations, path)
    assert drawn[0].read_bytes() == drawn[1].read_bytes()
    figures = sorted(FIGURES.glob("paper_*.svg"))
    assert len(figures) == 4
    assert all(path.with_suffix(".csv").is_file() for path in figures)
