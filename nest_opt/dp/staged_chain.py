"""A cell whose stages differ in configuration, and the passes of its dynamic program.

Stages are placed from the last one on. A *state* is what the stages placed so
far leave to know: the devices that they use and the configurations of the
front one and of the one to come. A step places one stage; its matrices are
those of `nest_opt.dp.chain`. Values are vectors over the first layer placed.

What a stage hides of its sync depends on the configurations of all stages
before it. From the end, a *need* N tells of the stages placed how much more
backward time before them than that of X = 0 there must be: N = max(Y, N after
- backward of the stage), and max X = max(0, N of all stages).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.dp.chain import INFINITE, UNLIMITED, Array, suffix_start
from nest_opt.dp.thresholds import load_weight
from nest_opt.problem import Configuration

# Up to so many entries all intervals at once are faster than length by length.
_FEW_ENTRIES = 600


@dataclass(frozen=True, eq=False)
class Step:
    """Placing a stage at one position, with one configuration and one cost.

    Attributes
    ----------
    configuration
        k of the stage.
    load, fill
        What the objective takes the largest of, and what it sums, of every interval:
        F both, but for schedules that hide a part of the fill.
    sync
        Y of every interval; no sync is None.
    backward
        Plain backward time of all layers before each layer under k.
    moves
        States before (any of them) and after (each of them).
    """

    configuration: Configuration
    load: Array
    fill: Array
    sync: Array | None
    backward: Array
    moves: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


# (step, first layer, one past the last) of each stage, first stage first.
StagePath: TypeAlias = tuple[tuple[Step, int, int], ...]


@dataclass
class _Label:
    """Stages placed whose need is not sure to be met: their sum, need and first stage."""

    total: int
    need: int
    step: Step
    low: int
    high: int
    state: int
    after: "_Label | None"


@dataclass
class _Position:
    """Least sums by state and first layer, and what is not sure to keep the limit on X.

    Sums above `most` are of no use.
    """

    sums: Array
    most: Array
    costs: list[Array] = field(default_factory=list)
    labels: dict[int, dict[int, list[_Label]]] = field(default_factory=lambda: defaultdict(dict))
    met: dict[tuple[int, int], _Label] = field(default_factory=dict)


def extend(cost: Array, suffixes: Array, operation: Callable[..., Array]) -> Array:
    """Return, per suffix and low, the least over high of cost[low, high] and suffix[high].

    Parameters
    ----------
    cost
        Shape (n + 1, n + 1), `INFINITE` where a stage is not possible.
    suffixes
        Shape (number, n + 1).
    operation
        `np.maximum` or `np.add`.
    """
    rows, places = suffixes.shape
    if rows * places <= _FEW_ENTRIES:
        every: Array = operation(cost, suffixes[:, None, :]).min(axis=-1)
        return np.minimum(every, INFINITE)
    best = np.full((rows, places), INFINITE, np.int64)
    lows, highs = np.nonzero(cost < INFINITE)
    for length in range(1, int((highs - lows).max(initial=0)) + 1):
        reached = operation(np.diagonal(cost, length), suffixes[:, length:])
        np.minimum(best[:, :-length], reached, out=best[:, :-length])
    return best


class StagedChain:
    """One cell: the steps of every position, from the last stage on.

    Parameters
    ----------
    layers
        n.
    steps
        Steps of each position.
    states
        Number of states before the first position and after each.
    hidden
        Whether backward times before a stage hide its sync (Z is X, not Y).
    """

    def __init__(
        self,
        layers: int,
        steps: Sequence[Sequence[Step]],
        states: Sequence[int],
        *,
        hidden: bool,
    ) -> None:
        self.layers = layers
        self.steps: Sequence[Sequence[Step]] = steps
        self.states = states
        every = [step for at in steps for step in at]
        self._has_sync = any(step.sync is not None for step in every)
        self._hidden = hidden and self._has_sync
        none = np.zeros(layers + 1, np.int64)
        if self._hidden:
            parts = np.stack([np.diff(step.backward, prepend=0) for step in every])
            self._least_before = np.cumsum(parts.min(axis=0))
            self._most_before = np.cumsum(parts.max(axis=0))
        else:
            self._least_before = self._most_before = none

        # The most that sum F may be, and by position, state and first layer the
        # least that stages before add to it.
        self._budget = UNLIMITED
        self._ahead: list[Array] | None = None

    def tighten(self, weights: ObjectiveWeights, limit: int) -> bool:
        """Leave out what no plan within a limit has; return whether any may be left.

        Each of sum F, max F and max Z is at least its least, so that the
        limit leaves a most for each of the others.
        """
        weight = load_weight(weights)
        slowest = self.least_max_time(UNLIMITED)
        total = self._pass(lambda step: step.fill, np.add)
        sync = self.least_max_sync(UNLIMITED) if weights.sync else 0
        if slowest >= INFINITE:
            return False
        rest = limit - weights.sum_weight * total - weight * slowest - sync
        if rest < 0:
            return False
        if weight:
            most = min(slowest + rest // weight, UNLIMITED)
            self.steps = [[_within(step, most) for step in steps] for steps in self.steps]
        if self._hidden:
            self._budget = min(total + rest, UNLIMITED)
            self._ahead = self._least_ahead()
        return True

    def _least_ahead(self) -> list[Array]:
        """Return, after each position, the least sum F of the stages before by state and layer."""
        values = np.full((self.states[-1], self.layers + 1), INFINITE)
        values[:, 0] = 0
        found = [values]
        for steps, count in zip(reversed(self.steps), self.states[-2::-1], strict=True):
            new = np.full((count, self.layers + 1), INFINITE)
            for step in steps:
                rows = np.stack([values[list(targets)].min(axis=0) for _, targets in step.moves])
                # From the first layer on: the same as from the last, mirrored.
                added = extend(step.fill[::-1, ::-1].T, rows[:, ::-1], np.add)[:, ::-1]
                for row, (sources, _) in zip(added, step.moves, strict=True):
                    for source in sources:
                        np.minimum(new[source], row, out=new[source])
            found.append(new)
            values = new
        return found[-2::-1]

    def _start(self) -> Array:
        return np.tile(suffix_start(self.layers), (self.states[0], 1))

    def _pass(
        self,
        cost: Callable[[Step], Array],
        operation: Callable[..., Array],
        *,
        needs: bool = False,
    ) -> int:
        """Return the least value of a pass; with `needs`, values are needs."""
        values = self._start()
        if needs:
            values = np.where(values < INFINITE, -INFINITE, INFINITE)
        for steps, count in zip(self.steps, self.states[1:], strict=True):
            new = np.full((count, self.layers + 1), INFINITE, np.int64)
            for step in steps:
                suffixes, matrix = _before(step, values), cost(step)
                if needs:
                    # max(Y, N - (b[high] - b[low])), b[low] taken out of the maximum.
                    matrix = np.where(matrix < INFINITE, matrix - step.backward[:, None], INFINITE)
                    after = np.maximum(suffixes - step.backward, -INFINITE)
                    suffixes = np.where(suffixes < INFINITE, after, INFINITE)
                found = extend(matrix, suffixes, operation)
                if needs:
                    found = np.where(found < INFINITE, found + step.backward, INFINITE)
                _offer(step, found, new)
            values = new
        return int(values[:, 0].min())

    def _reached(
        self, step: Step, most_time: int, most_sync: int, before: Array
    ) -> npt.NDArray[np.bool_]:
        """Return which intervals keep limits on F and on Y less a backward time before."""
        allowed = step.load <= min(most_time, UNLIMITED)
        if step.sync is not None and most_sync < UNLIMITED:
            allowed &= step.sync <= (before + most_sync)[:, None]
        return allowed

    def least_max_time(self, most_sync: int) -> int:
        """Return the least max F with all Z at most `most_sync`; a bound where Z is X."""

        def cost(step: Step) -> Array:
            allowed = self._reached(step, UNLIMITED, most_sync, self._most_before)
            return np.where(allowed, step.load, INFINITE)

        return self._pass(cost, np.maximum)

    def least_max_sync(self, most_time: int) -> int:
        """Return the least max Z over plans with all F at most `most_time`."""

        def cost(step: Step) -> Array:
            sync = 0 if step.sync is None else step.sync
            return np.where(step.load <= min(most_time, UNLIMITED), sync, INFINITE)

        return max(0, self._pass(cost, np.maximum, needs=self._hidden))

    def least_sum_time(self, most_time: int, most_sync: int) -> tuple[int, StagePath]:
        """Return the least sum F under two limits, and stages that have it.

        Stages placed are sure to keep the limit on X if they do so with the
        least backward time before them, and cannot keep it if they do not
        with the most. What lies between is labelled with its need.
        """
        positions = [_Position(self._start(), self._start())]
        for place, (steps, count) in enumerate(zip(self.steps, self.states[1:], strict=True)):
            none = np.full((count, self.layers + 1), INFINITE)
            most = none if self._ahead is None else self._budget - self._ahead[place]
            last, new = positions[-1], _Position(none, most)
            for step in steps:
                sure = self._reached(step, most_time, most_sync, self._least_before)
                cost = np.where(sure, step.fill, INFINITE)
                new.costs.append(cost)
                _offer(step, extend(cost, _before(step, last.sums), np.add), new.sums)
                if self._hidden and most_sync < UNLIMITED:
                    possible = self._reached(step, most_time, most_sync, self._most_before)
                    self._label(step, possible & ~sure, possible, most_sync, last, new)
            new.sums[new.sums > most] = INFINITE
            _prune(new)
            positions.append(new)
        ends = positions[-1].sums[:, 0]
        state = int(ends.argmin())
        total = int(ends[state])
        return total, self._path(positions, state) if total < INFINITE else ()

    def _label(
        self, step: Step, unsure: npt.NDArray[np.bool_],
        possible: npt.NDArray[np.bool_], most_sync: int,
        last: _Position, new: _Position,
    ) -> None:  # fmt: skip
        """Add what a step makes of labels, and of sums over stages that are not sure."""
        for sources, targets in step.moves:
            most = new.most[list(targets)].max(axis=0)[:, None]
            before = last.sums[list(sources)]
            total = before.min(axis=0)
            if step.sync is not None:
                useful = unsure & (step.fill + total <= most)
                for low, high in np.argwhere(useful).tolist():
                    self._add(
                        _Label(
                            int(total[high] + step.fill[low, high]), int(step.sync[low, high]),
                            step, low, high, sources[int(before[:, high].argmin())], None,
                        ), targets, most_sync, new,
                    )  # fmt: skip
            for state in sources:
                for high, labels in last.labels[state].items():
                    hidden = step.backward[high] - step.backward
                    for label in labels:
                        useful = possible[:, high] & (
                            label.total + step.fill[:, high] <= most[:, 0]
                        )
                        for low in np.flatnonzero(useful).tolist():
                            own = 0 if step.sync is None else int(step.sync[low, high])
                            self._add(
                                _Label(
                                    label.total + int(step.fill[low, high]),
                                    max(own, label.need - int(hidden[low])),
                                    step, low, high, state, label,
                                ), targets, most_sync, new,
                            )  # fmt: skip

    def _add(self, made: _Label, targets: tuple[int, ...], most_sync: int, new: _Position) -> None:
        low = made.low
        if made.need > most_sync + int(self._most_before[low]):
            return
        sure = made.need <= most_sync + int(self._least_before[low])
        for target in targets:
            if made.total > new.most[target, low]:
                continue
            if not sure:
                new.labels[target].setdefault(low, []).append(made)
            elif made.total < new.sums[target, low]:
                new.sums[target, low] = made.total
                new.met[target, low] = made

    def _path(self, positions: list[_Position], state: int) -> StagePath:
        """Return stages of the least sum in a state of the first position."""
        path: list[tuple[Step, int, int]] = []
        low, label = 0, None
        for place in range(len(positions) - 1, 0, -1):
            here = positions[place]
            met = here.met.get((state, low))
            if label is None and met is not None and met.total == here.sums[state, low]:
                label = met
            if label is not None:
                path.append((label.step, label.low, label.high))
                state, low, label = label.state, label.high, label.after
            else:
                step, state, high = self._last_step(place, here, positions[place - 1], state, low)
                path.append((step, low, high))
                low = high
        return tuple(path)

    def _last_step(
        self, place: int, here: _Position, after: _Position, state: int, low: int
    ) -> tuple[Step, int, int]:
        """Return (step, state before it, end of its stage) of a least sum."""
        for step, cost in zip(self.steps[place - 1], here.costs, strict=True):
            for sources, targets in step.moves:
                if state in targets:
                    for source in sources:
                        equal = cost[low] + after.sums[source] == here.sums[state, low]
                        if equal.any():
                            return step, source, int(equal.argmax())
        raise AssertionError("a sum without a step")

    def measure(self, stages: StagePath) -> tuple[int, int]:
        """Return (max load, max Z) of stages."""
        before = most_sync = 0
        for step, low, high in stages:
            if step.sync is not None:
                most_sync = max(most_sync, int(step.sync[low, high]) - before)
            if self._hidden:
                before += int(step.backward[high] - step.backward[low])
        return max(int(step.load[low, high]) for step, low, high in stages), most_sync


def _within(step: Step, most_load: int) -> Step:
    """Return a step without intervals of a greater load."""
    kept = step.load <= most_load
    return replace(
        step,
        load=np.where(kept, step.load, INFINITE),
        fill=np.where(kept, step.fill, INFINITE),
    )


def _before(step: Step, values: Array) -> Array:
    """Return, per move of a step, the least values of the states before it."""
    return np.stack([values[list(sources)].min(axis=0) for sources, _ in step.moves])


def _offer(step: Step, found: Array, new: Array) -> None:
    """Lower the values of the states after a step to what was found per move."""
    for row, (_, targets) in zip(found, step.moves, strict=True):
        for target in targets:
            np.minimum(new[target], row, out=new[target])


def _prune(position: _Position) -> None:
    """Drop labels for which another one, or a sum that is sure, is as good in all."""
    for state, by_layer in position.labels.items():
        for low, labels in by_layer.items():
            labels.sort(key=lambda label: (label.total, label.need))
            kept: list[_Label] = []
            for label in labels:
                if label.total < position.sums[state, low] and (
                    not kept or label.need < kept[-1].need
                ):
                    kept.append(label)
            by_layer[low] = kept
