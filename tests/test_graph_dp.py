"""The dynamic program over downsets, against brute force, a plain one, and published optima."""

import csv
import json
import random
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_running import run
from random_graphs import random_graph, random_graph_data
from test_graph_problem import graph_data, read

import nest_opt
from nest_opt import GraphSolveResult, InstanceError, Problem
from nest_opt.api import exact_graph
from nest_opt.certify.graph_brute_force import graph_brute_force
from nest_opt.cost.graph_build import build_graph_table
from nest_opt.cost.graph_table import GraphKind, GraphTable
from nest_opt.dp.graph import obstacle, search
from nest_opt.dp.graph.blocks import Blocks, contract
from nest_opt.dp.graph.cuts import Columns, CutChanges, word_count, words_of
from nest_opt.dp.graph.devices import DeviceCounts, relaxations
from nest_opt.dp.graph.followers import merge_followers
from nest_opt.dp.graph.order import breadth_first, depth_first, strong_components
from nest_opt.dp.graph.sweep import Sweep
from nest_opt.errors import ConsistencyError
from nest_opt.models.dnn_partitioning import read_dnn_partitioning
from nest_opt.plan.graph_check import check_graph
from nest_opt.plan.graph_evaluate import evaluate_graph, evaluate_graph_stage
from nest_opt.plan.graph_placement import GraphPlacement, GraphStage
from nest_opt.problem.downsets import count_downsets, empty_set, members
from nest_opt.problem.files import to_json_text

# Of brute force: every layer on every device.
MOST_LAYERS = 7
# Above every load of the random graphs.
NO_LIMIT = 10**7
# Inputs that take a second or less.
QUICK = (
    "LayerGraphs/bert24_inference.json",
    "LayerGraphs/bert24_training.json",
    "LayerGraphs/gnmt_inference.json",
    "LayerGraphs/gnmt_training.json",
    "LayerGraphs/resnet50_inference.json",
    "LayerGraphs/resnet50_training.json",
    "OperatorGraphs/bert_l-3_inference.json",
    "OperatorGraphs/bert_l-3_training.json",
    "OperatorGraphs/bert_l-6_inference.json",
    "OperatorGraphs/resnet50_inference.json",
    "OperatorGraphs/resnet50_training.json",
)


def contiguous_problem(seed: int) -> Problem | None:
    """Return a random graph with a contiguous split, or None if brute force takes too long.

    In odd ones half of the layers take no time, and in half of these no
    memory either.
    """
    data = random_graph_data(seed)
    if len(data["model"]["layers"]) > MOST_LAYERS:
        return None
    data["job"]["split"] = "contiguous"
    if seed % 2:
        rng = random.Random(f"timeless {seed}")
        for layer_type in data["model"]["layer_types"].values():
            if rng.random() < 0.5:
                for profile in layer_type["profiles"]:
                    profile.update(forward_s=0, backward_input_s=0, backward_weight_s=0)
                    if seed % 4 == 1:
                        profile["recompute"]["none"].update(stash_bytes=0, work_bytes=0)
                        profile["dense_parameters"] = 0
    return read(data)


PROBLEMS = {
    seed: problem for seed in range(560) if (problem := contiguous_problem(seed)) is not None
}
TABLES = {seed: build_graph_table(problem) for seed, problem in PROBLEMS.items()}


def sweep(blocks: Blocks, limit: int) -> int | None:
    """Return the least value up to a limit that one pass finds."""
    counts = DeviceCounts.of(blocks)
    found = Sweep(blocks, counts, relaxations(blocks, counts), limit).run()
    return None if found is None else found.value_ps


def downsets(blocks: Blocks) -> list[int]:
    """Return all downsets in the order of their tree."""
    found, waiting = [], [empty_set(blocks)]
    while waiting:
        downset = waiting.pop()
        found.append(downset.members)
        waiting += [downset.child(blocks, block) for block in downset.addable]
    return found


def test_equals_brute_force() -> None:
    """On 400 seeds at least, the value is the least of all legal assignments, or there is none."""
    assert len(PROBLEMS) >= 400
    statuses = set()
    for seed, problem in PROBLEMS.items():
        table = TABLES[seed]
        found, expected = search(table), graph_brute_force(problem)
        assert found.value_ps == expected.value_ps, seed
        assert found.status == ("infeasible" if expected.placement is None else "optimal"), seed
        assert found.bound_ps == expected.value_ps, seed
        if found.placement is not None:
            assert check_graph(table, found.placement) == [], seed
            assert evaluate_graph(table, found.placement).value_ps == found.value_ps, seed
        statuses.add(found.status)
    assert statuses == {"optimal", "infeasible"}


def test_limits_and_followers_lose_nothing() -> None:
    """One pass without merged followers has the search's value from that limit on, none below."""
    merged = 0
    for seed, table in TABLES.items():
        value = search(table).value_ps
        blocks = contract(table)
        merged += len(merge_followers(table)) < len(blocks)
        if not all(any(kind.supported[n] for kind in blocks.kinds) for n in range(len(blocks))):
            assert value is None, seed
            continue
        assert sweep(blocks, NO_LIMIT) == value, seed
        if value is not None:
            assert sweep(blocks, value) == value, seed
            assert value == 0 or sweep(blocks, value - 1) is None, seed
            bounds = relaxations(blocks, DeviceCounts.of(blocks))
            assert max(bound.least_value() for bound in bounds) <= value, seed
    assert merged > 50


def timeless_table(seed: int) -> GraphTable:
    """Return eight layers, most of which take no time, with outputs of up to 6 ps."""
    rng = random.Random(seed)
    n = 8
    edges = tuple((u, v) for u, v in combinations(range(n), 2) if rng.random() < 0.3)
    times = tuple(rng.choice((0, 0, rng.randint(1, 9))) for _ in range(n))
    slow = tuple(None if rng.random() < 0.1 else 2 * time for time in times)
    sizes = tuple(rng.choice((0, 0, 1)) for _ in range(n))
    usable = rng.choice((2, n))
    return GraphTable(
        layers=tuple(map(str, range(n))),
        kinds=(
            GraphKind("fast", (0, 1), usable, True, times, sizes),
            GraphKind("slow", (2,), n, seed % 2 == 0, slow, sizes),
        ),
        edges=edges,
        transfer_ps=tuple(rng.randint(0, 6) for _ in range(n)),
        # Some tensors are of no order, some of the order has no tensors.
        precedence=tuple(
            pair
            for pair in combinations(range(n), 2)
            if rng.random() < (0.8 if pair in edges else 0.1)
        ),
        classes=(),
        contiguous=True,
    )


def test_followers_lose_nothing_where_nearly_all_take_no_time() -> None:
    """With followers merged, one pass finds the same value, as does the search with its limits."""
    merged = feasible = 0
    for seed in range(150):
        table = timeless_table(seed)
        blocks, fewer = contract(table), merge_followers(table)
        value = sweep(blocks, NO_LIMIT)
        assert sweep(fewer, NO_LIMIT) == value, seed
        assert search(table).value_ps == value, seed
        merged += len(fewer) < len(blocks)
        feasible += value is not None
    assert merged > 50
    assert feasible > 50


def test_downsets_come_after_their_subsets() -> None:
    """The tree has each downset once, after those that it contains."""
    for table in list(TABLES.values())[:100]:
        blocks = contract(table)
        found = downsets(blocks)
        closed = [
            subset
            for subset in range(1 << len(blocks))
            if all(blocks.before[n] & ~subset == 0 for n in members(subset))
        ]
        assert sorted(found) == closed
        assert not any(low | high == low for low, high in combinations(found, 2))
        assert count_downsets(blocks, 1000) == len(found)
        assert count_downsets(blocks, len(found) - 1) == len(found)


def test_cut_changes_add_up_to_the_evaluators_transfers() -> None:
    """Block by block, a stage's transfers are what the evaluator says of its layers."""
    for table in list(TABLES.values())[:150]:
        blocks = contract(table)
        paying = GraphKind(
            "paying", (0,), 0, True, (0,) * len(table.layers), (0,) * len(table.layers)
        )
        paying_table = replace(table, kinds=(paying,))
        changes, starts = CutChanges(blocks), downsets(blocks)
        count = word_count(len(blocks))
        words = np.array([words_of(start, count) for start in starts], np.uint64).T
        columns = Columns(words, np.arange(len(starts)))
        for end in starts:
            cut = np.zeros(len(starts), np.int64)
            below = 0
            for block in members(end):
                change = changes.adding(block, below).of(columns)
                cut += np.where(columns.contain(1 << block), 0, change)
                below |= 1 << block
            for number, start in enumerate(starts):
                layers = tuple(layer for n in members(end & ~start) for layer in blocks.layers[n])
                stage = evaluate_graph_stage(paying_table, GraphStage(0, layers))
                assert cut[number] == stage.time_ps


def ladder(rungs: int, seed: int) -> GraphTable:
    """Return a chain of `rungs` layers with side branches, skips and a backward pass."""
    rng = random.Random(seed)
    names = [f"f{n}" for n in range(rungs)]
    edges = list(pairwise(range(rungs)))
    for n in range(3, rungs - 3, 6):
        names.append(f"side{n}")
        edges += [(n, len(names) - 1), (len(names) - 1, n + 2)]
    edges += [(n, n + 7) for n in range(0, rungs - 7, 9)]
    forward = len(names)
    precedence = tuple(edges)
    names += [f"b{n}" for n in range(forward)]
    edges += [(forward + v, forward + u) for u, v in precedence]
    layers = len(names)

    def kind(name: str, devices: tuple[int, ...], slow: int, memory: int) -> GraphKind:
        times = tuple(slow * rng.randint(0, 50) for _ in range(layers))
        sizes = tuple(rng.randint(0, 9) for _ in range(layers))
        return GraphKind(name, devices, memory, name == "fast", times, sizes)

    return GraphTable(
        layers=tuple(names),
        kinds=(kind("fast", (0, 1, 3), 1, 3 * layers), kind("host", (2,), 8, 10**6)),
        edges=tuple(edges),
        transfer_ps=tuple(rng.choice((0, rng.randint(1, 300))) for _ in range(layers)),
        precedence=precedence,
        classes=tuple((n, forward + n) for n in range(forward)),
        contiguous=True,
    )


def plain_value(table: GraphTable) -> int | None:
    """Return the least value by all pairs of downsets, each stage valued by the evaluator."""
    blocks = contract(table)
    ends = sorted(downsets(blocks), key=int.bit_count)
    best: dict[int, dict[tuple[int, ...], int]] = {end: {} for end in ends}
    best[0][(0,) * len(table.kinds)] = 0
    for start in ends:
        for end in ends if best[start] else ():
            if start & ~end or start == end:
                continue
            layers = tuple(layer for n in members(end & ~start) for layer in blocks.layers[n])
            for number, kind in enumerate(table.kinds):
                stage = evaluate_graph_stage(table, GraphStage(kind.devices[0], layers))
                if stage.memory_bytes > stage.usable_bytes:
                    continue
                for used, value in best[start].items():
                    more = tuple(n + (k == number) for k, n in enumerate(used))
                    if more[number] <= len(kind.devices):
                        load = max(value, stage.time_ps)
                        best[end][more] = min(load, best[end].get(more, load))
    return min(best[(1 << len(blocks)) - 1].values(), default=None)


@pytest.mark.parametrize("seed", range(3))
def test_equals_all_pairs_of_downsets(seed: int) -> None:
    """Of 70 blocks and more, where sets take two words, no pair of downsets is missed."""
    table = ladder(62, seed)
    found = search(table)
    assert found.blocks > 64
    assert found.value_ps is not None
    assert found.value_ps == plain_value(table)


def test_equals_published_optima(shared_data: Path) -> None:
    """The published program's values, to the six digits that it prints."""
    folder = shared_data / "dnn-partitioning"
    with (folder / "reference.csv").open() as file:
        expected = {row["input"]: row["max_load_contiguous"] for row in csv.DictReader(file)}
    for name in QUICK:
        result = nest_opt.solve(read_dnn_partitioning(folder / name))
        assert result.status == "optimal"
        assert f"{result.evaluation.value_ps / 1e9:.6g}" == expected[name], name


def test_orders() -> None:
    """Components come sources first; both orders keep every edge's direction."""
    components = strong_components([[1], [2], [0, 3], [], [3]])
    assert [sorted(component) for component in components] == [[4], [0, 1, 2], [3]]
    targets = [[3], [2], [3, 4], [5], [5], []]
    for order in (breadth_first(targets), depth_first(targets)):
        place = {node: number for number, node in enumerate(order)}
        assert sorted(order) == list(range(6))
        assert all(place[u] < place[v] for u, row in enumerate(targets) for v in row)


def no_time_table(**changes: Any) -> GraphTable:
    """Return two layers in a row on two devices, in no time."""
    kind = GraphKind("gpu", (0, 1), 10, True, (0, 0), (0, 0))
    table = GraphTable(("a", "b"), (kind,), ((0, 1),), (5, 0), ((0, 1),), (), True)
    return replace(table, **changes)


def test_no_time_and_nothing_at_all() -> None:
    """Layers without times have value 0 on one device; no layers have no stages."""
    found = search(no_time_table())
    assert (found.status, found.value_ps, found.bound_ps) == ("optimal", 0, 0)
    assert found.placement == GraphPlacement((GraphStage(0, (0, 1)),))
    kind = GraphKind("gpu", (0, 1), 10, True, (), ())
    empty = search(GraphTable((), (kind,), (), (), (), (), True))
    assert (empty.status, empty.value_ps, empty.placement) == ("optimal", 0, GraphPlacement(()))


def test_memory_and_devices_can_be_too_few() -> None:
    """Layers that fit on no device, or on no kind together, make a graph infeasible."""
    full = GraphKind("gpu", (0, 1), 10, True, (1, 1), (6, 6))
    assert search(no_time_table(kinds=(full,))).status == "optimal"
    for kinds, classes in (
        ((replace(full, size_bytes=(6, 11)),), ()),
        ((replace(full, devices=(0,)),), ()),
        ((replace(full, devices=()),), ()),
        ((full,), ((0, 1),)),
        ((replace(full, time_ps=(1, None)),), ()),
        (
            (replace(full, time_ps=(1, None)), replace(full, devices=(2,), time_ps=(None, 1))),
            ((0, 1),),
        ),
    ):
        found = search(no_time_table(kinds=kinds, classes=classes))
        assert (found.status, found.value_ps, found.bound_ps) == ("infeasible", None, None)


def test_a_cycle_of_the_order_is_one_block() -> None:
    """Layers that are before each other are in one stage, whatever it costs."""
    kind = GraphKind("gpu", (0, 1), 10, True, (7, 8), (0, 0))
    table = no_time_table(kinds=(kind,), precedence=((0, 1), (1, 0)))
    found = search(table)
    assert found.blocks == 1
    assert found.value_ps == 15


def test_refusals_name_the_number_and_the_integer_program() -> None:
    """Too many downsets or counts of devices, and the split `any`, are refused with a remedy."""
    table = ladder(20, 0)
    allowed = search(table).downsets
    assert search(table, most_downsets=allowed).status == "optimal"
    refused = search(table, most_downsets=allowed - 1)
    assert (refused.status, refused.placement, refused.bound_ps) == ("refused", None, None)
    assert refused.refusal is not None
    assert f"found more than {allowed - 1} downsets" in refused.refusal
    assert "`nest-opt exact`" in refused.refusal
    whole = search(replace(table, contiguous=False))
    assert whole.status == "refused"
    assert "`nest-opt exact`" in str(whole.refusal)
    with pytest.raises(InstanceError, match=r"job.split: found 'any'.*`nest-opt exact`"):
        nest_opt.solve(read(graph_data(split="any")))


def test_an_interrupt_keeps_the_best_plan() -> None:
    """A plan along one order, and a bound that no plan is below, are what an interrupt leaves."""
    interrupted = 0
    for seed, table in list(TABLES.items())[:100]:

        def interrupt(done: int, total: int, best_ps: int | None) -> None:
            raise KeyboardInterrupt

        found, whole = search(table, interrupt), search(table)
        if found.status != "interrupted":
            assert found == replace(whole, wall_s=found.wall_s), seed
            continue
        interrupted += 1
        assert found.bound_ps is not None
        if found.value_ps is not None:
            assert found.placement is not None
            assert whole.value_ps is not None
            assert found.bound_ps <= whole.value_ps <= found.value_ps
            assert check_graph(table, found.placement) == []
    assert interrupted > 20


def test_time_that_is_up_keeps_a_plan_and_a_bound() -> None:
    """Without time the listed order's plan and a bound remain; `exact` calls it no interrupt."""
    plans = 0
    for seed, table in list(TABLES.items())[:60]:
        found, whole = search(table, time_limit_s=0), search(table)
        told = exact_graph(PROBLEMS[seed], time_limit_s=0)
        assert told.status != "interrupted", seed
        if found.status == "infeasible":
            # Some layer is on no kind: known before any search.
            assert whole.status == "infeasible", seed
            continue
        assert (found.status, found.out_of_time) == ("interrupted", True), seed
        assert not whole.out_of_time
        assert found.bound_ps is not None
        assert found.value_ps == told.contiguous_ps
        if found.value_ps is not None:
            assert whole.value_ps is not None
            assert found.bound_ps <= whole.value_ps <= found.value_ps, seed
            assert told.evaluation is not None
            plans += 1
    assert plans > 20


SPLITS = {True: "contiguous", False: "any"}
APART = "no way to divide them"


def test_obstacles_are_named() -> None:
    """Layers without a kind, a class or cycle without a device, and a sum each have a sentence."""
    fast = GraphKind("fast", (0, 1), 10, True, (1, None, 1), (6, 6, 6))
    slow = GraphKind("slow", (2,), 8, False, (None, 1, None), (6, 6, 6))
    table = GraphTable(("a", "b", "c"), (fast, slow), (), (0, 0, 0), (), (), contiguous=True)
    assert APART in obstacle(table)
    together = replace(table, classes=((0, 1),))
    assert obstacle(together).startswith("layers 'a', 'b', which must share a device, are not all")
    cycle = replace(table, precedence=((0, 2), (2, 0)))
    assert "'a', 'c', which must share a device, fit on no device: 12 bytes" in obstacle(cycle)
    assert APART in obstacle(replace(cycle, contiguous=False))
    one = replace(table, kinds=(replace(fast, devices=(0,)), slow))
    assert obstacle(one) == (
        "2 layers that devices of kind 'fast' alone hold need 12 bytes at least, 10 bytes are "
        "usable on all of these together"
    )


def test_obstacles_are_enough() -> None:
    """A graph with a legal split has none, whatever the kind of split; one without may have."""
    named = 0
    for seed, problem in PROBLEMS.items():
        for contiguous in (True, False):
            table = replace(TABLES[seed], contiguous=contiguous)
            data = problem.model_copy(
                update={"job": problem.job.model_copy(update={"split": SPLITS[contiguous]})}
            )
            if APART in obstacle(table):
                continue
            assert graph_brute_force(data).value_ps is None, seed
            named += 1
    assert named > 20


def test_solve_returns_a_checked_plan() -> None:
    """The verb's plan verifies, and has the search's value and bound."""
    solved = 0
    for problem in list(PROBLEMS.values())[:20]:
        result = nest_opt.solve(problem)
        assert isinstance(result, GraphSolveResult)
        if result.plan is not None:
            solved += 1
            verified = nest_opt.verify(result.plan)
            assert verified.violations == ()
            assert verified.evaluation == result.evaluation
            assert result.gap == 0
    assert solved > 10


def test_command_solves_and_writes_a_plan(tmp_path: Path) -> None:
    """The plan that is written verifies; --explain adds the terms; --what-if is refused."""
    problem, plan = tmp_path / "problem.json", tmp_path / "plan.json"
    problem.write_text(to_json_text(read(graph_data())))
    found = run("solve", problem, "-o", plan, "--explain")
    assert found.exit_code == 0
    assert found.stdout.startswith("optimal: ")
    assert "no contiguous split is faster" in found.stdout
    assert "F, load" in found.stdout
    assert run("verify", plan).exit_code == 0
    data = json.loads(run("solve", problem, "--json", "--explain").stdout)
    assert data["family"] == "contiguous"
    assert data["gap"] == 0
    assert data["plan"] == json.loads(plan.read_text())
    assert data["search"]["downsets"] > 1
    loads = [int(stage["time_ps"]) for stage in data["explanation"]["stages"]]
    assert max(loads) == int(data["objective"]["value_ps"])
    refused = run("solve", problem, "--what-if", "pp=2")
    assert refused.exit_code == 2
    assert "no dimensions to fix" in refused.stderr


def test_exact_begins_with_the_best_contiguous_split() -> None:
    """`exact` of either split has the dynamic program's value, and is at least as good."""
    better = 0
    for seed in range(12):
        problem = random_graph(seed)
        for split in ("contiguous", "any"):
            of_split = problem.model_copy(
                update={"job": problem.job.model_copy(update={"split": split})}
            )
            result = exact_graph(of_split, independent=True)
            contiguous = search(replace(build_graph_table(problem), contiguous=True))
            assert result.contiguous_ps == contiguous.value_ps
            if result.contiguous_ps is None or result.evaluation is None:
                continue
            if split == "contiguous":
                # Without the programs the answer is the same, and the search vouches for it.
                alone = exact_graph(of_split)
                assert alone.bound_vouched_by == "dynamic program"
                assert (alone.bound_ps, alone.cells_solved) == (result.bound_ps, 0)
                assert alone.plan == result.plan
                assert result.bound_vouched_by != "dynamic program"
                assert result.evaluation.value_ps == result.contiguous_ps
            assert result.evaluation.value_ps <= result.contiguous_ps
            better += result.evaluation.value_ps < result.contiguous_ps
    assert better


def test_a_contiguous_plan_below_the_bound_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's plan that the dynamic program rules out is told of as a defect."""
    problem = next(
        problem
        for problem in map(random_graph, range(50))
        if problem.job.split == "contiguous" and search(build_graph_table(problem)).value_ps
    )
    found = search(build_graph_table(problem))
    assert found.bound_ps is not None
    wrong = replace(found, placement=None, value_ps=None, bound_ps=found.bound_ps + 1)
    monkeypatch.setattr("nest_opt.verbs.graph.exact.search", lambda *_, **__: wrong)
    with pytest.raises(ConsistencyError, match="none is below"):
        exact_graph(problem, independent=True)
