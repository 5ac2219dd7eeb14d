"""Network levels of a cell's stages, from the devices that they use: equation (1)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nest_opt.cost.table import CLASSES
from nest_opt.network import Network
from nest_opt.plan.evaluate import block_groups, copy_levels, hop_ends, sync_group
from nest_opt.plan.placement import AnyCell
from nest_opt.problem import Configuration
from nest_opt.problem.profile import GROUPS

Levels: TypeAlias = tuple[int, ...]

# Level of a hop that a stage does not have.
NO_HOP = -1


@dataclass(frozen=True)
class StageLevels:
    """What one stage sees of the network.

    Attributes
    ----------
    load
        The (tp, cp, ep, hop in, hop out) levels of its replicas; of these,
        only the maximal ones, since every time grows with every level.
    sync
        The (dense, expert) spreads of its ranks' copies, likewise: those inside
        the worst run of replicas, then those between the worst equals of all runs.
    """

    load: tuple[Levels, ...]
    sync: tuple[Levels, ...]

    @property
    def hop_out(self) -> int:
        """The highest level of a hop to the next stage."""
        return max(member[-1] for member in self.load)


def stage_levels(network: Network, cell: AnyCell) -> tuple[StageLevels, ...]:
    """Return the levels of every stage of a cell."""
    device_map = cell.device_map
    # With several chunks a stage the pipeline goes round: the first stage is next to the last.
    round_trip = cell.schedule.is_interleaved
    last = device_map.stages - (not round_trip)
    hops = [
        [_hop(network, cell, replica, stage) for stage in range(last)]
        for replica in range(device_map.replicas)
    ]
    return tuple(
        StageLevels(
            _maximal(
                (
                    *_inside(network, configuration, device_map.block(replica, stage)),
                    hops[replica][stage - 1] if stage or round_trip else NO_HOP,
                    hops[replica][stage] if stage < last else NO_HOP,
                )
                for replica in range(device_map.replicas)
            ),
            tuple(
                sorted(
                    network.spreads.maximal(
                        _of_copies(network, cell, stage, rank)
                        for rank in range(configuration.block_size)
                    )
                )
            ),
        )
        for stage, configuration in enumerate(cell.configurations)
    )


def _of_copies(network: Network, cell: AnyCell, stage: int, rank: int) -> Levels:
    """Return the spreads of the copies of a rank: of both classes inside, then of both between."""
    configuration = cell.configurations[stage]
    levels = [
        copy_levels(
            network,
            sync_group(cell.device_map, configuration, name, stage, rank),
            cell.zero.runs(name),
        )
        for name in CLASSES
    ]
    return (*(each.inside for each in levels), *(each.between for each in levels))


def _inside(network: Network, configuration: Configuration, block: Sequence[int]) -> Levels:
    """Return the highest level of a block's tp, cp and ep groups."""
    return tuple(
        max(network.level(group) for group in block_groups(block, configuration, kind))
        for kind in GROUPS
    )


def _hop(network: Network, cell: AnyCell, replica: int, stage: int) -> int:
    """Return the highest level of the hops from a stage to the next, over ranks."""
    after = (stage + 1) % cell.device_map.stages
    ends = hop_ends(cell.device_map, cell.configurations, replica, stage, after)
    return max(network.level(pair) for pair in ends)


def _maximal(members: Iterable[Levels]) -> tuple[Levels, ...]:
    """Return the distinct members that no other one dominates, in a fixed order."""
    distinct = sorted(set(members))
    return tuple(
        member
        for member in distinct
        if not any(
            other != member and all(o >= m for o, m in zip(other, member, strict=True))
            for other in distinct
        )
    )
