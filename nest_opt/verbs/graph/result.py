"""What the verbs return of placement graphs."""

from dataclasses import dataclass
from typing import Literal

from nest_opt.milp.result import Tally
from nest_opt.plan.graph_evaluate import GraphEvaluation
from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.plan.violation import Violation
from nest_opt.problem import Problem
from nest_opt.verbs.result import Bounded


@dataclass(frozen=True)
class GraphSolveResult(Bounded):
    """What `solve` returns of a placement graph.

    Attributes
    ----------
    status
        `optimal`: no contiguous split is better. `infeasible`: none is legal.
        `interrupted`: the best plan found so far, if any.
    plan, evaluation
        The plan and its independent evaluation.
    bound_ps
        No contiguous split has a lower objective; None if infeasible.
    blocks, downsets
        Sets of layers that share a stage in the search, and downsets of their
        order.
    obstacle
        Why no split is legal, in one sentence, when `infeasible`.
    wall_s
        Seconds.
    """

    problem: Problem
    status: Literal["optimal", "infeasible", "interrupted"]
    plan: GraphPlan | None
    evaluation: GraphEvaluation | None
    bound_ps: int | None
    blocks: int
    downsets: int
    obstacle: str | None
    wall_s: float


@dataclass(frozen=True)
class GraphExactResult(Bounded, Tally):
    """What `exact` returns of a placement graph; its cells are orders of the kinds.

    Attributes
    ----------
    family
        The family of placements that status and bound hold in: the problem's
        split.
    status
        `optimal`: no placement of the family is better (by more than the gap
        that was asked for). `infeasible`: it has no legal one. `feasible` and
        `no-solution`: the time limit came first, with or without a plan.
        `interrupted`: a KeyboardInterrupt did.
    plan, evaluation
        The best plan and its independent evaluation.
    contiguous_ps
        Value of the best contiguous split that the dynamic program found,
        the first incumbent; None where it found none, or there are too many
        downsets.
    bound_ps
        No placement of the family has a lower objective; None if infeasible.
    bound_vouched_by
        Who says so: `solver` (HiGHS, as soon as a program took part), `closed
        form` (bounds alone), or `dynamic program` (over downsets: there was no
        need of cells and programs).
    obstacle
        Why no split is legal, in one sentence, when `infeasible`.
    wall_s
        Seconds.
    """

    problem: Problem
    family: Literal["contiguous", "any"]
    status: Literal["optimal", "feasible", "infeasible", "no-solution", "interrupted"]
    plan: GraphPlan | None
    evaluation: GraphEvaluation | None
    contiguous_ps: int | None
    bound_ps: int | None
    bound_vouched_by: Literal["solver", "closed form", "dynamic program"]
    obstacle: str | None
    wall_s: float


@dataclass(frozen=True)
class GraphVerifyResult:
    """What `verify` returns of a placement graph's plan.

    `evaluation` is None where the plan's form is broken. `claim_ps` is the
    value that the file claims.
    """

    plan: GraphPlan
    evaluation: GraphEvaluation | None
    violations: tuple[Violation, ...]
    claim_ps: int | None
