"""What a planner is: it gets a problem, and returns a legal plan or says why it has none."""

from dataclasses import dataclass
from typing import Protocol

from nest_opt.plan.evaluate import Evaluation
from nest_opt.plan.plan import Plan
from nest_opt.problem import Problem


@dataclass(frozen=True)
class Outcome:
    """What a planner returns.

    Attributes
    ----------
    planner
        Its name.
    plan, evaluation
        A legal plan of the aligned family and its evaluation by the one
        evaluator, whatever the planner believes of it; None where it has none.
    reason
        Why there is no plan; None where there is one.
    tried
        Placements that were put before the evaluator or found too large for
        memory.
    wall_s
        Seconds of the search.
    """

    planner: str
    plan: Plan | None
    evaluation: Evaluation | None
    reason: str | None
    tried: int
    wall_s: float

    @property
    def free_bytes(self) -> int | None:
        """What is left of the usable memory on the devices of the fullest stage."""
        if self.evaluation is None:
            return None
        return min(stage.usable_bytes - stage.memory_bytes for stage in self.evaluation.stages)


class Planner(Protocol):
    """A way to find a plan, with what it needs to be repeated (seed, budget) in its fields."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    def plan(self, problem: Problem) -> Outcome:
        """Find a plan.

        Raises
        ------
        InstanceError
            If the problem has no legal degrees, or is none of the default cost
            model.
        """
        ...
