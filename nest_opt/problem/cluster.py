"""The cluster: device kinds, how many devices of each, and the network between them."""

from fractions import Fraction
from functools import cached_property
from typing import Annotated

from pydantic import Field, model_validator

from nest_opt.problem.base import Bytes, Exact, Flag, Frozen, Identifier, listed
from nest_opt.problem.hierarchical import MAX_DEVICES, Algorithm, HierarchicalSpec, LevelSpec
from nest_opt.problem.networks import NetworkSpec

__all__ = [
    "MAX_DEVICES",
    "Algorithm",
    "Cluster",
    "DeviceGroup",
    "DeviceKind",
    "HierarchicalSpec",
    "LevelSpec",
]


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


class Cluster(Frozen):
    """Devices 0, 1, ... numbered along the network's hierarchy, or the order of a graph.

    There may be fewer devices than the network has places: they take the
    first places.
    """

    device_kinds: dict[Identifier, DeviceKind] = Field(min_length=1)
    devices: tuple[DeviceGroup, ...] = Field(min_length=1)
    network: NetworkSpec

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
