"""A linear program that bounds a group of the free family, and the value of multipliers for it.

A group is (microbatch, what a stage may choose, d, zero, schedule, S). A placement is a path of
arcs, one a stage, with columns beside it that count replicas; `docs/bounds_small.md` has the rows,
and the proof that every placement of an objective below the limit is a point that meets them. So
whatever multipliers of rows make of the program's least value is a lower bound: solvers find
them, nothing here trusts them. Standard library alone, integers and fractions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import accumulate, combinations, pairwise, product
from math import lcm
from typing import Any

Row = tuple[int, ...]
# Of the common denominator of a leaf's multipliers: arithmetic has to end.
MOST_BITS = 2**13
# What no integer of a node is above, be it a time or a count: a limit may be below the counts.
ENDLESS = 2**200
# Least and most of a node's integers, by name.
Bounds = Mapping[str, tuple[int, int]]
# A cut, and the level of the worst hop over it.
Node = tuple[int, int]


@dataclass(frozen=True)
class ModeCosts:
    """A recomputation mode: `time_ps` by level and layer, stash and work bytes by layer.

    The level is that of the worst group of ranks inside the block, all others on their least.
    """

    time_ps: tuple[Row, ...]
    stash_bytes: Row
    work_bytes: Row


@dataclass(frozen=True)
class ClassCosts:
    """What a class of parameters takes over its copies, by their level and by layer.

    `fixed_ps` and `sync_ps` are a batch's, (15) and (63); `round_ps` is a microbatch's, (60).
    `holds` says which layers have parameters of the class.
    """

    fixed_ps: Row
    sync_ps: tuple[Row, ...]
    round_ps: tuple[Row, ...]
    holds: tuple[bool, ...]


@dataclass(frozen=True)
class Choice:
    """A configuration that a stage may have.

    Attributes
    ----------
    devices
        a, of one block.
    torn
        The least level of the worst group of ranks in a block.
    spread
        The least levels of a rank's dense and expert copies.
    modes
        What each recomputation mode costs.
    states_bytes
        By layer.
    hop_ps
        By level and cut.
    backward_ps, gradient_ps
        By layer, the plain backward time and the part of it that makes weights' gradients.
    dense, expert
        The classes.
    """

    devices: int
    torn: int
    spread: tuple[int, int]
    modes: tuple[ModeCosts, ...]
    states_bytes: Row
    hop_ps: tuple[Row, ...]
    backward_ps: Row
    gradient_ps: Row
    dense: ClassCosts
    expert: ClassCosts


@dataclass(frozen=True)
class Group:
    """The numbers of a group.

    Attributes
    ----------
    stages, replicas, layers, devices
        S, d, n and K.
    rooms
        For each level from 1 on that devices can be on, the devices of all groups one level below.
    choices
        What a stage may have.
    in_flight, free_bytes
        By stage, and of a device without the reserve.
    sum_weight, round_weight, fill_weight, hidden_weight
        The objective is w_sum * sum f + max (w_round F + w_fill f) + max Z, with f = max(0, F -
        w_hidden W).
    syncs, drains
        Whether Z is a sync, and whether backward times before the stage hide it.
    exchange_ps
        What first and last stage pay for tied parameters at least.
    least_spread
        A level that no copies are below, by constraints.
    fixed_cuts
        Cuts at which no stage ends.
    one_run
        Whether copies are in one run of replicas; if not, they are taken at their least levels.
    """

    stages: int
    replicas: int
    layers: int
    devices: int
    rooms: tuple[Row, ...]
    choices: tuple[Choice, ...]
    in_flight: Row
    free_bytes: int
    sum_weight: int
    round_weight: int
    fill_weight: int
    hidden_weight: int
    syncs: bool
    drains: bool
    exchange_ps: int = 0
    least_spread: int = 0
    fixed_cuts: frozenset[int] = frozenset()
    one_run: bool = True


@dataclass(frozen=True)
class Arc:
    """A stage: layers low, ..., high - 1, its configuration, its levels, and what it takes.

    Attributes
    ----------
    choice, devices
        The place of its configuration, and the devices of its block.
    hops
        The (in, out) levels of replicas that no other replica exceeds in both.
    torn, spread
        The levels of the worst group of ranks in any replica, and of the dense copies.
    cost_ps, load_ps, sync_ps
        w_sum f, w_round F + w_fill f, and Z.
    entries
        Its coefficients, by row.
    """

    stage: int
    low: int
    high: int
    choice: int
    devices: int
    hops: tuple[tuple[int, int], ...]
    torn: int
    spread: int
    cost_ps: int
    load_ps: int
    sync_ps: int
    entries: dict[str, int] = field(default_factory=dict)

    @property
    def tail(self) -> Node:
        """The node where it begins."""
        return self.low, max(level for level, _ in self.hops)

    @property
    def head(self) -> Node:
        """The node where it ends."""
        return self.high, max(level for _, level in self.hops)

    @property
    def integers(self) -> dict[str, int]:
        """What a node of a tree may have bounds on."""
        return {
            f"end {self.stage}": self.high, f"hop {self.stage}": self.head[1],
            f"torn {self.stage}": self.torn, f"spread {self.stage}": self.spread,
            f"size {self.stage}": self.devices,
        }  # fmt: skip


@dataclass
class Column:
    """A variable beside the path: bounds, cost, coefficients by row."""

    low: int
    high: int
    cost: int = 0
    entries: dict[str, int] = field(default_factory=dict)


@dataclass
class Program:
    """The least cost of a path, one arc a stage, and columns: entries of a row add up to `right`.

    At least to `right`, that is. Without arcs there is no placement.
    """

    arcs: list[list[Arc]]
    columns: dict[str, Column] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)

    def add_row(
        self, name: str, right: int, columns: Mapping[str, int], *parts: tuple[Sequence[Arc], int]
    ) -> None:
        """Add a row: coefficients of columns, and one for each of some sets of arcs."""
        self.right[name] = right
        for column, number in columns.items():
            self.columns[column].entries[name] = number
        for arcs, number in parts:
            for arc in arcs:
                arc.entries[name] = arc.entries.get(name, 0) + number


def dual_value(program: Program, multipliers: Mapping[str, Fraction]) -> Fraction | None:
    """Return what no point of a program is below; None if it has no point.

    Any multipliers of at least 0 will do: the sum of multiplier * right side, plus what is least,
    over columns within their bounds and over paths, of cost less multiplier * entries. All of
    it in integers, over one denominator. Those of rows that the program lacks count for nothing.

    Raises
    ------
    ValueError
        If a multiplier is negative.
    """
    if any(value < 0 for value in multipliers.values()):
        raise ValueError(f"multipliers: found {min(multipliers.values())}, at least 0 is needed")
    scale = 1
    for number in multipliers.values():
        scale = lcm(scale, number.denominator)
        if scale.bit_length() > MOST_BITS:
            raise ValueError(
                f"multipliers: found a denominator of more than {MOST_BITS} bits in all"
            )
    weight = {
        name: int(value * scale) for name, value in multipliers.items() if name in program.right
    }

    def rest(cost: int, entries: Mapping[str, int]) -> int:
        return scale * cost - sum(weight[row] * entries[row] for row in weight.keys() & entries)

    total = sum(value * program.right[name] for name, value in weight.items())
    for column in program.columns.values():
        price = rest(column.cost, column.entries)
        total += min(price * column.low, price * column.high)
    reached: dict[Node, int] = {(0, 0): 0}
    for arcs in program.arcs:
        ends: dict[Node, int] = {}
        for arc in arcs:
            if arc.tail in reached:
                value = reached[arc.tail] + rest(arc.cost_ps, arc.entries)
                ends[arc.head] = min(value, ends.get(arc.head, value))
        reached = ends
    return Fraction(total + min(reached.values()), scale) if reached else None


def open_leaf(
    group: Group, limit_ps: int, tree: Any, spend: Callable[[int], None] | None = None
) -> tuple[Bounds, Fraction] | None:
    """Return a leaf that leaves room for an objective below a limit, and its value; None if none.

    A tree is `{"split": [name, v], "below": tree, "above": tree}`, the one for an integer of at
    most v and the other for one of at least v + 1, or `{"multipliers": {row: number}}` with
    integers and texts "p/q". Objectives are whole, so that more than limit - 1 will do. `spend`
    is told the arcs of every program and the multipliers of every leaf.

    Raises
    ------
    ValueError
        If a multiplier is none, or below 0.
    """
    nodes: list[tuple[Any, Bounds]] = [(tree, {})]
    while nodes:
        node, bounds = nodes.pop()
        if spend:
            spend(0)
        if "split" in node:
            name, value = node["split"]
            low, high = bounds.get(name, (0, ENDLESS))
            if type(value) is not int:
                raise ValueError(f"split {name!r:.40}: found {value!r:.40}, an integer is needed")
            nodes.append((node["below"], {**bounds, name: (low, min(high, value))}))
            nodes.append((node["above"], {**bounds, name: (max(low, value + 1), high)}))
            continue
        if spend:
            spend(len(node["multipliers"]))
        numbers = {row: multiplier(number) for row, number in node["multipliers"].items()}
        program = build(group, limit_ps, bounds)
        if spend:
            spend(sum(map(len, program.arcs)))
        found = dual_value(program, numbers)
        if found is not None and found <= limit_ps - 1:
            return bounds, found
    return None


def multiplier(number: Any) -> Fraction:
    """Return a multiplier as a file has it: an integer, or a text of two.

    Raises
    ------
    ValueError
        If it is something else, or has more digits than any that is of use.
    """
    parts = [str(number)] if type(number) is int else str(number).split("/")
    if len(parts) > 2 or not all(part.isdecimal() and len(part) <= 20 for part in parts):
        raise ValueError(
            f'multipliers: found {number!r:.40}, an integer or "p/q" of at least 0 is needed'
        )
    return Fraction(*map(int, parts))


def most_arcs(group: Group) -> int:
    """Return how many arcs a program of a group has at most."""
    levels = len(group.rooms) + 1
    intervals = group.stages * group.layers * (group.layers + 1) // 2
    return intervals * len(group.choices) * len(staircases(levels, levels)) * levels * levels


def build(group: Group, limit_ps: int, bounds: Bounds) -> Program:
    """Return the program of a group's placements with an objective below a limit.

    `bounds` are those of a node of a tree: of `load` and `sync`, the largest of all stages; by
    stage, of `end`, `hop`, `torn`, `spread` and `size`; and of columns that count replicas.
    """
    least = sum(
        min(mode.time_ps[choice.torn][layer] - group.hidden_weight * choice.gradient_ps[layer]
            for choice in group.choices for mode in choice.modes)
        for layer in range(group.layers)
    )  # fmt: skip
    most = limit_ps - 1 - group.sum_weight * max(0, least)
    load_low, load_high = bounds.get("load", (0, most))
    sync_low, sync_high = bounds.get("sync", (0, most))
    load = Column(load_low, min(load_high, most - sync_low), 1)
    sync = Column(sync_low, min(sync_high, most - load_low), 1)
    program = Program(
        [list(_stage_arcs(group, stage, bounds, load.high, sync.high))
         for stage in range(group.stages)],
        {"load": load, "sync": sync},
    )  # fmt: skip
    if not all(program.arcs):
        return Program([[]])
    for stage, arcs in enumerate(program.arcs):
        loads = [([arc], -max(0, arc.load_ps - load.low)) for arc in arcs]
        syncs = [([arc], -max(0, arc.sync_ps - sync.low)) for arc in arcs]
        program.add_row(f"load {stage}", load.low, {"load": 1}, *loads)
        program.add_row(f"sync {stage}", sync.low, {"sync": 1}, *syncs)
    for level, rooms in enumerate(group.rooms, 1):
        _add_counts(program, group, level, bounds)
        _add_runs(program, group, level, rooms)
        _add_packed(program, group, level, rooms)
    if any(column.low > column.high for column in program.columns.values()):
        return Program([[]])
    if len(group.choices) > 1:
        every = [arc for arcs in program.arcs for arc in arcs]
        taken = [([arc], -group.replicas * arc.devices) for arc in every]
        works = [([arc], -group.replicas * arc.devices * arc.load_ps) for arc in every]
        program.add_row("devices", -group.devices, {}, *taken)
        program.add_row("work", 0, {"load": group.devices}, *works)
    return program


def _stage_arcs(
    group: Group, stage: int, bounds: Bounds, most_load_ps: int, most_sync_ps: int
) -> Iterator[Arc]:
    """Yield every arc of a stage that is within bounds."""
    last, n = group.stages - 1, group.layers
    lows = range(stage, n - last + stage) if stage else (0,)
    hidden_ps = _most_hidden_ps(group, stage, bounds)
    for low, number in product(lows, range(len(group.choices))):
        for high in range(low + 1, n - last + stage + 1) if stage < last else (n,):
            times = _least_times(group, group.choices[number], stage, low, high)
            if times is None:
                break
            if group.fixed_cuts & {low, high}:
                continue
            for arc in _interval_arcs(group, stage, low, high, number, times, hidden_ps[low]):
                if arc.load_ps > most_load_ps or arc.sync_ps > most_sync_ps:
                    continue
                of_node = [(v, bounds[k]) for k, v in arc.integers.items() if k in bounds]
                if all(least <= value <= most for value, (least, most) in of_node):
                    yield arc


def _interval_arcs(
    group: Group, stage: int, low: int, high: int, number: int, times: Row, hidden_ps: int
) -> Iterator[Arc]:
    """Yield the arcs of a stage with some layers in a configuration, at all levels."""
    choice, top, last = group.choices[number], len(group.rooms), group.stages - 1
    hop_in = [row[low] for row in choice.hop_ps] if stage else [0]
    hop_out = [row[high] for row in choice.hop_ps] if stage < last else [0]
    patterns = [
        (hops, max(hop_in[one] + hop_out[other] for one, other in hops))
        for hops in staircases(len(hop_in), len(hop_out))
    ]
    hidden = group.hidden_weight * sum(choice.gradient_ps[low:high])
    # Below this level no group holds a whole block of every replica.
    packing = sum(max(rooms) < group.replicas * choice.devices for rooms in group.rooms)
    for torn in range(choice.torn, top + 1 if choice.devices > 1 else 1):
        alone = times[torn] + hop_in[0] + hop_out[0]
        for spread, sync, more in _copies(group, choice, stage, low, high, torn, hidden_ps):
            for hops, worst in patterns if max(spread, torn) >= packing else ():
                time = max(times[choice.torn] + worst, alone) + more
                fill = max(0, time - hidden)
                load = group.round_weight * time + group.fill_weight * fill
                yield Arc(
                    stage, low, high, number, choice.devices, hops, torn, spread,
                    group.sum_weight * fill, load, sync,
                )  # fmt: skip


@cache
def staircases(inner: int, outer: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return every set of pairs (in, out) of so many levels, none of which exceeds another."""
    return tuple(
        tuple(zip(ins, reversed(outs), strict=True))
        for size in range(1, min(inner, outer) + 1)
        for ins, outs in product(combinations(range(inner), size), combinations(range(outer), size))
    )


def _least_times(group: Group, choice: Choice, stage: int, low: int, high: int) -> Row | None:
    """Return by level the least time of layers under a mode that fits; None if none does."""
    states = sum(choice.states_bytes[low:high])
    found = [
        [sum(row[low:high]) for row in mode.time_ps]
        for mode in choice.modes
        if states
        + group.in_flight[stage] * sum(mode.stash_bytes[low:high])
        + max(mode.work_bytes[low:high])
        <= group.free_bytes
    ]
    return tuple(map(min, zip(*found, strict=True))) if found else None


def _copies(
    group: Group, choice: Choice, stage: int, low: int, high: int, torn: int, hidden_ps: int
) -> list[tuple[int, int, int]]:
    """Return (level of dense copies, Z, time in a round), of equal ones the outermost level.

    Experts' copies are on the level of the dense ones where no block is torn there.
    """
    found: dict[tuple[int, int], int] = {}
    dense, expert = choice.spread
    levels = range(max(dense, group.least_spread), len(group.rooms) + 1)
    for level in levels if group.one_run else (dense,):
        total = group.exchange_ps if group.stages > 1 and stage in (0, group.stages - 1) else 0
        time = 0
        other = level if group.one_run and torn < level else expert
        for costs, at in ((choice.dense, level), (choice.expert, other)):
            if any(costs.holds[low:high]):
                total += costs.fixed_ps[at] + sum(costs.sync_ps[at][low:high])
                time += sum(costs.round_ps[at][low:high])
        sync = max(0, total - hidden_ps) if group.syncs else 0
        found[sync, time] = level if group.one_run else len(group.rooms)
    return [(level, sync, time) for (sync, time), level in found.items()]


def _most_hidden_ps(group: Group, stage: int, bounds: Bounds) -> list[int]:
    """Return by cut the backward times of the layers before, each the longest it may be there."""
    every = (0, max(choice.devices for choice in group.choices))
    sizes = [bounds.get(f"size {before}", every) for before in range(stage)]
    rows = [choice.backward_ps for choice in group.choices
            if any(low <= choice.devices <= high for low, high in sizes)]  # fmt: skip
    if not group.drains or not rows:
        return [0] * group.layers
    return [0, *accumulate(map(max, zip(*rows, strict=True)))]


def _add_counts(program: Program, group: Group, level: int, bounds: Bounds) -> None:
    """Add how many replicas have a hop, or a torn block, at a level or above."""
    d = group.replicas
    for stage, arcs in enumerate(program.arcs):
        far = [arc for arc in arcs if arc.head[1] >= level]
        torn = [arc for arc in arcs if arc.torn >= level]
        for name, some in ((f"hops {stage} {level}", far), (f"blocks {stage} {level}", torn)):
            if some:
                low, high = bounds.get(name, (0, d))
                program.columns[name] = Column(max(0, low), min(high, d))
                program.add_row(name, 0, {name: -1}, (some, d))
    for stage, other in product(range(1, group.stages - 1), range(1, level + 1)):
        for one, two in {(level, other), (other, level)}:
            names = [f"hops {stage - 1} {one}", f"hops {stage} {two}"]
            arcs = program.arcs[stage]
            either = [a for a in arcs if any(x >= one or y >= two for x, y in a.hops)]
            both = [a for a in arcs if any(x >= one and y >= two for x, y in a.hops)]
            if program.columns.keys() >= set(names):
                columns = dict.fromkeys(names, -1)
                program.add_row(f"both {stage} {one} {two}", 0, columns, (either, d), (both, d))


def _hops(program: Program, level: int, run: range) -> dict[str, int]:
    """Return the columns that count replicas with a hop at a level inside a run of stages."""
    names = (f"hops {stage} {level}" for stage in run[:-1])
    return {name: 1 for name in names if name in program.columns}


def _apart(program: Program, level: int, *runs: range) -> dict[str, int]:
    """Return the columns that count what keeps runs of stages from being in one group each.

    These are the hops inside, and the torn blocks of one stage of each run.
    """
    columns: dict[str, int] = {}
    for run in runs:
        columns |= _hops(program, level, run)
        torn = [f"blocks {stage} {level}" for stage in run]
        if program.columns.keys() >= set(torn):
            columns[torn[0]] = 1
    return columns


def _add_runs(program: Program, group: Group, level: int, rooms: Row) -> None:
    """Add how many replicas of a run of stages, each in one group, the groups hold at most."""
    sizes = [{arc.devices for arc in arcs} for arcs in program.arcs]
    for first in range(group.stages):
        totals = {0}
        for last in range(first, group.stages):
            totals = {total + size for total in totals for size in sizes[last]}
            far = {
                total: max(0, group.replicas - sum(room // total for room in rooms))
                for total in totals
            }
            run = range(first, last + 1)
            for number, (one, two) in enumerate(segments(far) if any(far.values()) else ()):
                width, rise = max(1, two - one), far[two] - far[one]
                columns = dict.fromkeys(_apart(program, level, run), width)
                taken = [([arc], -rise * arc.devices) for stage in run
                         for arc in program.arcs[stage] if rise]  # fmt: skip
                right = width * far[one] - rise * one
                program.add_row(f"run {first} {last} {level} {number}", right, columns, *taken)
            if min(totals) > max(rooms):
                break


def segments(points: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the segments under some points that are nowhere above them; of one point, itself."""
    hull: list[int] = []
    for x in sorted(points):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (points[b] - points[a]) * (x - a) < (points[x] - points[a]) * (b - a):
                break
            hull.pop()
        hull.append(x)
    yield from pairwise(hull) if len(hull) > 1 else ((hull[0], hull[0]),)


def _add_packed(program: Program, group: Group, level: int, rooms: Row) -> None:
    """Add what room a stage leaves whose blocks are all in one group.

    So they are where its copies are below the level and no block is torn.
    """
    d, stages, room = group.replicas, range(group.stages), max(rooms)
    least = [min(arc.devices for arc in arcs) for arcs in program.arcs]
    packed = {
        stage: some
        for stage, arcs in enumerate(program.arcs)
        if (some := [arc for arc in arcs if max(arc.spread, arc.torn) < level])
    }
    for stage, arcs in packed.items():
        for first, last in product(stages[: stage + 1], stages[stage:]):
            others = sum(least[first : last + 1]) - least[stage]
            far = [([arc], -_without_room(d, room - d * arc.devices, others)) for arc in arcs]
            if any(number for _, number in far):
                hops = _hops(program, level, range(first, last + 1))
                program.add_row(f"packed {stage} {first} {last} {level}", 0, hops, *far)
    for one, two in combinations(packed, 2):
        beside = room - d * (least[one] + least[two])
        number = _without_room(d, beside, sum(least[one + 1 : two]))
        if number:
            both = ((packed[one], -number), (packed[two], -number))
            hops = _hops(program, level, range(one, two + 1))
            program.add_row(f"packed {one} {two} {level}", -number, hops, *both)
    for length, first in product(range(1, group.stages + 1), stages):
        for last in range(first + length, group.stages + 1, length):
            runs = [stages[at : at + length] for at in range(first, last, length)]
            _add_beside(program, group, level, rooms, runs, packed)


def _without_room(replicas: int, beside: int, size: int) -> int:
    """Return the replicas for which there is no room of a size beside what is taken."""
    if beside < 0:
        return replicas
    return max(0, replicas - beside // size) if size else 0


def _add_beside(
    program: Program, group: Group, level: int, rooms: Row, runs: Sequence[range],
    packed: Mapping[int, Sequence[Arc]],
) -> None:  # fmt: skip
    """Add how many runs, each in one group, the groups hold beside stages that are packed.

    The runs are of equally many stages, one after another, and the stages are no part of them.
    """
    d = group.replicas
    least = [min(arc.devices for arc in arcs) for arcs in program.arcs]
    size = min(sum(least[stage] for stage in run) for run in runs)
    right = len(runs) * d - sum(room // size for room in rooms)
    columns = _apart(program, level, *runs)
    name = f"beside {runs[0][0]} {len(runs[0])} {len(runs)} {level}"

    def lost(arc: Arc) -> int:
        """Return by how many runs a group holds fewer, at least, that holds the arc's blocks."""
        taken = d * arc.devices
        return min(room // size - (room - taken) // size for room in rooms if room >= taken)

    losses = {
        stage: [([arc], -lost(arc)) for arc in arcs]
        for stage, arcs in packed.items()
        if not any(stage in run for run in runs)
    }
    for stage, parts in losses.items():
        # Where nothing is asked of the runs without the stage, less is lost to them.
        cut = [(arcs, -min(-less, right - less)) for arcs, less in parts if min(right, 0) > less]
        if cut:
            program.add_row(f"{name} {stage}", max(0, right), columns, *cut)
    # Stages that cannot share a group take one each.
    if len(losses) > 1 and 2 * d * min(least) > max(rooms):
        program.add_row(
            name, right, columns, *(part for parts in losses.values() for part in parts)
        )
    elif len(runs) > 1 and right > 0:
        program.add_row(name, right, columns)
