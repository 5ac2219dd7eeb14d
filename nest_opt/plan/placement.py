"""A placement: the decisions of a plan, without its problem, and its device map."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

from nest_opt.errors import PlanError
from nest_opt.problem import Configuration
from nest_opt.problem.profile import Recompute
from nest_opt.problem.schedule import ONE_F_ONE_B, Schedule
from nest_opt.problem.zero import NOT_SHARDED, Zero

# First layer and one past the last, in the listed order.
Interval = tuple[int, int]

AlignedOrder = Literal["pp-inner", "dp-inner"]
# The artifact of the NEST paper puts the last stage first.
MapOrder = Literal["pp-inner", "dp-inner", "pp-inner-reversed"]
# A plan whose order is `listed` writes out the devices of every block.
PlanOrder = Literal["pp-inner", "dp-inner", "pp-inner-reversed", "listed"]


class Blocks(Protocol):
    """Where the block of devices of every (replica, stage) is."""

    @property
    def replicas(self) -> int:
        """d, the number of replicas."""
        ...

    @property
    def stages(self) -> int:
        """S, the number of stages."""
        ...

    @property
    def devices_used(self) -> int:
        """Number of devices in all blocks."""
        ...

    def block(self, replica: int, stage: int) -> Sequence[int]:
        """Return the devices of a block, in the order of ranks."""
        ...


@dataclass(frozen=True)
class DeviceMap:
    """Where the blocks of devices of every (replica, stage) are.

    Attributes
    ----------
    block_size
        a, devices of one stage of one replica.
    replicas, stages
        d and S.
    order, pitch
        The block of replica r and stage i starts at device r * P + i * a
        (`pp-inner`), i * P + r * a (`dp-inner`) or r * P + (S - 1 - i) * a
        (`pp-inner-reversed`).
    """

    block_size: int
    replicas: int
    stages: int
    order: MapOrder
    pitch: int

    def block_start(self, replica: int, stage: int) -> int:
        """Return the first device of a block."""
        if self.order == "pp-inner":
            return replica * self.pitch + stage * self.block_size
        if self.order == "dp-inner":
            return stage * self.pitch + replica * self.block_size
        return replica * self.pitch + (self.stages - 1 - stage) * self.block_size

    def block(self, replica: int, stage: int) -> range:
        """Return the devices of a block, in the order of ranks."""
        start = self.block_start(replica, stage)
        return range(start, start + self.block_size)

    @property
    def devices_used(self) -> int:
        """Number of devices in all blocks."""
        return self.block_size * self.replicas * self.stages


@dataclass(frozen=True)
class ListedMap:
    """Blocks written out: they may be anywhere.

    Attributes
    ----------
    devices
        Per stage and replica, the devices of the block in the order of ranks.
    """

    devices: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def replicas(self) -> int:
        """d, the number of replicas."""
        return len(self.devices[0])

    @property
    def stages(self) -> int:
        """S, the number of stages."""
        return len(self.devices)

    @property
    def devices_used(self) -> int:
        """Number of devices in all blocks."""
        return sum(len(block) for stage in self.devices for block in stage)

    def block(self, replica: int, stage: int) -> tuple[int, ...]:
        """Return the devices of a block, in the order of ranks."""
        return self.devices[stage][replica]


@dataclass(frozen=True)
class UnevenMap:
    """Where the blocks of stages that differ in size are; nothing is written out.

    Attributes
    ----------
    block_sizes
        a_i, the devices of each stage's block.
    replicas
        d.
    order, pitch
        The block of replica r and stage i starts at device r * P + the sizes of
        the stages before (`pp-inner`) or at i * P + r * a_i (`dp-inner`).
    """

    block_sizes: tuple[int, ...]
    replicas: int
    order: AlignedOrder
    pitch: int

    @property
    def stages(self) -> int:
        """S, the number of stages."""
        return len(self.block_sizes)

    @property
    def devices_used(self) -> int:
        """Number of devices in all blocks."""
        return self.replicas * sum(self.block_sizes)

    def block(self, replica: int, stage: int) -> range:
        """Return the devices of a block, in the order of ranks."""
        size = self.block_sizes[stage]
        if self.order == "pp-inner":
            start = replica * self.pitch + sum(self.block_sizes[:stage])
        else:
            start = stage * self.pitch + replica * size
        return range(start, start + size)


def stage_intervals(ends: Sequence[int], stages: int) -> tuple[tuple[Interval, ...], ...]:
    """Return the intervals of layers of each of S stages, from the ends of all chunks."""
    chunks = tuple(zip((0, *ends), ends, strict=False))
    return tuple(chunks[stage::stages] for stage in range(stages))


def uneven_map(
    block_sizes: Sequence[int], replicas: int, order: AlignedOrder, pitch: int
) -> ListedMap:
    """Return the map of stages that differ in block size, written out: equal maps are equal."""
    blocks = UnevenMap(tuple(block_sizes), replicas, order, pitch)
    return ListedMap(
        tuple(
            tuple(tuple(blocks.block(replica, stage)) for replica in range(replicas))
            for stage in range(len(block_sizes))
        )
    )


@dataclass(frozen=True)
class Cell:
    """All decisions but the stages' layers and modes: the unit of the outer enumeration.

    Attributes
    ----------
    microbatch, configuration
        b and the k = (tp, cp, ep, sp) of every stage.
    rounds
        m, microbatches per pipeline and batch.
    device_map
        Replicas, stages, rank order and pitch.
    zero
        z and h: the ZeRO levels, and over which copies.
    schedule
        The pipeline schedule; v chunks of it make S * v intervals of layers.
    """

    microbatch: int
    configuration: Configuration
    rounds: int
    device_map: DeviceMap
    zero: Zero = NOT_SHARDED
    schedule: Schedule = ONE_F_ONE_B

    @property
    def pair(self) -> tuple[int, Configuration]:
        """(microbatch size, configuration), the key of profiles and costs."""
        return self.microbatch, self.configuration

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The configuration of each stage: one for all."""
        return (self.configuration,) * self.device_map.stages

    def placement(
        self,
        ends: tuple[int, ...],
        recompute: tuple[Recompute, ...],
        layer_order: tuple[int, ...] | None = None,
    ) -> "Placement":
        """Return the placement of the cell with given stage ends, modes and order of layers."""
        return Placement(
            self.microbatch,
            self.configurations,
            self.device_map.replicas,
            self.device_map.order,
            self.device_map.pitch,
            ends,
            recompute,
            zero=self.zero,
            schedule=self.schedule,
            layer_order=layer_order,
        )


@dataclass(frozen=True)
class StagedCell:
    """A cell whose stages differ in tp or sp, or whose blocks may be anywhere.

    Attributes
    ----------
    microbatch, configurations
        b, and the k = (tp, cp, ep, sp) of each stage; cp and ep are the same.
    rounds
        m, microbatches per pipeline and batch.
    device_map
        The blocks.
    zero
        z and h: the ZeRO levels, and over which copies.
    schedule
        The pipeline schedule.
    """

    microbatch: int
    configurations: tuple[Configuration, ...]
    rounds: int
    device_map: Blocks
    zero: Zero = NOT_SHARDED
    schedule: Schedule = ONE_F_ONE_B


AnyCell = Cell | StagedCell


def ends_and_order(
    stages: Iterable[Iterable[int]],
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return stage ends and order of layers of a placement with these layers in its stages.

    Inside a stage layers are in the listed order; the order is None if all are.
    """
    ends: list[int] = []
    order: list[int] = []
    for layers in stages:
        order += sorted(layers)
        ends.append(len(order))
    is_listed = order == list(range(len(order)))
    return tuple(ends), None if is_listed else tuple(order)


@dataclass(frozen=True)
class Placement:
    """The decisions of a plan.

    Attributes
    ----------
    microbatch, configurations, replicas
        b, the k = (tp, cp, ep, sp) of each stage, and d.
    order, pitch
        The device map's, see `DeviceMap` and `UnevenMap`; 0 is the pitch of
        order `listed`.
    ends
        For each chunk of layers, one past the place of its last layer in the
        order of layers; the last entry is the number of layers. Chunk c of
        stage i is entry c * S + i; with one chunk a stage, entry i.
    recompute
        For each stage, its recomputation mode.
    devices
        The blocks of order `listed`; None for other orders.
    zero
        z and h: the ZeRO levels of all stages, and over which copies.
    schedule
        The pipeline schedule.
    layer_order
        The order of layers, by their places in the listed order: topological,
        and ascending inside each stage. None is the listed order itself.
    """

    microbatch: int
    configurations: tuple[Configuration, ...]
    replicas: int
    order: PlanOrder
    pitch: int
    ends: tuple[int, ...]
    recompute: tuple[Recompute, ...]
    devices: ListedMap | None = None
    zero: Zero = NOT_SHARDED
    schedule: Schedule = ONE_F_ONE_B
    layer_order: tuple[int, ...] | None = None

    @property
    def stages(self) -> int:
        """S, the number of stages."""
        return len(self.recompute)

    @property
    def is_uniform(self) -> bool:
        """Whether all stages have one configuration."""
        return len(set(self.configurations)) == 1

    @property
    def ep(self) -> int:
        """The expert-parallel degree, which all stages share."""
        return self.configurations[0].ep

    @property
    def intervals(self) -> tuple[tuple[Interval, ...], ...]:
        """For each stage, its chunks in the order of layers: first place and one past the last."""
        return stage_intervals(self.ends, self.stages)

    @cached_property
    def stage_layers(self) -> tuple[tuple[int, ...], ...]:
        """For each stage, its layers by their places in the listed order."""
        order = range(self.ends[-1]) if self.layer_order is None else self.layer_order
        return tuple(
            tuple(order[place] for low, high in chunks for place in range(low, high))
            for chunks in self.intervals
        )

    @cached_property
    def device_map(self) -> Blocks:
        """The device map of the placement.

        Raises
        ------
        PlanError
            If the artifact's order has stages that differ in size.
        """
        sizes = [k.block_size for k in self.configurations]
        if self.order == "listed":
            if self.devices is None:
                raise PlanError(
                    "order: found listed without devices, those of every block are needed: add "
                    "them to the stages, or name another order"
                )
            return self.devices
        if len(set(sizes)) == 1:
            return DeviceMap(sizes[0], self.replicas, self.stages, self.order, self.pitch)
        if self.order == "pp-inner-reversed":
            raise PlanError(
                f"order: found pp-inner-reversed with blocks of {min(sizes)} to {max(sizes)} "
                "devices, equal ones are needed: use one tp for all stages, or another order"
            )
        return UnevenMap(tuple(sizes), self.replicas, self.order, self.pitch)
