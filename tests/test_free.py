"""The free family: any distinct devices. Program, brute force, evaluator and checker agree."""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, islice, product

import pytest
from free_brute_force import assignments, free_brute_force, shapes
from free_instances import free_data
from milp_agreement import placement_options

from nest_opt import InstanceError, Problem, solve
from nest_opt.certify.brute_force import brute_force
from nest_opt.milp.build import Formulation, build
from nest_opt.milp.cells import FreeCell, free_cells
from nest_opt.milp.coefficients import CoefficientSource, label_of
from nest_opt.milp.exact import exact as programs
from nest_opt.milp.near import ranks_of
from nest_opt.plan import Placement
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, block_groups, evaluate
from nest_opt.problem import Configuration
from nest_opt.problem.profile import Group
from nest_opt.problem.validation import build as build_problem
from nest_opt.solver.highs import HighsSession

OPTIMUM_SEEDS = range(160)
FIXED_SEEDS = range(1000, 1060)
STAGED_SEEDS = range(60)
MOST_ASSIGNMENTS = 20_000

Values = tuple[int, ...]


def free_problem(seed: int) -> Problem:
    """Return the problem of a seed."""
    return build_problem(Problem, free_data(seed), f"seed {seed}")


# Optima


@cache
def optimum(seed: int) -> tuple[Values, Values]:
    """Return the values of brute force, and of the dynamic program; empty if not compared.

    Status, value and bound of the program must be those of brute force.
    """
    problem = free_problem(seed)
    try:
        solved = solve(problem)
    except InstanceError:
        return (), ()
    best = free_brute_force(problem, MOST_ASSIGNMENTS)
    if best is None:
        return (), ()
    found = programs(problem, family="free")
    expected = "infeasible" if best.value_ps is None else "optimal"
    assert (found.status, found.value_ps) == (expected, best.value_ps), f"seed {seed}"
    assert found.bound_ps == best.value_ps, f"seed {seed}"
    aligned = (solved.evaluation.value_ps,) if solved.evaluation else ()
    return (() if best.value_ps is None else (best.value_ps,)), aligned


@pytest.mark.parametrize("first", range(OPTIMUM_SEEDS.start, OPTIMUM_SEEDS.stop, 10))
def test_program_equals_brute_force(first: int) -> None:
    """Value, bound and infeasibility are brute force's, and no aligned plan is better."""
    for seed in range(first, first + 10):
        free, aligned = optimum(seed)
        # Where there is an aligned plan, there is a free one.
        assert len(free) >= len(aligned), f"seed {seed}"
        assert free[: len(aligned)] <= aligned, f"seed {seed}"


def test_free_plans_are_better_on_some_problems() -> None:
    """The comparisons say something: on some seeds the free optimum is below the aligned one."""
    values = [optimum(seed) for seed in OPTIMUM_SEEDS]
    assert sum(bool(free) for free, _ in values) >= 100
    assert sum(free[0] < aligned[0] for free, aligned in values if aligned) >= 10


@pytest.mark.parametrize("first", range(STAGED_SEEDS.start, STAGED_SEEDS.stop, 10))
def test_aligned_cells_whose_stages_choose(first: int) -> None:
    """With tp and sp by stage, program, dynamic program and brute force agree; starts are taken."""
    for seed in range(first, first + 10):
        problem = free_problem(seed)
        if not problem.search.per_stage:
            continue
        try:
            solved = solve(problem)
        except InstanceError:
            continue
        value = brute_force(problem).value_ps
        start = solved.plan.placement() if solved.plan and seed % 2 else None
        found = programs(problem, start=start)
        assert found.value_ps == found.bound_ps == value, f"seed {seed}"


# Every placement, fixed


def placements(costs: Costs, most: int) -> Iterator[Placement]:
    """Yield placements of the free family, legal or not, of every shape of plan."""
    layers = len(costs.problem.model.ids)
    for microbatch, chain, replicas in shapes(costs):
        modes = [tuple(costs.table.pairs[microbatch, k].stash_bytes) for k in chain]
        for device_map in islice(assignments(costs, chain, replicas), most):
            for inner in combinations(range(1, layers), len(chain) - 1):
                for chosen in product(*modes):
                    yield Placement(
                        microbatch, chain, replicas, "listed", 0, (*inner, layers), chosen,
                        device_map,
                    )  # fmt: skip


def is_sorted(k: Configuration, blocks: tuple[tuple[int, ...], ...], counted: Group) -> bool:
    """Whether the counted ranks of every slot of a stage are in the order of their devices."""
    return all(
        list(ranks) == sorted(ranks)
        for block in blocks
        for ranks in block_groups(block, k, counted)
    )


class Fixed:
    """The programs of a problem's cells, without what tells alike plans apart."""

    def __init__(self, costs: Costs) -> None:
        source = CoefficientSource(costs)
        self._costs = costs
        self._cells = {
            (c.microbatch, c.replicas, c.stages, k): c for c in free_cells(costs) for k in c.choices
        }
        self._source = source
        self._made: dict[FreeCell, tuple[Formulation, HighsSession]] = {}

    def program(self, placement: Placement) -> tuple[Formulation, HighsSession]:
        """Return the program of a placement's cell."""
        cell = self._cells[
            placement.microbatch, placement.replicas, placement.stages, placement.configurations[0]
        ]
        if cell not in self._made:
            formulation = build(self._costs, self._source.of(cell))
            for name in formulation.rows["symmetry"]:
                formulation.model.component(name).deactivate()
            self._made[cell] = formulation, HighsSession(formulation.model)
        return self._made[cell]

    def value(self, placement: Placement) -> float | None:
        """Return the program's value with stages, options and devices fixed, None if infeasible."""
        formulation, session = self.program(placement)
        k, ranks = formulation.coefficients, ranks_of(formulation.coefficients)
        for variable, value in formulation.decisions(placement.ends, placement_options(placement)):
            variable.fix(value)
        for variable in formulation.model.n.values():
            variable.fix(0)
        assert placement.devices is not None
        for stage, own in enumerate(placement.configurations):
            for replica in range(placement.replicas):
                block = placement.devices.block(replica, stage)
                for slot in ranks.slots(own):
                    for number in range(ranks.width(own)):
                        t, c, e = ranks.coordinates(slot, number)
                        group = block[t + own.tp * (c + own.cp * e)] // k.group_sizes[0]
                        n = formulation.model.n[replica, stage, label_of(own), *slot, group]
                        n.fix(n.value + 1)
        answer = session.solve()
        if answer.solution is None:
            return None
        return round(answer.solution.objective * formulation.units.time_ps, 4)


def test_every_fixed_placement_is_judged_and_valued_alike() -> None:
    """Fixed in the program, a placement is feasible as the checker says, of the evaluator's value.

    Where the counted ranks of a slot are not in the order of their devices,
    the program's value may be lower, never higher.
    """
    problems = count = illegal = unsorted = 0
    for seed in FIXED_SEEDS:
        problem = free_problem(seed)
        costs = Costs(problem)
        try:
            some = list(islice(placements(costs, 12), 0, 4000, 37))[:25]
            fixed = Fixed(costs)
        except InstanceError:
            continue
        problems += bool(some)
        for placement in some:
            evaluation = evaluate(costs, placement)
            violations = check(costs, placement, evaluation)
            value = fixed.value(placement)
            counted = ranks_of(fixed.program(placement)[0].coefficients).counted
            assert placement.devices is not None
            in_order = all(
                is_sorted(k, blocks, counted)
                for k, blocks in zip(
                    placement.configurations, placement.devices.devices, strict=True
                )
            )
            count, unsorted = count + 1, unsorted + (not in_order)
            illegal += bool(violations)
            if in_order:
                assert value == (None if violations else evaluation.value_ps), f"seed {seed}"
            elif not violations:
                assert value is not None
                assert value <= evaluation.value_ps, f"seed {seed}"
    assert problems >= 30
    assert unsorted < count / 2
    assert 0.1 < illegal / count < 0.9
