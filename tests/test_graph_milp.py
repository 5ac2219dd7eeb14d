"""The program of placement graphs: equivalence, optima, families, windows, limits, files."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyomo.environ as pyo
import pytest
from golden_graphs import (
    CUTOFF_PS,
    GOLDEN,
    HOST_LAST,
    family_lp,
    golden_cell,
    golden_files,
    golden_table,
)
from graph_agreement import (
    Programs,
    assignment_count,
    compare_fixed,
    compare_optimum,
    placements,
)
from random_graphs import random_graph

from nest_opt import PlanError, Problem
from nest_opt.certify.graph_brute_force import graph_brute_force
from nest_opt.cost.graph_build import build_graph_table
from nest_opt.cost.graph_table import GraphKind, GraphTable
from nest_opt.milp.graph.bounds import bound_ps, windows
from nest_opt.milp.graph.build import FAMILIES, build
from nest_opt.milp.graph.cells import GraphCell, cell_count, cells
from nest_opt.milp.graph.extract import graph_placement, stages_of
from nest_opt.milp.graph.heuristic import best_cuts, interval_loads
from nest_opt.milp.graph.memory import forbid_overfull
from nest_opt.milp.graph.moves import improve
from nest_opt.milp.graph.neighbourhoods import neighbourhoods
from nest_opt.milp.graph.parts import parts
from nest_opt.milp.graph.search import search
from nest_opt.milp.limits import SearchLimits, proved_ps
from nest_opt.models.dnn_partitioning import read_dnn_partitioning
from nest_opt.plan.graph_check import check_graph
from nest_opt.plan.graph_evaluate import evaluate_graph, evaluate_graph_stage
from nest_opt.plan.graph_placement import GraphPlacement, GraphStage
from nest_opt.solver.highs import HighsSession
from nest_opt.solver.status import SolverAnswer, SolverReport, Termination

PAGE = Path(__file__).resolve().parent.parent / "docs" / "placement_graphs.md"

# Seeds 0 and up, and 10,000 and up: so many graphs of at most so many assignments.
FIXED, FIXED_MOST = 110, 60
OPTIMA, OPTIMA_MOST = 310, 600


def small_graphs(first: int, number: int, most: int) -> Iterator[tuple[int, Problem]]:
    """Yield seeded graphs with 2 to `most` assignments."""
    for seed in count(first):
        problem = random_graph(seed)
        if 2 <= assignment_count(build_graph_table(problem), most) <= most:
            yield seed, problem
            number -= 1
        if not number:
            return


# Agreement


def test_every_assignment_agrees_with_checker_and_evaluator() -> None:
    """Fixed in the program, an assignment is feasible and valued as checker and evaluator say."""
    legal = illegal = 0
    splits = set()
    for seed, problem in small_graphs(0, FIXED, FIXED_MOST):
        table = build_graph_table(problem)
        found = compare_fixed(table)
        assert found.difference is None, seed
        legal += found.legal
        illegal += found.assignments - found.legal
        splits.add(table.contiguous)
    assert splits == {True, False}
    assert min(legal, illegal) > 500


def test_optima_agree_with_brute_force() -> None:
    """Value, bound and status are those of brute force, with and without a first incumbent."""
    infeasible = solved = 0
    splits = set()
    for seed, problem in small_graphs(10_000, OPTIMA, OPTIMA_MOST):
        compared = compare_optimum(problem)
        assert compared.difference is None, seed
        assert compared.found.exact_units
        infeasible += compared.found.status == "infeasible"
        solved += compared.found.cells_solved > 0
        splits.add(problem.job.split)
    assert splits == {"contiguous", "any"}
    assert infeasible >= 20
    assert solved >= OPTIMA / 2


@pytest.mark.parametrize(
    "name",
    [
        "LayerGraphs/bert24_training",
        "LayerGraphs/gnmt_inference",
        "OperatorGraphs/bert_l-3_training",
    ],
)
def test_published_optima(name: str, shared_data: Path) -> None:
    """Contiguous splits reach the published optimum to its six digits, proved."""
    folder = shared_data / "dnn-partitioning"
    rows = [line.split(",") for line in (folder / "reference.csv").read_text().split()]
    expected = next(float(row[2]) for row in rows if row[0] == f"{name}.json")
    found = search(build_graph_table(read_dnn_partitioning(folder / f"{name}.json")))
    assert found.status == "optimal"
    assert found.value_ps == found.bound_ps
    assert found.value_ps is not None
    assert float(f"{found.value_ps / 1e9:.6g}") == expected


# Each family alone


def chain(contiguous: bool = True, **accelerator: object) -> GraphTable:
    """Return two layers in a row on two accelerators."""
    kind = GraphKind("accelerator", (0, 1), 100, True, (10, 20), (60, 60))
    return GraphTable(
        ("u", "v"), (replace(kind, **accelerator),), ((0, 1),), (3, 0), ((0, 1),), (), contiguous
    )  # fmt: skip


APART = GraphPlacement((GraphStage(0, (0,)), GraphStage(1, (1,))))
BACKWARDS = GraphPlacement((GraphStage(0, (1,)), GraphStage(1, (0,))))
TOGETHER = GraphPlacement((GraphStage(0, (0, 1)),))


def test_precedence_alone_is_rejected() -> None:
    """(G10): stages against the precedence have no solution; in any split they have."""
    assert Programs(chain()).value(APART) == 23
    assert Programs(chain()).value(BACKWARDS) is None
    assert Programs(chain(contiguous=False)).value(BACKWARDS) == 23


def test_memory_alone_is_rejected() -> None:
    """(G13): two layers of 60 bytes do not share 100 bytes, but 120."""
    for contiguous in (True, False):
        assert Programs(chain(contiguous)).value(TOGETHER) is None
        assert Programs(chain(contiguous, usable_bytes=120)).value(TOGETHER) == 30


def test_support_alone_is_rejected() -> None:
    """(G12): a layer is not on a kind that does not support it."""
    slow = GraphKind("slow", (2,), 100, True, (None, 70), (60, 60))
    for contiguous in (True, False):
        table = chain(contiguous)
        programs = Programs(replace(table, kinds=(*table.kinds, slow)))
        wrong = GraphPlacement((GraphStage(2, (0,)), GraphStage(1, (1,))))
        right = GraphPlacement((GraphStage(0, (0,)), GraphStage(2, (1,))))
        assert programs.value(wrong) is None
        assert programs.value(right) == 73


def test_classes_are_one_part() -> None:
    """Layers of a class, and layers on a cycle of the precedence, cannot be apart."""
    roomy = chain(usable_bytes=120)
    for table in (
        replace(roomy, classes=((0, 1),)),
        replace(roomy, precedence=((0, 1), (1, 0))),
    ):
        assert Programs(table).value(APART) is None
        assert Programs(table).value(TOGETHER) == 30


def test_cutoff_alone_is_rejected() -> None:
    """(G17): with a cutoff there are solutions below it alone."""
    table = chain()
    for cutoff, value in ((23, None), (24, 23)):
        cell = GraphCell(parts(table), (0, 0), cutoff)
        solution = HighsSession(build(cell).model).solve().solution
        assert (solution and round(solution.objective, 4)) == value


def test_host_pays_no_transfers() -> None:
    """(G14), (G15): a tensor loads both accelerators that move it, and no host."""
    host = GraphKind("host", (2,), 100, False, (10, 20), (60, 60))
    table = replace(chain(), kinds=(*chain().kinds, host))
    with_host = GraphPlacement((GraphStage(0, (0,)), GraphStage(2, (1,))))
    assert Programs(table).value(with_host) == 20
    assert Programs(table).value(APART) == 23


# Bounds and windows


def test_windows_and_bound_lose_no_placement() -> None:
    """What is legal and below a cutoff is within its cell's windows, and not below the bound."""
    seen = 0
    for seed, problem in small_graphs(20_000, 60, 400):
        table = build_graph_table(problem)
        split = parts(table)
        bound = bound_ps(split)
        for placement in placements(table):
            if check_graph(table, placement):
                continue
            assert bound is not None, seed
            value = evaluate_graph(table, placement).value_ps
            assert bound <= value, seed
            for kinds in cells(split) if split.contiguous else ():
                stages = stages_of(table, split, kinds, placement)
                if stages is None:
                    continue
                found = windows(split, kinds, value + 1)
                assert all(s in w for s, w in zip(stages.stage_of, found, strict=True)), seed
                seen += 1
    assert seen > 400


def test_windows_settle_cells() -> None:
    """Where a cutoff leaves a part no stage, no program is run."""
    found = search(golden_table())
    assert (found.cells, found.cells_pruned, found.cells_solved) == (3, 2, 1)


def test_cells_are_the_orders_of_kinds() -> None:
    """Each order of the devices' kinds once, no more devices of a kind than parts."""
    split = parts(golden_table())
    assert list(cells(split)) == [(0, 0, 1), (0, 1, 0), (1, 0, 0)]
    crowded = replace(golden_table(), kinds=(replace(golden_table().kinds[0], devices=range(9)),))
    assert list(cells(parts(crowded))) == [(0,) * 4]
    for table in (golden_table(), golden_table(contiguous=False), crowded):
        assert cell_count(parts(table)) == sum(1 for _ in cells(parts(table)))


# Least values of the relaxed programs of the golden graph, in ps.
RELAXED = {True: 531.25, False: 197.883}


@pytest.mark.parametrize("contiguous", [True, False])
def test_linear_relaxation_is_pinned(contiguous: bool) -> None:
    """The bound of the relaxed program is what it was; another formulation gives another."""
    formulation = build(golden_cell(contiguous))
    best = HighsSession(formulation.model).solve()
    pyo.TransformationFactory("core.relax_integer_vars").apply_to(formulation.model)
    relaxed = HighsSession(formulation.model).solve()
    assert best.solution is not None
    assert relaxed.solution is not None
    assert relaxed.solution.objective <= best.solution.objective
    assert relaxed.solution.objective == pytest.approx(RELAXED[contiguous], abs=1e-3)


def test_parts_keep_the_precedence() -> None:
    """Parts come in a topological order, and reach each other as their layers do."""
    for seed in range(300):
        table = replace(build_graph_table(random_graph(seed)), contiguous=True)
        split = parts(table)
        part_of = {layer: part for part, layers in enumerate(split.layers) for layer in layers}
        assert sorted(part_of) == list(range(len(table.layers)))
        assert all(u < v for u, v in split.precedence)
        reached = {(part_of[u], part_of[v]) for u, v in table.precedence}
        for middle in range(split.count):
            before = [u for u, v in reached if v == middle]
            reached |= {(u, v) for u in before for w, v in reached if w == middle}
        for u in range(split.count):
            for v in range(split.count):
                assert bool(split.reaches[u, v]) == (u == v or (u, v) in reached), seed


# First incumbents


def test_interval_loads_are_the_evaluators() -> None:
    """The load of every interval of parts on every kind is what the evaluator finds."""
    for seed in range(60):
        table = build_graph_table(random_graph(seed))
        split = parts(table)
        loads = interval_loads(split, list(range(split.count)))
        for low in range(split.count):
            for high in range(low + 1, split.count + 1):
                layers = tuple(sorted(sum(split.layers[low:high], ())))
                for kind, load in zip(table.kinds, loads, strict=True):
                    found = evaluate_graph_stage(table, GraphStage(kind.devices[0], layers))
                    fits = found.memory_bytes <= found.usable_bytes
                    supported = all(kind.time_ps[layer] is not None for layer in layers)
                    expected = found.time_ps if fits and supported else 2**62
                    assert load[low, high] == expected, seed


def test_first_incumbents_are_legal() -> None:
    """Cuts of orders are legal placements, and moves of single parts make them no worse."""
    better = 0
    for seed in range(150):
        table = build_graph_table(random_graph(seed))
        in_order = replace(table, contiguous=True)
        found = best_cuts(parts(in_order), orders=6)
        if found is None:
            continue
        placement = graph_placement(in_order, parts(in_order), found)
        assert not check_graph(in_order, placement), seed
        any_split = replace(table, contiguous=False)
        kinds = next(cells(parts(any_split)))
        stages = stages_of(any_split, parts(any_split), kinds, placement)
        assert stages is not None
        improved = graph_placement(any_split, parts(any_split), improve(parts(any_split), stages))
        assert not check_graph(any_split, improved), seed
        values = [evaluate_graph(any_split, found).value_ps for found in (improved, placement)]
        assert values[0] <= values[1], seed
        better += values[0] < values[1]
    assert better > 10


def test_neighbourhoods_keep_the_top_and_leave_some_out() -> None:
    """Each has the stage of the largest load, none has all stages, and none comes twice."""
    found = list(neighbourhoods([5, 9, 1, 3, 7, 2]))
    assert found[:2] == [{1, 2}, {1, 5}]
    assert all(1 in free and 2 <= len(free) <= 4 for free in found)
    assert len(set(found)) == len(found) == 5 + 10 + 10
    assert list(neighbourhoods([3, 4])) == []


def test_neighbourhoods_improve_without_the_whole_program() -> None:
    """Where no move helps, the programs of neighbourhoods do, and keep the parts elsewhere.

    Six parts on three devices, two and two: the heaviest shares with either
    of the others only by a swap.
    """
    kind = GraphKind("accelerator", (0, 1, 2), 100, True, (9, 8, 6, 2, 4, 4), (50,) * 6)
    table = GraphTable(tuple("abcdef"), (kind,), (), (0,) * 6, (), (), False)
    start = GraphPlacement(
        (GraphStage(0, (0, 1)), GraphStage(1, (2, 3)), GraphStage(2, (4, 5)))
    )  # fmt: skip
    found = search(table, SearchLimits(node_limit=0), start=start, orders=0)
    assert found.value_ps is not None
    assert found.value_ps < evaluate_graph(table, start).value_ps
    assert found.placement is not None
    assert not check_graph(table, found.placement)


# Limits and starts


def test_node_limit_leaves_a_bound() -> None:
    """A limit on nodes ends the programs; value and bound enclose the optimum."""
    problem = random_graph(10_007)
    table = build_graph_table(problem)
    found = search(table, SearchLimits(node_limit=0), orders=1)
    best = graph_brute_force(problem).value_ps
    assert best is not None
    assert found.bound_ps is not None
    assert found.value_ps is not None
    assert found.bound_ps <= best <= found.value_ps
    assert found.limit in (None, "nodes")


def test_many_devices_have_cells() -> None:
    """More stages than Python's stack has frames are one cell if they are of one kind."""
    many = 1500
    kind = GraphKind("accelerator", tuple(range(many)), 1, True, (1,) * many, (0,) * many)
    names = tuple(map(str, range(many)))
    found = cells(parts(GraphTable(names, (kind,), (), (0,) * many, (), (), True)))
    assert list(found) == [(0,) * many]


def test_no_time_leaves_the_first_incumbent() -> None:
    """Without time for a program the first incumbent and the closed-form bound remain."""
    found = search(golden_table(), SearchLimits(time_limit_s=0))
    assert (found.status, found.limit, found.bound_by) == ("feasible", "time", "closed form")
    assert (found.value_ps, found.bound_ps) == (244, 207)


def test_interrupt_keeps_incumbent_and_bound() -> None:
    """Ctrl-C between programs ends the search with what it has."""
    calls = []

    def interrupt(done: int, total: int, value: int | None) -> None:
        calls.append((done, total, value))
        if done == 1:
            raise KeyboardInterrupt

    found = search(golden_table(), orders=0, progress=interrupt)
    assert calls == [(0, 3, None), (1, 3, 244)]
    assert (found.status, found.limit) == ("feasible", "interrupt")
    assert (found.value_ps, found.bound_ps) == (244, 207)


def test_gap_is_kept() -> None:
    """With a gap asked for, value and bound are within it of each other."""
    found = search(golden_table(), SearchLimits(gap=0.2))
    assert found.status == "optimal"
    assert found.gap is not None
    assert 0 < found.gap <= 0.2


def test_illegal_start_is_refused() -> None:
    """A start that the checker refuses is refused with its reason."""
    with pytest.raises(PlanError, match="start: the placement is illegal"):
        search(chain(), start=TOGETHER)


def test_one_byte_that_a_tolerance_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that is one byte too full for the program to see is forbidden, and solved again."""
    forbidden = []

    def spy(*arguments: object) -> None:
        forbidden.append(arguments)
        forbid_overfull(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("nest_opt.milp.graph.search.forbid_overfull", spy)
    sizes, need = (4 * 10**10 + 1, 4 * 10**10), 8 * 10**10 + 1
    for contiguous in (True, False):
        roomy = chain(contiguous, size_bytes=sizes, usable_bytes=need, devices=(0,))
        assert search(roomy, orders=0).value_ps == 30
        assert not forbidden
        tight = chain(contiguous, size_bytes=sizes, usable_bytes=need - 1, devices=(0,))
        assert search(tight, orders=0).status == "infeasible"
        assert forbidden
        forbidden.clear()


# The files


@pytest.mark.parametrize("name", golden_files())
def test_golden_files(name: str) -> None:
    """The LP file of each family is the golden one (`tests/golden_graphs.py` writes them anew)."""
    assert family_lp(*golden_files()[name]) == (GOLDEN / f"{name}.lp").read_text()


def test_no_family_is_without_a_golden_file() -> None:
    """Every family has its file with at least one row, and there is no other."""
    files = {path.stem for path in GOLDEN.glob("*.lp")}
    assert files == set(golden_files())
    assert {family for _, family in golden_files().values()} == set(FAMILIES)
    for name in files:
        assert re.search(r"^c_[elu]_", (GOLDEN / f"{name}.lp").read_text(), re.MULTILINE), name


def test_golden_windows_are_narrow() -> None:
    """The golden cutoff leaves two binaries, as its files show."""
    cell = golden_cell(cutoff_ps=CUTOFF_PS)
    assert cell.kinds == HOST_LAST
    assert [len(window) for window in cell.windows] == [1, 2, 1, 2]


def test_families_carry_their_equations() -> None:
    """Each family's docstring names the equation that the page's table places there."""
    rows = re.findall(
        r"^\| (\(G\d+\).*?) \|.*`(nest_opt\.milp\.[\w.]+)` \|$", PAGE.read_text(), re.M
    )
    placed = {name: equations for equations, name in rows}
    for function in FAMILIES.values():
        name = f"{function.__module__}.{function.__name__}"
        documented = inspect.getdoc(function)
        assert documented is not None
        first = placed[name].split(",")[0]
        assert documented.startswith(f"Add {first}"), name


def test_an_answer_proves_nothing_above_its_cutoff() -> None:
    """A dual bound beyond the threshold, below which alone was looked, counts as the threshold."""
    report = SolverReport(500.0, 1, 1, 0.0, 0.0, "", "")
    answer = SolverAnswer(Termination("optimal", None, ""), None, report)
    assert proved_ps(answer, 1, 400) == 400
    assert 499 <= proved_ps(answer, 1, 600) <= 500


def test_a_gap_never_lifts_the_bound_above_the_optimum() -> None:
    """With a gap of 30% the bound is at most the optimum, and the value within the gap of it."""
    feasible = 0
    for seed in range(25):
        problem = random_graph(seed)
        best = graph_brute_force(problem).value_ps
        found = search(build_graph_table(problem), SearchLimits(gap=0.3))
        assert (best is None) == (found.value_ps is None)
        if best is None or found.value_ps is None or found.bound_ps is None:
            continue
        feasible += 1
        assert found.bound_ps <= best <= found.value_ps
        assert found.bound_ps >= 0.7 * found.value_ps - 1
    assert feasible >= 15
