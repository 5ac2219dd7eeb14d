"""Constraints as data.

Their faces are registered where they belong: checkers in `nest_opt.plan.rules`,
DP rules in `nest_opt.dp.rules`. Memory is a constraint of every problem and
needs no entry.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from nest_opt.problem.base import Frozen, Identifier, Seconds, first_repeated


class Colocation(Frozen):
    """The named layers must be in one stage."""

    type: Literal["colocation"]
    layers: tuple[Identifier, ...] = Field(min_length=2)

    @field_validator("layers")
    @classmethod
    def _validate(cls, layers: tuple[str, ...]) -> tuple[str, ...]:
        twice = first_repeated(layers)
        if twice is not None:
            raise ValueError(f"found layer {twice!r} twice, once is allowed: remove one")
        return layers


class ForbiddenBoundary(Frozen):
    """No stage may end right after the named layer (in the listed order)."""

    type: Literal["forbidden-boundary"]
    after: Identifier


class HopLatency(Frozen):
    """No hop between stages may use a network level of a higher latency."""

    type: Literal["hop-latency"]
    limit_s: Seconds


Constraint = Annotated[Colocation | ForbiddenBoundary | HopLatency, Field(discriminator="type")]
