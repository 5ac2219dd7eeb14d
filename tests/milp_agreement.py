"""Whether the integer program agrees with checker, evaluator, dynamic program and brute force."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from math import ceil, comb, prod

from agreement import REFUSALS

from nest_opt import InstanceError, Problem, solve
from nest_opt.certify.brute_force import BruteForceResult, brute_force
from nest_opt.milp.build import Formulation, build
from nest_opt.milp.cells import aligned_cells
from nest_opt.milp.coefficients import CellCoefficients, CoefficientSource
from nest_opt.milp.exact import exact
from nest_opt.milp.index_sets import chunks_of
from nest_opt.milp.result import ExactSearch
from nest_opt.milp.units import units
from nest_opt.network import build_network
from nest_opt.plan import Placement
from nest_opt.plan.check import check, check_form
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.placement import ends_and_order
from nest_opt.problem import Configuration
from nest_opt.problem.profile import Recompute
from nest_opt.solver.highs import HighsSession


@dataclass(frozen=True)
class FixedComparison:
    """Placements fixed in the program: how many, how many of them illegal, what differs."""

    placements: int
    illegal: int
    difference: str | None


@dataclass(frozen=True)
class OptimumComparison:
    """An exact search, whether it had a start, and what differs (None: nothing)."""

    found: ExactSearch
    started: bool
    difference: str | None


def placement_count(k: CellCoefficients) -> int:
    """Return the number of ways to cut a cell's layers and to choose modes, or a bound on it."""
    ways = comb(k.layers - 1, k.chunks - 1) if k.graph is None else k.stages**k.layers
    return ways * prod(map(len, k.options))


def placements(k: CellCoefficients) -> Iterator[Placement]:
    """Yield every placement of a cell that leaves no stage empty, legal or not.

    Chunks may be of any sizes; in any order, edges may go to an earlier stage.
    """
    for ends, order in _cuts(k):
        for options in product(*k.options):
            modes = tuple(option.mode for option in options)
            yield k.cell.placement(ends, modes, order)


def _cuts(k: CellCoefficients) -> Iterator[tuple[tuple[int, ...], tuple[int, ...] | None]]:
    if k.graph is None:
        for inner in combinations(range(1, k.layers), k.chunks - 1):
            yield (*inner, k.layers), None
        return
    for stage_of in product(range(k.stages), repeat=k.layers):
        if len(set(stage_of)) == k.stages:
            stages = [[v for v in range(k.layers) if stage_of[v] == i] for i in range(k.stages)]
            yield ends_and_order(stages)


def placement_options(placement: Placement) -> tuple[tuple[Configuration, Recompute], ...]:
    """Return what each stage of a placement chose."""
    return tuple(zip(placement.configurations, placement.recompute, strict=True))


def exact_coefficients(problem: Problem) -> list[CellCoefficients] | None:
    """Return every cell's coefficients; None if there are no legal degrees.

    None as well if some coefficient is no small integer: a tolerance could
    then hide a unit.
    """
    costs = Costs(problem)
    try:
        source = CoefficientSource(costs)
        found = [source.of(cell) for cell in aligned_cells(costs)]
    except InstanceError:
        return None
    return found if all(units(k).exact for k in found) else None


def compare_fixed(problem: Problem, cells: list[CellCoefficients]) -> FixedComparison:
    """Fix every placement of some cells: feasible as the checker says, valued as the evaluator."""
    costs = Costs(problem)
    count = illegal = 0
    for k in cells:
        formulation = build(costs, k)
        session = HighsSession(formulation.model)
        for placement in placements(k):
            expected, violations = None, check_form(costs, placement)
            if not violations:
                evaluation = evaluate(costs, placement)
                violations = check(costs, placement, evaluation)
                expected = None if violations else evaluation.value_ps
            found = fixed_value(formulation, session, placement)
            count += 1
            illegal += expected is None
            if found != expected:
                told = f"checker and evaluator {expected} ({violations}), program {found}"
                return FixedComparison(count, illegal, f"{placement}: {told}")
    return FixedComparison(count, illegal, None)


def fixed_value(
    formulation: Formulation, session: HighsSession, placement: Placement
) -> float | None:
    """Return the program's value with a placement's decisions fixed; None if infeasible.

    The objective is rounded to 1e-4 ps, which leaves whole numbers and shares
    of v chunks apart, and then up, as a value is.
    """
    k, chosen = formulation.coefficients, placement_options(placement)
    if not _is_possible(k, placement):
        # Its variables are settled otherwise: no value can be given to them.
        return None
    for variable, value in formulation.decisions(placement.ends, chosen, placement.layer_order):
        variable.fix(value)
    answer = session.solve()
    if answer.solution is None:
        assert answer.termination.reason == "infeasible"
        return None
    objective = round(answer.solution.objective * formulation.units.time_ps, 4)
    if formulation.coefficients.cell.schedule.chunks > 1:
        return ceil(objective)
    return objective


def _is_possible(k: CellCoefficients, placement: Placement) -> bool:
    """Whether each layer is in a stage that the program has for it."""
    order = range(k.layers) if placement.layer_order is None else placement.layer_order
    chunks = enumerate(zip((0, *placement.ends), placement.ends, strict=False))
    return all(
        chunk in chunks_of(k, layer) for chunk, (low, high) in chunks for layer in order[low:high]
    )


def compare_optimum(problem: Problem) -> OptimumComparison | None:
    """Hold the exact search against dynamic program and brute force.

    None where no degrees are legal. By a coin of the problem's name, the
    dynamic program's plan or another legal one is the start.
    """
    try:
        solved = solve(problem)
    except InstanceError:
        return None
    start = None
    if solved.plan is not None and random.Random(problem.name).random() < 0.3:
        start = solved.plan.placement()
    found = exact(problem, start=start)
    brute = brute_force(problem).value_ps
    expected = None if solved.evaluation is None else solved.evaluation.value_ps
    status = "infeasible" if expected is None else "optimal"
    difference = None
    if not (brute == expected == found.value_ps == found.bound_ps) or found.status != status:
        difference = (
            f"brute force {brute}, dynamic program {expected}, program {found.status} "
            f"{found.value_ps}, bound {found.bound_ps}, {found.placement}"
        )
    return OptimumComparison(found, start is not None, difference)


def programs_know(problem: Problem) -> bool:
    """Whether there are programs for a problem.

    Where stages choose, ZeRO is 1 at the most, and it makes no difference how many ports leave a
    group.
    """
    return not problem.search.per_stage or (
        build_network(problem.cluster).spreads.is_flat
        and all(max(zero.dense, zero.expert, zero.instances) <= 1 for zero in problem.zeros)
    )


def program_difference(problem: Problem, brute: BruteForceResult) -> str | None:
    """Return how the exact search differs from brute force in value, bound or status, or None.

    By a coin of the problem's name, the best plan is its start.
    """
    start = brute.placement if random.Random(problem.name).random() < 0.2 else None
    try:
        found = exact(problem, start=start)
    except InstanceError as error:
        if brute.value_ps is None and str(error).startswith(REFUSALS):
            return None
        raise
    status = "infeasible" if brute.value_ps is None else "optimal"
    if (found.status, found.value_ps, found.bound_ps) == (status, brute.value_ps, brute.value_ps):
        return None
    return (
        f"brute force {brute.value_ps} {brute.placement}, program {found.status} "
        f"{found.value_ps}, bound {found.bound_ps}, {found.placement}"
    )
