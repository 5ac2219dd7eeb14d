"""The fewest devices, and the least bytes, of pipelines whose stages may differ, by S.

Stages are placed from the last one on. Pipelines whose last stages must hold
the same layers and hold as many stashes share them: where nothing is pinned, one pass
serves all S under 1F1B and GPipe.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from nest_opt.dp.chain import INFINITE, Array, suffix_start
from nest_opt.dp.cuts import Held, with_held
from nest_opt.dp.staged_chain import extend
from nest_opt.dp.staged_source import StagedGroup, StagedSource, may_neighbour
from nest_opt.problem import Configuration

# Values of the last stages from each layer on, by the configuration of the front one.
_Suffixes: TypeAlias = dict[Configuration, Array]
# What a stage's bytes depend on: its stashes in flight, and the layers that it must hold.
_Needs: TypeAlias = tuple[int, Held]
# Places a stage before others: its number from the end, and its needs.
_Place: TypeAlias = Callable[[_Suffixes, int, _Needs], _Suffixes]


def fewest_devices(
    source: StagedSource, group: StagedGroup, cap_bytes: int, most_devices: int
) -> Iterator[tuple[int, int]]:
    """Yield each S above 1 with which a replica fits, and the fewest devices of that replica.

    Parameters
    ----------
    source, group
        A class and d; its S does not matter.
    cap_bytes
        What no stage may need more of.
    most_devices
        Of a replica.
    """
    found: dict[int, int] = {}
    for tp in _tps_of_ends(source):
        for stages, devices in _fewest_devices(source, group, cap_bytes, most_devices, tp):
            found[stages] = min(devices, found.get(stages, INFINITE))
    yield from found.items()


def _tps_of_ends(source: StagedSource) -> list[int | None]:
    """Return each tp that first and last stage may have in common, None where any will do."""
    return [None] if source.tied_tps is None else [*source.tied_tps]


def _fewest_devices(
    source: StagedSource,
    group: StagedGroup,
    cap_bytes: int,
    most_devices: int,
    ends_tp: int | None,
) -> Iterator[tuple[int, int]]:
    """Yield the same for first and last stages of one tp."""
    of = group.stage_class

    def least(suffixes: _Suffixes, k: Configuration, cost: Array) -> Array:
        fits = np.where(cost <= cap_bytes, _behind(suffixes, k), INFINITE)
        devices = fits.min(axis=-1) + k.block_size
        return np.where(devices <= most_devices, devices, INFINITE)

    def place(suffixes: _Suffixes, count: int, needs: _Needs) -> _Suffixes:
        costs = _costs(source, group, needs, ends_tp if count == 1 else None)
        return {k: least(suffixes, k, cost) for k, cost in costs}

    most = min(source.layers, most_devices // of.least)
    allowed = [
        stages for stages in range(2, most + 1) if source.allows(replace(group, stages=stages))
    ]
    start = dict.fromkeys(of.configurations, suffix_start(source.layers))
    for stages, first, suffixes in _pipelines(source, group, allowed, start, place):
        costs = _costs(source, group, first, ends_tp)
        devices = min(int(least(suffixes, k, cost[:1])[0]) for k, cost in costs)
        if devices < INFINITE:
            yield stages, devices


def may_fit(source: StagedSource) -> bool:
    """Whether some stages fit the memory and the devices, wherever these are."""
    return any(
        True
        for group in source.memory_groups()
        for _ in fewest_devices(
            source, group, source.usable_bytes, source.devices // group.replicas
        )
    )


def least_bytes(
    source: StagedSource,
    group: StagedGroup,
    allowed: Sequence[int],
    cap_bytes: int,
    most_devices: int,
) -> Iterator[tuple[int, Array]]:
    """Yield, for each S allowed, the least bytes of the heaviest stage by devices of a replica.

    Bytes above the cap are as good as infinite; S for which all are need not be among these.
    """
    found: dict[int, Array] = {}
    for tp in _tps_of_ends(source):
        for stages, need in _least_bytes(source, group, allowed, cap_bytes, most_devices, tp):
            found[stages] = np.minimum(need, found[stages]) if stages in found else need
    yield from found.items()


def _least_bytes(
    source: StagedSource,
    group: StagedGroup,
    allowed: Sequence[int],
    cap_bytes: int,
    most_devices: int,
    ends_tp: int | None,
) -> Iterator[tuple[int, Array]]:
    """Yield the same for first and last stages of one tp."""
    of = group.stage_class
    rows = most_devices + 1

    def place(suffixes: _Suffixes, count: int, needs: _Needs) -> _Suffixes:
        longer = {}
        for k, cost in _costs(source, group, needs, ends_tp if count == 1 else None):
            longer[k] = np.full((rows, source.layers + 1), INFINITE)
            behind, used = _used(_behind(suffixes, k), k.block_size)
            if len(used):
                kept = np.where(cost <= cap_bytes, cost, INFINITE)
                longer[k][used + k.block_size] = extend(kept, behind, np.maximum)
        return longer

    nothing = np.full((rows, source.layers + 1), INFINITE)
    nothing[0] = suffix_start(source.layers)
    start = dict.fromkeys(of.configurations, nothing)
    for stages, first, suffixes in _pipelines(source, group, allowed, start, place):
        whole = np.full(rows, INFINITE)
        for k, cost in _costs(source, group, first, ends_tp):
            behind, used = _used(_behind(suffixes, k), k.block_size)
            need = np.maximum(cost[0], behind).min(axis=1, initial=INFINITE)
            need = np.where(need <= cap_bytes, need, INFINITE)
            whole[used + k.block_size] = np.minimum(whole[used + k.block_size], need)
        yield stages, whole


def _costs(
    source: StagedSource, group: StagedGroup, needs: _Needs, tp: int | None
) -> Iterator[tuple[Configuration, Array]]:
    """Yield the least bytes of every interval as a stage of such needs, under each k.

    They are infinite under a k of another tp than the one that the stage must have.
    """
    flight, held = needs
    for k in group.stage_class.configurations:
        used = source.memory(group, k, flight)
        yield k, with_held(used, held) if tp in (None, k.tp) else np.full_like(used, INFINITE)


def _behind(suffixes: _Suffixes, k: Configuration) -> Array:
    """Return the least values of the stages after one of configuration k."""
    near = [suffix for other, suffix in suffixes.items() if may_neighbour(k, other)]
    found: Array = np.minimum.reduce(near)
    return found


def _used(suffix: Array, size: int) -> tuple[Array, Array]:
    """Return the rows that leave room for a block and lead anywhere, and their numbers."""
    kept = suffix[: max(0, len(suffix) - size)]
    rows = np.flatnonzero((kept < INFINITE).any(axis=1))
    return kept[rows], rows


def _pipelines(
    source: StagedSource,
    group: StagedGroup,
    allowed: Sequence[int],
    start: _Suffixes,
    place: _Place,
) -> Iterator[tuple[int, _Needs, _Suffixes]]:
    """Yield each S with the needs of its first stage, and all stages after that.

    Of the stages that the next S shares the front is kept, and no more: they
    are many, and large.
    """
    needs = [
        list(zip(replace(group, stages=stages).flights, source.held_by(stages), strict=True))[::-1]
        for stages in allowed
    ]
    kept: list[_Needs] = []
    known = start
    for stages, here, after in zip(allowed, needs, [*needs[1:], []], strict=False):
        if here[: len(kept)] != kept:
            kept, known = [], start
        *inside, first = here
        shared = _alike(inside, after[:-1])
        suffixes = known
        for count in range(len(kept) + 1, stages):
            if not _leads_anywhere(suffixes):
                break
            suffixes = place(suffixes, count, inside[count - 1])
            if count <= shared:
                kept, known = inside[:count], suffixes
        if _leads_anywhere(suffixes):
            yield stages, first, suffixes


def _alike(first: Sequence[_Needs], second: Sequence[_Needs]) -> int:
    """Return how long the common beginning is."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))


def _leads_anywhere(suffixes: _Suffixes) -> bool:
    return any((suffix < INFINITE).any() for suffix in suffixes.values())
