"""The value of devices for a plan, kept up to date while they change."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from nest_opt.cost.objective import batch_time_ps
from nest_opt.network.pair_levels import PairLevels
from nest_opt.placing.meetings import meetings, seat_map
from nest_opt.placing.times import stage_times
from nest_opt.plan.evaluate import Costs, evaluated_objective, placement_cell
from nest_opt.plan.placement import ListedMap, Placement

# Value in ps, and a guide among states of equal value: less is better.
Score = tuple[int, int]

# Bytes of the transfers that the guide adds up.
GUIDE_BYTES = Fraction(10_000_000)


class Valued:
    """Devices of a plan's seats, idle ones after them, with the level of every meeting.

    The guide is the time of one transfer over every pair that meets, added
    up: it falls before the value does, which knows the worst alone.

    Attributes
    ----------
    devices
        The device of every seat, then those that are idle.
    seats
        How many of them are in use.
    """

    def __init__(
        self, costs: Costs, network: PairLevels, placement: Placement, devices: Sequence[int]
    ) -> None:
        self.placement = placement
        self.devices = list(devices)
        self.seats = placement.device_map.devices_used
        self._network = network
        self._weights = [
            int(10**12 * network.hop_s(GUIDE_BYTES, level)) for level in range(network.level_count)
        ]
        cell = placement_cell(costs.problem, placement)
        self._rounds, self._schedule = cell.rounds, placement.schedule
        self._objective = evaluated_objective(costs.problem)
        self._stages = stage_times(costs, placement)
        self._meetings = meetings(placement, costs.table.tied is not None)
        self._of_seat: list[list[int]] = [[] for _ in range(self.seats)]
        for number, meeting in enumerate(self._meetings):
            for seat in {seat for pair in meeting.pairs for seat in pair}:
                self._of_seat[seat].append(number)
        self._levels = [0] * len(self._meetings)
        self._guides = [0] * len(self._meetings)
        self._refresh(range(len(self._meetings)))

    def score(self) -> Score:
        """Return the value of the devices, and the guide."""
        loads: list[dict[int, int]] = [{} for _ in self._stages]
        rounds: list[dict[int, int]] = [{} for _ in self._stages]
        syncs: list[dict[int, int]] = [{} for _ in self._stages]
        exchange = [0] * len(self._stages)
        for meeting, level in zip(self._meetings, self._levels, strict=True):
            stage, member, kind = meeting.stage, meeting.member, meeting.kind
            times = self._stages[stage]
            if kind == "tied":
                exchange[stage] = times.sync_ps[kind][level]
                continue
            for of, sums in (
                (times.load_ps, loads), (times.round_ps, rounds), (times.sync_ps, syncs),
            ):  # fmt: skip
                row = of.get(kind)
                if row is not None:
                    sums[stage][member] = sums[stage].get(member, 0) + row[level]
        value = batch_time_ps(
            self._objective,
            self._rounds,
            [
                times.plain_ps + max(load.values(), default=0) + max(more.values(), default=0)
                for times, load, more in zip(self._stages, loads, rounds, strict=True)
            ],
            [
                max(sync.values(), default=0) + tied
                for sync, tied in zip(syncs, exchange, strict=True)
            ],
            [times.backward_before_ps for times in self._stages],
            self._schedule,
            [times.weight_gradient_ps for times in self._stages],
        )
        return value, sum(self._guides)

    def exchange(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Exchange the devices of some pairs of places, which have no place in common."""
        changed: set[int] = set()
        for one, other in pairs:
            self.devices[one], self.devices[other] = self.devices[other], self.devices[one]
            for place in (one, other):
                if place < self.seats:
                    changed.update(self._of_seat[place])
        self._refresh(changed)

    def listed(self, placement: Placement | None = None) -> Placement:
        """Return the plan, or one with other ends, with the devices of its seats written out."""
        return replace(
            placement or self.placement,
            order="listed",
            pitch=0,
            devices=ListedMap(
                tuple(
                    tuple(tuple(self.devices[seat] for seat in block) for block in stage)
                    for stage in seat_map(self.placement).devices
                )
            ),
        )

    def _refresh(self, numbers: Iterable[int]) -> None:
        devices, level, weights = self.devices, self._network.pair_level, self._weights
        for number in numbers:
            found = [level(devices[a], devices[b]) for a, b in self._meetings[number].pairs]
            self._levels[number] = self._network.worst(found)
            self._guides[number] = sum([weights[at] for at in found])
