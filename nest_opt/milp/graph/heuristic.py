"""First incumbents: the best cuts of some topological orders, and moves of single parts.

No Pyomo here. Parts in a topological order, cut into intervals: the load of
an interval does not depend on the other cuts, so a dynamic program finds the
best cuts and the best kind for each interval. Other orders may have better
ones, so some are drawn. Any split begins with the best of these, and moves
parts while that makes the largest loads smaller.
"""

import random
import time
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from nest_opt.milp.graph.cells import Kinds, device_counts
from nest_opt.milp.graph.parts import Parts

ORDERS = 20

_UNREACHED = 2**62


@dataclass(frozen=True)
class Stages:
    """Stages of parts: the kind of each, and the stage of each part."""

    kinds: Kinds
    stage_of: tuple[int, ...]


def best_cuts(parts: Parts, orders: int, time_limit_s: float | None = None) -> Stages | None:
    """Return the best cuts of the listed order and of others drawn at random.

    Parameters
    ----------
    parts
        A placement graph, contiguous.
    orders
        How many orders to try.
    time_limit_s
        Seconds after which to leave off; the listed order is tried come what may.
    """
    end = None if time_limit_s is None else time.perf_counter() + time_limit_s
    rng = random.Random(0)
    best: tuple[int, Stages] | None = None
    for number in range(orders):
        order = list(range(parts.count)) if number == 0 else _order(parts, rng, number % 2 == 0)
        found = _cut(parts, order, end if number else None)
        if found and (best is None or found[0] < best[0]):
            best = found
    return best[1] if best else None


def _order(parts: Parts, rng: random.Random, deep: bool) -> list[int]:
    """Return a topological order: at random, or going on from the last part where possible."""
    after: list[list[int]] = [[] for _ in range(parts.count)]
    waits = [0] * parts.count
    for u, v in parts.precedence:
        after[u].append(v)
        waits[v] += 1
    ready = [part for part in range(parts.count) if not waits[part]]
    rng.shuffle(ready)
    order = []
    while ready:
        part = ready.pop(-1 if deep else rng.randrange(len(ready)))
        order.append(part)
        for other in rng.sample(after[part], len(after[part])):
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
    return order


def _cut(parts: Parts, order: list[int], end: float | None) -> tuple[int, Stages] | None:
    """Return the least largest load of an order's cuts and its stages.

    None if none is legal, or time is up.

    `least[used][j]` is the least for the first j parts on `used` devices of
    each kind, any of which may be empty.
    """
    loads = interval_loads(parts, order)
    n, counts = parts.count, device_counts(parts)
    least: dict[Kinds, Any] = {(0,) * len(counts): np.array([0] + [_UNREACHED] * n)}
    how: dict[Kinds, tuple[Any, Any]] = {}
    for used in product(*(range(count + 1) for count in counts)):
        if is_past(end):
            return None
        options = []
        for kind, number in enumerate(used):
            if number:
                largest = np.maximum(least[_one_less(used, kind)][:, None], loads[kind])
                options.append((kind, largest.argmin(axis=0), largest.min(axis=0)))
        if options:
            values = np.array([values for _, _, values in options])
            chosen = values.argmin(axis=0)
            least[used] = values.min(axis=0)
            starts = np.array([starts for _, starts, _ in options])
            how[used] = (
                np.array([kind for kind, _, _ in options])[chosen],
                starts[chosen, np.arange(n + 1)],
            )
    value, used, end = int(least[counts][n]), counts, n
    if value >= _UNREACHED:
        return None
    kinds: list[int] = []
    stage_of = [0] * n
    while any(used):
        kind, start = (int(row[end]) for row in how[used])
        kinds.insert(0, kind)
        for part in order[start:end]:
            stage_of[part] = sum(used) - 1
        used, end = _one_less(used, kind), start
    return value, Stages(tuple(kinds), tuple(stage_of))


def is_past(end: float | None) -> bool:
    """Whether the clock (`time.perf_counter`) has come to an end, if there is one."""
    return end is not None and time.perf_counter() >= end


def _one_less(used: Kinds, kind: int) -> Kinds:
    return (*used[:kind], used[kind] - 1, *used[kind + 1 :])


def interval_loads(parts: Parts, order: list[int]) -> list[Any]:
    """Return per kind an array (n + 1, n + 1): the load of places i to j - 1 of an order.

    What a kind has no memory for or does not support is out of reach.
    """
    n = parts.count
    transfers = _interval_transfers(parts, order)
    before, after = np.tril(np.ones((n + 1, n + 1), dtype=bool), -1), []
    for kind in parts.kinds:
        times = _between([kind.time_ps[part] or 0 for part in order])
        unsupported = _between([int(kind.time_ps[part] is None) for part in order])
        sizes = _between([kind.size_bytes[part] for part in order])
        load = times + transfers if kind.pays_transfers else times
        illegal = before | (unsupported > 0) | (sizes > kind.usable_bytes)
        after.append(np.where(illegal, _UNREACHED, load))
    return after


def _between(numbers: list[int]) -> Any:
    """Return sums over [i, j), an array (n + 1, n + 1)."""
    upto = np.concatenate(([0], np.cumsum(np.array(numbers, dtype=np.int64))))
    return upto[None, :] - upto[:, None]


def _interval_transfers(parts: Parts, order: list[int]) -> Any:
    """Return what an interval [i, j) sends and receives, from rectangles of i and j.

    A tensor adds its time on a few rectangles; a double running sum of their
    corners adds all of them up.
    """
    n = parts.count
    place = {part: number for number, part in enumerate(order)}
    corners = np.zeros((n + 2, n + 2), dtype=np.int64)

    def add(i_from: int, i_to: int, j_from: int, j_to: int, time_ps: int) -> None:
        corners[[i_from, i_to], [j_from, j_to]] += time_ps
        corners[[i_to, i_from], [j_from, j_to]] -= time_ps

    for tensor in parts.tensors:
        source, time_ps = place[tensor.source], tensor.transfer_ps
        targets = sorted(place[target] for target in tensor.targets)
        low, high = min(source, targets[0]), max(source, targets[-1])
        # Sent: the source is inside, and not everything is.
        add(0, source + 1, source + 1, n + 1, time_ps)
        add(0, low + 1, high + 1, n + 1, -time_ps)
        # Received: the source is before i and some target inside; each counted at the first.
        last = source
        for target in targets:
            if target > source:
                add(last + 1, target + 1, target + 1, n + 1, time_ps)
                last = target
        # The source is at j or later, each counted at the last target inside.
        last = source
        for target in reversed(targets):
            if target < source:
                add(0, target + 1, target + 1, last + 1, time_ps)
                last = target
    return corners.cumsum(axis=0).cumsum(axis=1)[: n + 1, : n + 1]
