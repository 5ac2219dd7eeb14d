"""Constraints as data.

Their faces are registered where they belong: checkers in `nest_opt.plan.rules`,
DP rules in `nest_opt.dp.rules`. Memory is a constraint of every problem and
needs no entry.
"""

from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from nest_opt.problem.base import (
    Exact,
    Frozen,
    Identifier,
    Positive,
    Seconds,
    exact_decimal,
    first_repeated,
    json_number,
)
from nest_opt.problem.graph import MAX_LAYERS

LimitedDegree = Literal["microbatch", "tp", "cp", "ep", "dp", "pp"]


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a name that is listed twice."""
    repeated = first_repeated(names)
    if repeated is not None:
        raise ValueError(f"found {repeated!r} twice, once is allowed: remove one")
    return names


class Colocation(Frozen):
    """The named layers must be in one stage."""

    type: Literal["colocation"]
    layers: tuple[Identifier, ...] = Field(min_length=2)

    _no_repeats = field_validator("layers")(_once)


class ForbiddenBoundary(Frozen):
    """No stage may end right after the named layer (in the listed order)."""

    type: Literal["forbidden-boundary"]
    after: Identifier


class HopLatency(Frozen):
    """No hop between stages may use a network level of a higher latency."""

    type: Literal["hop-latency"]
    limit_s: Seconds


class AntiColocation(Frozen):
    """No two of the named layers may be in one stage."""

    type: Literal["anti-colocation"]
    layers: tuple[Identifier, ...] = Field(min_length=2)

    _no_repeats = field_validator("layers")(_once)


class PinnedLayers(Frozen):
    """The named layers must be in a stage of a given number.

    Stages count 0, 1, ... from the first, or -1, -2, ... from the last. A
    pipeline without a stage of that number is not allowed.
    """

    type: Literal["pinned-layers"]
    layers: tuple[Identifier, ...] = Field(min_length=1)
    stage: Annotated[int, Field(strict=True, ge=-MAX_LAYERS, lt=MAX_LAYERS)]

    _no_repeats = field_validator("layers")(_once)

    @property
    def least_stages(self) -> int:
        """The fewest stages among which there is one of that number."""
        return self.stage + 1 if self.stage >= 0 else -self.stage

    def stage_of(self, stages: int) -> int | None:
        """Return the stage, from 0, of a pipeline of so many; None if it has no such stage."""
        if stages < self.least_stages:
            return None
        return self.stage if self.stage >= 0 else stages + self.stage


class DegreeLimit(Frozen):
    """A degree must keep all the limits that are given: `pp` is the number of stages."""

    type: Literal["degree-limit"]
    degree: LimitedDegree
    at_least: Positive | None = None
    at_most: Positive | None = None
    multiple_of: Positive | None = None
    divides: Positive | None = None

    @model_validator(mode="after")
    def _validate(self) -> "DegreeLimit":
        if {self.at_least, self.at_most, self.multiple_of, self.divides} == {None}:
            raise ValueError(
                "found no limit, 1 at least is needed: give at_least, at_most, multiple_of or "
                "divides"
            )
        step = self.multiple_of or 1
        least = step * -(-(self.at_least or 1) // step)
        most = min(self.at_most or least, self.divides or least)
        if most < least:
            raise ValueError(
                f"at_most: found {self.degree} of {most} at most, the other limits ask for "
                f"{least} at least: raise at_most or divides, or lower the others"
            )
        return self

    def allows(self, value: int) -> bool:
        """Whether a value of the degree keeps every limit."""
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.multiple_of is None or value % self.multiple_of == 0)
            and (self.divides is None or self.divides % value == 0)
        )

    def __str__(self) -> str:
        limits = {
            "at least": self.at_least,
            "at most": self.at_most,
            "a multiple of": self.multiple_of,
            "a divisor of": self.divides,
        }
        return ", ".join(f"{words} {limit}" for words, limit in limits.items() if limit is not None)


class TpInsideNode(Frozen):
    """Every tensor-parallel group must be inside one group of a network level."""

    type: Literal["tp-inside-node"]
    level: Identifier


class FailureDomains(Frozen):
    """A group of a network level may hold devices of at most so many replicas.

    Where a group is what fails at once, a failure stops no more of them. A
    replica is one of the dp copies of the pipeline, with all its stages.
    """

    type: Literal["failure-domains"]
    level: Identifier
    at_most: Positive = 1


class Power(Frozen):
    """Devices in use in one group of a network level may draw at most so many watts."""

    type: Literal["power"]
    level: Identifier
    limit_w: Annotated[Exact, Field(gt=0)]


def _scalar(value: Any) -> bool | int | str | Decimal:
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Decimal):
        number: Decimal = exact_decimal(value)
        return number
    found = {type(None): "null", dict: "an object"}.get(type(value), "an array in an array")
    raise ValueError(
        f"found {found}, a number, text, true, false or an array of these is "
        "needed: correct the value"
    )


def _parameter(value: Any) -> Any:
    """Take a number, text or flag, or an array of these; numbers with a point are Decimals."""
    return tuple(map(_scalar, value)) if isinstance(value, list | tuple) else _scalar(value)


def _parameter_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_parameter_json(item) for item in value]
    return json_number(value) if isinstance(value, Decimal) else value


Parameter: TypeAlias = Annotated[
    Any,
    BeforeValidator(_parameter),
    PlainSerializer(_parameter_json),
    WithJsonSchema({"type": ["number", "string", "boolean", "array"]}),
]


class UserConstraint(Frozen):
    """A constraint of the user's own, of a name that `nest_opt.register` was called with."""

    type: Literal["user"]
    name: Identifier
    parameters: dict[Identifier, Parameter] = Field(default={})


Constraint = Annotated[
    Colocation
    | AntiColocation
    | PinnedLayers
    | ForbiddenBoundary
    | HopLatency
    | DegreeLimit
    | TpInsideNode
    | FailureDomains
    | Power
    | UserConstraint,
    Field(discriminator="type"),
]


def rule_of(constraint: Constraint) -> str:
    """Return the name that a constraint's faces are registered under."""
    if isinstance(constraint, UserConstraint):
        return f"user:{constraint.name}"
    return constraint.type
