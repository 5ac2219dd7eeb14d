"""The groups of the free family, any distinct devices, and what they are relaxed to."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from nest_opt.cost.schedule import in_flight
from nest_opt.cost.sharding import Sharding
from nest_opt.dp.chain import Array
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.group_bounds import GroupBounds, sharding_of
from nest_opt.dp.least_levels import LeastLevels, copy_counts
from nest_opt.dp.levels import NO_HOP, Levels
from nest_opt.dp.matrices import NO_ROUNDS, StageKey
from nest_opt.dp.runs import OPEN, Closing, Counts, Move, Runs, StageCosts, joined
from nest_opt.dp.source import Group
from nest_opt.errors import ModelError
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Configuration
from nest_opt.problem.zero import Zero

_CostsOf: TypeAlias = Callable[[int, Move], StageCosts]


class FreeLeastLevels(LeastLevels):
    """Least levels on any devices: the level of n of them is the least whose group has n."""

    def of_groups(self, configuration: Configuration) -> Levels:
        """Return the (tp, cp, ep, hop) levels: a hop is between two devices."""
        tp, cp, ep, _ = configuration
        return tuple(self._level(configuration, count) for count in (tp, cp, ep, 2))

    def around(self, configuration: Configuration, stages: int) -> int:
        """Return the level of two ranks of different stages."""
        return self._level(configuration, 2)

    def copy_levels(self, configuration: Configuration, replicas: int, zero: Zero) -> Levels:
        """Return the levels of the copies."""
        counts = copy_counts(configuration, replicas, zero)
        return tuple(self._level(configuration, count) for count in counts)

    def far_copies(
        self, configuration: Configuration, replicas: int, zero: Zero, level: int
    ) -> Levels:
        """Return the spreads of the copies where none of them has a level below one."""
        counts = copy_counts(configuration, replicas, zero)
        levels = self.copy_levels(configuration, replicas, zero)
        return tuple(
            self._spreads.best(count, max(level, own))
            for count, own in zip(counts, levels, strict=True)
        )

    def _level(self, configuration: Configuration, devices: int) -> int:
        return self.vectors(configuration).level_of_span(devices - 1)


class FreeSource(DefaultSource):
    """Groups of the free family under the default cost model, bounded at the least levels.

    Raises
    ------
    ModelError
        If the problem asks for the artifact's cost model, or for stages that differ.
    """

    def __init__(self, costs: Costs) -> None:
        if costs.is_artifact or costs.problem.search.per_stage:
            raise ModelError(
                "bounds of the free family: found "
                + ("the cost model artifact" if costs.is_artifact else "search.per_stage")
                + ", they are for the default cost model and one configuration for all stages: "
                "leave it out"
            )
        super().__init__(costs)
        self.least = self._free_least = FreeLeastLevels(costs.network.spreads)
        self.bounds = GroupBounds(self._table, self._problem.job.objective, self.least)

    @property
    def levels(self) -> range:
        """Levels at which a group may be relaxed to runs.

        On one level alone all is near, and far things are on that level too.
        """
        count = len(self._group_sizes)
        return range(1, count) if count > 1 else range(1)

    def least_exchange(
        self, pair: tuple[int, Configuration], sharding: Sharding, stages: int
    ) -> int:
        """Return what the ends of any device map pay at least for tied gradients."""
        return self._exchange_at(self.least.around(pair[1], stages), pair, sharding, stages)

    def _exchange_at(
        self, level: int, pair: tuple[int, Configuration], sharding: Sharding, stages: int
    ) -> int:
        return self.matrices(pair, sharding).exchange_ps(sharding, level) if stages > 1 else 0

    def counts(self, group: Group, level: int) -> Counts:
        """Return what the blocks of a group can do in the network's groups of the level below."""
        d, h = group.replicas, group.zero.instances
        # Copies below the level are those of a run of replicas, or equals of all runs.
        together = d if h == 1 else min(h, d // h)
        block = group.configuration.block_size
        room = self._group_sizes[level - 1] // block
        if room >= group.stages * together:
            # Whatever there is fits, so that one block says as much of a stage as all do.
            together = 1
        if together == 1 or together > room:
            room = min(room, group.stages)
        return Counts(room, together, block > 1)

    def runs(self, group: Group, level: int) -> list[Runs]:
        """Return pipelines, one of which is no dearer than any plan of a group.

        Parameters
        ----------
        group
            Degrees with a schedule of one chunk a stage.
        level
            The level that is counted for, one of `levels`.
        """
        counts = self.counts(group, level)
        near = self.least_exchange(group.pair, sharding_of(group), group.stages)
        far = self._exchange_at(
            max(level, self.least.around(group.configuration, group.stages)),
            group.pair,
            sharding_of(group),
            group.stages,
        )
        closings: list[tuple[Closing, int]] = [(OPEN, near)]
        if far > near and group.stages > counts.room:
            closings = [(OPEN, far), *((closing, near) for closing in joined(counts))]
        costs = {exchange: self._costs_of(group, level, exchange) for exchange in (near, far)}
        return [
            Runs(
                counts.moves(), counts.states, closing, group.stages, self.last_cut, costs[exchange]
            )
            for closing, exchange in closings
        ]

    def _costs_of(self, group: Group, level: int, exchange_ps: int) -> _CostsOf:
        """Return what a stage of a group costs in a move."""
        sharding, weights, last = sharding_of(group), self.group_weights(group), group.stages - 1
        matrices = self.matrices(group.pair, sharding)
        has_sync = weights.sync and (matrices.has_sync(group.replicas) or exchange_ps)
        hides = self._hides_sync(group.schedule)
        *inside, hop = self.least.of_groups(group.configuration)
        torn = [
            tuple(max(level, own) if place == kind else own for place, own in enumerate(inside))
            for kind, degree in enumerate(group.configuration[:3])
            if degree > 1
        ]
        near = self.least.of_copies(group.configuration, group.replicas, group.zero)
        far = self._free_least.far_copies(group.configuration, group.replicas, group.zero, level)
        held = self.held_by(group.stages)
        known: dict[object, Array] = {}

        def least(what: Callable[..., Array], keys: list[StageKey]) -> Array:
            key = what.__name__, *keys
            if key not in known:
                known[key] = np.minimum.reduce([what(weights, each) for each in keys])
            return known[key]

        def costs(stage: int, move: Move) -> StageCosts:
            level_in = (max(level, hop) if move.far_in else hop) if stage else NO_HOP
            level_out = (max(level, hop) if move.far_out else hop) if stage < last else NO_HOP
            copies = frozenset({far if move.lie == "apart" else near})
            flight = in_flight(group.schedule, stage, group.stages, group.rounds)
            shared = copies if matrices.has_rounds else NO_ROUNDS
            keys: list[StageKey] = [
                (frozenset({(*groups, level_in, level_out)}), flight, held[stage], shared)
                for groups in (torn if move.lie == "torn" else [tuple(inside)])
            ]
            load = least(matrices.load, keys)
            fill = least(matrices.fill, keys) if weights.has_loads else load
            if not has_sync:
                return StageCosts(load, fill, None)
            key = copies, stage in (0, last)
            if key not in known:
                of_stage = matrices.exposed_sync if hides else matrices.sync
                ends = exchange_ps if stage in (0, last) else 0
                known[key] = of_stage(group.replicas, copies, ends)
            return StageCosts(load, fill, known[key])

        return costs
