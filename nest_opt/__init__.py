"""nest_opt: how to train a large model on a cluster, with a proof of how good the answer is."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nest_opt.agreement import crosscheck
    from nest_opt.api import (
        BoundResult,
        CheckResult,
        ExactResult,
        GraphExactResult,
        GraphSolveResult,
        GraphVerifyResult,
        SolveResult,
        VerifyResult,
        bound,
        check,
        exact,
        solve,
        verify,
    )
    from nest_opt.comparison import Comparison, compare
    from nest_opt.errors import CertificateError, InstanceError, NestOptError, PlanError
    from nest_opt.improvement import Improvement, improve
    from nest_opt.memory_front import FrontResult, front
    from nest_opt.plan.graph_plan import GraphPlan
    from nest_opt.plan.plan import Plan
    from nest_opt.plan.rank_map import RankMap, rank_map
    from nest_opt.prediction.predict import Prediction, predict
    from nest_opt.prediction.run import RunConfiguration
    from nest_opt.problem import Problem
    from nest_opt.registry import register

__version__ = "0.1.0"

__all__ = [
    "BoundResult",
    "CertificateError",
    "CheckResult",
    "Comparison",
    "ExactResult",
    "FrontResult",
    "GraphExactResult",
    "GraphPlan",
    "GraphSolveResult",
    "GraphVerifyResult",
    "Improvement",
    "InstanceError",
    "NestOptError",
    "Plan",
    "PlanError",
    "Prediction",
    "Problem",
    "RankMap",
    "RunConfiguration",
    "SolveResult",
    "VerifyResult",
    "bound",
    "check",
    "compare",
    "crosscheck",
    "exact",
    "front",
    "improve",
    "predict",
    "rank_map",
    "register",
    "solve",
    "verify",
]

_HOMES = {
    "nest_opt.api": (
        *("BoundResult", "CheckResult", "ExactResult", "SolveResult", "VerifyResult"),
        *("GraphExactResult", "GraphSolveResult", "GraphVerifyResult"),
        *("bound", "check", "exact", "solve", "verify"),
    ),
    "nest_opt.agreement": ("crosscheck",),
    "nest_opt.comparison": ("Comparison", "compare"),
    "nest_opt.improvement": ("Improvement", "improve"),
    "nest_opt.memory_front": ("FrontResult", "front"),
    "nest_opt.plan.graph_plan": ("GraphPlan",),
    "nest_opt.errors": ("CertificateError", "InstanceError", "NestOptError", "PlanError"),
    "nest_opt.plan.plan": ("Plan",),
    "nest_opt.plan.rank_map": ("RankMap", "rank_map"),
    "nest_opt.prediction.predict": ("Prediction", "predict"),
    "nest_opt.prediction.run": ("RunConfiguration",),
    "nest_opt.problem": ("Problem",),
    "nest_opt.registry": ("register",),
}


def __getattr__(name: str) -> Any:
    """Import what is exported when it is first used: help needs no numpy."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'nest_opt' has no attribute {name!r}")
