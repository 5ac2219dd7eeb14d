"""The cluster: device kinds, how many devices of each, and the network between them."""

from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil, prod
from typing import Annotated, Literal

from pydantic import Field, model_validator

from nest_opt.problem.base import (
    MAX_BYTES,
    Bytes,
    Exact,
    Flag,
    Frozen,
    Identifier,
    Seconds,
    listed,
)

MAX_DEVICES = 2**20


class DeviceKind(Frozen):
    """A kind of device. 80 GB is 80e9 bytes.

    `usable_share` of the memory, less `reserve_bytes` for contexts and
    communication buffers, is what a stage may fill. Peak compute and memory
    bandwidth are optional: given tables of times do not need them. `watts`
    is what a device in use draws; the constraint `power` needs it. In a
    placement graph, devices of a kind that `pays_transfers` spend time on what
    they receive and send; a host's processor does not.
    """

    memory_bytes: Annotated[Bytes, Field(ge=1)]
    usable_share: Annotated[Exact, Field(gt=0, le=1)] = Field(default=1, validate_default=True)
    reserve_bytes: Bytes = 0
    peak_flops: Annotated[Exact, Field(gt=0)] | None = None
    memory_bandwidth_bytes_per_s: Annotated[Bytes, Field(ge=1)] | None = None
    watts: Annotated[Exact, Field(gt=0)] | None = None
    pays_transfers: Flag = True

    @property
    def usable_bytes(self) -> int:
        """Bytes that states, stashes, work and the reserve share, rounded down."""
        return int(self.memory_bytes * Fraction(self.usable_share))

    @model_validator(mode="after")
    def _validate(self) -> "DeviceKind":
        if self.usable_bytes < 1:
            raise ValueError(
                f"usable_share: found {self.usable_share}, which leaves no whole byte of "
                f"{self.memory_bytes}: raise it"
            )
        if self.reserve_bytes >= self.usable_bytes:
            raise ValueError(
                f"reserve_bytes: found {self.reserve_bytes} bytes, less than {self.usable_bytes} "
                "bytes are needed (memory_bytes times usable_share): lower the reserve"
            )
        return self


class DeviceGroup(Frozen):
    """`count` devices of one kind, in the order of device numbers."""

    kind: Identifier
    count: Annotated[int, Field(strict=True, ge=1, le=MAX_DEVICES)]


class LevelSpec(Frozen):
    """One network level: `size` subgroups (devices at the innermost level) a group.

    Bandwidth is per device and direction.
    """

    name: Identifier
    size: Annotated[int, Field(strict=True, ge=1, le=MAX_DEVICES)]
    bandwidth_bytes_per_s: Annotated[Exact, Field(gt=0, le=MAX_BYTES)]
    latency_s: Seconds


Algorithm = Literal["ring", "tree"]
# By how many ports a collective over copies leaves a group: one, or one a rank.
CollectiveModel = Literal["flat", "ports"]
# Bandwidths that the spreads of a network may have.
MAX_RATES = 1000


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
    levels: tuple[LevelSpec, ...] = Field(min_length=1, max_length=6)

    @property
    def device_count(self) -> int:
        """Devices that the network connects."""
        return prod(level.size for level in self.levels)

    def level_number(self, name: str) -> int:
        """Return the number of the level of a name, 0 for the innermost.

        Raises
        ------
        ValueError
            If no level has the name, or several have.
        """
        numbers = [number for number, level in enumerate(self.levels) if level.name == name]
        if not numbers:
            raise ValueError(
                f"level: found {name!r}, the name of a network level is needed "
                f"({listed(level.name for level in self.levels)}): correct it"
            )
        if len(numbers) > 1:
            raise ValueError(
                f"level: found {name!r}, which {len(numbers)} network levels are called, 1 is "
                "allowed where a constraint names it: rename the others"
            )
        return numbers[0]

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
        if self.collectives == "ports" and self._rate_count() > MAX_RATES:
            raise ValueError(
                f"collectives: found ports with {self._rate_count()} bandwidths that groups may "
                f"have, at most {MAX_RATES} are allowed: use flat, or correct the bandwidths "
                "(the innermost level is that much faster)"
            )
        return self

    def _rate_count(self) -> int:
        """Return how many numbers of ports make a difference, all levels together."""
        held, innermost, total = 1, Fraction(self.levels[0].bandwidth_bytes_per_s), 0
        for inner, outer in pairwise(self.levels):
            held *= inner.size
            total += min(held, ceil(innermost / Fraction(outer.bandwidth_bytes_per_s)))
        return total


class Cluster(Frozen):
    """Devices 0, 1, ... numbered along the network's hierarchy.

    There may be fewer devices than the network has places: they take the
    first places.
    """

    device_kinds: dict[Identifier, DeviceKind] = Field(min_length=1)
    devices: tuple[DeviceGroup, ...] = Field(min_length=1)
    network: HierarchicalSpec

    @cached_property
    def device_count(self) -> int:
        """K, the number of devices."""
        return sum(group.count for group in self.devices)

    @property
    def device_kind(self) -> DeviceKind:
        """The one kind of device that the cluster of a pipeline has."""
        return self.device_kinds[self.devices[0].kind]

    @cached_property
    def devices_by_kind(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the devices of each kind that the cluster has, in the order of groups."""
        found: dict[str, list[int]] = {}
        first = 0
        for group in self.devices:
            found.setdefault(group.kind, []).extend(range(first, first + group.count))
            first += group.count
        return {kind: tuple(numbers) for kind, numbers in found.items()}

    @model_validator(mode="after")
    def _validate(self) -> "Cluster":
        for group in self.devices:
            if group.kind not in self.device_kinds:
                raise ValueError(
                    f"devices: kind {group.kind!r} is not in device_kinds "
                    f"({listed(self.device_kinds)}): add it or correct it"
                )
        if self.device_count > self.network.device_count:
            raise ValueError(
                f"devices: found {self.device_count}, at most {self.network.device_count} are "
                "allowed (the product of the network's sizes): lower count or raise a size"
            )
        return self
