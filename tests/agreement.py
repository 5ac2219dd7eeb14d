"""Whether dynamic program, brute force, evaluator and oracle agree on a problem."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from branching_instances import reordered
from oracle import Oracle
from random_placements import placement_data, random_placement, random_staged_placement

from nest_opt import InstanceError, Problem, solve
from nest_opt.certify.brute_force import BruteForceResult, brute_force
from nest_opt.plan import Placement
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.problem.validation import build

# How a problem without any legal degrees is refused.
REFUSALS = (
    "job.global_batch: ",
    "search: the smallest block ",
    "search.dp: ",
    "search.pp: ",
    "search.zero_instances: ",
)


@dataclass(frozen=True)
class Comparison:
    """A problem, what brute force found, and how something else differs (None: it does not)."""

    problem: Problem
    brute: BruteForceResult
    difference: str | None


def compare(data: Mapping[str, Any]) -> Comparison:
    """Solve a problem both ways and look at the best and at some random plan.

    Raises
    ------
    InstanceError
        If the data is not a valid problem.
    """
    problem = build(Problem, data, "problem")
    brute = brute_force(problem)
    found = solved(problem)
    expected = (brute.value_ps, brute.placement)
    # Where stages may differ, any plan of equal value will do: it was checked and valued.
    same = found[0] == expected[0] if problem.search.per_stage else found == expected
    if not same:
        return Comparison(problem, brute, f"brute force {expected}, dynamic program {found}")
    placements = [brute.placement, found[1]]
    if problem.job.cost_model == "default":
        rng = random.Random(problem.name)
        placements += [random_placement(rng, problem)]
        if problem.search.per_stage:
            placements += [random_staged_placement(rng, problem)]
        for placement in placements:
            difference = placement and oracle_difference(data, problem, placement)
            if difference:
                return Comparison(problem, brute, difference)
    return Comparison(problem, brute, None)


def solved(problem: Problem) -> tuple[int | None, Placement | None]:
    """Return the dynamic program's value and placement; None, None where there is no plan.

    Raises
    ------
    InstanceError
        If the problem is refused for another reason than that no degrees are legal.
    """
    try:
        result = solve(problem)
    except InstanceError as error:
        if str(error).startswith(REFUSALS):
            return None, None
        raise
    if result.plan is None or result.evaluation is None:
        assert result.status == "infeasible"
        return None, None
    assert result.status == "optimal"
    assert result.bound_ps == result.evaluation.value_ps
    return result.evaluation.value_ps, result.plan.placement()


def oracle_difference(
    data: Mapping[str, Any], problem: Problem, placement: Placement
) -> str | None:
    """Return where evaluator and oracle differ on a placement, or None.

    The oracle knows the listed order alone: it gets the layers listed in the placement's.
    """
    evaluation = evaluate(Costs(problem), placement)
    if placement.layer_order is not None:
        data = reordered(data, placement.layer_order)
    oracle = Oracle(data, placement_data(placement)).result()
    pairs: list[tuple[str, object, object]] = [
        ("stages", len(evaluation.stages), len(oracle.stages)),
        ("value", evaluation.value_ps, oracle.value_ps),
    ]
    for number, (ours, theirs) in enumerate(zip(evaluation.stages, oracle.stages, strict=False)):
        pairs += [
            (f"F of stage {number}", ours.time_ps, theirs.time_ps),
            (f"Y of stage {number}", ours.sync_ps, theirs.sync_ps),
            (f"X of stage {number}", ours.exposed_sync_ps, theirs.exposed_ps),
            (f"memory of stage {number}", ours.memory_terms_bytes, theirs.memory),
            (f"usable bytes of stage {number}", ours.usable_bytes, oracle.usable_bytes),
        ]
    for what, ours_, theirs_ in pairs:
        if ours_ != theirs_:
            return f"{what} of {placement}: evaluator {ours_}, oracle {theirs_}"
    return None
