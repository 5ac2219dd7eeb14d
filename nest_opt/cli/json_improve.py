"""The JSON object of `improve`. `docs/cli.md` describes every field."""

from collections.abc import Iterable
from typing import Any

from nest_opt.api import RankedPlan
from nest_opt.cli.explain import failure
from nest_opt.cli.json_output import (
    FAMILY,
    Object,
    degrees_json,
    devices_json,
    diagnosis_json,
    search_json,
    time_json,
    violations_json,
)
from nest_opt.improvement import Change, Given, Improvement, Move, batch_terms
from nest_opt.plan.evaluate import Evaluation
from nest_opt.problem.files import to_json_data


def improvement_json(found: Improvement | None) -> Object:
    """Return what was found; None stands for an interrupt before anything was."""
    if found is None:
        return {"status": "interrupted", "family": FAMILY, "given": None, "changes": []}
    optimum = found.optimum
    return {
        "status": found.status,
        "family": FAMILY,
        "problem": found.problem.name,
        "given": _given(found.given),
        "changes": [_change(found, each) for each in found.changes],
        "path": [_change(found, each) for each in found.path],
        "rest": found.rest and _change(found, found.rest),
        "optimum": optimum
        and {**search_json(optimum), "degrees": optimum.plan and degrees_json(optimum.plan)},
        "searches": found.searches,
        "wall_s": round(found.wall_s, 6),
    }


def _given(given: Given) -> Object:
    held, plan = given.configuration.held, given.configuration.plan
    evaluation = plan.evaluation if plan else given.evaluation
    data: Object = {
        "held": {name: _value(value) for name, value in held.items()},
        "legal": plan is not None,
        **time_json("value", evaluation.value_ps if evaluation else None),
        **_plan(plan, evaluation),
        "violations": violations_json(given.violations),
        "refusal": given.refusal,
        "diagnosis": None,
    }
    if given.search and given.search.status == "infeasible":
        data["diagnosis"] = diagnosis_json(failure(given.search))
    return data


def _change(found: Improvement, each: Change) -> Object:
    changes = each.term_changes_ps
    return {
        "released": list(each.released),
        "moves": _moves(each.moves),
        "follows": _moves(each.follows),
        **time_json("value", each.value_ps),
        **time_json("gain", each.gain_ps),
        "gain": each.gain,
        "gap_closed": found.closed(each),
        "term_changes_ps": changes and {name: str(change) for name, change in changes.items()},
        **_plan(each.plan, each.plan.evaluation if each.plan else None),
    }


def _plan(plan: RankedPlan | None, evaluation: Evaluation | None) -> Object:
    """Return the fields of a plan, None for each where there is none."""
    terms = batch_terms(evaluation) if evaluation else None
    file = plan and to_json_data(plan.plan)
    return {
        "terms_ps": terms and {name: str(value) for name, value in terms.items()},
        "degrees": plan and degrees_json(plan.plan),
        "devices": plan and devices_json(plan.plan),
        "peak_bytes": plan and plan.peak_bytes,
        "free_bytes": plan and plan.free_bytes,
        # The problem is that of the optimum.
        "plan": file and {name: value for name, value in file.items() if name != "problem"},
    }


def _moves(moves: Iterable[Move]) -> list[Object]:
    return [
        {
            "dimension": move.dimension,
            "before": _value(move.before),
            "after": _value(move.after),
        }
        for move in moves
    ]


def _value(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
