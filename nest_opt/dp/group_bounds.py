"""Bounds of groups without interval matrices: in closed form, and by room for layers.

All are at the least levels. Groups that differ in the ZeRO level alone have one
bound first, with the memory of the level that needs least and no collectives over
copies: there are many levels, and most groups have too little memory or too much
time under any. `docs/dp.md` has the proofs.
"""

from collections import Counter
from collections.abc import Sequence
from operator import add

import numpy as np
import numpy.typing as npt

from nest_opt.cost.objective import ObjectiveWeights, objective_weights
from nest_opt.cost.schedule import in_flight
from nest_opt.cost.sharding import Sharding, round_times, sharded_pair
from nest_opt.cost.table import CostTable, Row, row_times
from nest_opt.dp.capacity import Layers, Room, room
from nest_opt.dp.chain import INFINITE, Array
from nest_opt.dp.closed_form import LayerTimes, closed_form_ps, closed_forms, layer_times
from nest_opt.dp.least_levels import LeastLevels
from nest_opt.dp.matrices import NOTHING_SHARDED, copy_levels
from nest_opt.dp.source import Group, MemoryCase
from nest_opt.problem import Configuration
from nest_opt.problem.job import Objective
from nest_opt.problem.profile import RECOMPUTE_MODES, Recompute
from nest_opt.problem.schedule import Schedule
from nest_opt.problem.zero import Zero

_Pair = tuple[int, Configuration]
# States of a row, and what of it is whole while it computes, beside the mode's own work.
_Held = tuple[int, int]


class GroupBounds:
    """Bounds of the groups of a cost table.

    Parameters
    ----------
    table, objective
        The coefficients, and what is to be least.
    least
        The least levels.
    """

    def __init__(self, table: CostTable, objective: Objective, least: LeastLevels) -> None:
        self._table, self._objective, self._least = table, objective, least
        self._rows = np.array(table.layer_rows)
        # The layers that are counted where there is room to be found for them.
        self._row, self._count = Counter(table.layer_rows).most_common(1)[0]
        self._row_times: dict[tuple[_Pair, Sharding], dict[Recompute, Row]] = {}
        self._layer_times: dict[tuple[_Pair, Sharding], LayerTimes] = {}
        self._hops: dict[tuple[_Pair, int], int] = {}
        self._used_rows = frozenset(table.layer_rows)
        self._held: dict[tuple[_Pair, int, Zero | None], _Held] = {}
        self._floors: dict[tuple[_Pair, int, Zero | None], tuple[int, int]] = {}

    def closed_forms(
        self, pair: _Pair, rounds: int, schedule: Schedule, stages: Sequence[int]
    ) -> npt.NDArray[np.float64]:
        """Return bounds for several S, memory and collectives over copies aside."""
        weights = [objective_weights(self._objective, s, rounds, schedule) for s in stages]
        if not weights:
            return np.zeros(0)
        hops = np.array([self._all_hops(pair, schedule, s) for s in stages], np.float64)
        return closed_forms(self._layers(pair, NOTHING_SHARDED), hops, stages, weights)

    def closed_form_ps(self, group: Group) -> int:
        """Return a bound that knows the group's ZeRO level, memory aside."""
        layers = self._layers(group.pair, sharding_of(group))
        hops = self._all_hops(group.pair, group.schedule, group.stages)
        return closed_form_ps(layers, hops, group.stages, self._weights(group))

    def with_room_ps(self, group: Group, zeros: Sequence[Zero]) -> int | None:
        """Return a bound that knows memory; None if there is not enough under any level.

        Of several ZeRO levels it holds for each; of one it knows its
        collectives over copies as well.
        """
        sharding = sharding_of(group) if len(zeros) == 1 else NOTHING_SHARDED
        rooms = self._room(group, sharding, zeros)
        if not rooms.has_all():
            return None
        plain = self._layers(group.pair, sharding)
        total = plain.total + rooms.least_repeats()
        total += self._count * (
            rooms.layers.time_ps[0] - self._times(group.pair, sharding)["none"][self._row]
        )
        total += self._all_hops(group.pair, group.schedule, group.stages)
        largest = plain.largest + int(rooms.hop_ps.min())
        slowest = rooms.least_slowest(max(largest, -(-total // group.stages)))
        bound = plain._replace(total=total, largest=slowest, hidden_of_largest=0)
        return closed_form_ps(bound, 0, group.stages, self._weights(group))

    def have_room(
        self, case: MemoryCase, zeros: Sequence[Zero], usable_bytes: int
    ) -> npt.NDArray[np.bool_]:
        """Return which S have room for the most frequent layers if so much is usable.

        Under any of some ZeRO levels; entry S - 1 of n of them.
        """
        pair, schedule = (case.microbatch, case.configuration), case.schedule
        numbers = np.arange(1, self._table.layer_count + 1)
        if usable_bytes * schedule.chunks >= INFINITE:
            return numbers > 0
        rounds = np.full_like(numbers, case.rounds)
        if schedule.is_interleaved:
            # Of its last stage: no other holds fewer.
            flights = np.minimum((schedule.chunks - 1) * numbers + 1, schedule.chunks * rounds)
        else:
            flights = rounds if schedule.name == "gpipe" else np.minimum(numbers, rounds)
        layers = self._needs(pair, NOTHING_SHARDED, case.replicas, zeros)
        free = usable_bytes - self._table.reserve_bytes
        most = room(layers, free, flights, 0 * numbers, schedule.chunks).most.max(axis=0)
        # 1F1B holds p stashes in the stage p from the end, others as many in all stages.
        places = np.cumsum(most) if schedule.name == "1f1b" else numbers * most
        fits: npt.NDArray[np.bool_] = places >= self._count
        return fits

    def memory_floor(self, case: MemoryCase) -> tuple[int, int]:
        """Return (bytes that the largest layer needs alone, bytes of all states)."""
        pair = case.microbatch, case.configuration
        key = (pair, case.replicas, case.zero) if case.zero else (pair, 1, None)
        if key not in self._floors:
            costs = sharded_pair(self._table, pair, Sharding(case.zero, case.replicas, 1))
            alone = max(
                states
                + min(
                    costs.stash_bytes[g][row] + costs.work_bytes[g][row] for g in costs.stash_bytes
                )
                for row, states in enumerate(costs.states_bytes)
                if row in self._used_rows
            )
            every = self._table.own_rows(0, self._table.layer_count)
            states = sum(costs.states_bytes[row] for row in every)
            reserve = self._table.reserve_bytes
            self._floors[key] = alone + reserve, states + reserve
        return self._floors[key]

    def _needs(
        self, pair: _Pair, sharding: Sharding, replicas: int, zeros: Sequence[Zero]
    ) -> Layers:
        """Return what the most frequent layers need, under the best of some ZeRO levels."""
        costs, times = self._table.pairs[pair], self._times(pair, sharding)
        modes = [mode for mode in RECOMPUTE_MODES if mode in costs.stash_bytes]
        held = [self._held_bytes(pair, replicas, zero) for zero in zeros]
        whole = min(extra for _, extra in held)
        return Layers(
            self._count,
            [times[mode][self._row] for mode in modes],
            min(states for states, _ in held),
            [costs.stash_bytes[mode][self._row] for mode in modes],
            [costs.work_bytes[mode][self._row] + whole for mode in modes],
        )

    def _room(self, group: Group, sharding: Sharding, zeros: Sequence[Zero]) -> Room:
        stages, v, hop = group.stages, group.schedule.chunks, self._least_hop(group.pair)
        layers = self._needs(group.pair, sharding, group.replicas, zeros)
        hops = np.full(stages, 2 * v * hop, np.int64)
        hops[[0, -1]] = (2 * v - 1) * hop if stages > 1 else 0
        flights = [
            in_flight(group.schedule, stage, stages, group.rounds) for stage in range(stages)
        ]
        free = self._table.usable_bytes - self._table.reserve_bytes
        return room(layers, free, np.array(flights, np.int64), hops, v)

    def _held_bytes(self, pair: _Pair, replicas: int, zero: Zero) -> _Held:
        key = (pair, replicas, zero) if zero else (pair, 1, None)
        if key not in self._held:
            plain = self._table.pairs[pair]
            # Memory is the same whatever the number of rounds.
            costs = sharded_pair(self._table, pair, Sharding(zero, replicas, 1))
            mode = next(iter(costs.work_bytes))
            extra = costs.work_bytes[mode][self._row] - plain.work_bytes[mode][self._row]
            self._held[key] = costs.states_bytes[self._row], extra
        return self._held[key]

    def _weights(self, group: Group) -> ObjectiveWeights:
        return objective_weights(self._objective, group.stages, group.rounds, group.schedule)

    def _layers(self, pair: _Pair, sharding: Sharding) -> LayerTimes:
        """Return the sums of the layers' least times."""
        sharding = sharding if sharding.has_rounds else NOTHING_SHARDED
        if (pair, sharding) not in self._layer_times:
            gradients = np.array(self._table.pairs[pair].weight_gradient_ps, np.int64)
            found = layer_times(self.layer_times(pair, sharding), gradients[self._rows])
            self._layer_times[pair, sharding] = found
        return self._layer_times[pair, sharding]

    def layer_times(self, pair: _Pair, sharding: Sharding = NOTHING_SHARDED) -> Array:
        """Return the least time of each layer, hops and recomputation aside."""
        layers: Array = np.array(self._times(pair, sharding)["none"], np.int64)[self._rows]
        return layers

    def _times(self, pair: _Pair, sharding: Sharding) -> dict[Recompute, Row]:
        """Return each row's time by mode, hops aside, with all groups at their least levels."""
        sharding = sharding if sharding.has_rounds else NOTHING_SHARDED
        key = pair, sharding
        if key not in self._row_times:
            if sharding == NOTHING_SHARDED:
                inside = self._least.of_groups(pair[1])[:3]
                self._row_times[key] = row_times(self._table.pairs[pair], pair[1], inside)
            else:
                self._row_times[key] = self._times_with_rounds(pair, sharding)
        return self._row_times[key]

    def _times_with_rounds(self, pair: _Pair, sharding: Sharding) -> dict[Recompute, Row]:
        times = self._times(pair, NOTHING_SHARDED)
        levels = self._least.of_copies(pair[1], sharding.replicas, sharding.zero)
        rounds = round_times(self._table, pair, sharding, copy_levels(levels))
        if rounds is None:
            return times
        return {mode: tuple(map(add, row, rounds)) for mode, row in times.items()}

    def _all_hops(self, pair: _Pair, schedule: Schedule, stages: int) -> int:
        """Return the least that all hops of a pipeline take: two at each end of a chunk.

        Those from the last stage round to the first are longer.
        """
        around = schedule.chunks - 1
        hops = (stages - 1) * schedule.chunks * self._least_hop(pair)
        if around:
            hops += around * self._hop(pair, self._least.around(pair[1], stages))
        return 2 * hops

    def _least_hop(self, pair: _Pair) -> int:
        return self._hop(pair, self._least.of_groups(pair[1])[-1])

    def _hop(self, pair: _Pair, level: int) -> int:
        """Return the least time of a hop over a cut between two layers, 0 if there is none."""
        if (pair, level) not in self._hops:
            self._hops[pair, level] = min(self._table.pairs[pair].hop_ps[level][1:-1], default=0)
        return self._hops[pair, level]


def sharding_of(group: Group) -> Sharding:
    """Return a group's ZeRO level with what its costs depend on."""
    return Sharding(group.zero, group.replicas, group.rounds)
