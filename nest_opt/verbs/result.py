"""What results of both kinds of problems share."""

from nest_opt.plan.gap import Valued, relative_gap, value_of
from nest_opt.plan.plan import ClaimedValue
from nest_opt.plan.progress import Progress

__all__ = ["Bounded", "Progress", "claimed_value"]


class Bounded:
    """A result with a plan's evaluation, if there is a plan, and a bound."""

    evaluation: Valued | None
    bound_ps: int | None

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a plan."""
        return relative_gap(value_of(self.evaluation), self.bound_ps)


def claimed_value(objective: ClaimedValue | None) -> int | None:
    """Return the value in ps that a plan's file claims, None without a claim."""
    return None if objective is None else int(objective.value_ps)
