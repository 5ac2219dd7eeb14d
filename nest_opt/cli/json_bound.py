"""The JSON of bounds and of checked certificates."""

from pathlib import Path

from nest_opt.api import BoundResult, CheckResult
from nest_opt.cli.json_output import Object, time_json
from nest_opt.plan.evaluate import evaluated_objective
from nest_opt.problem import Problem


def bound_json(problem: Problem, result: BoundResult, output: Path | None = None) -> Object:
    """Return a bound, who vouches for it, and what was written."""
    certificate = result.certificate
    return {
        "status": _status(result),
        "problem": problem.name,
        "family": result.family,
        "objective": {
            "name": evaluated_objective(problem),
            **time_json("value", result.value_ps),
        },
        **time_json("bound", result.bound_ps),
        "gap": result.gap,
        "voucher": result.voucher,
        "exact_units": result.exact_units,
        "groups": result.groups,
        "proofs": dict(result.proofs),
        "certificate": certificate
        and {
            "bytes": certificate.bytes_count,
            "written": None if output is None else str(output),
        },
        "uncertified": result.uncertified,
        "search": {"wall_s": round(result.wall_s, 6)},
    }


def no_bound_json() -> Object:
    """Return the result of a search that was interrupted before it began."""
    return {
        "status": "interrupted",
        "problem": None,
        "family": None,
        "objective": {"name": None, **time_json("value", None)},
        **time_json("bound", None),
        "gap": None,
        "voucher": None,
        "exact_units": None,
        "groups": 0,
        "proofs": {},
        "certificate": None,
        "uncertified": None,
        "search": {"wall_s": 0.0},
    }


def check_json(result: CheckResult) -> Object:
    """Return what a certificate proves."""
    return {
        "status": "proved",
        "family": result.family,
        "objective": result.objective,
        **time_json("least", result.least_ps),
        "problem": result.problem_name,
        "problem_sha256": result.problem_sha256,
        "table_sha256": result.table_sha256,
        "recomputed": result.recomputed,
        "groups": result.groups,
        "proofs": dict(result.proofs),
        "wall_s": round(result.wall_s, 6),
    }


def _status(result: BoundResult) -> str:
    if result.bound_ps is None:
        return "infeasible"
    return "complete" if result.complete else "incomplete"
