"""The program's face of each constraint: rows that forbid what the checker refuses.

`FAMILIES` maps a constraint's type to a function that adds its rows. Every
type needs one: without it the program would be a relaxation.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Any

import pyomo.environ as pyo

from nest_opt.errors import ModelError
from nest_opt.milp.assignment import cumulative, in_stage
from nest_opt.milp.cells import FreeCell, PathCell
from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.devices import group_devices, inner_groups
from nest_opt.milp.index_sets import chunks_of, cut_pairs, cuts_of, layers_of
from nest_opt.milp.near import blocks_of, free_cell, hops_of, kinds_of, levels_of
from nest_opt.milp.options import chosen
from nest_opt.milp.path import ranks_inside
from nest_opt.network import planned_levels
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.rules import CELL_RULES
from nest_opt.problem import (
    AntiColocation,
    Colocation,
    DegreeLimit,
    FailureDomains,
    ForbiddenBoundary,
    HopLatency,
    PinnedLayers,
    Power,
    TpInsideNode,
    rule_of,
)

Family = Callable[[Any, Any, Costs, CellCoefficients, str], None]


def add_colocation(
    constraint: Colocation, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (31): sum over i of cut[c, i] = 0 for each cut c between the first and last layer.

    Stages are intervals, so the layers are in one stage, as (20) asks, exactly
    if no stage ends between them. In any order these are the cuts that have
    some of the layers and not all. Stages of several chunks are no intervals:
    there, of layers that follow each other each is in the stages of the other.
    """
    places = sorted(costs.problem.model.index[layer] for layer in constraint.layers)
    if k.graph is not None:
        every = sum(1 << place for place in set(places))
        parting = [n for n, cut in enumerate(k.graph.cuts) if cut & every not in (0, every)]
        _forbid_cuts(model, k, parting, name)
        return
    if not k.cell.schedule.is_interleaved:
        _forbid_cuts(model, k, range(places[0] + 1, places[-1] + 1), name)
        return
    rows = pyo.ConstraintList()
    model.add_component(name, rows)
    for first, second in pairwise(places):
        for stage in range(k.stages):
            here, there = (in_stage(model, k, layer, stage) for layer in (first, second))
            if not isinstance(here, int) or not isinstance(there, int):
                rows.add(here == there)


def add_forbidden_boundary(
    constraint: ForbiddenBoundary, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (32): sum over i of cut[l + 1, i] = 0 for the named layer l and all chunks i: (21).

    In any order: a[l, i] <= sum over the layers j after l in the list of
    a[j, i], for each stage i but the last.
    """
    last = costs.problem.model.index[constraint.after]
    if k.graph is None:
        _forbid_cuts(model, k, range(last + 1, last + 2), name)
        return
    rows = pyo.ConstraintList()
    model.add_component(name, rows)
    for stage in chunks_of(k, last):
        if stage < k.stages - 1:
            later = [layer for layer in layers_of(k, stage) if layer > last]
            rows.add(model.a[last, stage] <= sum(model.a[layer, stage] for layer in later))


def add_hop_latency(
    constraint: HopLatency, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (33): sum over c of cut[c, i] = 0 for each stage i with a hop out above the limit.

    The hop is the worst of all replicas and ranks, as (22) says. Every stage
    but the last has a boundary, and that one as well if it has several chunks,
    so such a cell has no solution.
    """
    levels = planned_levels(costs.problem.cluster).levels
    above = [
        stage
        for stage in range(min(k.stages, k.chunks - 1))
        if levels[k.levels[stage].hop_out].latency_s > constraint.limit_s
    ]
    model.add_component(
        name,
        pyo.Constraint(
            above, rule=lambda m, stage: sum(m.cut[cut, stage] for cut in cuts_of(k, stage)) == 0
        ),
    )


def add_anti_colocation(
    constraint: AntiColocation, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (41): C[p, i - 1] >= C[q, i] for each stage i and named p < q, which is (35).

    Pairs that follow each other among the named are enough: a stage with two
    of them has such a pair. Where a stage has several chunks, and in any order,
    the named layers in it are at most one, sum over l and c of a[l, c] <= 1.
    """
    places = sorted(costs.problem.model.index[layer] for layer in constraint.layers)
    rows = pyo.ConstraintList()
    model.add_component(name, rows)
    if k.cell.schedule.is_interleaved or k.graph is not None:
        for stage in range(k.stages):
            held = sum(in_stage(model, k, layer, stage) for layer in places)
            if not isinstance(held, int):
                rows.add(held <= 1)
        return
    for first, second in pairwise(places):
        for stage in range(k.stages):
            before = cumulative(model, k, first, stage - 1)
            upto = cumulative(model, k, second, stage)
            if not isinstance(before, int) or not isinstance(upto, int):
                rows.add(before >= upto)
            elif before < upto:
                rows.add(_none_here(model, k))


def add_pinned_layers(
    constraint: PinnedLayers, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (42): a[l, i] = 1 for each named layer l, i the stage of that number, which is (36)."""
    rows = pyo.ConstraintList()
    model.add_component(name, rows)
    stage = constraint.stage_of(k.stages)
    for layer in (costs.problem.model.index[layer] for layer in constraint.layers):
        here = 0 if stage is None else in_stage(model, k, layer, stage)
        rows.add(_none_here(model, k) if isinstance(here, int) else here == 1)


def add_cell_rule(
    constraint: Any, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (43): a[0, 0] = 0 in a cell that breaks (37), (38), (39) or (40)."""
    rows = pyo.ConstraintList()
    model.add_component(name, rows)
    assert not isinstance(k.cell, FreeCell)
    if any(CELL_RULES[constraint.type](constraint, costs, k.cell)):
        rows.add(_none_here(model, k))


def add_free_hop_latency(
    constraint: HopLatency, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (52): hop_above[r, i, l] = 0 for the first level l above the limit, which is (22)."""
    levels = planned_levels(costs.problem.cluster).levels
    above = [number for number, level in enumerate(levels) if level.latency_s > constraint.limit_s]
    rows = pyo.ConstraintList()
    model.add_component(name, rows)
    if not above or k.stages == 1:
        return
    if above[0] == 0:
        rows.add(_none_here(model, k))
    elif above[0] in levels_of(k):
        for replica, stage in hops_of(k):
            rows.add(model.hop_above[replica, stage, above[0]] == 0)


def add_free_degree_limit(
    constraint: DegreeLimit, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (53): no stage has a tp that breaks (37); a[0, 0] = 0 if another degree does."""
    cell = free_cell(k)
    rows = pyo.ConstraintList()
    model.add_component(name, rows)
    first = cell.choices[0]
    fixed = {"microbatch": cell.microbatch, "cp": first.cp, "ep": first.ep,
             "dp": cell.replicas, "pp": k.stages}  # fmt: skip
    if constraint.degree != "tp":
        if not constraint.allows(fixed[constraint.degree]):
            rows.add(_none_here(model, k))
        return
    refused = [own for own in cell.choices if not constraint.allows(own.tp)]
    if len(refused) == len(cell.choices):
        rows.add(_none_here(model, k))
    elif refused:
        for stage in range(k.stages):
            rows.add(chosen(model, k, stage, *refused) == 0)


def add_free_tp_inside_node(
    constraint: TpInsideNode, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (54): inside_above[tp, r, i, l] = 0 for the level l above the named one: (38)."""
    rows = pyo.ConstraintList()
    model.add_component(name, rows)
    level = planned_levels(costs.problem.cluster).level_number(constraint.level) + 1
    if "tp" in kinds_of(k) and level in levels_of(k):
        for replica, stage in blocks_of(k):
            rows.add(model.inside_above["tp", replica, stage, level] == 0)


def add_free_failure_domains(
    constraint: FailureDomains, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (55): sum over r of in_domain[r, g] <= the limit for each group g of the level: (39).

    in_domain[r, g] is binary and 1 if replica r has ranks in the group.
    """
    level = planned_levels(costs.problem.cluster).level_number(constraint.level)
    groups = range(len(group_devices(k, level)))
    rows = pyo.ConstraintList()
    inside = pyo.Var(range(free_cell(k).replicas), groups, domain=pyo.Binary)
    model.add_component(f"{name}_in", inside)
    model.add_component(name, rows)
    for group in groups:
        rows.add(sum(inside[r, group] for r in range(free_cell(k).replicas)) <= constraint.at_most)
        for replica, most, ranks in _ranks_inside(model, k, level, group):
            rows.add(ranks <= most * inside[replica, group])


def add_free_power(
    constraint: Power, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (56): sum of n over a group of the level <= limit / watts, rounded down: (40)."""
    cluster = costs.problem.cluster
    level = planned_levels(cluster).level_number(constraint.level)
    watts = cluster.device_kind.watts
    assert watts is not None
    most = floor(Fraction(constraint.limit_w) / Fraction(watts))
    rows = pyo.ConstraintList()
    model.add_component(name, rows)
    for group, devices in enumerate(group_devices(k, level)):
        if most < devices:
            used = [ranks for _, _, ranks in _ranks_inside(model, k, level, group)]
            if used:
                rows.add(sum(used) <= most)


def _ranks_inside(
    model: Any, k: CellCoefficients, level: int, group: int
) -> Iterator[tuple[int, int, Any]]:
    """Yield (replica, most, ranks) for parts of the ranks in a group of a level."""
    if isinstance(k.cell, PathCell):
        yield from ranks_inside(model, k, level, group)
        return
    inner = inner_groups(k, level, group)
    for place, ranks in model.n.items():
        if place[-1] in inner:
            yield place[0], ranks.ub, ranks


def _none_here(model: Any, k: CellCoefficients) -> Any:
    """Return a row that no plan keeps: in the listed order layer 0 is in stage 0.

    In any order some layer is.
    """
    first = [0] if k.graph is None else layers_of(k, 0)
    return sum(model.a[layer, 0] for layer in first) == 0


def _forbid_cuts(model: Any, k: CellCoefficients, cuts: Sequence[int], name: str) -> None:
    """Add a row for each cut that says that no chunk ends there."""
    chunks: dict[int, list[int]] = {cut: [] for cut in cuts}
    for cut, chunk in cut_pairs(k):
        if cut in chunks:
            chunks[cut].append(chunk)
    model.add_component(
        name,
        pyo.Constraint(
            [cut for cut in cuts if chunks[cut]],
            rule=lambda m, cut: sum(m.cut[cut, chunk] for chunk in chunks[cut]) == 0,
        ),
    )


FAMILIES: dict[str, Family] = {
    "colocation": add_colocation,
    "anti-colocation": add_anti_colocation,
    "pinned-layers": add_pinned_layers,
    "forbidden-boundary": add_forbidden_boundary,
    "hop-latency": add_hop_latency,
    **dict.fromkeys(CELL_RULES, add_cell_rule),
}


# What is about levels, devices or degrees has other rows where the program chooses them.
_SAME = ("colocation", "anti-colocation", "pinned-layers", "forbidden-boundary")
FREE_FAMILIES: dict[str, Family] = {
    **{name: FAMILIES[name] for name in _SAME},
    "hop-latency": add_free_hop_latency,
    "degree-limit": add_free_degree_limit,
    "tp-inside-node": add_free_tp_inside_node,
    "failure-domains": add_free_failure_domains,
    "power": add_free_power,
}
# These count devices, which the relaxed program does not know.
_ON_DEVICES = ("failure-domains", "power")


def add_constraints(model: Any, costs: Costs, k: CellCoefficients, relaxed: bool = False) -> None:
    """Add the rows of every constraint of a problem, named after its type and place.

    Raises
    ------
    ModelError
        If a constraint's type has no family.
    """
    is_free = k.by_level is not None
    families = FREE_FAMILIES if is_free else FAMILIES
    for number, constraint in enumerate(costs.problem.constraints):
        rule = rule_of(constraint)
        if rule not in families:
            raise ModelError(
                f"constraints[{number}]: found {rule!r}, the integer program of the "
                f"{'free' if is_free else 'aligned'} family has rows for {', '.join(families)}: "
                "register a function in nest_opt.milp.constraints."
                f"{'FREE_FAMILIES' if is_free else 'FAMILIES'}"
                + (", or search the aligned family" if is_free else "")
            )
        if rule.startswith("user:") and k.cell.schedule.is_interleaved:
            raise ModelError(
                f"constraints[{number}]: found {rule!r} with schedule {k.cell.schedule}, rows of "
                "one's own are written for one chunk a stage: remove one of the two"
            )
        if relaxed and rule in _ON_DEVICES:
            continue
        name = f"{re.sub(r'[^A-Za-z0-9]', '_', rule)}_{number}"
        families[rule](constraint, model, costs, k, name)
