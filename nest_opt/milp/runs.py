"""Family: the layers that one stage can have. Equation (59)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.bounds import least_hops_ps
from nest_opt.milp.coefficients import CellCoefficients, Option
from nest_opt.milp.index_sets import interval_of
from nest_opt.milp.options import has_option, under
from nest_opt.milp.units import Units

# First layer, and one past the last.
Run = tuple[int, int]


def add_runs(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (59): sum over l of under[l, i, g] <= longest * mode[i, g].

    longest is the number of layers of the longest run that fits the memory
    of stage i and, at the least levels, the most that F may be in a plan that
    is better than the incumbent. Layers are whole, which (25) does not see.
    """
    model.run_length = pyo.ConstraintList()
    for (stage, option), runs in longest_runs(k).items():
        layers = interval_of(k, stage)
        longest = max((high - low for low, high in runs), default=0)
        if longest < len(layers):
            held = sum(under(model, k, layer, stage, option) for layer in layers)
            model.run_length.add(held <= longest * has_option(model, k, stage, option))


def longest_runs(k: CellCoefficients) -> dict[tuple[int, Option], list[Run]]:
    """Return, per stage and option, the runs of layers that fit and are in no longer one."""
    return {
        (stage, option): list(_longest(k, stage, option))
        for stage in range(k.stages)
        for option in k.options[stage]
    }


def without_dominated(k: CellCoefficients) -> CellCoefficients:
    """Return coefficients without options that recompute what fits without.

    Recomputation costs time and saves memory, nothing else: where each run
    that it makes possible fits under `none` as well, no plan needs it.
    """
    runs = longest_runs(k)

    def is_needed(stage: int, option: Option) -> bool:
        if option.mode == "none":
            return True
        plain = [o for o in k.options[stage]
                 if (o.configuration, o.mode) == (option.configuration, "none")]  # fmt: skip
        wider = [run for o in plain for run in runs[stage, o]]
        return not plain or not all(
            any(low <= first and last <= high for low, high in wider)
            for first, last in runs[stage, option]
        )

    needed = tuple(
        tuple(option for option in options if is_needed(stage, option))
        for stage, options in enumerate(k.options)
    )
    return replace(k, options=needed)


def _longest(k: CellCoefficients, stage: int, option: Option) -> Iterator[Run]:
    """Yield for each first layer the longest run that fits, where it is no part of the last one."""
    states = k.states_bytes[option.configuration]
    flight, stash, work = k.in_flight[stage], k.stash_bytes[option], k.work_bytes[option]
    (terms,) = k.load[stage]
    time, hops = terms.layer_ps[option], least_hops_ps(k, stage)
    layers, last = interval_of(k, stage), 0
    for low in layers:
        used = largest = 0
        taken, high = hops, low
        while high < layers.stop:
            used += states[high] + flight * stash[high]
            largest, taken = max(largest, work[high]), taken + time[high]
            if used + largest > k.free_bytes or (k.most_ps is not None and taken > k.most_ps):
                break
            high += 1
        if high > max(low, last):
            last = high
            yield low, high
