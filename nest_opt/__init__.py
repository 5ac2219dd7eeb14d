"""nest_opt: how to train a large model on a cluster, with a proof of how good the answer is."""

from nest_opt.api import SolveResult, VerifyResult, solve, verify
from nest_opt.errors import InstanceError, NestOptError, PlanError
from nest_opt.plan.plan import Plan
from nest_opt.problem import Problem

__all__ = [
    "InstanceError",
    "NestOptError",
    "Plan",
    "PlanError",
    "Problem",
    "SolveResult",
    "VerifyResult",
    "solve",
    "verify",
]

__version__ = "0.1.0"
