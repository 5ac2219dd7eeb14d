"""Lower bounds of a cell in closed form: which cells need no program. No Pyomo here.

For each stage one maximal tuple of levels speaks, so every number is at most
what the stage really takes.
"""

from collections.abc import Mapping, Sequence

from nest_opt.cost.table import Row
from nest_opt.milp.cells import FreeCell
from nest_opt.milp.coefficients import CellCoefficients, LoadTerms, SyncTerms
from nest_opt.milp.index_sets import cuts_of, stages_of
from nest_opt.problem import Configuration


def bound_ps(k: CellCoefficients) -> int | None:
    """Return (34), a lower bound on the objective of every plan of a cell; None if none fits.

    Sum F is at least the least time of each layer over the stages that it can
    be in, plus two hops for each boundary at the best cut. Max F is at least
    an even share of that, and at least each layer's time with the hops of its
    stage.
    """
    if not may_fit(k):
        return None
    speakers = _speakers(k)
    times = [_least_times(k, speakers, stage) for stage in range(k.stages)]
    total = least_sum_ps(k)
    slowest = max(
        -(-total // k.stages),
        _least_slowest_ps(k, speakers, times),
        _least_share_ps(k, speakers),
    )
    return (
        k.weights.sum_weight * total
        + k.weights.max_weight * slowest
        + (_least_sync(k) if k.weights.sync else 0)
    )


def least_sum_ps(k: CellCoefficients) -> int:
    """Return a lower bound on sum F: each layer and each boundary at its best place."""
    speakers = _speakers(k)
    times = [_least_times(k, speakers, stage) for stage in range(k.stages)]
    return sum(
        min(times[stage][layer] for stage in stages_of(k, layer)) for layer in range(k.layers)
    ) + sum(_least_boundary(k, speakers, stage) for stage in range(k.stages - 1))


def most_slowest_ps(k: CellCoefficients, below_ps: int) -> int:
    """Return the most that max F can be in a plan of the cell of a value below a limit."""
    left = below_ps - 1 - (_least_sync(k) if k.weights.sync else 0)
    if not k.weights.max_weight:
        return left
    return (left - k.weights.sum_weight * least_sum_ps(k)) // k.weights.max_weight


def least_hops_ps(k: CellCoefficients, stage: int) -> int:
    """Return the least time of a stage's own hops."""
    return _least_hops(k, _speakers(k), stage)


def _speakers(k: CellCoefficients) -> list[LoadTerms]:
    """Return, for each stage, the tuple of levels that speaks for it."""
    return [max(stage, key=_weight) for stage in k.load]


def may_fit(k: CellCoefficients) -> bool:
    """Whether memory may suffice: each layer alone in some stage, and all in all stages."""

    def alone(layer: int, stage: int) -> int:
        return min(
            k.states_bytes[option.configuration][layer]
            + k.in_flight[stage] * k.stash_bytes[option][layer]
            + k.work_bytes[option][layer]
            for option in k.options[stage]
        )

    options = {option for stage in k.options for option in stage}
    everything = sum(
        min(
            k.states_bytes[option.configuration][layer]
            + min(k.in_flight) * k.stash_bytes[option][layer]
            for option in options
        )
        for layer in range(k.layers)
    )
    return everything <= k.stages * k.free_bytes and all(
        min(alone(layer, stage) for stage in stages_of(k, layer)) <= k.free_bytes
        for layer in range(k.layers)
    )


def _least_slowest_ps(k: CellCoefficients, speakers: list[LoadTerms], times: list[Row]) -> int:
    """Return a lower bound on max F: the largest layer, at its best place, with its hops."""
    hops = [_least_hops(k, speakers, stage) for stage in range(k.stages)]
    return max(
        min(times[stage][layer] + hops[stage] for stage in stages_of(k, layer))
        for layer in range(k.layers)
    )


def _least_share_ps(k: CellCoefficients, speakers: list[LoadTerms]) -> int:
    """Return a lower bound on max F where stages choose their sizes.

    All devices together have to do the work of every layer, a_k times its
    time in configuration k.
    """
    if not isinstance(k.cell, FreeCell):
        return 0
    work = sum(
        min(
            option.configuration.block_size * row[layer]
            for stage in stages_of(k, layer)
            for option, row in speakers[stage].layer_ps.items()
        )
        for layer in range(k.layers)
    )
    return -(-work * k.cell.replicas // k.devices)


def _least_times(k: CellCoefficients, speakers: list[LoadTerms], stage: int) -> Row:
    """Return the least time of each layer in a stage, over what that may choose."""
    rows = list(speakers[stage].layer_ps.values())
    return tuple(map(min, *rows)) if len(rows) > 1 else rows[0]


def _weight(terms: LoadTerms) -> int:
    """Return by what the tuple of levels that speaks for a stage is chosen."""
    plain = min(sum(row) for row in terms.layer_ps.values())
    hops = [*(terms.hop_in_ps or {}).values(), *(terms.hop_out_ps or {}).values()]
    return plain + sum(map(sum, hops))


def _least_hops(k: CellCoefficients, speakers: list[LoadTerms], stage: int) -> int:
    """Return the least time of a stage's own hops."""
    hop_in, hop_out = speakers[stage].hop_in_ps, speakers[stage].hop_out_ps
    return (0 if hop_in is None else _least_hop(hop_in, cuts_of(k, stage - 1))) + (
        0 if hop_out is None else _least_hop(hop_out, cuts_of(k, stage))
    )


def _least_hop(hop_ps: Mapping[Configuration, Row], cuts: Sequence[int]) -> int:
    return min(row[cut] for row in hop_ps.values() for cut in cuts)


def _least_boundary(k: CellCoefficients, speakers: list[LoadTerms], stage: int) -> int:
    """Return the least time of both hops over the boundary after a stage."""
    hop_out, hop_in = speakers[stage].hop_out_ps, speakers[stage + 1].hop_in_ps
    # Every boundary has a stage on either side.
    assert hop_out is not None
    assert hop_in is not None
    return min(
        min(row[cut] for row in hop_out.values()) + min(row[cut] for row in hop_in.values())
        for cut in cuts_of(k, stage)
    )


def _least_sync(k: CellCoefficients) -> int:
    """Return a lower bound on max X or max Y.

    The first stage has a layer that may be first and hides nothing. Under `nest` some
    stage has the layer of the most sync, and one an even share of all.
    """
    speakers = [max(stage, key=_sync_weight) for stage in k.sync]
    if k.stages == 1:
        return _sync_of(k, speakers[0], range(k.layers))
    if k.objective == "fill-drain":
        first = [0]
        if k.graph is not None:
            first = [layer for layer in range(k.layers) if not k.graph.ancestors[layer]]
        return min(_sync_of(k, speakers[0], [layer]) for layer in first)
    layers = range(k.layers)
    share = sum(
        min(row[lay] for s in stages_of(k, lay) for row in speakers[s].layer_ps.values())
        for lay in layers
    )
    single = max(
        min(_sync_of(k, speakers[stage], range(layer, layer + 1)) for stage in stages_of(k, layer))
        for layer in layers
    )
    return max(single, -(-share // k.stages))


def _sync_weight(terms: SyncTerms) -> int:
    return min(map(sum, terms.layer_ps.values()))


def _sync_of(k: CellCoefficients, terms: SyncTerms, layers: Sequence[int]) -> int:
    """Return Y of some layers, in the best configuration."""
    return min(
        sum(row[layer] for layer in layers)
        + sum(
            value
            for (name, holder), value in terms.fixed_ps.items()
            if holder == own and any(k.holds[name, own][layer] for layer in layers)
        )
        for own, row in terms.layer_ps.items()
    )
