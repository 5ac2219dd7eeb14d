"""The numbers of one cell's program, exact integers from the cost table; no Pyomo here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from nest_opt.cost.objective import ObjectiveWeights, objective_weights
from nest_opt.cost.schedule import in_flight_1f1b
from nest_opt.cost.sharding import Sharding, round_times, sharded_pair, step_sync
from nest_opt.cost.table import CLASSES, ParameterClass, Row
from nest_opt.errors import ModelError
from nest_opt.milp.levels import NO_HOP, Levels, StageLevels, stage_levels
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Cell
from nest_opt.problem.job import Objective
from nest_opt.problem.profile import GROUPS, RECOMPUTE_MODES, Recompute

Terms = TypeVar("Terms")


@dataclass(frozen=True)
class LoadTerms:
    """Terms of F of one stage for one maximal tuple of levels: equation (11).

    Attributes
    ----------
    layer_ps
        Per mode and layer, (8) and (9), and (44) where there is any.
    hop_in_ps, hop_out_ps
        Per cut, the hop over it; None where the stage has none.
    """

    layer_ps: Mapping[Recompute, Row]
    hop_in_ps: Row | None
    hop_out_ps: Row | None


@dataclass(frozen=True)
class SyncTerms:
    """Terms of Y of one stage for one maximal pair of levels: equation (15).

    Attributes
    ----------
    fixed_ps
        A_c by class, the classes with R_c > 1 alone.
    layer_ps
        Per layer, y_(c,l) summed over these classes.
    """

    fixed_ps: Mapping[ParameterClass, int]
    layer_ps: Row


@dataclass(frozen=True)
class CellCoefficients:
    """Everything that the families of one cell need.

    Attributes
    ----------
    cell, objective, weights
        The cell and its objective.
    layers, stages
        n and S.
    modes
        Recomputation modes to choose from, `none` before `full`.
    levels
        Levels of each stage.
    load, sync
        Per stage, a set of terms for each maximal tuple of levels.
    holds
        Per class, whether each layer has such parameters.
    backward_ps
        Plain backward time of each layer.
    in_flight
        Microbatches in flight at each stage.
    states_bytes, stash_bytes, work_bytes
        Per layer; the last two per mode.
    free_bytes
        Usable memory less the reserve, or what all layers in one stage would
        take where that is less: a limit far beyond every sum only blurs the scale.
    """

    cell: Cell
    objective: Objective
    weights: ObjectiveWeights
    layers: int
    stages: int
    modes: tuple[Recompute, ...]
    levels: tuple[StageLevels, ...]
    load: tuple[tuple[LoadTerms, ...], ...]
    sync: tuple[tuple[SyncTerms, ...], ...]
    holds: Mapping[ParameterClass, tuple[bool, ...]]
    backward_ps: Row
    in_flight: tuple[int, ...]
    states_bytes: Row
    stash_bytes: Mapping[Recompute, Row]
    work_bytes: Mapping[Recompute, Row]
    free_bytes: int

    def times_ps(self) -> Iterator[int]:
        """Yield every time that is a coefficient of the program."""
        for terms in (terms for stage in self.load for terms in stage):
            for row in terms.layer_ps.values():
                yield from row
            yield from terms.hop_in_ps or ()
            yield from terms.hop_out_ps or ()
        if self.weights.sync:
            for entry in (entry for stage in self.sync for entry in stage):
                yield from entry.fixed_ps.values()
                yield from entry.layer_ps
            yield from self.backward_ps

    def sizes_bytes(self) -> Iterator[int]:
        """Yield every size that is a coefficient of the program."""
        most = max(self.in_flight)
        yield from self.states_bytes
        for mode in self.modes:
            yield from (most * stash for stash in self.stash_bytes[mode])
            yield from self.work_bytes[mode]


class CoefficientSource:
    """Coefficients of a problem's cells; levels are found once for each device map."""

    def __init__(self, costs: Costs) -> None:
        if costs.is_artifact:
            raise ModelError(
                "job.cost_model: found 'artifact', the integer program has the 'default' cost "
                "model only: use `solve` for the artifact's, or change job.cost_model"
            )
        self._costs = costs
        self._levels: dict[object, tuple[StageLevels, ...]] = {}
        self._load_terms: dict[object, LoadTerms] = {}
        self._sync_terms: dict[object, SyncTerms] = {}

    def levels(self, cell: Cell) -> tuple[StageLevels, ...]:
        """Return the levels of a cell's stages."""
        key = (cell.configuration, cell.device_map)
        if key not in self._levels:
            self._levels[key] = stage_levels(self._costs.network, *key)
        return self._levels[key]

    def of(self, cell: Cell) -> CellCoefficients:
        """Return the coefficients of a cell."""
        table, pair = self._costs.table, self._costs.table.pairs[cell.pair]
        stages = cell.device_map.stages
        objective = self._costs.problem.job.objective
        modes = tuple(mode for mode in RECOMPUTE_MODES if mode in pair.stash_bytes)
        levels = self.levels(cell)
        in_flight = tuple(in_flight_1f1b(stage, stages, cell.rounds) for stage in range(stages))
        memory = sharded_pair(table, cell.pair, _sharding(cell))
        states = self._layers(memory.states_bytes)
        stash = {mode: self._layers(memory.stash_bytes[mode]) for mode in modes}
        work = {mode: self._layers(memory.work_bytes[mode]) for mode in modes}
        everything = sum(states) + max(
            max(in_flight) * sum(stash[mode]) + max(work[mode]) for mode in modes
        )
        return CellCoefficients(
            cell=cell,
            objective=objective,
            weights=objective_weights(objective, stages, cell.rounds),
            layers=table.layer_count,
            stages=stages,
            modes=modes,
            levels=levels,
            load=tuple(
                _distinct(self._load(cell, modes, *members) for members in _members(cell, stage))
                for stage in levels
            ),
            sync=tuple(
                _distinct(self._sync(cell, member) for member in stage.sync) for stage in levels
            ),
            holds={
                name: tuple(value > 0 for value in self._layers(pair.parameters[name]))
                for name in CLASSES
            },
            backward_ps=self._layers(pair.backward_ps),
            in_flight=in_flight,
            states_bytes=states,
            stash_bytes=stash,
            work_bytes=work,
            free_bytes=min(table.usable_bytes - table.reserve_bytes, everything),
        )

    def _layers(self, row: Row) -> Row:
        """Return the entry of each layer, from one entry a row of the table."""
        return tuple(row[place] for place in self._costs.table.layer_rows)

    def _load(
        self, cell: Cell, modes: tuple[Recompute, ...], member: Levels, copies: Levels | None
    ) -> LoadTerms:
        """Return the terms of F at a tuple of levels, found once.

        `copies` are the levels of the copies, None where they have no part in F.
        """
        key = (cell.pair, member, copies and (_sharding(cell), copies))
        if key not in self._load_terms:
            self._load_terms[key] = self._find_load(cell, modes, member, copies)
        return self._load_terms[key]

    def _find_load(
        self, cell: Cell, modes: tuple[Recompute, ...], member: Levels, copies: Levels | None
    ) -> LoadTerms:
        pair = self._costs.table.pairs[cell.pair]
        *inside, hop_in, hop_out = member
        forward, backward = list(pair.forward_ps), list(pair.backward_ps)
        for group, level in zip(GROUPS, inside, strict=True):
            if cell.configuration.degree(group) > 1:
                forward = _sum(forward, pair.forward_collective_ps[group][level])
                backward = _sum(backward, pair.backward_collective_ps[group][level])
        once = _sum(forward, backward)
        if copies is not None:
            rounds = round_times(self._costs.table, cell.pair, _sharding(cell), copies)
            once = once if rounds is None else _sum(once, rounds)
        plain = self._layers(tuple(once))
        repeated = self._layers(tuple(_sum(once, forward)))
        return LoadTerms(
            {mode: repeated if mode == "full" else plain for mode in modes},
            None if hop_in == NO_HOP else pair.hop_ps[hop_in],
            None if hop_out == NO_HOP else pair.hop_ps[hop_out],
        )

    def _sync(self, cell: Cell, member: Levels) -> SyncTerms:
        """Return the terms of Y at a pair of levels, found once."""
        key = (cell.pair, _sharding(cell), member)
        if key not in self._sync_terms:
            self._sync_terms[key] = self._find_sync(cell, member)
        return self._sync_terms[key]

    def _find_sync(self, cell: Cell, member: Levels) -> SyncTerms:
        table, configuration = self._costs.table, cell.configuration
        pair = table.pairs[cell.pair]
        fixed: dict[ParameterClass, int] = {}
        total = [0] * table.layer_count
        for name, level in zip(CLASSES, member, strict=True):
            cost = step_sync(table, configuration, name, _sharding(cell), level)
            if cost is not None and any(self._layers(pair.parameters[name])):
                fixed[name] = cost.fixed_ps
                total = _sum(total, self._layers(cost.row_ps))
        return SyncTerms(fixed, tuple(total))


def _sharding(cell: Cell) -> Sharding:
    return Sharding(cell.zero, cell.device_map.replicas, cell.rounds)


def _members(cell: Cell, stage: StageLevels) -> Iterator[tuple[Levels, Levels | None]]:
    """Yield the levels of a replica's groups and hops with those of a rank's copies.

    The largest sum over all of these is the sum of the two largest: (11).
    """
    if _sharding(cell).round_operations:
        yield from product(stage.load, stage.sync)
    else:
        yield from ((member, None) for member in stage.load)


def _sum(left: list[int] | Row, right: list[int] | Row) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]


def _distinct(found: Iterator[Terms]) -> tuple[Terms, ...]:
    """Return terms without repeats: levels that differ may cost the same."""
    kept: list[Terms] = []
    for terms in found:
        if terms not in kept:
            kept.append(terms)
    return tuple(kept)
