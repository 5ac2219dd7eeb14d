"""Multipliers and splits that bound a group of the free family: what `dual_rows` is to confirm.

Linear programs are solved in floating point, best bound first; their multipliers are rounded to
small fractions and valued exactly. Nothing here has to be right for a bound to hold.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count
from math import ceil
from typing import Any

import numpy as np

from nest_opt.certify.dual_rows import ENDLESS, Arc, Bounds, Group, Program, build, dual_value
from nest_opt.solver.linear import LinearProgram, solve_linear

# Times in linear programs are in a unit that makes the limit this number.
LIMIT = 1e5
# What stands in for a point that is not there costs so much more than the limit: some room for
# rounding where no point is below.
MARGIN = 1e-5
# Values of the solver below this are none.
SMALL = 1e-6
# Denominators of multipliers, tried in turn.
DENOMINATORS = (1, 12, 1000, 10**6)
# Of multipliers that are shares of a time, the least of them.
LEAST_SHARE_DENOMINATOR = 1000
# Rows and columns that are times.
TIMES = ("load", "sync", "work")

Tree = dict[str, Any]


@dataclass(frozen=True)
class DualProof:
    """What is proved of a group.

    Attributes
    ----------
    bound_ps, root_ps
        No placement of the group has an objective below this, with all splits and without any; at
        most the limit.
    tree
        See `dual_rows.open_leaf`.
    leaves, splits
        Their numbers.
    """

    bound_ps: int
    root_ps: int
    tree: Tree
    leaves: int
    splits: int


@dataclass(frozen=True)
class _Node:
    """A program of the tree with what its linear relaxation has: values and weights of arcs."""

    tree: Tree
    bounds: Bounds
    program: Program
    weights: Sequence[tuple[Arc, float]]
    columns: Mapping[str, float]


def prove(
    group: Group, limit_ps: int, most_splits: int, step: Callable[[], None] | None = None
) -> DualProof:
    """Bound a group's placements by a tree, until it reaches a limit or has so many splits.

    `step` is called before each split.

    Raises
    ------
    SolverError
        If HiGHS fails.
    """
    tree: Tree = {}
    place = count()
    heap: list[tuple[Fraction, int, _Node]] = []
    leaves = 0

    def add(into: Tree, bounds: Bounds, least: Fraction) -> None:
        nonlocal leaves
        leaves += 1
        value, node = _relaxation(group, limit_ps, into, bounds)
        if node is not None:
            heappush(heap, (max(value, least), next(place), node))

    add(tree, {}, Fraction(0))
    root = heap[0][0] if heap else Fraction(limit_ps)
    splits = 0
    while heap and splits < most_splits:
        if step:
            step()
        split = _split(heap[0][2])
        if split is None:
            break
        value, _, node = heappop(heap)
        (name, at), splits, leaves = split, splits + 1, leaves - 1
        low, high = node.bounds.get(name, (0, ENDLESS))
        node.tree.clear()
        node.tree.update({"split": [name, at], "below": {}, "above": {}})
        add(node.tree["below"], {**node.bounds, name: (low, at)}, value)
        add(node.tree["above"], {**node.bounds, name: (at + 1, high)}, value)
    bound = heap[0][0] if heap else Fraction(limit_ps)
    return DualProof(min(limit_ps, ceil(bound)), min(limit_ps, ceil(root)), tree, leaves, splits)


def _relaxation(
    group: Group, limit_ps: int, into: Tree, bounds: Bounds
) -> tuple[Fraction, _Node | None]:
    """Write the best multipliers of a node's program; return it if they do not reach the limit."""
    into["multipliers"] = {}
    program = build(group, limit_ps, bounds)
    value = dual_value(program, {})
    if value is None or value > limit_ps - 1:
        return Fraction(limit_ps), None
    multipliers, weights, columns = _solved(program, limit_ps)
    for denominator in DENOMINATORS:
        rounded = dict(_rounded(multipliers, denominator))
        try:
            found = dual_value(program, rounded)
        except ValueError:
            break  # No common denominator is small enough; larger ones have none either.
        if found is None or found > value:
            value = Fraction(limit_ps) if found is None else found
            into["multipliers"] = {name: _written(number) for name, number in rounded.items()}
        if value > limit_ps - 1:
            return Fraction(limit_ps), None
    return value, _Node(into, bounds, program, weights, columns)


def _rounded(multipliers: Mapping[str, float], denominator: int) -> Iterator[tuple[str, Fraction]]:
    for name, number in multipliers.items():
        shares = name.split()[0] in TIMES
        limit = max(denominator, LEAST_SHARE_DENOMINATOR) if shares else denominator
        value = Fraction(number).limit_denominator(limit)
        if value > 0:
            yield name, value


def _written(number: Fraction) -> int | str:
    return number.numerator if number.denominator == 1 else str(number)


def _solved(
    program: Program, limit_ps: int
) -> tuple[dict[str, float], list[tuple[Arc, float]], dict[str, float]]:
    """Return multipliers of rows, weights of arcs and values of columns of the relaxation.

    Beside the program's paths there is one that meets all rows by itself, at a cost above the
    limit: so there is always a solution, and where it is that path, multipliers are
    those that prove that no other one is below the limit.
    """
    unit = limit_ps / LIMIT
    rows = {name: place for place, name in enumerate(program.right)}
    units = {name: unit if name.split()[0] in TIMES else 1.0 for name in rows}
    # After the rows, one for the most that each column can be, and one for each node.
    boxes = {name: len(rows) + place for place, name in enumerate(program.columns)}
    nodes: dict[tuple[int, tuple[int, int]], int] = {}

    def node(stage: int, at: tuple[int, int]) -> int:
        return nodes.setdefault((stage, at), len(rows) + len(boxes) + len(nodes))

    source = node(0, (0, 0))
    arcs = [arc for of_stage in program.arcs for arc in of_stage]
    made = _Columns()
    for arc in arcs:
        entries = [(rows[name], number / units[name]) for name, number in arc.entries.items()]
        entries.append((node(arc.stage, arc.tail), -1.0 if arc.stage else 1.0))
        if arc.stage + 1 < len(program.arcs):
            entries.append((node(arc.stage + 1, arc.head), 1.0))
        made.add(arc.cost_ps / unit, 0.0, entries)
    scales = {name: unit if name in TIMES else 1.0 for name in program.columns}
    missing = dict(program.right)
    for name, column in program.columns.items():
        own = scales[name]
        entries = [(rows[row], number * own / units[row]) for row, number in column.entries.items()]
        made.add(column.cost * own / unit, column.low / own, [*entries, (boxes[name], 1.0)])
        for row, number in column.entries.items():
            missing[row] -= number * column.low
    cost = limit_ps * (1 + MARGIN) - sum(c.cost * c.low for c in program.columns.values())
    entries = [(rows[name], number / units[name]) for name, number in missing.items()]
    entries += [(boxes[k], (c.high - c.low) / scales[k]) for k, c in program.columns.items()]
    made.add(cost / unit, 0.0, [*entries, (source, 1.0)])
    lower, upper = (np.zeros(len(rows) + len(boxes) + len(nodes)) for _ in range(2))
    for name, place in rows.items():
        lower[place], upper[place] = program.right[name] / units[name], np.inf
    for name, place in boxes.items():
        lower[place], upper[place] = -np.inf, program.columns[name].high / scales[name]
    lower[source] = upper[source] = 1
    found = solve_linear(made.program(lower, upper))
    multipliers = {
        name: float(found.multipliers[place]) * unit / units[name] for name, place in rows.items()
    }
    weights = list(zip(arcs, map(float, found.columns), strict=False))
    values = {
        name: float(found.columns[len(arcs) + place]) * scales[name]
        for place, name in enumerate(program.columns)
    }
    return multipliers, weights, values


class _Columns:
    """Columns of a linear program, one by one."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._low: list[float] = []
        self._starts = [0]
        self._rows: list[int] = []
        self._values: list[float] = []

    def add(self, cost: float, low: float, entries: Sequence[tuple[int, float]]) -> None:
        """Add a column without an upper bound."""
        self._cost.append(cost)
        self._low.append(low)
        self._rows += [row for row, value in entries if value]
        self._values += [value for _, value in entries if value]
        self._starts.append(len(self._rows))

    def program(self, lower: Any, upper: Any) -> LinearProgram:
        """Return the program."""
        return LinearProgram(
            cost=np.array(self._cost),
            low=np.array(self._low),
            high=np.full(len(self._cost), np.inf),
            lower=lower,
            upper=upper,
            starts=np.array(self._starts, np.int32),
            rows=np.array(self._rows, np.int32),
            values=np.array(self._values),
        )


def _split(node: _Node) -> tuple[str, int] | None:
    """Return the integer and the value to split at; None if all of a node are settled."""
    used = [(arc, weight) for arc, weight in node.weights if weight > SMALL]
    return (
        _split_of_largest(node, used)
        or _split_of_halves(used)
        or _split_of_counts(node)
        or _split_of_ranges(node, used)
    )


def _split_of_largest(node: _Node, used: Sequence[tuple[Arc, float]]) -> tuple[str, int] | None:
    """Split below the least load, or sync, of the arcs in use whose own exceeds the largest."""
    loads, syncs = [arc.load_ps for arc, _ in used], [arc.sync_ps for arc, _ in used]
    for name, times in (("load", loads), ("sync", syncs)):
        over = [time for time in times if time > node.columns[name] * (1 + 1e-9) + 2]
        if over:
            return name, min(over) - 1
    return None


def _split_of_halves(used: Sequence[tuple[Arc, float]]) -> tuple[str, int] | None:
    """Split an integer of a stage whose arcs in use differ in it, as evenly as there is one.

    Levels first, then sizes, then cuts.
    """
    shares: dict[str, dict[int, float]] = {}
    for arc, weight in used:
        for name, value in arc.integers.items():
            of_value = shares.setdefault(name, {})
            of_value[value] = of_value.get(value, 0.0) + weight
    choices = []
    for name, of_value in shares.items():
        total, below = sum(of_value.values()), 0.0
        for value in sorted(of_value)[:-1]:
            below += of_value[value]
            kind = {"size": 1, "end": 2}.get(name.split()[0], 0)
            choices.append((kind, abs(below / total - 0.5), name, value))
    return min(choices)[2:] if choices else None


def _split_of_counts(node: _Node) -> tuple[str, int] | None:
    """Split a column that counts replicas and is not whole."""
    for name, value in node.columns.items():
        if name not in TIMES and abs(value - round(value)) > SMALL:
            return name, int(value)
    return None


def _split_of_ranges(node: _Node, used: Sequence[tuple[Arc, float]]) -> tuple[str, int] | None:
    """Split where all is whole: rows say more the less is open, and rounding is no matter then."""
    for name in ("load", "sync"):
        value = round(node.columns[name])
        if value > node.program.columns[name].low + 1:
            return name, value - 1
    values: dict[str, set[int]] = {}
    for arc in (arc for arcs in node.program.arcs for arc in arcs):
        for name, value in arc.integers.items():
            values.setdefault(name, set()).add(value)
    mine = {name: value for arc, _ in used for name, value in arc.integers.items()}
    for kind in ("size", "hop", "spread", "torn", "end"):
        for name, value in mine.items():
            if name.startswith(kind) and len(values[name]) > 1:
                return name, value - (min(values[name]) < value)
    return None


def even_share_ps(group: Group) -> int:
    """Return a bound in closed form: all layers' least times, and an even share of them.

    Enough for most groups, which then need no program.
    """
    plain = sum(
        min(mode.time_ps[choice.torn][layer] for choice in group.choices for mode in choice.modes)
        for layer in range(group.layers)
    )
    if group.hidden_weight:
        return (group.round_weight + min(0, group.fill_weight)) * -(-plain // group.stages)
    load = (group.round_weight + group.fill_weight) * -(-plain // group.stages)
    return group.sum_weight * plain + load
