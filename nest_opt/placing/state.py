"""What a local search changes: the device of every rank, idle ones, and the ends of stages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from nest_opt.plan.placement import ListedMap, Placement

# Stage, replica and rank.
Seat = tuple[int, int, int]


@dataclass(frozen=True)
class State:
    """A placement as seats, in the order of stages, replicas and ranks.

    Attributes
    ----------
    placement
        Everything but the devices.
    devices
        The device of every seat; idle devices come after them.
    """

    placement: Placement
    devices: tuple[int, ...]

    @cached_property
    def seats(self) -> tuple[Seat, ...]:
        """The seats, by their places in `devices`."""
        return tuple(
            (stage, replica, rank)
            for stage, own in enumerate(self.placement.configurations)
            for replica in range(self.placement.replicas)
            for rank in range(own.block_size)
        )

    @cached_property
    def starts(self) -> dict[tuple[int, int], int]:
        """The place of the first seat of every (stage, replica)."""
        return {seat[:2]: place for place, seat in enumerate(self.seats) if seat[2] == 0}

    @cached_property
    def blocks(self) -> ListedMap:
        """The devices of every block."""
        sizes = [own.block_size for own in self.placement.configurations]
        return ListedMap(
            tuple(
                tuple(
                    self.devices[self.starts[stage, replica] : self.starts[stage, replica] + size]
                    for replica in range(self.placement.replicas)
                )
                for stage, size in enumerate(sizes)
            )
        )

    def listed(self) -> Placement:
        """Return the placement with these devices written out."""
        return replace(self.placement, order="listed", pitch=0, devices=self.blocks)

    def seated(self, devices: Sequence[int]) -> "State":
        """Return the state with other devices; seats stay what they are."""
        found = State(self.placement, tuple(devices))
        # Of the same degrees: nothing to find again.
        found.__dict__.update(seats=self.seats, starts=self.starts)
        return found


def state_of(placement: Placement, device_count: int) -> State:
    """Return a placement as a state."""
    blocks = placement.device_map
    used = [
        device
        for stage in range(placement.stages)
        for replica in range(placement.replicas)
        for device in blocks.block(replica, stage)
    ]
    taken = set(used)
    idle = [device for device in range(device_count) if device not in taken]
    return State(placement, (*used, *idle))
