"""A kind of cluster, and how one with a given number of devices is built from it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Accelerator
from nest_opt.models.figure import Figure
from nest_opt.problem import Cluster
from nest_opt.problem.base import json_number
from nest_opt.problem.cluster import MAX_DEVICES
from nest_opt.problem.hierarchical import CollectiveModel
from nest_opt.problem.validation import build


@dataclass(frozen=True, kw_only=True)
class LevelTemplate:
    """One network level of a template.

    Attributes
    ----------
    size
        Subgroups (devices at the innermost level) of a full group; None, on
        the outermost level alone: as many as there are.
    bandwidth_bytes_per_s, latency_s, efficiency
        Peak bandwidth per device and direction, latency of one hop or one
        step of a collective, attained share of the bandwidth; None: those of
        the accelerator's fast link.
    oversubscription
        What the devices of a subgroup could send out of it over what its links
        carry; None: 1.
    """

    name: str
    size: Figure | None = None
    bandwidth_bytes_per_s: Figure | None = None
    latency_s: Figure | None = None
    efficiency: Figure | None = None
    oversubscription: Figure | None = None

    def link(self, accelerator: Accelerator) -> tuple[Figure, Figure, Figure]:
        """Return bandwidth, latency and efficiency, the accelerator's where None here."""
        return (
            self.bandwidth_bytes_per_s or accelerator.fast_link_bytes_per_s,
            self.latency_s or accelerator.fast_link_latency_s,
            self.efficiency or accelerator.fast_link_efficiency,
        )

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Yield the numbers that the level itself states, with their fields' names."""
        for name in (
            *("size", "bandwidth_bytes_per_s", "latency_s", "efficiency"),
            "oversubscription",
        ):
            figure = getattr(self, name)
            if figure is not None:
                yield name, figure


Shape = Callable[[int, Sequence[tuple[int | None, dict[str, Any]]]], dict[str, Any]]
"""The network of a number of devices, from (size, link) of every level of a template."""


@dataclass(frozen=True, kw_only=True)
class ClusterTemplate:
    """A kind of cluster.

    Attributes
    ----------
    accelerator
        Name of the accelerator that the cluster has unless another is asked for.
    unit
        Devices that are only to be had together (a node, a tray, a host).
    levels
        Network levels, innermost first.
    memory_bytes, reserve_bytes
        Of a device, where they are not the accelerator's; they go with the
        template's own accelerator only.
    collectives
        By how many ports copies leave a group of devices: `ports` where each
        device has a port, or a share of the ports, of its own.
    shape
        What network the levels describe; None: a hierarchical one.
    """

    name: str
    aliases: tuple[str, ...] = ()
    summary: str
    accelerator: str
    unit: Figure
    levels: tuple[LevelTemplate, ...]
    memory_bytes: Figure | None = None
    reserve_bytes: Figure | None = None
    collectives: CollectiveModel = "ports"
    shape: Shape | None = None

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Yield every number that the template itself states, with a name for it."""
        yield "unit", self.unit
        if self.memory_bytes is not None:
            yield "memory_bytes", self.memory_bytes
        if self.reserve_bytes is not None:
            yield "reserve_bytes", self.reserve_bytes
        for level in self.levels:
            for name, figure in level.figures():
                yield f"{level.name} {name}", figure


def check_device_count(template: ClusterTemplate, devices: int) -> None:
    """Refuse a number of devices that the kind of cluster cannot have.

    Any number up to one unit is allowed, and beyond that whole units.

    Raises
    ------
    InstanceError
        If the number is not allowed; the message gives the nearest that are.
    """
    what = f"cluster {template.name}"
    unit = int(template.unit.value)
    if not 1 <= devices <= MAX_DEVICES:
        raise InstanceError(
            f"{what}: found {devices} devices, 1 to {MAX_DEVICES} are allowed: correct the number"
        )
    if devices > unit and devices % unit:
        below = devices - devices % unit
        raise InstanceError(
            f"{what}: found {devices} devices, a multiple of {unit} is needed beyond {unit} "
            f"(devices come in units of {unit}): ask for {below} or {below + unit}"
        )


def level_sizes(template: ClusterTemplate, devices: int) -> tuple[int, ...]:
    """Return the sizes of the levels that a number of devices needs, innermost first.

    Levels outside the first one whose group holds all devices are left out.
    The outermost of the rest is no larger than needed; inner ones, and the
    innermost even if it is the only one, have their full size.
    """
    sizes: list[int] = []
    groups = devices
    for level in template.levels:
        full = groups if level.size is None else int(level.size.value)
        sizes.append(min(full, groups) if sizes else full)
        groups = -(-groups // full)
        if groups == 1:
            break
    return tuple(sizes)


def build_from(
    template: ClusterTemplate,
    devices: int,
    accelerator: Accelerator,
    own_memory: bool,
    achievable: bool,
) -> Cluster:
    """Build the cluster of `nest_opt.models.clusters.build_cluster`."""
    check_device_count(template, devices)
    return build(
        Cluster,
        {
            "device_kinds": {accelerator.name: _device_kind(template, accelerator, own_memory)},
            "devices": [{"kind": accelerator.name, "count": devices}],
            "network": _network(template, devices, accelerator, achievable),
        },
        f"cluster {template.name}",
    )


def _network(
    template: ClusterTemplate, devices: int, accelerator: Accelerator, achievable: bool
) -> dict[str, Any]:
    if template.shape is not None:
        return template.shape(
            devices,
            [
                (
                    None if level.size is None else int(level.size.value),
                    _level(level, 1, accelerator, achievable),
                )
                for level in template.levels
            ],
        )
    sizes = level_sizes(template, devices)
    return {
        "type": "hierarchical",
        "collectives": template.collectives,
        "levels": [
            _level(level, size, accelerator, achievable)
            for level, size in zip(template.levels, sizes, strict=False)
        ],
    }


def _device_kind(
    template: ClusterTemplate, accelerator: Accelerator, own_memory: bool
) -> dict[str, Any]:
    memory, reserve = accelerator.memory_bytes.value, accelerator.reserve_bytes
    if own_memory and template.memory_bytes is not None:
        memory = template.memory_bytes.value
    if own_memory and template.reserve_bytes is not None:
        reserve = int(template.reserve_bytes.value)
    return {
        "memory_bytes": int(memory),
        "usable_share": _number(accelerator.usable_share),
        "reserve_bytes": reserve,
        "peak_flops": _number(accelerator.matmul_16bit_flops),
        "memory_bandwidth_bytes_per_s": int(accelerator.memory_bandwidth_bytes_per_s.value),
    }


def _level(
    level: LevelTemplate, size: int, accelerator: Accelerator, achievable: bool
) -> dict[str, Any]:
    bandwidth, latency, efficiency = level.link(accelerator)
    share = Decimal(efficiency.value) if achievable else Decimal(1)
    return {
        "name": level.name,
        "size": size,
        "bandwidth_bytes_per_s": json_number(bandwidth.value * share),
        "latency_s": _number(latency),
        **({"oversubscription": _number(level.oversubscription)} if level.oversubscription else {}),
    }


def _number(figure: Figure) -> int | float | str:
    return json_number(Decimal(figure.value))
