"""The JSON object of `compare`. `docs/cli.md` describes every field."""

from nest_opt.cli.json_output import Object, degrees_json, devices_json, time_json, value_json
from nest_opt.comparison import Comparison, PlanDiff
from nest_opt.improvement import batch_terms
from nest_opt.planners import Outcome
from nest_opt.problem.files import to_json_data


def comparison_json(found: Comparison, between: PlanDiff | None, asked_for: bool) -> Object:
    """Return what was found, with the difference of two plans if that was asked for."""
    data: Object = {
        "status": found.status,
        "family": "aligned",
        "problem": found.problem.name,
        **time_json("bound", found.optimum.bound_ps),
        "planners": [_row(found, row) for row in found.rows],
    }
    if asked_for:
        data["diff"] = between and _diff(between)
    return data


def _row(found: Comparison, row: Outcome) -> Object:
    plan, evaluation = row.plan, row.evaluation
    file = plan and to_json_data(plan)
    terms = batch_terms(evaluation) if evaluation else None
    between = found.diff("solve", row.planner)
    return {
        "planner": row.planner,
        **value_json(found.problem, plan, evaluation),
        "gap": found.gap(row),
        "reason": row.reason,
        "degrees": plan and degrees_json(plan),
        "devices": plan and devices_json(plan),
        "free_bytes": row.free_bytes,
        "terms_ps": terms and {name: str(value) for name, value in terms.items()},
        "mostly": between and between.mostly,
        "tried": row.tried,
        "wall_s": round(row.wall_s, 6),
        "plan": file and {name: value for name, value in file.items() if name != "problem"},
    }


def _diff(between: PlanDiff) -> Object:
    return {
        "before": between.before,
        "after": between.after,
        "moves": [
            {"dimension": move.dimension, "before": move.before, "after": move.after}
            for move in between.moves
        ],
        "terms_ps": {name: str(change) for name, change in between.terms_ps.items()},
        **time_json("change", between.change_ps),
        "mostly": between.mostly,
    }
