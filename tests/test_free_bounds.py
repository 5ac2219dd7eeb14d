"""Bounds of the free family: no plan is below them, and the checker repeats their proofs."""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from free_brute_force import GroupKey, free_brute_force
from free_instances import free_data
from free_zero_instances import free_zero_problem
from random_schedule_problems import random_schedule_data
from schedule_instances import scheduled_free_problem
from tied_instances import tied_free_data

from nest_opt import InstanceError, Problem
from nest_opt.certify.checker import check as check_data
from nest_opt.certify.maker import make_certificate
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.free_bounds import free_bound, group_bound_ps
from nest_opt.dp.free_source import FreeSource
from nest_opt.dp.runs import Counts
from nest_opt.dp.search import NO_LIMIT, GroupQueue, search
from nest_opt.dp.source import Group
from nest_opt.errors import ConsistencyError, ModelError
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.placement import ListedMap, Placement
from nest_opt.problem import Configuration
from nest_opt.problem.files import read_problem
from nest_opt.problem.validation import build
from nest_opt.problem.zero import NOT_SHARDED

PAPER = Path(__file__).resolve().parent.parent / "instances" / "paper"
MOST_ASSIGNMENTS = 120
# Of 100 seeds each, those on which brute force is quick, and one error or another in what is
# counted shows.
SEEDS = {
    "degrees": (20, 28, 49, 57, 80, 97),
    "zero": (7, 11, 15, 20, 30, 52, 55, 64, 97),
    "tied": (3, 9, 13, 21, 27, 28, 53, 61, 70, 95, 97),
    "schedules": (21, 49, 57, 70, 97),
}


def _problem(make: Callable[[int], Problem], seed: int) -> Problem | None:
    """Return the problem of a seed, all stages alike; None if it has no legal degrees."""
    try:
        problem = make(seed)
        alike = problem.search.model_copy(update={"per_stage": ()})
        problem = problem.model_copy(update={"search": alike})
        Costs(problem).table  # noqa: B018
    except InstanceError:
        return None
    return problem


MAKERS: dict[str, Callable[[int], Problem]] = {
    "degrees": lambda seed: build(Problem, free_data(seed), f"seed {seed}"),
    "zero": free_zero_problem,
    "tied": lambda seed: build(Problem, tied_free_data(seed), f"seed {seed}"),
    "schedules": scheduled_free_problem,
}


def problems(name: str, seeds: Iterable[int]) -> Iterator[tuple[str, Problem]]:
    """Yield the problems of some seeds, each with what names it."""
    for seed in seeds:
        problem = _problem(MAKERS[name], seed)
        if problem is not None:
            yield f"{name} {seed}", problem


def groups(source: FreeSource) -> Iterator[Group]:
    """Yield all groups in which anything may fit, dominated ones too."""
    queue = GroupQueue(source, with_dominated=True)
    queue.fill()
    while (group := queue.next(NO_LIMIT)) is not None:
        yield group
        queue.finish()


def key(group: Group) -> GroupKey:
    """Return what brute force calls a group."""
    chain = (group.configuration,) * group.stages
    return group.microbatch, chain, group.replicas, group.schedule, group.zero


# Against every assignment of devices


@pytest.mark.parametrize("name", MAKERS)
def test_no_group_has_a_plan_below_its_bound(name: str) -> None:
    """Of every group, on any devices; of most groups that have one a plan is at the bound."""
    compared = tight = 0
    for told, problem in problems(name, SEEDS[name]):
        best = free_brute_force(problem, MOST_ASSIGNMENTS, groups=True)
        if best is None:
            continue
        source = FreeSource(Costs(problem))
        bounds = {key(group): group_bound_ps(source, group) for group in groups(source)}
        for group, value in best.by_group.items():
            bound = bounds[group]
            assert bound is not None, told
            assert bound <= value, told
            compared, tight = compared + 1, tight + (bound == value)
        assert free_bound(source).bound_ps == min(
            (bound for bound in bounds.values() if bound is not None), default=None
        )
    assert compared >= 6
    assert tight > compared / 2


def test_no_changed_device_map_of_a_large_plan_is_below_the_bound() -> None:
    """The best aligned plan of Mixtral with blocks changed about costs no less, if little more."""
    costs = Costs(read_problem(PAPER / "mixtral-8x7b-paper-h100-spineleaf-64.json"))
    solved, rng = search(DefaultSource(costs)), random.Random(0)
    best, value = solved.placement, solved.value_ps
    assert best is not None
    assert value is not None
    bound = free_bound(FreeSource(costs), value).bound_ps
    assert bound is not None
    shape = [(stage, replica) for stage in range(best.stages) for replica in range(best.replicas)]
    found = set()
    for _ in range(40):
        blocks = {at: best.device_map.block(at[1], at[0]) for at in shape}
        for _ in range(rng.choice((0, 1, 4))):
            here, there = rng.sample(shape, 2)
            blocks[here], blocks[there] = blocks[there], blocks[here]
        devices = tuple(
            tuple(tuple(blocks[stage, r]) for r in range(best.replicas))
            for stage in range(best.stages)
        )
        changed = replace(best, order="listed", pitch=0, devices=ListedMap(devices))
        assert check(costs, changed) == []
        found.add(evaluate(costs, changed).value_ps)
    assert bound <= min(found) < 1.01 * bound
    assert len(found) > 5


def test_a_free_plan_is_at_the_bound_and_the_same_stages_in_order_are_above() -> None:
    """BERT in 16 stages: the bound is reached with first and last stages in one node."""
    costs = Costs(read_problem(PAPER / "bert-large-paper-h100-spineleaf-1024.json"))
    source, k = FreeSource(costs), Configuration(1, 1, 1, False)
    group = Group(0, 1024, 16, 64, 2, k, 32)
    bound = group_bound_ps(source, group)
    # Of a replica, stages 0 and 9 to 15 are in one node, those between in the next one.
    order = (0, *range(9, 16), *range(1, 9))
    devices = tuple(
        tuple((16 * replica + order.index(stage),) for replica in range(64)) for stage in range(16)
    )
    ends = (1, 2, 4, 6, 8, 10, 12, 14, 15, 16, 18, 20, 22, 24, 25, 26)
    placement = Placement(2, (k,) * 16, 64, "listed", 0, ends, ("none",) * 16, ListedMap(devices))
    assert check(costs, placement) == []
    assert evaluate(costs, placement).value_ps == bound == 191_542_095_441
    aligned = replace(placement, order="pp-inner", pitch=16, devices=None)
    assert check(costs, aligned) == []
    assert evaluate(costs, aligned).value_ps > bound


def test_the_aligned_optimum_is_best_of_all_where_the_bound_says_so() -> None:
    """Mixtral on 64 devices of dgx-h100: no plan on any devices is better than the aligned one."""
    costs = Costs(read_problem(PAPER / "mixtral-8x7b-dgx-h100-64.json"))
    value = search(DefaultSource(costs)).value_ps
    found = free_bound(FreeSource(costs), value)
    assert (found.bound_ps, found.group) == (value, None)


# Proofs


@pytest.mark.parametrize("name", MAKERS)
def test_the_checker_proves_the_bound_and_no_more(name: str) -> None:
    """A second program, over states from the first stage on, agrees to the last unit."""
    by_runs = compared = 0
    for told, problem in problems(name, range(200, 210)):
        costs = Costs(problem)
        target = free_bound(FreeSource(costs)).bound_ps
        if target is None:
            continue
        made = make_certificate(costs, "free", target)
        assert check_data(json.loads(json.dumps(made.data))).least_ps == target, told
        by_runs += made.proofs.get("runs", 0)
        compared += 1
        with pytest.raises(ConsistencyError, match="found no proof"):
            make_certificate(costs, "free", target + 1)
    assert compared >= 3
    assert by_runs >= 3


def test_interleaved_groups_have_the_bound_of_the_least_levels() -> None:
    """It is no more than the best of the search, and no proof by runs is made of such groups."""
    compared = 0
    for seed in range(12):
        data = random_schedule_data(seed)
        data["search"].update(schedule=["interleaved"], per_stage=[])
        problem = _problem(lambda s, data=data: build(Problem, data, f"seed {s}"), seed)
        value = None if problem is None else search(DefaultSource(Costs(problem))).value_ps
        if problem is not None and value is not None:
            costs = Costs(problem)
            found = free_bound(FreeSource(costs))
            assert found.bound_ps is not None
            assert found.bound_ps <= value
            assert found.relaxed == 0
            proofs = make_certificate(costs, "free", found.bound_ps).proofs
            assert proofs.keys() <= {"sum", "room", "chunks"}
            compared += 1
    assert compared >= 2


# What is counted


def test_a_group_has_room_for_a_stage_with_its_copies() -> None:
    """Three blocks a group: with two replicas a stage takes one block, or two with its copies."""
    moves = Counts(room=3, together=2, can_tear=False).moves()
    taken = {
        (move.lie, before): after
        for move in moves
        if not (move.far_in or move.far_out)
        for before, after in zip(move.before, move.after, strict=True)
    }
    # Near with room for r blocks is state 1 + r.
    assert taken == {("apart", 3): 2, ("apart", 4): 3, ("together", 4): 2}


def test_torn_blocks_are_near_to_torn_ones_alone() -> None:
    """Where a group holds no whole block there is nothing else."""
    moves = Counts(room=0, together=4, can_tear=True).moves()
    assert {move.lie for move in moves} == {"torn"}
    assert len(moves) == 4


def test_stages_that_differ_are_refused() -> None:
    """The bound is of plans with one configuration for all stages."""
    problem = build(Problem, free_data(0), "seed 0")
    differ = problem.search.model_copy(update={"per_stage": ("tp",)})
    with pytest.raises(ModelError, match=r"found search\.per_stage"):
        FreeSource(Costs(problem.model_copy(update={"search": differ})))


def test_least_levels_count_devices() -> None:
    """Of nodes of four, five copies need two; aligned groups at a stride need more."""
    problem = read_problem(PAPER / "mixtral-8x7b-dgx-h100-64.json")
    least = FreeSource(Costs(problem)).least
    k = Configuration(2, 1, 4, True)
    assert least.of_groups(k) == (0, 0, 0, 0)
    # Dense copies are ep * d, those of experts d.
    assert least.copy_levels(k, 4, NOT_SHARDED) == (1, 0)
    # Eight of them leave a node by eight ports: number 1, the next to what they have inside.
    assert least.of_copies(k, 4, NOT_SHARDED) == (1 + 2 * 1, 0)
