"""The JSON of an exact search: the fields of a search, and who vouches for the bound."""

from dataclasses import replace

from nest_opt.api import ExactResult, VerifyResult, outside_family
from nest_opt.cli.explain import failure
from nest_opt.cli.json_output import Object, diagnosis_json, search_json, time_json
from nest_opt.plan.evaluate import Evaluation
from nest_opt.plan.gap import relative_gap


def exact_json(result: ExactResult) -> Object:
    """Return the result of an exact search."""
    same = replace(
        result.start,
        plan=result.plan,
        evaluation=result.evaluation,
        bound_ps=result.bound_ps,
        cells=result.cells,
        cells_pruned=result.cells_pruned,
        wall_s=result.wall_s,
        # What `solve` has no rule for, an exact search has rows for, or refuses.
        relaxed=(),
        broken=(),
        conflict=result.conflict,
    )
    data = {**search_json(same), "status": result.status, "family": result.family}
    if result.status == "infeasible":
        # Not where the dynamic program has no plan: the programs may have one.
        data["diagnosis"] = diagnosis_json(failure(same))
    data["bound_vouched_by"] = result.bound_vouched_by
    data["exact_units"] = result.exact_units
    data["search"].update(cells_solved=result.cells_solved, nodes=result.nodes)
    data["dynamic_program"] = dynamic_program_json(result)
    return data


def dynamic_program_json(result: ExactResult) -> Object:
    """Return what `solve` says of the same problem."""
    return {"status": result.start.status, **_value(result.start.evaluation)}


def _value(evaluation: Evaluation | None) -> Object:
    return time_json("value", evaluation.value_ps if evaluation else None)


def optimum_json(verified: VerifyResult, result: ExactResult | None) -> Object | None:
    """Return a plan's gap to the optimum of the family; None for an illegal plan."""
    if result is None or verified.evaluation is None:
        return None
    return {
        "family": result.family,
        "outside": outside_family(verified, result),
        "status": result.status,
        "dynamic_program": dynamic_program_json(result),
        **_value(result.evaluation),
        **time_json("bound", result.bound_ps),
        "bound_vouched_by": result.bound_vouched_by,
        "exact_units": result.exact_units,
        "plan_gap": relative_gap(verified.evaluation.value_ps, result.bound_ps),
        "search": {
            "wall_s": round(result.wall_s, 6),
            "cells": result.cells,
            "cells_pruned": result.cells_pruned,
            "cells_solved": result.cells_solved,
            "nodes": result.nodes,
        },
    }
