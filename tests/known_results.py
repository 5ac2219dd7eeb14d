"""What `instances/best_known.json` records of a solved instance."""

import json
from pathlib import Path
from typing import Any

from nest_opt import SolveResult, solve
from nest_opt.plan.evaluate import evaluated_objective
from nest_opt.problem.files import problem_digest, read_problem

INSTANCES = Path(__file__).resolve().parent.parent / "instances"
BEST_KNOWN = INSTANCES / "best_known.json"
FOLDERS = ("tiny", "paper", "networks")


def instance_paths() -> dict[str, Path]:
    """Return the problem files by name: `tiny/colocation` and the like."""
    return {
        f"{folder}/{path.stem}": path
        for folder in FOLDERS
        for path in sorted((INSTANCES / folder).glob("*.json"))
    }


def recorded() -> dict[str, Any]:
    """Return the committed records by name."""
    instances: dict[str, Any] = json.loads(BEST_KNOWN.read_text(encoding="utf-8"))["instances"]
    return instances


def solved_record(path: Path) -> dict[str, Any]:
    """Solve an instance and return its record."""
    return record(solve(read_problem(path)))


def record(result: SolveResult) -> dict[str, Any]:
    """Return what a result says, without anything that differs from run to run.

    The bound is the value's wherever the status is `optimal`.
    """
    plan = None
    if result.plan is not None:
        placement = result.plan.placement()
        plan = {
            "microbatch": placement.microbatch,
            **placement.configurations[0]._asdict(),
            "dp": placement.replicas,
            "pp": placement.stages,
            "order": placement.order,
            "pitch": placement.pitch,
            "stage_layers": [high - low for ((low, high),) in placement.intervals],
            "recompute": list(placement.recompute),
        }
    return {
        "problem_sha256": problem_digest(result.problem),
        "family": "aligned",
        "status": result.status,
        "objective": {
            "name": evaluated_objective(result.problem),
            "value_ps": None if result.evaluation is None else str(result.evaluation.value_ps),
        },
        "plan": plan,
    }
