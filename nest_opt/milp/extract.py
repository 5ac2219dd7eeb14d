"""From a solver's solution to a placement: rounded, checked, valued anew."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from nest_opt.errors import SolverError
from nest_opt.milp.assignment import cumulative
from nest_opt.milp.build import Formulation
from nest_opt.milp.cells import FreeCell, PathCell
from nest_opt.milp.coefficients import CellCoefficients, label_of
from nest_opt.milp.near import free_cell, ranks_of
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate, evaluate_stage, placement_cell
from nest_opt.plan.placement import ListedMap, Placement, ends_and_order
from nest_opt.problem import Configuration
from nest_opt.problem.profile import Recompute
from nest_opt.solver.status import Solution

# A variable further than this from a whole number is none: HiGHS allows 1e-6.
INTEGRALITY = 1e-4

# Largest difference between the solver's value and the evaluator's, as a share
# of the value; half a picosecond where that is more.
VALUE_TOLERANCE = 1e-5


def rounded(formulation: Formulation, solution: Solution) -> Placement:
    """Return the placement that a solution stands for, legal or not.

    Raises
    ------
    SolverError
        If a variable is not near a whole number.
    """
    k, model = formulation.coefficients, formulation.model
    upto = [
        {v for v in range(k.layers) if whole(solution, cumulative(model, k, v, chunk))}
        for chunk in range(k.chunks)
    ]
    ends, layer_order = ends_and_order(
        after - before for before, after in pairwise([set[int](), *upto])
    )
    options = tuple(
        next(
            option
            for option in of_stage
            if len(of_stage) == 1 or whole(solution, model.mode[stage, option.label])
        )
        for stage, of_stage in enumerate(k.options)
    )
    modes = tuple(option.mode for option in options)
    configurations = tuple(option.configuration for option in options)
    if isinstance(k.cell, PathCell):
        cell = k.cell
        return Placement(
            cell.microbatch,
            configurations,
            cell.replicas,
            cell.order,
            cell.pitch,
            ends,
            modes,
            zero=cell.zero,
            schedule=cell.schedule,
        )
    if isinstance(k.cell, FreeCell):
        devices = listed_devices(
            k, configurations, {at: whole(solution, n) for at, n in model.n.items()}
        )
        return Placement(
            k.cell.microbatch,
            configurations,
            k.cell.replicas,
            "listed",
            0,
            ends,
            modes,
            devices,
            zero=k.cell.zero,
            schedule=k.cell.schedule,
        )
    return k.cell.placement(ends, modes, layer_order)


def listed_devices(
    k: CellCoefficients,
    configurations: Sequence[Configuration],
    counts: Mapping[tuple[Any, ...], int],
) -> ListedMap:
    """Return devices for the counts of every slot, its counted ranks in the order of devices."""
    ranks, size = ranks_of(k), k.group_sizes[0]
    if k.pairs is not None:
        unused = [iter(site) for site in k.pairs.sites]
    else:
        unused = [iter(tuple(range(first, k.devices))) for first in range(0, k.devices, size)]
    stages = []
    for stage, own in enumerate(configurations):
        blocks = []
        for replica in range(free_cell(k).replicas):
            place: dict[tuple[int, ...], int] = {}
            for slot in ranks.slots(own):
                taken = (
                    next(unused[group])
                    for group in range(len(unused))
                    for _ in range(counts[replica, stage, label_of(own), *slot, group])
                )
                for number, device in enumerate(taken):
                    place[ranks.coordinates(slot, number)] = device
            blocks.append(
                tuple(
                    place[t, c, e]
                    for e in range(own.ep)
                    for c in range(own.cp)
                    for t in range(own.tp)
                )
            )
        stages.append(tuple(blocks))
    return ListedMap(tuple(stages))


def overfull_stages(evaluation: Evaluation) -> list[int]:
    """Return the stages that take more memory than there is.

    A solver with tolerances does not see one byte in 8e10.
    """
    return [
        number
        for number, stage in enumerate(evaluation.stages)
        if stage.memory_bytes > stage.usable_bytes
    ]


def confirm(
    costs: Costs,
    formulation: Formulation,
    solution: Solution,
    raw: Placement,
    optimal: bool = True,
) -> tuple[Placement, Evaluation]:
    """Return a rounded placement with its stages' first modes, and its evaluation.

    `optimal` says that the solver claims so: then, and for devices that are
    given, the solution's value must be the placement's.

    Each stage takes the first mode that memory allows, as the page's section
    on ties says; that never makes a plan slower.

    Raises
    ------
    SolverError
        If the placement is illegal, or its value is not the solver's.
    """
    k = formulation.coefficients
    evaluation = evaluate(costs, raw)
    violations = check(costs, raw, evaluation)
    if violations:
        raise SolverError(
            f"HiGHS returned {raw}, which is illegal ({violations[0]}): "
            "please report this problem file"
        )
    claimed, chunks = solution.objective * formulation.units.time_ps, k.cell.schedule.chunks
    # With v chunks a value is a multiple of 1 / v, rounded up.
    above = claimed - evaluation.value_ps
    below = evaluation.value_ps - 1 + 1 / chunks - claimed
    # Devices may be nearer than a solution that is not the best one says.
    unsure = isinstance(k.cell, FreeCell) and not optimal
    wrong = below if unsure else max(above, below)
    if wrong > max(0.5 / chunks, VALUE_TOLERANCE * evaluation.value_ps):
        raise SolverError(
            f"HiGHS values {raw} at {claimed} ps, the evaluator at {evaluation.value_ps} ps: "
            "please report this problem file"
        )
    placement = replace(raw, recompute=_first_modes(costs, formulation, raw))
    return placement, evaluate(costs, placement)


def whole(solution: Solution, variable: object) -> int:
    """Return an integer variable's value, rounded."""
    if isinstance(variable, int):
        return variable
    value = solution.values[variable]
    if abs(value - round(value)) > INTEGRALITY:
        raise SolverError(
            f"HiGHS returned {value} for {variable}: within {INTEGRALITY} of a whole number is "
            "needed: please report this problem file"
        )
    return round(value)


def _first_modes(
    costs: Costs, formulation: Formulation, placement: Placement
) -> tuple[Recompute, ...]:
    """Return, for each stage, the first mode that fits its memory."""
    k, cell = formulation.coefficients, placement_cell(costs.problem, placement)
    modes = []
    ordered = costs.ordered(placement.layer_order)
    for stage, intervals in enumerate(placement.intervals):
        found = (
            evaluate_stage(ordered, cell, stage, intervals, option.mode)
            for option in k.options[stage]
            if option.configuration == placement.configurations[stage]
        )
        modes.append(
            next(option.recompute for option in found if option.memory_bytes <= option.usable_bytes)
        )
    return tuple(modes)
