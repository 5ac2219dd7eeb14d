"""What the verbs return of pipelines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nest_opt.conflicts import Conflict
from nest_opt.dp.infeasible import Diagnosis
from nest_opt.milp.result import Tally
from nest_opt.plan.evaluate import Evaluation
from nest_opt.plan.plan import Plan
from nest_opt.plan.violation import Violation
from nest_opt.problem import Problem
from nest_opt.verbs.result import Bounded

Status = Literal["optimal", "best-on-links", "relaxed", "infeasible", "interrupted"]
Family = Literal["aligned", "free"]


@dataclass(frozen=True)
class RankedPlan:
    """One of the best plans of a problem, each of other degrees or on other devices.

    Attributes
    ----------
    plan, evaluation
        The plan, the best of its cell, and its independent evaluation.
    """

    plan: Plan
    evaluation: Evaluation

    @property
    def peak_bytes(self) -> int:
        """Memory of the stage that needs the most, the reserve included."""
        return max(stage.memory_bytes for stage in self.evaluation.stages)

    @property
    def free_bytes(self) -> int:
        """What is left of the usable memory on the devices of the fullest stage."""
        return min(stage.usable_bytes - stage.memory_bytes for stage in self.evaluation.stages)


@dataclass(frozen=True)
class TimedPlan(RankedPlan):
    """A plan timed on its network.

    Attributes
    ----------
    links_ps
        Its value there, see `nest_opt.plan.retime`; that of `evaluation` is by levels.
    found_by
        The traffic of the levels whose search found it first.
    """

    links_ps: int
    found_by: str


@dataclass(frozen=True)
class LinkRanking:
    """Plans of several searches on levels, ranked by what they take on the links.

    Attributes
    ----------
    plans
        All that were timed, best first: by the value on the links, of equal
        ones by that by levels, then in the order in which they were found.
    first
        The best by the problem's own levels, which all others are held against.
    searched
        Plans that each traffic's levels gave, those that others had given included.
    levels
        The search on the problem's own levels: what it found and proved.
    """

    plans: tuple[TimedPlan, ...]
    first: TimedPlan
    searched: Mapping[str, int]
    levels: "SolveResult"

    @property
    def gain(self) -> float:
        """Share of its time on the links that the best by levels loses to the best there."""
        best, first = self.plans[0].links_ps, self.first.links_ps
        return (first - best) / first if first else 0.0


@dataclass(frozen=True)
class SolveResult(Bounded):
    """What `solve` returns.

    Attributes
    ----------
    status
        `optimal`: the plan is the best of the aligned family. `best-on-links`:
        it is the best on its network's links of those in `links`, and no more
        is proved of it than its gap by levels. `relaxed`: the
        best plan without the constraints of `relaxed` breaks some of them,
        so that there is a bound and no plan. `infeasible`: the family has no
        legal plan. `interrupted`: the best plan found so far, if any.
    plan, evaluation
        The plan and its independent evaluation.
    bound_ps
        No plan of the family has a lower objective.
    diagnosis, conflict
        Why there is no plan, when `infeasible`: the closest placement and what
        would make it fit; and a minimal set of requirements that no plan keeps.
        After a KeyboardInterrupt the diagnosis is incomplete, the conflict None.
    relaxed
        Constraints that the search had no rule for. An `optimal` plan keeps
        them: no plan is better even without them.
    broken
        What the best plan without them breaks.
    cells, cells_pruned, wall_s
        Size of the search, how much of it bounds settled, and its seconds.
        Where stages may differ, the device maps of one class of
        configurations, d and S are one more cell.
    plans
        The best plans, best first, in the order of ties where values are
        equal, one for each choice of degrees and device map: as many as were
        asked for (1 unless `top` is given), fewer if there are no more.
    rest_bound_ps
        No plan of other degrees and device maps than those of `plans` has a
        lower objective; None if there is none.
    links
        How plans were ranked on the links, None where they were not. Value,
        bound, gap and `plans` are by levels all the same.
    """

    problem: Problem
    status: Status
    plan: Plan | None
    evaluation: Evaluation | None
    bound_ps: int | None
    diagnosis: Diagnosis | None
    relaxed: tuple[str, ...]
    cells: int
    cells_pruned: int
    wall_s: float
    broken: tuple[Violation, ...] = ()
    conflict: Conflict | None = None
    plans: tuple[RankedPlan, ...] = ()
    rest_bound_ps: int | None = None
    links: LinkRanking | None = None

    @property
    def by_levels(self) -> "SolveResult":
        """The search on the problem's own levels, whatever ranked its plans."""
        return self.links.levels if self.links else self

    @property
    def cut_short(self) -> bool:
        """Whether a KeyboardInterrupt ended the search, or the reasons for there being no plan."""
        unexplained = self.status == "infeasible" and self.conflict is None
        return self.status == "interrupted" or unexplained


@dataclass(frozen=True)
class ExactResult(Bounded, Tally):
    """What `exact` returns: what was found, and the tally of the cells.

    Attributes
    ----------
    family
        The family of placements that status and bound hold in.
    status
        `optimal`: no plan of the family is better (by more than the gap that
        was asked for). `infeasible`: the family has no legal plan.
        `feasible` and `no-solution`: the time limit came first, with or
        without a plan. `interrupted`: a KeyboardInterrupt did.
    plan, evaluation
        The best plan and its independent evaluation.
    bound_ps
        No plan of the family has a lower objective; None if infeasible.
    bound_vouched_by
        Who says so: `solver` (HiGHS, as soon as the program of some cell took
        part), `closed form` (bounds alone settled every cell), or `dynamic
        program` (the programs had no turn, or were cut short where the search
        had found that there is no plan).
    start
        What the dynamic program found first; its plan is the first incumbent.
    conflict
        A minimal set of requirements that no plan keeps, when `infeasible`;
        None if the time limit or an interrupt came before it was found.
    wall_s
        Seconds, those of the dynamic program included.
    """

    problem: Problem
    family: Family
    status: Literal["optimal", "feasible", "infeasible", "no-solution", "interrupted"]
    plan: Plan | None
    evaluation: Evaluation | None
    bound_ps: int | None
    bound_vouched_by: Literal["solver", "closed form", "dynamic program"]
    start: SolveResult
    wall_s: float
    conflict: Conflict | None = None


@dataclass(frozen=True)
class VerifyResult:
    """What `verify` returns: an independent evaluation and all violations.

    `evaluation` is None where the plan's form is broken. `claim_ps` is the
    value that the file claims.
    """

    plan: Plan
    evaluation: Evaluation | None
    violations: tuple[Violation, ...]
    claim_ps: int | None
