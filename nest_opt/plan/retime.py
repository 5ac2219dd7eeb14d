"""A plan timed on its own network instead of on the levels that it was searched on.

All blocks do the same thing at once: a step of the rings of their groups, a
hop from every stage to the next, a step of the rings over copies. Each such
set of transfers takes its routes and shares its links, and the terms of F and Y
are formed anew from what it takes. What still differs from a run: different
things are never under way at once, and sets begin together.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from nest_opt.cost.cuts import crossing_bytes
from nest_opt.cost.sharding import Sharding
from nest_opt.cost.table import CLASSES, ParameterClass
from nest_opt.cost.units import to_ps
from nest_opt.network.at_once import AtOnce, Pace, Pair, at_once, paces
from nest_opt.plan.evaluate import (
    ROUND_TERMS,
    TIED,
    Costs,
    Evaluation,
    StageEvaluation,
    block_groups,
    hop_ends,
    placement_cell,
    stages_value_ps,
    sync_group,
    sync_ranks,
)
from nest_opt.plan.placement import AnyCell, Placement
from nest_opt.plan.plan import Plan
from nest_opt.problem import HierarchicalSpec, Problem
from nest_opt.problem.profile import GROUPS, Group, Operation


@dataclass(frozen=True)
class TermTimes:
    """What a term takes on the stage where it is largest: by the levels, and on the network."""

    planned_ps: int
    retimed_ps: int


@dataclass(frozen=True)
class Retiming:
    """A plan's value and stages with all transfers timed on the network.

    Attributes
    ----------
    planned_ps
        The plan's value by the levels.
    value_ps
        The same objective of the stages below.
    stages
        The evaluated stages, their communication timed anew.
    terms
        Each term of communication.
    """

    planned_ps: int
    value_ps: int
    stages: tuple[StageEvaluation, ...]
    terms: Mapping[str, TermTimes]


def retime(costs: Costs, placement: Placement, evaluation: Evaluation) -> Retiming | None:
    """Time an evaluated placement on its network.

    None where there is nothing but levels, see `at_once`; where collectives
    may use other algorithms than rings; and under the artifact's cost model.
    """
    traffic = at_once(costs.problem.cluster) if is_retimed(costs.problem) else None
    if traffic is None:
        return None
    timer = _Timer(costs.ordered(placement.layer_order), placement, traffic)
    stages = tuple(timer.stage(number, stage) for number, stage in enumerate(evaluation.stages))
    value = stages_value_ps(evaluation.objective, timer.cell, stages)
    return Retiming(evaluation.value_ps, value, stages, _terms(evaluation.stages, stages))


def is_retimed(problem: Problem) -> bool:
    """Whether plans of a problem are timed on its network, see `retime`."""
    network = problem.cluster.network
    if problem.job.cost_model == "artifact":
        return False
    return not isinstance(network, HierarchicalSpec) or (
        network.algorithms == ("ring",)
        and any(level.oversubscription != 1 for level in network.levels)
    )


def retime_plan(plan: Plan, evaluation: Evaluation) -> Retiming | None:
    """Time a plan on its network; see `retime`."""
    return retime(Costs(plan.problem), plan.placement(), evaluation)


def _terms(
    planned: Sequence[StageEvaluation], found: Sequence[StageEvaluation]
) -> dict[str, TermTimes]:
    """Return the terms that change, each on the stage where it is largest on either side."""
    terms: dict[str, TermTimes] = {}
    for kind in ("time_terms_ps", "sync_terms_ps"):
        names = {name: None for stage in planned for name in getattr(stage, kind)}
        for name in names:
            if name not in ("forward", "backward", "recomputed forward"):
                before, after = (
                    max(getattr(stage, kind).get(name, 0) for stage in stages)
                    for stages in (planned, found)
                )
                terms[name] = TermTimes(before, after)
    return terms


class _Timer:
    """Times the terms of each stage of a placement."""

    def __init__(self, costs: Costs, placement: Placement, traffic: AtOnce) -> None:
        self.costs, self.traffic = costs, traffic
        self.problem = costs.problem
        self.cell: AnyCell = placement_cell(costs.problem, placement)
        self.order = placement.layer_order or range(len(costs.problem.model.ids))
        self.stages, self.replicas = range(placement.stages), range(placement.replicas)
        self.sharding = Sharding(placement.zero, placement.replicas, self.cell.rounds)
        self._rings: dict[object, dict[int, Pace]] = {}

    def stage(self, number: int, stage: StageEvaluation) -> StageEvaluation:
        """Return a stage with its terms of communication timed on the network."""
        times = {
            **self._collectives(number, stage),
            **self._hops(number, stage),
            **self._round_terms(number, stage),
        }
        sync = self._sync_terms(number, stage)
        return replace(
            stage,
            time_terms_ps={
                name: times.get(name, time) for name, time in stage.time_terms_ps.items()
            },
            sync_terms_ps={
                name: sync.get(name, time) for name, time in stage.sync_terms_ps.items()
            },
        )

    def _once(
        self, key: object, owned: Callable[[], Iterator[tuple[int, Pair]]]
    ) -> dict[int, Pace]:
        """Return the paces of what all stages do at once, found once."""
        if key not in self._rings:
            self._rings[key] = paces(self.traffic, owned())
        return self._rings[key]

    # Collectives inside layers

    def _collectives(self, number: int, stage: StageEvaluation) -> dict[str, int]:
        configuration = self.cell.configurations[number]
        found = {}
        for group in GROUPS:
            if configuration.degree(group) > 1:
                forward, backward = (
                    self._phase(number, stage, group, phase) for phase in ("forward", "backward")
                )
                found[f"{group} collectives"] = forward + backward
                found[f"recomputed {group} collectives"] = forward
        return found

    def _phase(self, number: int, stage: StageEvaluation, group: Group, phase: str) -> int:
        """Return the time of a stage's collectives of one group kind and phase."""
        configuration = self.cell.configurations[number]
        key, ranks = (self.cell.microbatch, configuration), configuration.degree(group)
        calls: Counter[tuple[Operation, int, Fraction]] = Counter()
        for layer in stage.layers:
            for call in self.problem.model.types[self.order[layer]].by_key[key].collectives:
                if call.group == group and call.phase == phase:
                    calls[call.operation, call.bytes, Fraction(call.hidden_s)] += call.count
        return sum(
            count
            * to_ps(max(Fraction(0), self._call_s(number, group, operation, ranks, size) - hidden))
            for (operation, size, hidden), count in calls.items()
        )

    def _call_s(
        self, number: int, group: Group, operation: Operation, ranks: int, size: int
    ) -> Fraction:
        """Return a call's seconds: by rings, or for an all-to-all by one shift after another."""
        part = Fraction(size, ranks)
        if operation == "all-to-all":
            shifts = range(1, ranks)
            return sum(
                (self._shift(group, shift)[number].seconds(part) for shift in shifts), Fraction(0)
            )
        return _rounds(operation, ranks) * self._shift(group, 1)[number].seconds(part)

    def _shift(self, group: Group, shift: int) -> dict[int, Pace]:
        """Return the pace of sending to the rank so many places on, in all groups of a kind."""
        return self._once(
            (group, shift),
            lambda: (
                (number, pair)
                for number in self.stages
                for replica in self.replicas
                for members in block_groups(
                    self.cell.device_map.block(replica, number),
                    self.cell.configurations[number],
                    group,
                )
                if len(members) > shift
                for pair in _ring(members, shift)
            ),
        )

    # Hops

    def _hops(self, number: int, stage: StageEvaluation) -> dict[str, int]:
        configuration = self.cell.configurations[number]
        shares = configuration.cp * (configuration.tp if configuration.sp else 1)
        found = {}
        for name, step, ends in (("hop in", -1, 0), ("hop out", 1, 1)):
            if name in stage.time_terms_ps:
                pace = self._once(name, partial(self._hop_flows, step))[number]
                found[name] = sum(
                    to_ps(pace.seconds(Fraction(self._crossing(cut, configuration.tp), shares)))
                    for cut in (interval[ends] for interval in stage.intervals)
                    if 0 < cut < len(self.order)
                )
        return found

    def _hop_flows(self, step: int) -> Iterator[tuple[int, Pair]]:
        """Yield what each stage receives from the one a step away, in all replicas."""
        device_map, stages = self.cell.device_map, len(self.stages)
        goes_round = self.cell.schedule.is_interleaved
        for number in self.stages:
            neighbour = number + step
            if goes_round or 0 <= neighbour < stages:
                for replica in self.replicas:
                    for here, there in hop_ends(
                        device_map,
                        self.cell.configurations,
                        replica,
                        number,
                        neighbour % stages,
                    ):
                        yield number, (there, here)

    def _crossing(self, cut: int, tp: int) -> int:
        before = sum(1 << layer for layer in self.order[:cut])
        return crossing_bytes(self.problem, self.cell.microbatch, tp, [before])[0]

    # Copies

    def _copies(self, name: ParameterClass, between: bool) -> dict[int, Pace]:
        """Return the pace of rings over copies: inside runs of replicas, or between them."""
        return self._once(
            (name, between),
            lambda: (
                (number, pair)
                for number in self.stages
                for rank in sync_ranks(self.cell.configurations[number], name)
                for ring in self._copy_rings(name, number, rank, between)
                for pair in _ring(ring)
            ),
        )

    def _copy_rings(
        self, name: ParameterClass, number: int, rank: int, between: bool
    ) -> Iterator[Sequence[int]]:
        group = sync_group(
            self.cell.device_map, self.cell.configurations[number], name, number, rank
        )
        inside = len(group) // self.cell.zero.runs(name)
        if between:
            yield from (group[place::inside] for place in range(inside))
        else:
            yield from (group[start : start + inside] for start in range(0, len(group), inside))

    def _sync_terms(self, number: int, stage: StageEvaluation) -> dict[str, int]:
        found = {}
        sizes = self.problem.job.bytes_per_parameter
        for name in CLASSES:
            count = sum(self._parameters(number, stage, name))
            ranks = self.sharding.inside(self.cell.configurations[number], name)
            if not count:
                continue
            within = f"{name} {'parameters' if self.cell.zero.level(name) else 'gradients'}"
            if ranks > 1:
                pace = self._copies(name, between=False)[number]
                found[within] = sum(
                    self._ring_ps(
                        pace,
                        operation,
                        ranks,
                        count
                        * Fraction(sizes.weights if operation == "all-gather" else sizes.gradients),
                    )
                    for operation in self.sharding.step_operations(name)
                )
            runs = self.cell.zero.runs(name)
            if runs > 1:
                found[f"{name} gradients between runs"] = self._ring_ps(
                    self._copies(name, between=True)[number],
                    "all-reduce",
                    runs,
                    count * Fraction(sizes.gradients) / ranks,
                )
        if TIED in stage.sync_terms_ps:
            found[TIED] = self._tied_ps(number)
        return found

    def _tied_ps(self, number: int) -> int:
        """Return what the two ends of a pipeline take for the gradients of tied parameters."""
        configuration = self.cell.configurations[number]
        ends = self.stages[0], self.stages[-1]
        pace = self._once(
            TIED,
            lambda: (
                (0, pair)
                for replica in self.replicas
                for ring in zip(
                    *(self.cell.device_map.block(replica, end) for end in ends), strict=True
                )
                for pair in _ring(ring)
            ),
        )[0]
        last = self.problem.model.types[-1].by_key[self.cell.microbatch, configuration]
        size = last.tied_parameters * Fraction(self.problem.job.bytes_per_parameter.gradients)
        return self._ring_ps(pace, "all-reduce", 2, size / self.sharding.tied_share(configuration))

    def _round_terms(self, number: int, stage: StageEvaluation) -> dict[str, int]:
        found: dict[str, int] = {}
        sizes = self.problem.job.bytes_per_parameter
        for name in CLASSES:
            ranks = self.sharding.inside(self.cell.configurations[number], name)
            for operation in self.sharding.round_operations(name) if ranks > 1 else ():
                part = Fraction(sizes.weights if operation == "all-gather" else sizes.gradients)
                pace, term = self._copies(name, between=False)[number], ROUND_TERMS[operation]
                found[term] = found.get(term, 0) + sum(
                    self._ring_ps(pace, operation, ranks, count * part)
                    for count in self._parameters(number, stage, name, once=False)
                    if count
                )
        return found

    def _parameters(
        self, number: int, stage: StageEvaluation, name: ParameterClass, once: bool = True
    ) -> list[int]:
        """Return the parameters of each layer of a stage; tied ones count once if `once`."""
        table = self.costs.table
        held = table.pairs[self.cell.microbatch, self.cell.configurations[number]].parameters[name]
        rows = [table.layer_rows[layer] for layer in stage.layers]
        if once and len(stage.intervals) == 1:
            rows = list(table.own_rows(*stage.intervals[0]))
        return [held[row] for row in rows]

    @staticmethod
    def _ring_ps(pace: Pace, operation: Operation, ranks: int, size: Fraction) -> int:
        return to_ps(_rounds(operation, ranks) * pace.seconds(size / ranks))


def _rounds(operation: Operation, ranks: int) -> int:
    """Return the steps of a ring: each passes a rank's part on (Thakur et al. 2005)."""
    return (2 if operation == "all-reduce" else 1) * (ranks - 1)


def _ring(members: Sequence[int], shift: int = 1) -> Iterator[Pair]:
    """Yield who sends to whom; nobody in a ring of one."""
    if len(members) > 1:
        for place, member in enumerate(members):
            yield member, members[(place + shift) % len(members)]
