"""`phaze`: a dynamic program that knows one bandwidth.

Source: Wang, Tarnawski, Phanishayee and Mahajan 2024, "Integrated Hardware
Architecture and Device Placement Search" (ICML, arXiv:2407.13143), the
placement half: for each tensor degree the least bottleneck of s stages by an
interval DP from the last stage on, then the best of all d and S for
(m + S - 1) max F plus the all-reduce of the first stage.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nest_opt.cost.schedule import in_flight
from nest_opt.planners.memory import Array
from nest_opt.planners.protocol import Outcome
from nest_opt.planners.stage_times import INFINITE, StageTimes, sync_times
from nest_opt.planners.trials import Degrees, Trial, Trials, outcome
from nest_opt.problem import Problem


class _Bottlenecks(NamedTuple):
    """The interval DP: entry s is about the last s stages.

    Attributes
    ----------
    least
        Per first layer, the least largest time of these stages.
    end
        Per first layer, where the first of them ends.
    times
        The times of all runs as s-th stage from the end.
    """

    least: list[Array]
    end: list[Array]
    times: list[Array]


class _Candidate(NamedTuple):
    """A plan that is believed to take some time; candidates compare by it."""

    value_ps: int
    degrees: Degrees
    ends: tuple[int, ...]


@dataclass(frozen=True)
class PhazePlanner:
    """The best plan for a network without levels.

    Attributes
    ----------
    most_tried
        Candidates that are put before the checker, best first, until one is legal.
    """

    most_tried: int = 100
    name: str = "phaze"

    def plan(self, problem: Problem) -> Outcome:
        """Return the legal plan that is best on a network without levels."""
        return outcome(self.name, problem, self._first_legal)

    def _first_legal(self, trials: Trials) -> Trial | str | None:
        candidates = sorted(_candidates(trials))
        if not candidates:
            return "no stages of any degrees fit in memory"
        for candidate in candidates[: self.most_tried]:
            device_map = trials.map(candidate.degrees, len(candidate.ends), "pp-inner")
            if device_map is not None:
                trial = trials.attempt(candidate.degrees, device_map, candidate.ends)
                if trial:
                    return trial
        return None


def one_level(trials: Trials) -> int:
    """Return the level that all hops and syncs are taken to be at: that of all devices."""
    return trials.costs.network.level((0, trials.problem.cluster.device_count - 1))


def _candidates(trials: Trials) -> Iterator[_Candidate]:
    """Yield the plan of least believed time for each choice of degrees and S."""
    level = one_level(trials)
    known: dict[object, _Bottlenecks] = {}
    # Fewer replicas leave room for more stages, so these come first.
    for degrees in trials.plain_degrees:
        counts = trials.stage_counts(degrees)
        if not counts:
            continue
        rounds = trials.rounds(degrees)
        # What is in flight, and what is sharded, may depend on d.
        flight = in_flight(degrees.schedule, 0, trials.layers, rounds)
        key = (degrees.pair, flight, degrees.replicas if degrees.zero else None)
        if key not in known:
            times = StageTimes(trials, degrees, level)
            known[key] = _bottlenecks(times, trials.most_stages(degrees))
        found = known[key]
        sync = sync_times(trials, degrees, level)[0]
        for stages in counts:
            candidate = _best_first_stage(found, degrees, stages, rounds, sync)
            if candidate:
                yield candidate


def _bottlenecks(times: StageTimes, most: int) -> _Bottlenecks:
    """Return the least bottleneck of the last 1 to `most` stages, from every layer on."""
    n = times.trials.layers
    none = np.full(n + 1, INFINITE, np.int64)
    none[n] = 0
    found = _Bottlenecks([none], [none], [])
    for place in range(1, most + 1):
        of_stage = times.of_stage(place)
        largest = np.maximum(of_stage, found.least[-1][None, :])
        found.times.append(of_stage)
        found.end.append(np.argmin(largest, axis=1))
        found.least.append(np.min(largest, axis=1))
    return found


def _best_first_stage(
    found: _Bottlenecks, degrees: Degrees, stages: int, rounds: int, sync: Array
) -> _Candidate | None:
    """Return the plan whose first stage is the best for bottleneck and all-reduce together."""
    largest = np.maximum(found.times[stages - 1][0], found.least[stages - 1])
    values = [
        (rounds + stages - 1) * time + sync_ps
        for time, sync_ps in zip(largest.tolist(), sync.tolist(), strict=True)
        if time < INFINITE
    ]
    if not values:
        return None
    places = np.flatnonzero(largest < INFINITE)
    value = min(values)
    ends = [int(places[values.index(value)])]
    for left in range(stages - 1, 0, -1):
        ends.append(int(found.end[left][ends[-1]]))
    return _Candidate(value, degrees, tuple(ends))
