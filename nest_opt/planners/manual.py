"""`manual`: the rules that engineers configure Megatron-LM by.

Source: Narayanan et al. 2021 (arXiv:2104.04473), section 3. Takeaway 1: tensor
parallelism up to the devices of a node, then pipeline parallelism. Takeaway 2:
so much of both that the model fits, and data parallelism for the rest.
Takeaway 3 and equation (1): the microbatch size of least (m + p - 1) (t_f + t_b).
With experts, the guidelines of Megatron-Core (`megatron/core/transformer/moe/README.md`):
tp and ep inside a node, and ep rather than tp. Rank order: its default, tp, cp,
ep, dp, then pp (`megatron/core/parallel_state.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from nest_opt.cost.schedule import in_flight
from nest_opt.cost.table import row_times
from nest_opt.planners.protocol import Outcome
from nest_opt.planners.stage_times import block_levels
from nest_opt.planners.trials import Degrees, Trial, Trials, outcome
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.profile import Recompute


class _Recipe(NamedTuple):
    """What the rules give for one microbatch size; recipes compare by the estimate."""

    estimate_ps: int
    degrees: Degrees
    ends: tuple[int, ...]
    mode: Recompute


@dataclass(frozen=True)
class ManualPlanner:
    """Megatron's rules, for each microbatch size; the best estimate that is legal."""

    name: str = "manual"

    def plan(self, problem: Problem) -> Outcome:
        """Return the plan of the rules."""
        return outcome(self.name, problem, manual_trial)


def manual_trial(trials: Trials) -> Trial | str | None:
    """Return the legal plan of best estimate, a reason, or None where no plan is legal."""
    sizes = sorted({degrees.microbatch for degrees in trials.plain_degrees})
    recipes = [recipe for size in sizes if (recipe := _recipe(trials, size))]
    if not recipes:
        return "no tp inside a node and number of equal stages makes the model fit"
    for recipe in sorted(recipes):
        stages = len(recipe.ends)
        device_map = trials.map(recipe.degrees, stages, "dp-inner")
        if device_map is not None:
            modes = (recipe.mode,) * stages
            trial = trials.attempt(recipe.degrees, device_map, recipe.ends, modes)
            if trial:
                return trial
    return None


def equal_ends(layer_rows: tuple[int, ...], stages: int) -> tuple[int, ...] | None:
    """Return stage ends with equally many blocks a stage, None where S does not divide them.

    A first and a last layer that are like no other, such as embedding and
    head, go with the first and the last stage on top.
    """
    n = len(layer_rows)
    first = int(n > 2 and layer_rows.count(layer_rows[0]) == 1)
    last = int(n > 2 and layer_rows.count(layer_rows[-1]) == 1)
    blocks = n - first - last
    if blocks % stages:
        return None
    inner = [first + blocks // stages * stage for stage in range(1, stages)]
    return (*inner, n)


def _recipe(trials: Trials, microbatch: int) -> _Recipe | None:
    """Return the least model parallelism that fits, None if none does.

    Megatron-LM runs on all the devices that it is given: what leaves some idle
    comes last.
    """
    for idle_allowed in (False, True):
        for configuration, stages in _model_parallel(trials, microbatch):
            ends = equal_ends(trials.costs.table.layer_rows, stages)
            degrees = _most_replicas(trials, (microbatch, configuration), stages, idle_allowed)
            if ends is None or degrees is None:
                continue
            mode = _common_mode(trials, degrees, ends)
            if mode is not None:
                return _Recipe(_estimate(trials, degrees, ends, mode), degrees, ends, mode)
    return None


def _most_replicas(
    trials: Trials, pair: tuple[int, Configuration], stages: int, idle_allowed: bool
) -> Degrees | None:
    """Return the degrees of most replicas for so many stages; None if these leave some idle."""
    legal = [d for d in trials.plain_degrees if d.pair == pair and trials.most_stages(d) >= stages]
    most = max(legal, key=lambda degrees: degrees.replicas, default=None)
    if most is None or idle_allowed:
        return most
    used = most.replicas * stages * most.configuration.block_size
    return most if used == trials.problem.cluster.device_count else None


def _model_parallel(trials: Trials, microbatch: int) -> Iterator[tuple[Configuration, int]]:
    """Yield configurations and S in the order of the rules: tp inside a node, then stages."""
    by_tp = {
        tp: _of_tp(trials, microbatch, tp)
        for tp in sorted({d.configuration.tp for d in trials.plain_degrees})
    }
    inside = [k for k in by_tp.values() if k is not None]
    asked = trials.problem.search.pp
    counts = [s for s in range(1, trials.layers + 1) if asked is None or s in asked]
    if not inside or not counts:
        return
    if trials.problem.has_experts:
        # The least tp leaves most of the node to ep.
        inside = inside[:1]
    yield from ((configuration, counts[0]) for configuration in inside)
    yield from ((inside[-1], stages) for stages in counts[1:])


def _of_tp(trials: Trials, microbatch: int, tp: int) -> Configuration | None:
    """Return the configuration for a tp: least cp, most ep inside a node, sp if tp > 1."""
    known = [
        k
        for b, k in sorted(trials.costs.table.replicas)
        if b == microbatch and k.tp == tp and k.tp * k.cp <= trials.node_size
    ]
    if not known:
        return None

    def preference(k: Configuration) -> tuple[int, int, bool]:
        inside = k.block_size <= trials.node_size
        return -k.cp, k.ep if inside else -k.ep, k.sp == (tp > 1)

    return max(known, key=preference)


def _common_mode(trials: Trials, degrees: Degrees, ends: tuple[int, ...]) -> Recompute | None:
    """Return the mode of least time that fits all stages, None if none does."""
    memory, rounds = trials.memory(degrees), trials.rounds(degrees)
    for mode in memory.modes:
        if all(
            memory.fits(mode, in_flight(degrees.schedule, stage, len(ends), rounds))[low, high]
            for stage, (low, high) in enumerate(zip((0, *ends), ends, strict=False))
        ):
            return mode
    return None


def _estimate(trials: Trials, degrees: Degrees, ends: tuple[int, ...], mode: Recompute) -> int:
    """Return (m + p - 1) (t_f + t_b), of the slowest stage, without what stages exchange."""
    table = trials.costs.table
    rows = row_times(
        table.pairs[degrees.pair], degrees.configuration, block_levels(trials, degrees)
    )
    slowest = max(
        sum(rows[mode][row] for row in table.layer_rows[low:high])
        for low, high in zip((0, *ends), ends, strict=False)
    )
    return (trials.rounds(degrees) + len(ends) - 1) * slowest
