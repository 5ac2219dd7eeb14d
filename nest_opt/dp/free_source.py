"""The free family, any distinct devices, relaxed: its groups with their bounds."""

from nest_opt.cost.sharding import Sharding
from nest_opt.cost.table import CLASSES
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.group_bounds import GroupBounds, sharding_of
from nest_opt.dp.least_levels import LeastLevels
from nest_opt.dp.levels import NO_HOP, Levels
from nest_opt.dp.matrices import NO_ROUNDS, StageKey
from nest_opt.dp.runs import Counts, Move, Runs, StageCosts
from nest_opt.dp.source import Group
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Configuration
from nest_opt.problem.zero import NOT_SHARDED, Zero

import numpy as np


class FreeLeastLevels(LeastLevels):
    """Least levels by counting devices: a set of r is at least on the level whose group has r."""

    def level_of(self, configuration: Configuration, devices: int) -> int:
        return self.vectors(configuration).level_of_span(devices - 1)

    def of_groups(self, configuration: Configuration) -> Levels:
        tp, cp, ep, _ = configuration
        return tuple(self.level_of(configuration, count) for count in (tp, cp, ep, 2))

    def around(self, configuration: Configuration, stages: int) -> int:
        return self.level_of(configuration, 2)

    def of_copies(
        self, configuration: Configuration, replicas: int, zero: Zero = NOT_SHARDED
    ) -> Levels:
        _, cp, ep, _ = configuration
        dense, expert = (replicas // zero.runs(name) for name in CLASSES)
        sizes: tuple[int, ...] = (cp * ep * dense, cp * expert)
        if zero.instances > 1:
            sizes += (zero.instances, zero.instances)
        return tuple(self.level_of(configuration, count) for count in sizes)


class FreeSource(DefaultSource):
    def __init__(self, costs: Costs) -> None:
        super().__init__(costs)
        self.least = FreeLeastLevels(costs.network.group_sizes)
        self.bounds = GroupBounds(self._table, self._problem.job.objective, self.least)

    def least_exchange(
        self, pair: tuple[int, Configuration], sharding: Sharding, stages: int
    ) -> int:
        if stages == 1:
            return 0
        level = self.least.around(pair[1], stages)
        return self.matrices(pair, sharding).exchange_ps(sharding, level)

    def levels(self):
        return range(1, len(self._group_sizes))

    def runs(self, group: Group, level: int) -> Runs:
        """Return the passes of a group, relaxed at a level."""
        k, stages = group.configuration, group.stages
        devices = self._group_sizes[level - 1]
        zero, d = group.zero, group.replicas
        h = zero.instances
        together = d if h == 1 else min(h, d // h)
        counts = Counts(devices // k.block_size, together, k.block_size > 1)
        sharding = sharding_of(group)
        matrices = self.matrices(group.pair, sharding)
        weights = self._weights_of(group)
        *inside, hop = self.least.of_groups(k)
        copies = self.least.of_copies(k, d, zero)
        copies_far = tuple(max(c, level) for c in copies)
        exchange = self.least_exchange(group.pair, sharding, stages)
        torn = [
            tuple(max(level, own) if place == kind else own for place, own in enumerate(inside))
            for kind, degree in enumerate((k.tp, k.cp, k.ep))
            if degree > 1
        ]
        from nest_opt.cost.schedule import in_flight
        has_sync = weights.sync and (matrices.has_sync(d) or exchange)
        helds = self.held_by(stages)
        known = {}

        def costs(stage: int, move: Move) -> StageCosts:
            key0 = (stage, move[:3])
            if key0 in known:
                return known[key0]
            flight = in_flight(group.schedule, stage, stages, group.rounds)
            h_in = (max(hop, level) if move.far_in else hop) if stage else NO_HOP
            h_out = (max(hop, level) if move.far_out else hop) if stage < stages - 1 else NO_HOP
            own = copies_far if move.lie == "apart" else copies
            shared = frozenset({own}) if matrices.has_rounds else NO_ROUNDS
            keys: list[StageKey] = [
                (frozenset({(*groups, h_in, h_out)}), flight, helds[stage], shared)
                for groups in (torn if move.lie == "torn" else [tuple(inside)])
            ]
            time = np.minimum.reduce([matrices.load(weights, key) for key in keys])
            fill = np.minimum.reduce([matrices.fill(weights, key) for key in keys]) if weights.has_loads else time
            sync = None
            if has_sync:
                of_stage = matrices.exposed_sync if self._hides_sync(group.schedule) else matrices.sync
                sync = of_stage(d, frozenset({own}), exchange if stage in (0, stages - 1) else 0)
            known[key0] = StageCosts(time, fill, sync)
            return known[key0]

        return Runs(counts, stages, costs, self.last_cut)
