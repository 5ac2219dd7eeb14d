"""Plans: what they are, what they cost, and whether they are legal."""

from nest_opt.plan.check import Violation, check
from nest_opt.plan.evaluate import Evaluation, StageEvaluation, evaluate
from nest_opt.plan.placement import Placement
from nest_opt.plan.plan import Plan

__all__ = [
    "Evaluation",
    "Placement",
    "Plan",
    "StageEvaluation",
    "Violation",
    "check",
    "evaluate",
]
