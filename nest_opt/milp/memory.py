"""Families: memory of a stage. Equations (25) and (74), which are (14) for all stages at once."""

from collections.abc import Sequence
from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.coefficients import CellCoefficients, Option
from nest_opt.milp.index_sets import layers_of, stage_chunks, stage_places
from nest_opt.milp.options import has_option, under
from nest_opt.milp.units import Units


def add_stash(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (74): stash[i, g] >= in flight * sum over l of stash_(g,l) under[l, c, g], c of stage i.

    It stands in (25) for the stash of a stage that has several chunks: those
    in flight may all be of the one with the largest stash.
    """
    if not k.cell.schedule.is_interleaved:
        return
    labels = _labels(k)
    model.stash = pyo.Var(list(labels), domain=pyo.NonNegativeReals)

    def largest_stash_rule(model: Any, chunk: int, stage: int, label: str) -> Any:
        option = labels[stage, label]
        held = sum(
            units.size(k.in_flight[stage] * k.stash_bytes[option][layer])
            * under(model, k, layer, chunk, option)
            for layer in layers_of(k, chunk)
        )
        return model.stash[stage, label] >= held

    chunks = [(chunk, *place) for place in labels for chunk in stage_chunks(k, place[0])]
    model.largest_stash = pyo.Constraint(chunks, rule=largest_stash_rule)


def add_memory(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (25): states + in flight * stash + work[i, g] <= (usable - reserve) mode[i, g].

    States are the sum over l of states_l under[l, i, g], stash is the sum over
    l of stash_(g,l) under[l, i, g], and work[i, g] >= work_(g,l) under[l, i, g]
    for each layer l. An option that is not chosen has neither layers nor memory.
    """
    labels = _labels(k)
    model.work = pyo.Var(list(labels), domain=pyo.NonNegativeReals)
    held = [
        (layer, chunk, label)
        for (stage, label), option in labels.items()
        for layer, chunk in stage_places(k, stage)
        if k.work_bytes[option][layer]
    ]

    def largest_work_rule(model: Any, layer: int, chunk: int, label: str) -> Any:
        stage = k.stage_of(chunk)
        option = labels[stage, label]
        size = units.size(k.work_bytes[option][layer])
        return model.work[stage, label] >= size * under(model, k, layer, chunk, option)

    def memory_rule(model: Any, stage: int, label: str) -> Any:
        option = labels[stage, label]
        states, stash = k.states_bytes[option.configuration], k.stash_bytes[option]
        # Of several chunks, the largest stash is held: (74).
        flight = 0 if k.cell.schedule.is_interleaved else k.in_flight[stage]
        used = sum(
            units.size(states[layer] + flight * stash[layer])
            * under(model, k, layer, chunk, option)
            for layer, chunk in stage_places(k, stage)
        )
        if k.cell.schedule.is_interleaved:
            used += model.stash[stage, label]
        room = units.size(k.free_bytes) * has_option(model, k, stage, option)
        return used + model.work[stage, label] <= room

    model.largest_work = pyo.Constraint(held, rule=largest_work_rule)
    model.memory = pyo.Constraint(list(labels), rule=memory_rule)


def forbid_overfull(
    model: Any, k: CellCoefficients, stage: int, chunks: Sequence[Sequence[int]], option: Option
) -> None:
    """Add a cover to (25): sum over l of under[l, c, g] <= number of layers - 1.

    The sum is over the layers of a stage's chunks, each in its chunk c, that are too
    large together by less than the solver can see. More layers only take more
    memory, so no legal placement is lost.
    """
    if model.component("cover") is None:
        model.cover = pyo.ConstraintList()
    places = [
        (layer, chunk)
        for chunk, layers in zip(stage_chunks(k, stage), chunks, strict=True)
        for layer in layers
    ]
    terms = sum(under(model, k, layer, chunk, option) for layer, chunk in places)
    model.cover.add(terms <= len(places) - 1)


def _labels(k: CellCoefficients) -> dict[tuple[int, str], Option]:
    """Return every stage's options by their names."""
    return {(i, o.label): o for i, options in enumerate(k.options) for o in options}
