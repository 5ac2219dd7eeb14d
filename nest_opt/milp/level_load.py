"""Families: time and sync of stages that choose their levels. Equations (49), (50), (75)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import pyomo.environ as pyo

from nest_opt.cost.table import CLASSES, ParameterClass, Row
from nest_opt.milp.coefficients import CellCoefficients, Option, SyncTerms
from nest_opt.milp.hops import hop_time
from nest_opt.milp.index_sets import cuts_of, layers_of
from nest_opt.milp.near import (
    SyncPlace,
    between_places,
    blocks_of,
    kinds_of,
    level_terms,
    levels_of,
    ranks_of,
    run_places,
    shapes_of,
    sync_nears,
)
from nest_opt.milp.options import chosen, under
from nest_opt.milp.runs import Run, longest_runs
from nest_opt.milp.sync import add_holds, has_sync, is_end, sync_time
from nest_opt.milp.units import Units
from nest_opt.problem import Configuration


@dataclass(frozen=True)
class Growth:
    """How much a time grows with its level, whatever the other decisions.

    Attributes
    ----------
    least
        Per level from 1 on, what it grows by at least from the level before.
    most
        Per level from 1 on, what it grows by at most from level 0.
    """

    least: tuple[int, ...]
    most: tuple[int, ...]


def add_level_load(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (49): F[i] >= sum of (8) + coll[kind, r, i] + hop[r, i, in] + hop[r, i, out], each r.

    Where rounds have (60), that is (75), with + round[i, dense, s] +
    round[i, expert, s] in a row for each sort s of ranks.

    Each of these times T is, at the levels l above 0,
    T >= T_l - most_l * (1 - above_l) + sum over the levels j > l of least_j * above_j,
    with T_l the time at level l, most_l the most that it can be more than at
    level 0, and least_j the least that it can be more than at level j - 1.
    """
    terms = level_terms(k)
    model.F = pyo.Var(range(k.stages), domain=pyo.NonNegativeReals)
    model.stage_load = pyo.ConstraintList()
    model.level_time = pyo.ConstraintList()
    longest = longest_runs(k)
    rounds = [_round_times(model, k, units, longest, stage) for stage in range(k.stages)]
    for replica, stage in blocks_of(k):
        time = sum(
            units.time(terms.plain_ps[option][layer]) * under(model, k, layer, stage, option)
            for option in k.options[stage]
            for layer in layers_of(k, stage)
        )
        for kind in kinds_of(k):
            at = [
                sum(
                    units.time(row[option][layer]) * under(model, k, layer, stage, option)
                    for option in k.options[stage]
                    for layer in layers_of(k, stage)
                )
                for row in terms.collective_ps[kind]
            ]
            growth = _load_growth(k, longest, stage, terms.collective_ps[kind], k.options[stage])
            above = [model.inside_above[kind, replica, stage, level] for level in levels_of(k)]
            time += _level_time(
                model, k, units, f"coll_{kind}_{replica}_{stage}", at, growth, above
            )
        for side, boundary in (("in", stage - 1), ("out", stage)):
            if 0 <= boundary < k.stages - 1:
                at = [hop_time(model, k, units, boundary, stage, row) for row in terms.hop_ps]
                growth = _hop_growth(k, stage, boundary, terms.hop_ps)
                above = [model.hop_above[replica, boundary, level] for level in levels_of(k)]
                time += _level_time(
                    model, k, units, f"hop_{side}_{replica}_{stage}", at, growth, above
                )
        for more in rounds[stage]:
            model.stage_load.add(model.F[stage] >= time + more)


def add_level_sync(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (50): Y[i] >= dense[i, s] + expert[i, s] + E for each sort s of ranks.

    E is (66) at the ends of a pipeline, else nothing. With several runs of
    replicas each class has between[i, c, s] besides, (63): that is (76). Each is a time that
    grows with the level of the copies, as in (49), of T_l = A_c holds[i, c] +
    sum over l of y_l a[l, i] at that level.
    """
    if not has_sync(k):
        return
    terms, longest = level_terms(k), longest_runs(k)
    model.Y = pyo.Var(range(k.stages), domain=pyo.NonNegativeReals)
    model.sync = pyo.ConstraintList()
    add_holds(model, k)
    times: dict[SyncPlace, list[Any]] = {}
    for label, places, of_class, all_above in (
        ("", run_places(k), terms.sync_ps, "sync_above"),
        ("between_", between_places(k), terms.between_ps, "between_above"),
    ):
        for place in places:
            name, stage, shape, number = place
            levels, members = of_class[name], shapes_of(k)[shape]
            if not any((name, own) in levels[0].fixed_ps for own in members):
                # A class whose copies meet in rounds alone.
                continue
            at = [sync_time(model, k, units, stage, members, level) for level in levels]
            growth = _sync_growth(k, longest, stage, members, name, levels)
            above = [model.component(all_above)[(*place, level)] for level in levels_of(k)]
            full = f"{label}{name}_{stage}_{shape}_{number}"
            times.setdefault(place, []).append(
                _level_time(model, k, units, full, at, growth, above)
            )
    exchange = _exchange_time(model, k, units) if k.has_exchange else 0
    for stage in range(k.stages):
        own = exchange if is_end(k, stage) else 0
        sums = [
            [time for place in places for time in times.get(place, ())]
            for places in _sorts(k, stage)
        ]
        # Ends without copies to sync have the exchange alone.
        if k.has_exchange and is_end(k, stage) and not any(sums):
            model.sync.add(model.Y[stage] >= own)
        for found in filter(None, sums):
            model.sync.add(model.Y[stage] >= sum(found) + own)


def _exchange_time(model: Any, k: CellCoefficients, units: Units) -> Any:
    """Return (66), which grows with the level of the worst two ranks as in (49)."""
    rows, choices = level_terms(k).exchange_ps, k.configurations(0)
    at = [sum(units.time(row[own]) * chosen(model, k, 0, own) for own in choices) for row in rows]
    growth = _over(
        [[high[own] - low[own] for low, high in pairwise(rows)] for own in choices],
        [[row[own] - rows[0][own] for row in rows[1:]] for own in choices],
    )
    above = [model.exchange_above[level] for level in levels_of(k)]
    return _level_time(model, k, units, "exchange", at, growth, above)


def _sorts(k: CellCoefficients, stage: int) -> Iterator[list[SyncPlace]]:
    """Yield the places of both classes' copies for each sort of ranks of a stage."""
    for shape, members in enumerate(shapes_of(k)):
        for pair in ranks_of(k).sync(members[0]):
            yield [
                (name, stage, shape, sync_nears(k, shape, name).index(near))
                for name, near in zip(CLASSES, pair, strict=True)
            ]


def _round_times(
    model: Any,
    k: CellCoefficients,
    units: Units,
    longest: Mapping[tuple[int, Option], list[Run]],
    stage: int,
) -> list[Any]:
    """Return (60) of a stage for each sort of ranks; nothing to add where rounds have none."""
    rounds = level_terms(k).round_ps
    times: dict[SyncPlace, Any] = {}
    for place in run_places(k) if rounds else ():
        name, own_stage, shape, number = place
        if own_stage != stage or name not in rounds:
            continue
        members = shapes_of(k)[shape]
        options = [option for option in k.options[stage] if option.configuration in members]
        at = [
            sum(
                units.time(row[option][layer]) * under(model, k, layer, stage, option)
                for option in options
                for layer in layers_of(k, stage)
            )
            for row in rounds[name]
        ]
        growth = _load_growth(k, longest, stage, rounds[name], options)
        above = [model.sync_above[(*place, level)] for level in levels_of(k)]
        label = f"round_{name}_{stage}_{shape}_{number}"
        times[place] = _level_time(model, k, units, label, at, growth, above)
    sums = [[times[place] for place in places if place in times] for places in _sorts(k, stage)]
    return [sum(found) for found in sums if found] or [0]


def _level_time(
    model: Any,
    k: CellCoefficients,
    units: Units,
    name: str,
    at: Sequence[Any],
    growth: Growth,
    above: Sequence[Any],
) -> Any:
    """Return a time that is at[l] where level l is met, with its rows; at[0] if it never grows.

    Where levels are no chain, a level may be no worse than the one before it.
    """
    is_chain = k.pairs is None or k.pairs.is_chain
    if not any(growth.most[: len(above)]):
        return at[0]
    time = pyo.Var(domain=pyo.NonNegativeReals)
    model.add_component(name, time)
    for level in range(len(above) + 1):
        row = at[level]
        if level:
            row -= units.time(growth.most[level - 1]) * (1 - above[level - 1])
        for higher in range(level, len(above)) if is_chain else ():
            row += units.time(growth.least[higher]) * above[higher]
        model.level_time.add(time >= row)
    return time


def _most(rows: Sequence[Row], runs: Sequence[Run]) -> list[int]:
    """Return, for each level from 1 on, the most that a run's sum grows from level 0."""
    found = []
    for row in rows[1:]:
        sums = list(accumulate((a - b for a, b in zip(row, rows[0], strict=True)), initial=0))
        found.append(max((sums[high] - sums[low] for low, high in runs), default=0))
    return found


def _least(rows: Sequence[Row], layers: Sequence[int]) -> list[int]:
    """Return, for each level from 1 on, the least that a layer's time grows from the one before."""
    return [
        min(rows[level][layer] - rows[level - 1][layer] for layer in layers)
        for level in range(1, len(rows))
    ]


def _load_growth(
    k: CellCoefficients,
    longest: Mapping[tuple[int, Option], list[Run]],
    stage: int,
    levels: Sequence[Mapping[Option, Row]],
    options: Sequence[Option],
) -> Growth:
    """Return how times of layers grow under some options; under others there are none."""
    rows = {option: [level[option] for level in levels] for option in options}
    least = [_least(own, layers_of(k, stage)) for own in rows.values()]
    if len(options) < len(k.options[stage]):
        least.append([0] * (len(levels) - 1))
    return _over(least, [_most(own, longest[stage, option]) for option, own in rows.items()])


def _hop_growth(
    k: CellCoefficients,
    stage: int,
    boundary: int,
    levels: Sequence[Mapping[Configuration, Row]],
) -> Growth:
    cuts = cuts_of(k, boundary)
    rows = [[level[own] for level in levels] for own in k.configurations(stage)]
    return _over(
        [_least(own, cuts) for own in rows],
        [_most(own, [(cut, cut + 1) for cut in cuts]) for own in rows],
    )


def _sync_growth(
    k: CellCoefficients,
    longest: Mapping[tuple[int, Option], list[Run]],
    stage: int,
    members: Sequence[Configuration],
    name: ParameterClass,
    levels: Sequence[SyncTerms],
) -> Growth:
    """Return how a class's sync grows; at least by nothing, since a stage may hold none of it."""
    most = []
    for option in k.options[stage]:
        own = option.configuration
        if own in members and (name, own) in levels[0].fixed_ps:
            fixed = [terms.fixed_ps[name, own] - levels[0].fixed_ps[name, own]
                     for terms in levels[1:]]  # fmt: skip
            rows = _most([terms.layer_ps[own] for terms in levels], longest[stage, option])
            most.append([a + b for a, b in zip(fixed, rows, strict=True)])
    least: list[list[int]] = []
    if len(members) == len(k.configurations(stage)):
        least = [_least([terms.layer_ps[own] for terms in levels], layers_of(k, stage))
                 for own in members]  # fmt: skip
    return _over(least or [[0] * (len(levels) - 1)], most)


def _over(least: list[list[int]], most: list[list[int]]) -> Growth:
    """Return the growth over several options: the least and the most of any."""
    return Growth(
        tuple(map(min, zip(*least, strict=True))), tuple(map(max, zip(*most, strict=True)))
    )
