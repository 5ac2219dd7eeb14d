"""Stages of any topological order: differences of downsets instead of intervals."""

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import oracle_difference, solved
from branching_instances import branching_data, diamond, reordered
from cli_running import run
from milp_agreement import (
    compare_fixed,
    compare_optimum,
    exact_coefficients,
    placement_count,
)
from random_instances import random_data
from seeds import of_all_seeds, thinned

import nest_opt
from nest_opt import InstanceError, PlanError, Problem, solve
from nest_opt.certify.brute_force import brute_force
from nest_opt.cost.build import cut_bytes
from nest_opt.cost.cuts import MOST_CUTS, GraphCuts, crossing_bytes, graph_cuts
from nest_opt.dp.chain import INFINITE
from nest_opt.dp.cuts import DownsetCuts, ListedCuts
from nest_opt.dp.rules import Restriction, restriction
from nest_opt.errors import ModelError
from nest_opt.milp.exact import exact
from nest_opt.plan import Placement
from nest_opt.plan.check import check, check_form
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.plan import Plan, plan_from_placement
from nest_opt.problem.downsets import members
from nest_opt.problem.validation import build
from nest_opt.simulate.plan import stage_times

# The seeds below that have few enough layers; brute force is held against the search on each.
SEEDS = [seed for seed in range(330) if branching_data(seed) is not None]


def best_stages(problem: Problem) -> tuple[int, list[str]]:
    """Return the best value in seconds, and the layers of each stage."""
    result = solve(problem)
    assert result.plan is not None
    assert result.evaluation is not None
    return result.evaluation.value_ps // 10**12, ["".join(s.layers) for s in result.plan.stages]


def test_the_diamond_of_the_decision() -> None:
    """Listed as a, b, c, d the best is 48 s; in any order, or listed as a, c, b, d, 32 s."""
    assert best_stages(diamond("listed")) == (48, ["a", "bcd"])
    assert best_stages(diamond("any")) == (32, ["ac", "bd"])
    assert best_stages(diamond("listed", "acbd")) == (32, ["ac", "bd"])
    found = exact(diamond("any"))
    assert (found.status, found.value_ps) == ("optimal", 32 * 10**12)


@pytest.mark.parametrize("seed", thinned(SEEDS))
def test_search_and_brute_force_agree(seed: int) -> None:
    """Value and plan, down to the order of ties, are those of trying a stage for each layer."""
    data = branching_data(seed)
    assert data is not None
    problem = build(Problem, data, f"seed {seed}")
    brute = brute_force(problem)
    assert solved(problem) == (brute.value_ps, brute.placement)
    if brute.placement is not None:
        assert oracle_difference(data, problem, brute.placement) is None


@pytest.mark.parametrize("seed", SEEDS[1:60:3])
def test_search_and_brute_force_agree_on_other_schedules(seed: int) -> None:
    """So they do under GPipe and ZB-H1, whose fills, loads and stashes are others."""
    data = branching_data(seed)
    assert data is not None
    data["search"]["schedule"] = ["gpipe", "zb-h1"]
    problem = build(Problem, data, f"seed {seed}")
    brute = brute_force(problem)
    assert solved(problem) == (brute.value_ps, brute.placement)
    if brute.placement is not None:
        assert oracle_difference(data, problem, brute.placement) is None


@of_all_seeds
def test_the_seeds_are_telling() -> None:
    """Many best plans are of another order, and every kind of constraint is on some problem."""
    kinds: Counter[str] = Counter()
    others = 0
    for seed in SEEDS:
        problem = build(Problem, branching_data(seed), f"seed {seed}")
        kinds.update(constraint.type for constraint in problem.constraints)
        placement = solved(problem)[1]
        others += placement is not None and placement.layer_order is not None
    assert len(SEEDS) >= 200
    assert others >= 40
    assert len(kinds) == 9
    assert min(kinds.values()) >= 3


@pytest.mark.parametrize("seed", SEEDS[:30])
def test_any_order_is_the_best_of_all_listed_ones(seed: int) -> None:
    """The best of the searches in each topological order is what one search in any order finds."""
    data = branching_data(seed)
    assert data is not None
    # Of these the meaning itself is by the list.
    data["constraints"] = [
        c for c in data.get("constraints", []) if c["type"] != "forbidden-boundary"
    ]
    problem = build(Problem, data, f"seed {seed}")
    index = problem.model.index
    edges = [(index[edge.source], index[edge.target]) for edge in problem.model.all_edges]
    values = []
    for order in permutations(range(len(index))):
        if all(order.index(source) < order.index(target) for source, target in edges):
            values.append(solved(build(Problem, reordered(data, order), "listed"))[0])
    found = solved(problem)[0]
    assert found == min((value for value in values if value is not None), default=None)


@pytest.mark.parametrize("seed", [s for s in range(40) if "edges" not in random_data(s)["model"]])
def test_on_a_chain_any_order_is_the_listed_one(seed: int) -> None:
    """A chain has one topological order: the same plan, and the same matrices."""
    data = random_data(seed)
    problem = build(Problem, data, f"seed {seed}")
    data["search"]["layer_order"] = "any"
    other = build(Problem, data, f"seed {seed}")
    assert graph_cuts(other) is None
    assert solved(problem) == solved(other)


@pytest.mark.parametrize("seed", SEEDS[:60:2])
def test_program_agrees_with_search_and_brute_force(seed: int) -> None:
    """The integer program finds the same value and proves it, or shows that there is no plan."""
    comparison = compare_optimum(build(Problem, branching_data(seed), f"seed {seed}"))
    assert comparison is None or comparison.difference is None


@pytest.mark.parametrize("seed", SEEDS[:40:2])
def test_program_and_checker_agree_on_every_placement(seed: int) -> None:
    """With a placement fixed, backward edges included, it is feasible as the checker says."""
    problem = build(Problem, branching_data(seed), f"seed {seed}")
    found = exact_coefficients(problem) or []
    cells = [k for k in found if placement_count(k) <= 300]
    rng = random.Random(seed)
    comparison = compare_fixed(problem, rng.sample(cells, min(2, len(cells))))
    assert comparison.difference is None


@pytest.mark.parametrize(
    ("constraint", "value_s", "stages"),
    [
        ({"type": "colocation", "layers": ["b", "c"]}, 48, ["a", "bcd"]),
        ({"type": "forbidden-boundary", "after": "c"}, 48, ["a", "bcd"]),
        ({"type": "anti-colocation", "layers": ["a", "c", "d"]}, None, []),
        ({"type": "anti-colocation", "layers": ["a", "c"]}, 48, ["a", "bcd"]),
        ({"type": "pinned-layers", "layers": ["b"], "stage": 0}, 48, ["ab", "cd"]),
        ({"type": "pinned-layers", "layers": ["b", "d"], "stage": -1}, 32, ["ac", "bd"]),
    ],
)
def test_constraints_on_layers(
    constraint: dict[str, Any], value_s: int | None, stages: list[str]
) -> None:
    """Each takes away what it says, in the search, in the program and by brute force."""
    problem = diamond(constraints=[constraint])
    value_ps = None if value_s is None else value_s * 10**12
    assert brute_force(problem).value_ps == exact(problem).value_ps == value_ps
    if value_s is not None:
        assert best_stages(problem) == (value_s, stages)
    else:
        assert solve(problem).status == "infeasible"


def test_a_search_that_finds_nothing_names_the_layers_of_the_heaviest_stage() -> None:
    """The closest plan's terms are those of its layers, and what would help does help."""
    result = solve(diamond(memory=3))
    assert result.status == "infeasible"
    assert result.diagnosis is not None
    assert result.diagnosis.heaviest is not None
    layers = result.diagnosis.layers
    ids = [result.problem.model.ids[place] for place in layers]
    terms = result.diagnosis.heaviest.memory_terms_bytes
    seconds = {"a": 2, "b": 4, "c": 2, "d": 0}
    flight = result.diagnosis.heaviest.in_flight
    assert terms["stash"] == flight * sum(seconds[name] for name in ids)
    at_least = result.diagnosis.memory_bytes
    assert at_least is not None
    assert solve(diamond(memory=at_least)).status == "optimal"
    assert solve(diamond(memory=at_least - 1)).status == "infeasible"


def graphs() -> list[GraphCuts]:
    """Return small random layer graphs."""
    found = []
    for seed in thinned(range(30)):
        rng = random.Random(f"graph {seed}")
        layers = rng.randint(1, 7)
        pairs = [(s, t) for t in range(layers) for s in range(t)]
        found.append(GraphCuts(layers, tuple(p for p in pairs if rng.random() < 0.35)))
    return found


@pytest.mark.parametrize("graph", graphs())
def test_downsets_are_those_of_the_definition(graph: GraphCuts) -> None:
    """Of all sets of layers these have each layer's producers, in the order that is promised."""
    every = [
        cut
        for cut in range(1 << graph.layers)
        if all(cut >> s & 1 for s, t in graph.edges if cut >> t & 1)
    ]
    assert list(graph.cuts) == sorted(every, key=lambda cut: (cut.bit_count(), list(members(cut))))
    assert graph.is_chain == (len(every) == graph.layers + 1)


@pytest.mark.parametrize("graph", graphs())
def test_matrices_of_downsets_are_those_of_sets(graph: GraphCuts) -> None:
    """Sums, largest values, which cuts make a stage, and single layers: all by sets."""
    rng = random.Random(graph.layers)
    values = np.array([rng.randint(0, 3) for _ in range(graph.layers)], np.int64)
    cuts = DownsetCuts(graph)
    sets = [set(members(cut)) for cut in graph.cuts]
    assert cuts.sums(values).tolist() == [sum(values[v] for v in inside) for inside in sets]
    forbidden, largest = cuts.forbidden(Restriction()), cuts.largest(values)
    for low, before in enumerate(sets):
        for high, after in enumerate(sets):
            assert forbidden[low, high] == (not before < after)
            if before < after:
                assert low < high
                assert largest[low, high] == max(values[v] for v in after - before)
    for layer, (low, high) in enumerate(zip(*cuts.alone, strict=True)):
        assert sets[high] - sets[low] == {layer}
    assert [sets[place] for place in cuts.first] == [inside for inside in sets if len(inside) == 1]
    held = tuple(rng.sample(range(graph.layers), min(2, graph.layers)))
    holding = cuts.holding(np.zeros((len(sets), len(sets)), np.int64), held)
    for low, before in enumerate(sets):
        for high, after in enumerate(sets):
            assert (holding[low, high] < INFINITE) == (
                not set(held) & before and set(held) <= after
            )


def test_downsets_of_a_chain_give_the_matrices_of_the_listed_order() -> None:
    """Either way of counting cuts has the same sums, maxima, masks and ends on a chain."""
    rng = random.Random(0)
    chain = DownsetCuts(GraphCuts(6, tuple((v, v + 1) for v in range(5))))
    listed = ListedCuts(6)
    values = np.array([rng.randint(0, 9) for _ in range(6)], np.int64)
    constraints = [
        {"type": "colocation", "layers": ["b", "c"]},
        {"type": "anti-colocation", "layers": ["a", "c", "d"]},
    ]
    taken = restriction(diamond(constraints=constraints))
    after = restriction(diamond(constraints=[{"type": "forbidden-boundary", "after": "b"}]))
    matrix = np.arange(49).reshape(7, 7)
    assert (chain.sums(values) == listed.sums(values)).all()
    upper = ~listed.forbidden(Restriction())
    assert (chain.largest(values)[upper] == listed.largest(values)[upper]).all()
    assert (chain.forbidden(taken) == listed.forbidden(taken)).all()
    # No stage ends there, so that it does not matter what begins there.
    assert (chain.forbidden(after)[[0, 1]] == listed.forbidden(after)[[0, 1]]).all()
    assert (chain.holding(matrix, (1, 3)) == listed.holding(matrix, (1, 3))).all()
    assert chain.stages((2, 5, 6)) == listed.stages((2, 5, 6)) == ((2, 5, 6), None)


@pytest.mark.parametrize("seed", thinned(range(20)))
def test_bytes_over_the_cuts_of_the_listed_order(seed: int) -> None:
    """What crosses a downset is what crosses the cut of the listed order with the same layers."""
    problem = build(Problem, random_data(seed), f"seed {seed}")
    prefixes = [(1 << place) - 1 for place in range(len(problem.model.ids) + 1)]
    for microbatch, k in problem.candidates:
        crossing = crossing_bytes(problem, microbatch, k.tp, prefixes)
        assert crossing == cut_bytes(problem, microbatch, k.tp)


def test_too_many_downsets_are_refused() -> None:
    """The number found, the limit and the remedy are told; just as many as allowed are not."""
    with pytest.raises(InstanceError, match=r"1,024 downsets of the 10 layers, at most 1,000 are"):
        GraphCuts(10, ()).cuts  # noqa: B018
    with pytest.raises(InstanceError, match=r"more than 100,000 downsets .*layer_order listed"):
        GraphCuts(60, ()).cuts  # noqa: B018
    rows = tuple((v, v + 1) for v in range(MOST_CUTS - 2))
    assert len(GraphCuts(MOST_CUTS - 1, rows).cuts) == MOST_CUTS


def branching_plan() -> Plan:
    """Return the diamond's plan that is of no interval of the listed order."""
    found = solve(diamond())
    assert isinstance(found.plan, Plan)
    return found.plan


def test_a_plan_file_keeps_its_order() -> None:
    """Written and read again, the plan is the same, and verifies at its value."""
    plan = branching_plan()
    again = build(Plan, json.loads(plan.model_dump_json(exclude_none=True)), "plan")
    assert again.placement() == plan.placement()
    assert again.placement().layer_order == (0, 2, 1, 3)
    verified = nest_opt.verify(again)
    assert not verified.violations
    assert verified.evaluation is not None
    assert verified.evaluation.value_ps == 32 * 10**12


def with_stages(plan: Plan, *stages: str) -> Plan:
    """Return a plan with other layers in its stages."""
    return plan.model_copy(
        update={
            "stages": tuple(
                stage.model_copy(update={"layers": tuple(names)})
                for stage, names in zip(plan.stages, stages, strict=True)
            )
        }
    )


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        (("ab", "cx"), r"stages\[1\]: names layer 'x', which the problem does not have"),
        (("ab", "bcd"), r"stages\[1\]: found layer 'b', which is in stages\[0\] already"),
        (("ca", "bd"), r"stages\[0\]: found layer 'a' after 'c', the order of problem.model"),
        (("ac", "d"), r"stages: found 3 layers, the problem has 4: add 'b'"),
    ],
)
def test_a_plan_that_is_no_partition_is_refused(stages: tuple[str, str], told: str) -> None:
    """Each layer is in one stage, once, and inside a stage in the listed order."""
    with pytest.raises(PlanError, match=told):
        with_stages(branching_plan(), *stages).placement()


def test_checker_refuses_edges_that_go_back() -> None:
    """A stage that is no difference of downsets has an edge to an earlier one."""
    verified = nest_opt.verify(with_stages(branching_plan(), "bd", "ac"))
    assert [violation.rule for violation in verified.violations] == ["layer order"] * 2
    assert "edge 'a' -> 'b' from stage 1 to stage 0" in str(verified.violations[0])


def test_checker_refuses_orders_that_are_none() -> None:
    """The listed order alone where the search space has no other, and otherwise a permutation."""
    placement = branching_plan().placement()

    def rules(problem: Problem, **changes: Any) -> list[str]:
        return [v.rule for v in check_form(Costs(problem), replace(placement, **changes))]

    assert rules(diamond()) == []
    assert rules(diamond("listed")) == ["layer order"]
    assert rules(diamond("listed"), layer_order=None) == []
    assert rules(diamond(), layer_order=(0, 2, 2, 3)) == ["layer order"]
    assert rules(diamond(), layer_order=(2, 0, 1, 3)) == ["layer order"]


@pytest.mark.parametrize("seed", SEEDS[:40])
def test_a_placement_costs_what_it_does_where_its_order_is_the_listed_one(seed: int) -> None:
    """Evaluator and checker give what they give for the problem that lists that order."""
    data = branching_data(seed)
    assert data is not None
    data["constraints"] = []
    problem = build(Problem, data, f"seed {seed}")
    placement = solved(problem)[1]
    if placement is None:
        return
    other = build(Problem, reordered(data, placement.layer_order), "reordered")
    ours, theirs = Costs(problem), Costs(other)
    same = replace(placement, layer_order=None)
    assert evaluate(ours, placement) == evaluate(theirs, same)
    assert check(ours, placement) == check(theirs, same) == []
    evaluation = evaluate(ours, placement)
    assert stage_times(ours, placement, evaluation) == stage_times(theirs, same, evaluation)


def test_costs_of_an_order_lead_back_to_the_listed_ones() -> None:
    """Each order's costs are built once, and know those of the listed order."""
    costs = Costs(diamond())
    other = costs.ordered((0, 2, 1, 3))
    assert costs.ordered(None) is costs
    assert other is costs.ordered((0, 2, 1, 3)) is other.ordered((0, 2, 1, 3))
    assert other.ordered(None) is costs
    assert other.table.layer_rows == (0, 2, 1, 3)


def test_the_free_family_is_refused() -> None:
    """Its programs know the listed order alone, and say so with the remedy."""
    with pytest.raises(ModelError, match=r"search.layer_order: found 'any', .*layer_order listed"):
        exact(diamond(), family="free")


def test_solve_verify_and_exact_from_the_command_line(tmp_path: Path) -> None:
    """`--fix layer_order=any` finds, writes and verifies the better plan, and proves it."""
    problem, plan = tmp_path / "diamond.json", tmp_path / "plan.json"
    problem.write_text(diamond("listed").model_dump_json(exclude_none=True))
    assert "48 s per batch" in run("solve", str(problem)).stdout
    solved_ = run("solve", str(problem), "--fix", "layer_order=any", "-o", str(plan))
    assert "32 s per batch" in solved_.stdout
    assert "a, c (2)" in solved_.stdout
    verified = run("verify", str(plan), "--exact")
    assert verified.exit_code == 0
    assert "know layer_order listed alone" in verified.stdout
    proved = run("exact", str(problem), "--fix", "layer_order=any")
    assert proved.exit_code == 0
    assert "32 s per batch" in proved.stdout
    refused = run("solve", str(problem), "--fix", "layer_order=any,listed")
    assert refused.exit_code == 2
    assert "--fix layer_order: found 2 values, 1 is allowed" in refused.stderr
    wrong = run("solve", str(problem), "--fix", "layer_order=best")
    assert wrong.exit_code == 2
    assert "legal values are listed, any" in wrong.stderr


def test_the_listed_plan_is_a_plan_of_any_order() -> None:
    """A plan of intervals is legal where any order is, and no better than the best."""
    for seed in islice(SEEDS, 30):
        data = branching_data(seed)
        assert data is not None
        problem = build(Problem, data, f"seed {seed}")
        listed = build(Problem, reordered(data, None), f"seed {seed}")
        value, placement = solved(listed)
        if placement is None or value is None:
            continue
        assert isinstance(placement, Placement)
        assert check(Costs(problem), placement) == []
        best = solved(problem)[0]
        assert best is not None
        assert best <= value
        plan = plan_from_placement(problem, placement, problem.job.objective, value)
        assert plan.placement() == placement
