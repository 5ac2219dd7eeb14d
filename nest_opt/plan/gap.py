"""How far a value is from a bound."""

from typing import Protocol


class Valued(Protocol):
    """Whatever has a value: the evaluation of any plan."""

    @property
    def value_ps(self) -> int:
        """The objective's value."""
        ...


def value_of(evaluation: Valued | None) -> int | None:
    """Return an evaluation's value, None without one."""
    return None if evaluation is None else evaluation.value_ps


def relative_gap(value_ps: int | None, bound_ps: int | None) -> float | None:
    """Return (value - bound) / value, None without both; negative where the value is below."""
    if value_ps is None or bound_ps is None:
        return None
    return (value_ps - bound_ps) / value_ps if value_ps else 0.0
