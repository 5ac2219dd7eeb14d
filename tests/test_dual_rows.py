"""Programs that bound groups of the free family: rows, values of multipliers, trees."""

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from dual_points import Point, degrees_of, some_multipliers
from free_agreement import placements
from free_instances import free_data
from free_zero_instances import free_zero_data
from random_maps import random_placement
from tied_instances import tied_free_data

from nest_opt import InstanceError, Problem
from nest_opt.certify import dual_rows
from nest_opt.certify.dual import DualProof, even_share_ps, prove
from nest_opt.certify.dual_groups import Degrees, group_numbers, groups
from nest_opt.certify.dual_rows import Arc, Column, Program, dual_value, open_leaf
from nest_opt.milp.exact import exact
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.placement import Placement
from nest_opt.problem.files import read_problem
from nest_opt.problem.validation import build

SMALL = Path(__file__).resolve().parent.parent / "instances" / "small"


def arc(stage: int, low: int, high: int, cost: int, **entries: int) -> Arc:
    """Return an arc of a hand-made program, all on level 0."""
    return Arc(stage, low, high, 0, 1, ((0, 0),), 0, 0, cost, 0, 0, entries)


def hand_made() -> Program:
    """Return a program of two paths, over cut 1 at 10 and over cut 2 at 6, and a column.

    The row asks for 2, of which the first path has 1 and the column the rest, at 7 each. So the
    least value is 10 + 7 = 17 over cut 1, and 6 + 14 = 20 over cut 2.
    """
    arcs = [
        [arc(0, 0, 1, 4, need=1), arc(0, 0, 2, 3)],
        [arc(1, 1, 3, 6), arc(1, 2, 3, 3)],
    ]
    return Program(arcs, {"more": Column(0, 2, 7, {"need": 1})}, {"need": 2})


@pytest.mark.parametrize(
    ("multiplier", "value"), [(0, 6), (3, 12), (7, 17), (Fraction(13, 2), 17 - Fraction(1, 2))]
)
def test_value_of_multipliers(multiplier: Fraction, value: Fraction) -> None:
    """2 y + the cheaper path less y over cut 1 + the column's 2 (7 - y) if that is negative."""
    assert dual_value(hand_made(), {"need": Fraction(multiplier)}) == value


def test_too_large_multipliers_lower_the_value() -> None:
    """At y = 10 the column pays back: 20 + min(10 - 10, 6) + 2 (7 - 10) = 14."""
    assert dual_value(hand_made(), {"need": Fraction(10)}) == 14


def test_multipliers_of_no_row_count_for_nothing_and_negative_ones_are_refused() -> None:
    """A name that the program lacks changes nothing; a negative number proves nothing."""
    assert dual_value(hand_made(), {"other": Fraction(5)}) == 6
    with pytest.raises(ValueError, match="found -1, at least 0"):
        dual_value(hand_made(), {"need": Fraction(-1)})


def test_large_leaves_are_steps_and_have_a_small_denominator(
    slow: tuple[int, dual_rows.Group, DualProof],
) -> None:
    """Multipliers count as steps, and many that have no small common denominator are refused."""
    best, group, proof = slow
    counts: list[int] = []
    assert open_leaf(group, best, proof.tree, counts.append) is None
    before = sum(counts)
    counts.clear()
    unknown = {f"none {number}": 1 for number in range(500)}
    for leaf in leaves(proof.tree):
        leaf["multipliers"] |= unknown
    assert open_leaf(group, best, proof.tree, counts.append) is None
    assert sum(counts) == before + 500 * proof.leaves
    for leaf in leaves(proof.tree):
        for name in unknown:
            del leaf["multipliers"][name]
    many = {f"none {number}": Fraction(1, 10**6 + number) for number in range(1000)}
    with pytest.raises(ValueError, match="bits in all"):
        dual_value(hand_made(), many)


def test_a_program_without_a_path_has_no_value() -> None:
    """There is no placement: None, not a number."""
    program = hand_made()
    program.arcs[1] = [arc(1, 0, 3, 1)]
    assert dual_value(program, {}) is None


def test_staircases_are_the_sets_of_maximal_pairs() -> None:
    """Of 2 and of 3 levels each: all sets of pairs of which none exceeds another in both."""
    assert dual_rows.staircases(1, 2) == (((0, 0),), ((0, 1),))
    assert len(dual_rows.staircases(2, 2)) == 5
    assert ((0, 1), (1, 0)) in dual_rows.staircases(2, 2)
    assert len(dual_rows.staircases(3, 3)) == 19


def test_segments_are_under_all_points() -> None:
    """The lower hull, and a single point as a segment of no length."""
    assert list(dual_rows.segments({3: 1})) == [(3, 3)]
    assert list(dual_rows.segments({2: 0, 3: 2, 4: 0, 6: 4})) == [(2, 4), (4, 6)]


# Placements as points


def compare(costs: Costs, at: Degrees, placement: Placement, told: Counter[str]) -> None:
    """Assert that a legal placement meets all rows, at an objective that is not above its value."""
    evaluation = evaluate(costs, placement)
    if check(costs, placement, evaluation):
        told["illegal"] += 1
        return
    group = group_numbers(costs, at)
    assert group is not None
    assert even_share_ps(group) <= evaluation.value_ps
    program = dual_rows.build(group, evaluation.value_ps + 1, {})
    point = Point(costs, at, program, placement, evaluation)
    assert list(point.broken(program)) == []
    assert point.value_ps <= evaluation.value_ps
    for seed in range(2):
        value = dual_value(program, some_multipliers(program, seed))
        assert value is not None
        assert value <= evaluation.value_ps
    told["legal"] += 1
    told["equal"] += point.value_ps == evaluation.value_ps
    told["packed"] += any(max(a.spread, a.torn) < len(group.rooms) for a in point.arcs)


def random_problem(kind: str, seed: int) -> Problem:
    """Return a tiny problem; every other one has all schedules of one chunk."""
    makers = {"plain": free_data, "zero": free_zero_data, "tied": tied_free_data}
    data: dict[str, Any] = makers[kind](seed)
    if seed % 2:
        data["search"]["schedule"] = ["1f1b", "gpipe", "zb-h1"]
    return build(Problem, data, f"{kind} {seed}")


@pytest.mark.parametrize("kind", ["plain", "zero", "tied"])
def test_placements_of_tiny_problems_are_points(kind: str) -> None:
    """So are random ones with several stages and replicas, of every schedule and ZeRO level."""
    told: Counter[str] = Counter()
    for seed in range(30):
        try:
            costs = Costs(random_problem(kind, seed))
            of_problem = list(groups(costs))
        except InstanceError:
            continue
        some = [at for at in of_problem if at.replicas > 1 and at.stages > 1] or of_problem
        for number in range(4 if some else 0):
            rng = random.Random(f"{kind} {seed} {number}")
            at = rng.choice(some)
            placement = random_placement(costs, at, rng)
            if placement is None or (costs.table.tied and not placement.is_uniform):
                continue
            compare(costs, at, placement, told)
    assert told["legal"] >= 30
    assert told["equal"] >= 10
    assert told["packed"] >= 10


def test_enumerated_placements_are_points() -> None:
    """So are those of the enumeration that the brute force starts from."""
    told: Counter[str] = Counter()
    for seed in range(12):
        costs = Costs(random_problem("plain", 2 * seed))
        try:
            for number, placement in enumerate(placements(costs, 3)):
                if number % 29 == 0 and number < 300:
                    compare(costs, degrees_of(costs, placement), placement, told)
        except InstanceError:
            continue
    assert told["legal"] >= 20


@pytest.mark.parametrize("name", ["four-slow-nodes", "nodes-of-six", "tp-by-stage", "experts"])
def test_placements_of_small_instances_are_points(name: str) -> None:
    """So are random ones of 16 to 24 layers on 24 to 32 devices."""
    costs, told = Costs(read_problem(SMALL / f"{name}.json")), Counter[str]()
    some = [at for at in groups(costs) if at.replicas > 1 and 1 < at.stages <= 6]
    for seed in range(6):
        rng = random.Random(f"{name} {seed}")
        at = rng.choice(some)
        placement = random_placement(costs, at, rng)
        if placement is not None:
            compare(costs, at, placement, told)
    assert told["legal"] >= 2


# Bounds


def proofs(costs: Costs, limit_ps: int, most_splits: int) -> dict[Degrees, DualProof]:
    """Return the proofs of all groups that a closed form does not settle."""
    found = {}
    for at in groups(costs):
        group = group_numbers(costs, at)
        if group is not None and even_share_ps(group) < limit_ps:
            found[at] = prove(group, limit_ps, most_splits)
            assert open_leaf(group, found[at].bound_ps, found[at].tree) is None
    return found


def test_bounds_are_at_most_the_optimum_and_mostly_reach_it() -> None:
    """Whatever the limit; with the optimum as limit, trees of few splits mostly prove it."""
    reached = compared = 0
    for seed in range(0, 16, 2):
        problem = random_problem("plain", seed)
        try:
            best = exact(problem, family="free").value_ps
        except InstanceError:
            continue
        if best is None:
            continue
        costs = Costs(problem)
        wide = proofs(costs, best + best // 5, 6)
        assert min(proof.bound_ps for proof in wide.values()) <= best
        close = proofs(costs, best, 40)
        compared += 1
        reached += all(proof.bound_ps == best for proof in close.values())
    assert compared >= 5
    assert reached >= compared // 2


@pytest.fixture(scope="module")
def slow() -> tuple[int, dual_rows.Group, DualProof]:
    """Return the optimum of four slow nodes, the numbers of its group, and that group's proof."""
    costs, best = Costs(read_problem(SMALL / "four-slow-nodes.json")), 836_942_113_278
    at = next(a for a in groups(costs) if (a.choices[0].tp, a.replicas, a.stages) == (4, 2, 4))
    group = group_numbers(costs, at)
    assert group is not None
    return best, group, prove(group, best, 20)


def test_a_small_instance_is_proved(slow: tuple[int, dual_rows.Group, DualProof]) -> None:
    """The tree of the optimum's own group reaches it, and no limit above it can be proved."""
    best, group, proof = slow
    assert proof.root_ps < proof.bound_ps == best
    steps: list[int] = []
    assert prove(group, best, 20, lambda: steps.append(1)).splits == len(steps) > 0
    assert open_leaf(group, best, proof.tree) is None
    found = open_leaf(group, best + 1, proof.tree)
    assert found is not None
    assert found[1] <= best


def leaves(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the leaves of a tree."""
    if "split" in tree:
        return leaves(tree["below"]) + leaves(tree["above"])
    return [tree]


def test_tampered_trees_prove_nothing(slow: tuple[int, dual_rows.Group, DualProof]) -> None:
    """Without a leaf's multipliers, with half or twice of them, or a wrong split, one is open."""
    best, group, proof = slow
    *_, leaf = [leaf for leaf in leaves(proof.tree) if leaf["multipliers"]]
    kept = dict(leaf["multipliers"])
    leaf["multipliers"] = {}
    assert open_leaf(group, best, proof.tree) is not None
    for factor in (Fraction(1, 2), 2):
        leaf["multipliers"] = {row: str(factor * Fraction(kept[row])) for row in kept}
        assert open_leaf(group, best, proof.tree) is not None
    leaf["multipliers"] = dict.fromkeys(kept, "-1")
    with pytest.raises(ValueError, match="at least 0 is needed"):
        open_leaf(group, best, proof.tree)
    leaf["multipliers"] = kept
    name, at = proof.tree["split"]
    proof.tree["split"] = [name, at // 2]
    assert open_leaf(group, best, proof.tree) is not None
    proof.tree["split"] = [name, at]
    assert open_leaf(group, best, proof.tree) is None


def test_splits_lose_nothing_under_a_limit_below_the_counts(
    slow: tuple[int, dual_rows.Group, DualProof],
) -> None:
    """If every placement takes 0, no split proves 1, though cuts, sizes and counts are above it."""
    _, group, _ = slow
    free = replace(group, sum_weight=0, round_weight=0, fill_weight=0, syncs=False)
    leaf: dict[str, Any] = {"multipliers": {}}
    for name in (f"end {group.stages - 1}", "size 0", "hops 0 1"):
        tree = {"split": [name, 0], "below": leaf, "above": leaf}
        assert open_leaf(free, 1, tree) is not None, name
