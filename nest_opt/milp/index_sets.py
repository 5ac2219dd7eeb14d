"""Index sets: where layers and boundaries can be when no chunk is empty. No Pyomo here.

A chunk is one interval of layers; with one chunk a stage, stage i is chunk i.
"""

from collections.abc import Iterator

from nest_opt.milp.coefficients import CellCoefficients


def chunks_of(k: CellCoefficients, layer: int) -> range:
    """Return the chunks that a layer can be in when no chunk is empty."""
    return range(max(0, k.chunks - k.layers + layer), min(layer, k.chunks - 1) + 1)


def layers_of(k: CellCoefficients, chunk: int) -> range:
    """Return the layers that a chunk can have when no chunk is empty."""
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


def cuts_of(k: CellCoefficients, chunk: int) -> range:
    """Return the cuts at which a chunk can end: right after each layer that it can have."""
    layers = layers_of(k, chunk)
    return range(layers.start + 1, layers.stop + 1)


def cut_pairs(k: CellCoefficients) -> Iterator[tuple[int, int]]:
    """Yield every possible (cut, chunk) of the chunks that have a next one."""
    return ((cut, chunk) for chunk in range(k.chunks - 1) for cut in cuts_of(k, chunk))
