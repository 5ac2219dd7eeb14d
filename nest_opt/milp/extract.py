"""From a solver's solution to a placement: rounded, checked, valued anew."""

from dataclasses import replace

from nest_opt.errors import SolverError
from nest_opt.milp.assignment import cumulative
from nest_opt.milp.build import Formulation
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate, evaluate_stage
from nest_opt.plan.placement import Placement
from nest_opt.problem.profile import Recompute
from nest_opt.solver.status import Solution

# A binary further than this from 0 and 1 is no binary: HiGHS allows 1e-6.
INTEGRALITY = 1e-4

# Largest difference between the solver's value and the evaluator's, as a share
# of the value; half a picosecond where that is more.
VALUE_TOLERANCE = 1e-5


def rounded(formulation: Formulation, solution: Solution) -> Placement:
    """Return the placement that a solution stands for, legal or not.

    Raises
    ------
    SolverError
        If a binary is not near 0 or 1.
    """
    k, model = formulation.coefficients, formulation.model
    ends = tuple(
        sum(binary(solution, cumulative(model, k, layer, stage)) for layer in range(k.layers))
        for stage in range(k.stages)
    )
    modes = k.modes * k.stages
    if len(k.modes) > 1:
        modes = tuple(
            next(mode for mode in k.modes if binary(solution, model.mode[stage, mode]))
            for stage in range(k.stages)
        )
    return k.cell.placement(ends, modes)


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
    costs: Costs, formulation: Formulation, solution: Solution, raw: Placement
) -> tuple[Placement, Evaluation]:
    """Return a rounded placement with its stages' first modes, and its evaluation.

    Each stage takes the first mode that memory allows, as the page's section
    on ties says; that never makes a plan slower.

    Raises
    ------
    SolverError
        If the placement is illegal, or its value is not the solver's.
    """
    evaluation = evaluate(costs, raw)
    violations = check(costs, raw, evaluation)
    if violations:
        raise SolverError(
            f"HiGHS returned {raw}, which is illegal ({violations[0]}): "
            "please report this problem file"
        )
    claimed = solution.objective * formulation.units.time_ps
    if abs(claimed - evaluation.value_ps) > max(0.5, VALUE_TOLERANCE * evaluation.value_ps):
        raise SolverError(
            f"HiGHS values {raw} at {claimed} ps, the evaluator at {evaluation.value_ps} ps: "
            "please report this problem file"
        )
    placement = replace(raw, recompute=_first_modes(costs, formulation, raw))
    return placement, evaluate(costs, placement)


def binary(solution: Solution, variable: object) -> int:
    """Return a binary's value, rounded."""
    if isinstance(variable, int):
        return variable
    value = solution.values[variable]
    if min(abs(value), abs(value - 1)) > INTEGRALITY:
        raise SolverError(
            f"HiGHS returned {value} for the binary {variable}: within {INTEGRALITY} of 0 or 1 is "
            "needed: please report this problem file"
        )
    return round(value)


def _first_modes(
    costs: Costs, formulation: Formulation, placement: Placement
) -> tuple[Recompute, ...]:
    """Return, for each stage, the first mode that fits its memory."""
    k = formulation.coefficients
    modes = []
    for stage, (low, high) in enumerate(placement.intervals):
        found = (evaluate_stage(costs, k.cell, stage, low, high, mode) for mode in k.modes)
        modes.append(
            next(option.recompute for option in found if option.memory_bytes <= option.usable_bytes)
        )
    return tuple(modes)
