"""The hierarchical network: nested groups, a bandwidth and a latency per level."""

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Context
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil, prod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from nest_opt.problem.base import MAX_BYTES, Exact, Frozen, Identifier, Seconds, listed

MAX_DEVICES = 2**20
MAX_LEVELS = 6
MAX_OVERSUBSCRIPTION = 10**6
_DOWN = Context(prec=30, rounding=ROUND_FLOOR)


class LevelSpec(Frozen):
    """One network level: `size` subgroups (devices at the innermost level) a group.

    Bandwidth is per device and direction. `oversubscription` is what the devices
    of a subgroup could send out of it at once, over what its links carry.
    """

    name: Identifier
    size: Annotated[int, Field(strict=True, ge=1, le=MAX_DEVICES)]
    bandwidth_bytes_per_s: Annotated[Exact, Field(gt=0, le=MAX_BYTES)]
    latency_s: Seconds
    oversubscription: Annotated[Exact, Field(ge=1, le=MAX_OVERSUBSCRIPTION)] = Field(
        default=1, validate_default=True
    )


Algorithm = Literal["ring", "tree"]
# By how many ports a collective over copies leaves a group: one, or one a rank.
CollectiveModel = Literal["flat", "ports"]
# Bandwidths that the spreads of a network may have.
MAX_RATES = 1000


def level_number(names: Sequence[str], name: str) -> int:
    """Return the number of the level of a name, 0 for the innermost.

    Raises
    ------
    ValueError
        If no level has the name, or several have.
    """
    numbers = [number for number, known in enumerate(names) if known == name]
    if not numbers:
        raise ValueError(
            f"level: found {name!r}, the name of a network level is needed "
            f"({listed(names)}): correct it"
        )
    if len(numbers) > 1:
        raise ValueError(
            f"level: found {name!r}, which {len(numbers)} network levels are called, 1 is "
            "allowed where a constraint names it: rename the others"
        )
    return numbers[0]


class HierarchicalSpec(Frozen):
    """A hierarchical network, innermost level first.

    `algorithms` are those that collectives may use; each call takes the one
    that is faster for its bytes. `collectives` says what leaves a group by how
    many ports when the copies of parameters are synchronised: `flat` one for
    each group, `ports` one for each rank in it.
    """

    type: Literal["hierarchical"]
    algorithms: tuple[Algorithm, ...] = Field(default=("ring",), min_length=1)
    collectives: CollectiveModel = "flat"
    levels: tuple[LevelSpec, ...] = Field(min_length=1, max_length=MAX_LEVELS)

    @property
    def device_count(self) -> int:
        """Devices that the network connects."""
        return prod(level.size for level in self.levels)

    @property
    def effective(self) -> "HierarchicalSpec":
        """The network with oversubscribed bandwidths divided by that, at most 30 digits, down.

        What a device gets while all devices of its group send out of it at
        once: exact on a tree of switches. Itself, where no level is oversubscribed.
        """
        # Kept, a network that is its own would make comparing two of them endless.
        return self._divided if self._is_oversubscribed else self

    @property
    def _is_oversubscribed(self) -> bool:
        return any(level.oversubscription != 1 for level in self.levels)

    @cached_property
    def _divided(self) -> "HierarchicalSpec":
        return self.model_copy(
            update={
                "levels": tuple(
                    level.model_copy(
                        update={
                            "bandwidth_bytes_per_s": _DOWN.divide(
                                level.bandwidth_bytes_per_s, level.oversubscription
                            ),
                            "oversubscription": 1,
                        }
                    )
                    for level in self.levels
                )
            }
        )

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names of the levels, innermost first."""
        return tuple(level.name for level in self.levels)

    @property
    def innermost_size(self) -> int:
        """Devices in a group of the innermost level."""
        return self.levels[0].size

    def level_number(self, name: str) -> int:
        """Return the number of the level of a name, 0 for the innermost.

        Raises
        ------
        ValueError
            If no level has the name, or several have.
        """
        return level_number(self.level_names, name)

    def group_size(self, name: str) -> int:
        """Return the devices in one group of the level of a name."""
        return prod(level.size for level in self.levels[: self.level_number(name) + 1])

    @model_validator(mode="after")
    def _validate(self) -> "HierarchicalSpec":
        if "ring" not in self.algorithms:
            raise ValueError(
                f"algorithms: found {list(self.algorithms)}, ring is needed among them: "
                "not every collective has another algorithm"
            )
        if self.device_count > MAX_DEVICES:
            raise ValueError(
                f"levels: found {self.device_count} devices (the product of sizes), at most "
                f"{MAX_DEVICES} are allowed: lower a size"
            )
        for inner, outer in pairwise(self.levels):
            if outer.latency_s < inner.latency_s:
                raise ValueError(
                    f"levels: {outer.name!r} has latency {outer.latency_s} s, at least "
                    f"{inner.latency_s} s is needed (that of {inner.name!r} inside it): "
                    "latency must not fall from one level to the next outer one"
                )
        if self.collectives == "ports" and (rates := self.effective.rate_count) > MAX_RATES:
            raise ValueError(
                f"collectives: found ports with {rates} bandwidths that groups may have, at most "
                f"{MAX_RATES} are allowed: use flat, or correct the bandwidths (the innermost "
                "level is that much faster)"
            )
        return self

    @property
    def rate_count(self) -> int:
        """How many numbers of ports make a difference, all levels together."""
        held, innermost, total = 1, Fraction(self.levels[0].bandwidth_bytes_per_s), 0
        for inner, outer in pairwise(self.levels):
            held *= inner.size
            total += min(held, ceil(innermost / Fraction(outer.bandwidth_bytes_per_s)))
        return total
