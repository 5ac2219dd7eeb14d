"""A placement: the decisions of a plan, without its problem, and its device map."""

from dataclasses import dataclass
from typing import Literal

from nest_opt.problem import Configuration
from nest_opt.problem.profile import Recompute

# The artifact of the NEST paper puts the last stage first.
MapOrder = Literal["pp-inner", "dp-inner", "pp-inner-reversed"]


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
class Cell:
    """All decisions but the stages' layers and modes: the unit of the outer enumeration.

    Attributes
    ----------
    microbatch, configuration
        b and k = (tp, cp, ep, sp).
    rounds
        m, microbatches per pipeline and batch.
    device_map
        Replicas, stages, rank order and pitch.
    """

    microbatch: int
    configuration: Configuration
    rounds: int
    device_map: DeviceMap

    @property
    def pair(self) -> tuple[int, Configuration]:
        """(microbatch size, configuration), the key of profiles and costs."""
        return self.microbatch, self.configuration

    def placement(self, ends: tuple[int, ...], recompute: tuple[Recompute, ...]) -> "Placement":
        """Return the placement of the cell with given stage ends and modes."""
        return Placement(
            self.microbatch,
            self.configuration,
            self.device_map.replicas,
            self.device_map.order,
            self.device_map.pitch,
            ends,
            recompute,
        )


@dataclass(frozen=True)
class Placement:
    """The decisions of a plan.

    Attributes
    ----------
    microbatch, configuration, replicas
        b, k = (tp, cp, ep, sp) and d.
    order, pitch
        The device map's, see `DeviceMap`.
    ends
        For each stage, one past the index of its last layer in the listed
        order; the last entry is the number of layers.
    recompute
        For each stage, its recomputation mode.
    """

    microbatch: int
    configuration: Configuration
    replicas: int
    order: MapOrder
    pitch: int
    ends: tuple[int, ...]
    recompute: tuple[Recompute, ...]

    @property
    def stages(self) -> int:
        """S, the number of stages."""
        return len(self.ends)

    @property
    def intervals(self) -> tuple[tuple[int, int], ...]:
        """For each stage, its first layer and one past its last."""
        return tuple(zip((0, *self.ends), self.ends, strict=False))

    @property
    def device_map(self) -> DeviceMap:
        """The device map of the placement."""
        return DeviceMap(
            self.configuration.block_size, self.replicas, self.stages, self.order, self.pitch
        )
