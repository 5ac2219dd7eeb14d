"""Index sets: where layers and boundaries can be when no stage is empty. No Pyomo here."""

from collections.abc import Iterator

from nest_opt.milp.coefficients import CellCoefficients


def stages_of(k: CellCoefficients, layer: int) -> range:
    """Return the stages that a layer can be in when no stage is empty."""
    return range(max(0, k.stages - k.layers + layer), min(layer, k.stages - 1) + 1)


def layers_of(k: CellCoefficients, stage: int) -> range:
    """Return the layers that a stage can have when no stage is empty."""
    return range(stage, k.layers - k.stages + stage + 1)


def stage_pairs(k: CellCoefficients) -> Iterator[tuple[int, int]]:
    """Yield every (layer, stage) that is possible."""
    return ((layer, stage) for layer in range(k.layers) for stage in stages_of(k, layer))


def open_pairs(k: CellCoefficients) -> Iterator[tuple[int, int]]:
    """Yield every (layer, stage) whose C is not settled: each possible stage but the last."""
    return ((layer, stage) for layer in range(k.layers) for stage in stages_of(k, layer)[:-1])


def cuts_of(k: CellCoefficients, stage: int) -> range:
    """Return the cuts at which a stage can end: right after each layer that it can have."""
    layers = layers_of(k, stage)
    return range(layers.start + 1, layers.stop + 1)


def cut_pairs(k: CellCoefficients) -> Iterator[tuple[int, int]]:
    """Yield every possible (cut, stage) of the stages that have a next one."""
    return ((cut, stage) for stage in range(k.stages - 1) for cut in cuts_of(k, stage))
