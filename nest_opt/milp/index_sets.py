"""Index sets: where layers and boundaries can be when no chunk is empty. No Pyomo here.

A chunk is one interval of layers; with one chunk a stage, stage i is chunk i.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from nest_opt.cost.cuts import GraphCuts
from nest_opt.milp.coefficients import CellCoefficients


def chunks_of(k: CellCoefficients, layer: int) -> range:
    """Return the chunks that a layer can be in when no chunk is empty.

    Those before it and those after it need a layer each. In any order all may
    be before it but those that must come after it, and the other way round.
    """
    before, after = layer, k.layers - 1 - layer
    if k.graph is not None:
        before = k.layers - 1 - k.graph.descendants[layer].bit_count()
        after = k.layers - 1 - k.graph.ancestors[layer].bit_count()
    return range(max(0, k.chunks - 1 - after), min(before, k.chunks - 1) + 1)


def layers_of(k: CellCoefficients, chunk: int) -> Sequence[int]:
    """Return the layers that a chunk can have when no chunk is empty."""
    if k.graph is None:
        return interval_of(k, chunk)
    return [layer for layer in range(k.layers) if chunk in chunks_of(k, layer)]


def interval_of(k: CellCoefficients, chunk: int) -> range:
    """Return the layers that a chunk can have in the listed order."""
    return range(chunk, k.layers - k.chunks + chunk + 1)


def stage_chunks(k: CellCoefficients, stage: int) -> range:
    """Return the chunks of a stage: every S-th one."""
    return range(stage, k.chunks, k.stages)


def stage_places(k: CellCoefficients, stage: int) -> Iterator[tuple[int, int]]:
    """Yield every possible (layer, chunk) of a stage."""
    return ((layer, chunk) for chunk in stage_chunks(k, stage) for layer in layers_of(k, chunk))


def layer_pairs(k: CellCoefficients) -> Iterator[tuple[int, int]]:
    """Yield every (layer, chunk) that is possible."""
    return ((layer, chunk) for layer in range(k.layers) for chunk in chunks_of(k, layer))


def open_pairs(k: CellCoefficients) -> Iterator[tuple[int, int]]:
    """Yield every (layer, chunk) whose C is not settled: each possible chunk but the last."""
    return ((layer, chunk) for layer in range(k.layers) for chunk in chunks_of(k, layer)[:-1])


def cuts_of(k: CellCoefficients, chunk: int) -> Sequence[int]:
    """Return the cuts at which a chunk can end."""
    if k.graph is None:
        layers = interval_of(k, chunk)
        return range(layers.start + 1, layers.stop + 1)
    return _downsets_of(k.graph, k.chunks)[chunk]


def cut_pairs(k: CellCoefficients) -> Iterator[tuple[int, int]]:
    """Yield every possible (cut, chunk) of the chunks that have a next one."""
    return ((cut, chunk) for chunk in range(k.chunks - 1) for cut in cuts_of(k, chunk))


@lru_cache(maxsize=64)
def _downsets_of(graph: GraphCuts, stages: int) -> tuple[tuple[int, ...], ...]:
    """Return, for each of S stages, the downsets at which it can end.

    They leave a layer for each stage before them and after them, and have
    what no later stage can have.
    """
    found = []
    for stage in range(stages):
        earliest = [above.bit_count() + stages - graph.layers for above in graph.ancestors]
        latest = [graph.layers - 1 - below.bit_count() for below in graph.descendants]
        must = sum(1 << layer for layer, most in enumerate(latest) if most <= stage)
        may = sum(1 << layer for layer, least in enumerate(earliest) if least <= stage)
        found.append(
            tuple(
                number
                for number, cut in enumerate(graph.cuts)
                if stage < cut.bit_count() <= graph.layers - (stages - 1 - stage)
                and not must & ~cut
                and not cut & ~may
            )
        )
    return tuple(found)
