"""The numbers of one cell's program, exact integers from the cost table; no Pyomo here."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple, TypeVar

from nest_opt.cost.cuts import GraphCuts
from nest_opt.cost.objective import ObjectiveWeights, objective_weights
from nest_opt.cost.schedule import drains, in_flight
from nest_opt.cost.sharding import (
    CopyLevels,
    Sharding,
    between_sync,
    exchange_time,
    round_times,
    run_sync,
    sharded_pair,
    step_sync,
)
from nest_opt.cost.table import CLASSES, CostTable, PairCosts, ParameterClass, Row, SyncCosts
from nest_opt.errors import ModelError
from nest_opt.milp.cells import FreeCell, ProgramCell
from nest_opt.milp.levels import NO_HOP, Levels, StageLevels, stage_levels
from nest_opt.milp.ranks import LeastLevels, least_levels, least_pair_levels
from nest_opt.network.pair_levels import PairLevels
from nest_opt.plan.evaluate import Costs, exchange_level
from nest_opt.problem import Configuration
from nest_opt.problem.job import Objective
from nest_opt.problem.profile import GROUPS, RECOMPUTE_MODES, Group, Recompute

Terms = TypeVar("Terms")
# What a class's sync takes at a level: inside runs, or between them.
SyncPart = Callable[[CostTable, Configuration, ParameterClass, Sharding, int], SyncCosts | None]


class Option(NamedTuple):
    """What a stage may choose: a configuration and a recomputation mode.

    Attributes
    ----------
    configuration, mode
        The choice.
    label
        Its name in the program: the mode, after tp and sp where these may differ.
    """

    configuration: Configuration
    mode: Recompute
    label: str


@dataclass(frozen=True)
class LoadTerms:
    """Terms of F of one stage for one maximal tuple of levels: equation (11).

    Attributes
    ----------
    layer_ps
        Per option and layer, (8) and (9), and (60) where rounds have it.
    hop_in_ps, hop_out_ps
        Per configuration and cut, the hop over it; None where the stage has none.
    """

    layer_ps: Mapping[Option, Row]
    hop_in_ps: Mapping[Configuration, Row] | None
    hop_out_ps: Mapping[Configuration, Row] | None


@dataclass(frozen=True)
class SyncTerms:
    """Terms of Y of one stage for one maximal pair of levels: equation (15).

    Attributes
    ----------
    fixed_ps
        A_c by class and configuration, where R_c > 1 alone.
    layer_ps
        Per configuration and layer, y_(c,l) summed over these classes.
    """

    fixed_ps: Mapping[tuple[ParameterClass, Configuration], int]
    layer_ps: Mapping[Configuration, Row]


@dataclass(frozen=True)
class LevelTerms:
    """All terms at each level, for devices that the program chooses.

    Attributes
    ----------
    plain_ps
        (8) per option and layer.
    collective_ps
        (9) per group kind of more than one rank, level, option and layer.
    hop_ps
        Per level, configuration and cut.
    sync_ps
        Per class and level, the terms of Y of that class over the copies of a run.
    between_ps
        The same between runs, (63), of classes in several runs alone.
    round_ps
        Per class with collectives over copies in a round, level, option and layer, (60).
    exchange_ps
        Per level and configuration, (66); nothing where no parameters are tied.
    """

    plain_ps: Mapping[Option, Row]
    collective_ps: Mapping[Group, tuple[Mapping[Option, Row], ...]]
    hop_ps: tuple[Mapping[Configuration, Row], ...]
    sync_ps: Mapping[ParameterClass, tuple[SyncTerms, ...]]
    between_ps: Mapping[ParameterClass, tuple[SyncTerms, ...]]
    round_ps: Mapping[ParameterClass, tuple[Mapping[Option, Row], ...]]
    exchange_ps: tuple[Mapping[Configuration, int], ...] = ()

    def all_sync_ps(self) -> Iterator[tuple[SyncTerms, ...]]:
        """Yield the terms of Y of every class, inside runs and between them, at each level."""
        yield from self.sync_ps.values()
        yield from self.between_ps.values()


@dataclass(frozen=True)
class CellCoefficients:
    """Everything that the families of one cell need.

    Attributes
    ----------
    cell, objective, weights
        The cell and its objective.
    layers, stages
        n and S.
    options
        Per stage, what it chooses among; `none` before `full`.
    levels
        Levels of each stage; of a cell that chooses devices, none.
    load, sync
        Per stage, a set of terms for each maximal tuple of levels.
    by_level
        The terms at every level, of a cell that chooses devices or configurations.
    group_sizes, devices
        Devices in a group of each level, and K.
    pairs
        The network, where levels are those of pairs and not of groups; else None.
    holds
        Per class and configuration, whether each layer has such parameters.
    backward_ps, weight_gradient_ps
        Per configuration, plain backward time of each layer, and the part of it
        that makes gradients of weights.
    in_flight
        Microbatches (of each a chunk) in flight at each stage.
    states_bytes
        Per configuration and layer.
    stash_bytes, work_bytes
        Per option and layer.
    free_bytes
        Usable memory less the reserve, or what all layers in one stage would
        take where that is less: a limit far beyond every sum only blurs the scale.
    most_ps
        The most that F of a stage may be in the plans that are looked for, None
        if nothing is known of it.
    ends_share
        Whether first and last stage are two and share tied parameters.
    exchange_ps
        (66); where the program chooses levels or configurations, the least it can be.
    graph
        The layer graph with its cuts, which hops are by; None where stages are
        intervals of the listed order and cut c is before layer c.
    """

    cell: ProgramCell
    objective: Objective
    weights: ObjectiveWeights
    layers: int
    stages: int
    options: tuple[tuple[Option, ...], ...]
    levels: tuple[StageLevels, ...]
    load: tuple[tuple[LoadTerms, ...], ...]
    sync: tuple[tuple[SyncTerms, ...], ...]
    by_level: LevelTerms | None
    group_sizes: tuple[int, ...]
    devices: int
    holds: Mapping[tuple[ParameterClass, Configuration], tuple[bool, ...]]
    backward_ps: Mapping[Configuration, Row]
    weight_gradient_ps: Mapping[Configuration, Row]
    in_flight: tuple[int, ...]
    states_bytes: Mapping[Configuration, Row]
    stash_bytes: Mapping[Option, Row]
    work_bytes: Mapping[Option, Row]
    free_bytes: int
    most_ps: int | None = None
    graph: GraphCuts | None = None
    ends_share: bool = False
    exchange_ps: int = 0
    pairs: PairLevels | None = None

    @property
    def has_exchange(self) -> bool:
        """Whether the ends of a pipeline may pay for tied gradients, in an objective with sync."""
        found = [self.exchange_ps]
        if self.by_level:
            found += [value for row in self.by_level.exchange_ps for value in row.values()]
        return self.ends_share and self.weights.sync and any(found)

    def configurations(self, stage: int) -> tuple[Configuration, ...]:
        """Return the configurations that a stage chooses among."""
        return tuple(dict.fromkeys(option.configuration for option in self.options[stage]))

    @property
    def chunks(self) -> int:
        """S * v, the chunks of all stages."""
        return self.stages * self.cell.schedule.chunks

    def stage_of(self, chunk: int) -> int:
        """Return the stage of a chunk."""
        return chunk % self.stages

    @property
    def has_fill(self) -> bool:
        """Whether the objective knows a fill that is neither F nor a share of it: (72)."""
        weights = self.weights
        return bool(weights.hidden_weight and (weights.sum_weight or weights.fill_weight))

    @property
    def hides_sync(self) -> bool:
        """Whether the objective's sync is X of (16) and no Y."""
        return self.objective == "fill-drain" and drains(self.cell.schedule)

    @property
    def is_uniform(self) -> bool:
        """Whether there is one configuration to choose, the same for all stages."""
        return len({option.configuration for stage in self.options for option in stage}) == 1

    def times_ps(self) -> Iterator[int]:
        """Yield every time that is a coefficient of the program."""
        if self.by_level:
            yield from self._times_by_level(self.by_level)
        else:
            for load in (terms for stage in self.load for terms in stage):
                yield from _every(load.layer_ps)
                yield from _every(load.hop_in_ps or {})
                yield from _every(load.hop_out_ps or {})
        if self.has_fill:
            twice = self.weights.hidden_weight
            yield from (twice * time for time in _every(self.weight_gradient_ps))
        if self.weights.sync:
            yield self.exchange_ps
            of = self.by_level.all_sync_ps() if self.by_level else self.sync
            for sync in (terms for several in of for terms in several):
                yield from sync.fixed_ps.values()
                yield from _every(sync.layer_ps)
            yield from _every(self.backward_ps)

    def _times_by_level(self, by_level: LevelTerms) -> Iterator[int]:
        yield from _every(by_level.plain_ps)
        for levels in (*by_level.collective_ps.values(), *by_level.round_ps.values()):
            for rows in levels:
                yield from _every(rows)
        for hops in by_level.hop_ps:
            yield from _every(hops)
        if self.weights.sync:
            for row in by_level.exchange_ps:
                yield from row.values()

    def sizes_bytes(self) -> Iterator[int]:
        """Yield every size that is a coefficient of the program."""
        most = max(self.in_flight)
        yield from _every(self.states_bytes)
        yield from (most * stash for stash in _every(self.stash_bytes))
        yield from _every(self.work_bytes)


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

    def levels(self, cell: ProgramCell) -> tuple[StageLevels, ...]:
        """Return the levels of a cell's stages; of a free cell, the least ones."""
        if isinstance(cell, FreeCell):
            return ()
        key = (cell.configurations, cell.device_map, cell.zero, cell.schedule.is_interleaved)
        if key not in self._levels:
            self._levels[key] = stage_levels(self._costs.network, cell)
        return self._levels[key]

    def of(self, cell: ProgramCell) -> CellCoefficients:
        """Return the coefficients of a cell."""
        table, b = self._costs.search_table, cell.microbatch
        is_free = isinstance(cell, FreeCell)
        if isinstance(cell, FreeCell):
            stages, replicas = cell.stages, cell.replicas
            choices = (cell.choices,) * stages
        else:
            stages, replicas = cell.device_map.stages, cell.device_map.replicas
            choices = tuple((k,) for k in cell.configurations)
        sharding = Sharding(cell.zero, replicas, cell.rounds)
        configurations = tuple(dict.fromkeys(k for stage in choices for k in stage))
        options = self._options(b, choices)
        every = tuple(dict.fromkeys(option for stage in options for option in stage))
        objective = self._costs.problem.job.objective
        flights = tuple(
            in_flight(cell.schedule, stage, stages, cell.rounds) for stage in range(stages)
        )
        pairs = {k: sharded_pair(table, (b, k), sharding) for k in configurations}
        alone = stages == 1
        states = {k: self._layers(pairs[k].states_bytes, alone) for k in configurations}
        stash = {o: self._layers(pairs[o.configuration].stash_bytes[o.mode]) for o in every}
        work = {o: self._layers(pairs[o.configuration].work_bytes[o.mode]) for o in every}
        everything = max(
            sum(states[o.configuration]) + max(flights) * sum(stash[o]) + max(work[o])
            for o in every
        )
        levels = self.levels(cell)
        if is_free:
            load = self._least_load(b, options, configurations, sharding)
            sync = self._least_sync(b, options, configurations, sharding)
        else:
            load = tuple(
                _distinct(
                    self._load(b, options[stage], member, sharding, copies)
                    for member, copies in _members(levels[stage], sharding)
                )
                for stage in range(stages)
            )
            sync = tuple(
                _distinct(
                    self._sync(b, choices[stage], sharding, member, alone=alone)
                    for member in levels[stage].sync
                )
                for stage in range(stages)
            )
        return CellCoefficients(
            cell=cell,
            objective=objective,
            weights=objective_weights(objective, stages, cell.rounds, cell.schedule),
            layers=table.layer_count,
            stages=stages,
            options=options,
            levels=levels,
            load=load,
            sync=sync,
            by_level=(
                self._by_level(b, every, configurations, sharding, alone) if is_free else None
            ),
            group_sizes=self._costs.network.group_sizes,
            devices=self._costs.problem.cluster.device_count,
            holds={
                (name, k): tuple(value > 0 for value in self._layers(pairs[k].parameters[name]))
                for name in CLASSES
                for k in configurations
            },
            backward_ps={k: self._layers(pairs[k].backward_ps) for k in configurations},
            weight_gradient_ps={
                k: self._layers(pairs[k].weight_gradient_ps) for k in configurations
            },
            in_flight=flights,
            states_bytes=states,
            stash_bytes=stash,
            work_bytes=work,
            free_bytes=min(table.usable_bytes - table.reserve_bytes, everything),
            graph=self._costs.graph,
            ends_share=table.tied is not None and not alone,
            exchange_ps=0 if alone else self._exchange(cell, configurations),
            pairs=pairs_of(self._costs),
        )

    def _exchange(self, cell: ProgramCell, configurations: tuple[Configuration, ...]) -> int:
        """Return (66) of a cell, at the least level where devices are not known."""
        if self._costs.search_table.tied is None:
            return 0
        if isinstance(cell, FreeCell):
            sharding = Sharding(cell.zero, cell.replicas, cell.rounds)
            return min(
                exchange_time(self._costs.search_table, k, sharding, self._least(k, sharding).hop)
                for k in configurations
            )
        sharding = Sharding(cell.zero, cell.device_map.replicas, cell.rounds)
        level = exchange_level(self._costs.network, cell.device_map)
        return exchange_time(self._costs.search_table, cell.configuration, sharding, level)

    def _options(
        self, microbatch: int, choices: tuple[tuple[Configuration, ...], ...]
    ) -> tuple[tuple[Option, ...], ...]:
        """Return what each stage chooses among, named as briefly as can be told apart."""
        alike = all(len(stage) == 1 for stage in choices)
        return tuple(
            tuple(
                Option(k, mode, mode if alike else f"{label_of(k)}_{mode}")
                for k in stage
                for mode in RECOMPUTE_MODES
                if mode in self._costs.search_table.pairs[microbatch, k].stash_bytes
            )
            for stage in choices
        )

    def _layers(self, row: Row, alone: bool = False) -> Row:
        """Return the entry of each layer, from one entry a row of the table.

        `alone` says that one stage has all layers, so that tied parameters are there once.
        """
        table = self._costs.search_table
        rows = table.own_rows(0, table.layer_count) if alone else table.layer_rows
        return tuple(row[place] for place in rows)

    def _load(
        self,
        microbatch: int,
        options: tuple[Option, ...],
        member: Levels,
        sharding: Sharding | None = None,
        copies: Levels | None = None,
    ) -> LoadTerms:
        """Return the terms of F at a tuple of levels, found once.

        `copies` are the levels of the copies, None where they have no part in F.
        """
        key = (microbatch, options, member, copies and (sharding, copies))
        if key not in self._load_terms:
            found = self._find_load(microbatch, options, member)
            if sharding is not None and copies is not None:
                found = self._with_rounds(microbatch, found, sharding, copies)
            self._load_terms[key] = found
        return self._load_terms[key]

    def _with_rounds(
        self, microbatch: int, terms: LoadTerms, sharding: Sharding, copies: Levels
    ) -> LoadTerms:
        """Return terms of F with (60)."""
        layers = {}
        for option, row in terms.layer_ps.items():
            pair = microbatch, option.configuration
            more = round_times(self._costs.search_table, pair, sharding, _by_class(copies))
            layers[option] = row if more is None else tuple(_sum(row, self._layers(more)))
        return replace(terms, layer_ps=layers)

    def _find_load(self, microbatch: int, options: tuple[Option, ...], member: Levels) -> LoadTerms:
        *inside, hop_in, hop_out = member
        pairs = {o.configuration: self._costs.search_table.pairs[microbatch, o.configuration]
                 for o in options}  # fmt: skip

        def hops(level: int) -> Mapping[Configuration, Row] | None:
            return None if level == NO_HOP else {k: pair.hop_ps[level] for k, pair in pairs.items()}

        layers = {o: self._time(pairs[o.configuration], o, inside) for o in options}
        return LoadTerms(layers, hops(hop_in), hops(hop_out))

    def _time(self, pair: PairCosts, option: Option, inside: Iterable[int]) -> Row:
        """Return (8) and (9) of each layer at the levels of the groups inside."""
        total = list(self._plain(pair, option))
        for group, level in zip(GROUPS, inside, strict=True):
            if option.configuration.degree(group) > 1:
                total = _sum(total, self._collective(pair, option, group, level))
        return tuple(total)

    def _plain(self, pair: PairCosts, option: Option) -> Row:
        """Return (8)."""
        forward, backward = self._layers(pair.forward_ps), self._layers(pair.backward_ps)
        repeated: dict[Recompute, Row] = {
            "selective": self._layers(pair.repeated_forward_ps),
            "full": forward,
        }
        plain = _sum(forward, backward)
        return tuple(_sum(plain, repeated[option.mode]) if option.mode in repeated else plain)

    def _collective(self, pair: PairCosts, option: Option, group: Group, level: int) -> Row:
        """Return (9) for one kind of groups."""
        forward = self._layers(pair.forward_collective_ps[group][level])
        backward = self._layers(pair.backward_collective_ps[group][level])
        once = _sum(forward, backward)
        return tuple(_sum(once, forward) if option.mode == "full" else once)

    def _sync(
        self,
        microbatch: int,
        configurations: tuple[Configuration, ...],
        sharding: Sharding,
        member: Levels,
        alone: bool = False,
    ) -> SyncTerms:
        """Return the terms of Y at the levels of all copies, found once."""
        key = (microbatch, configurations, sharding, member, alone)
        if key not in self._sync_terms:
            levels = dict(zip(CLASSES, _by_class(member), strict=True))

            def cost(k: Configuration, name: ParameterClass) -> SyncCosts | None:
                return step_sync(self._costs.search_table, k, name, sharding, levels[name])

            self._sync_terms[key] = self._find_sync(
                microbatch, configurations, CLASSES, cost, alone
            )
        return self._sync_terms[key]

    def _find_sync(
        self,
        microbatch: int,
        configurations: tuple[Configuration, ...],
        classes: tuple[ParameterClass, ...],
        cost_of: Callable[[Configuration, ParameterClass], SyncCosts | None],
        alone: bool,
    ) -> SyncTerms:
        table = self._costs.search_table
        fixed: dict[tuple[ParameterClass, Configuration], int] = {}
        layers: dict[Configuration, Row] = {}
        for k in configurations:
            total = [0] * table.layer_count
            for name in classes:
                cost = cost_of(k, name)
                parameters = table.pairs[microbatch, k].parameters[name]
                if cost is not None and any(self._layers(parameters)):
                    fixed[name, k] = cost.fixed_ps
                    total = _sum(total, self._layers(cost.row_ps, alone))
            layers[k] = tuple(total)
        return SyncTerms(fixed, layers)

    def _least_load(
        self,
        microbatch: int,
        options: tuple[tuple[Option, ...], ...],
        configurations: tuple[Configuration, ...],
        sharding: Sharding,
    ) -> tuple[tuple[LoadTerms, ...], ...]:
        """Return, for each stage, the terms of F at the least levels of each configuration."""
        last = len(options) - 1
        found = []
        for stage, own in enumerate(options):
            parts = []
            for k in configurations:
                least = self._least(k, sharding)
                copies = least.sync if sharding.has_rounds else None
                hop_in, hop_out = (
                    least.hop if there else NO_HOP for there in (stage > 0, stage < last)
                )
                mine = tuple(option for option in own if option.configuration == k)
                member = (*least.inside, hop_in, hop_out)
                parts.append(self._load(microbatch, mine, member, sharding, copies))
            found.append((_joined_load(parts),))
        return tuple(found)

    def _least_sync(
        self,
        microbatch: int,
        options: tuple[tuple[Option, ...], ...],
        configurations: tuple[Configuration, ...],
        sharding: Sharding,
    ) -> tuple[tuple[SyncTerms, ...], ...]:
        alone = len(options) == 1
        parts = [
            self._sync(microbatch, (k,), sharding, self._least(k, sharding).sync, alone)
            for k in configurations
        ]
        return ((_joined_sync(parts),),) * len(options)

    def _least(self, k: Configuration, sharding: Sharding) -> LeastLevels:
        """Return the least levels that a stage of a configuration can have."""
        pairs = pairs_of(self._costs)
        if pairs is not None:
            return least_pair_levels(pairs, k, sharding.replicas, sharding.zero, together=True)
        return least_levels(self._capacities(), k, sharding.replicas, sharding.zero)

    def _capacities(self) -> tuple[int, ...]:
        """Return the devices that the fullest group of each level has."""
        devices = self._costs.problem.cluster.device_count
        return tuple(min(size, devices) for size in self._costs.network.group_sizes)

    def _by_level(
        self,
        microbatch: int,
        options: tuple[Option, ...],
        configurations: tuple[Configuration, ...],
        sharding: Sharding,
        alone: bool,
    ) -> LevelTerms:
        table, levels = self._costs.search_table, range(self._costs.network.level_count)
        pairs = {k: table.pairs[microbatch, k] for k in configurations}
        nothing = (0,) * table.layer_count

        def collective(group: Group, level: int) -> Mapping[Option, Row]:
            return {
                o: self._collective(pairs[o.configuration], o, group, level)
                if o.configuration.degree(group) > 1
                else nothing
                for o in options
            }

        def sync(part: SyncPart, name: ParameterClass) -> tuple[SyncTerms, ...]:
            def terms(level: int) -> SyncTerms:
                def cost(k: Configuration, name: ParameterClass) -> SyncCosts | None:
                    return part(table, k, name, sharding, level)

                return self._find_sync(microbatch, configurations, (name,), cost, alone)

            return tuple(map(terms, levels))

        return LevelTerms(
            plain_ps={o: self._plain(pairs[o.configuration], o) for o in options},
            collective_ps={
                group: tuple(collective(group, level) for level in levels)
                for group in GROUPS
                if any(k.degree(group) > 1 for k in configurations)
            },
            hop_ps=tuple({k: pairs[k].hop_ps[level] for k in configurations} for level in levels),
            sync_ps={name: sync(run_sync, name) for name in CLASSES},
            between_ps={
                name: sync(between_sync, name) for name in CLASSES if sharding.zero.runs(name) > 1
            },
            round_ps={
                name: tuple(
                    self._rounds(microbatch, options, sharding, name, level) for level in levels
                )
                for name in CLASSES
                if sharding.round_operations(name)
            },
            exchange_ps=tuple(
                {k: exchange_time(table, k, sharding, level) for k in configurations}
                for level in levels
            )
            if table.tied and not alone
            else (),
        )

    def _rounds(
        self,
        microbatch: int,
        options: tuple[Option, ...],
        sharding: Sharding,
        name: ParameterClass,
        level: int,
    ) -> Mapping[Option, Row]:
        """Return (60) of one class for each option and layer, its copies at a level."""
        nothing = (0,) * len(self._costs.search_table.layer_rows)
        copies = [CopyLevels(level)] * len(CLASSES)
        found = {}
        for option in options:
            pair = microbatch, option.configuration
            row = round_times(self._costs.search_table, pair, sharding, copies, classes=(name,))
            found[option] = nothing if row is None else self._layers(row)
        return found


def pairs_of(costs: Costs) -> PairLevels | None:
    """Return the network of costs whose levels are those of pairs, None for nested groups."""
    return costs.network if isinstance(costs.network, PairLevels) else None


def label_of(k: Configuration) -> str:
    """Return a configuration's name among those that differ in tp and sp alone."""
    return f"tp{k.tp}{'_sp' if k.sp else ''}"


def _by_class(member: Levels) -> tuple[CopyLevels, ...]:
    """Return the levels of each class's copies, from those inside runs, and between if given."""
    return tuple(map(CopyLevels, member[:2], member[2:] or (0, 0)))


def _members(stage: StageLevels, sharding: Sharding) -> Iterator[tuple[Levels, Levels | None]]:
    """Yield the levels of a replica's groups and hops with those of a rank's copies.

    The largest sum over all of these is the sum of the two largest: (11).
    """
    if sharding.has_rounds:
        yield from product(stage.load, stage.sync)
    else:
        yield from ((member, None) for member in stage.load)


def _joined_load(parts: list[LoadTerms]) -> LoadTerms:
    """Return terms of several configurations as one."""
    layers: dict[Option, Row] = {}
    hops: list[dict[Configuration, Row]] = [{}, {}]
    for part in parts:
        layers |= part.layer_ps
        for total, more in zip(hops, (part.hop_in_ps, part.hop_out_ps), strict=True):
            total |= more or {}
    return LoadTerms(layers, hops[0] or None, hops[1] or None)


def _joined_sync(parts: list[SyncTerms]) -> SyncTerms:
    """Return terms of several configurations as one."""
    fixed: dict[tuple[ParameterClass, Configuration], int] = {}
    layers: dict[Configuration, Row] = {}
    for part in parts:
        fixed |= part.fixed_ps
        layers |= part.layer_ps
    return SyncTerms(fixed, layers)


def _every(rows: Mapping[Terms, Row]) -> Iterator[int]:
    """Yield every entry of some rows."""
    for row in rows.values():
        yield from row


def _sum(left: Iterable[int], right: Iterable[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]


def _distinct(found: Iterator[Terms]) -> tuple[Terms, ...]:
    """Return terms without repeats: levels that differ may cost the same."""
    kept: list[Terms] = []
    for terms in found:
        if terms not in kept:
            kept.append(terms)
    return tuple(kept)
