"""Lower bounds of a cell in closed form: which cells need no program. No Pyomo here.

For each stage one maximal tuple of levels speaks, so every number is at most
what the stage really takes.
"""

from nest_opt.milp.coefficients import CellCoefficients, LoadTerms, SyncTerms
from nest_opt.milp.index_sets import cuts_of, stages_of


def bound_ps(k: CellCoefficients) -> int | None:
    """Return (34), a lower bound on the objective of every plan of a cell; None if none fits.

    Sum F is at least the least time of each layer over the stages that it can
    be in, plus two hops for each boundary at the best cut. Max F is at least
    an even share of that, and at least each layer's time with the hops of its
    stage.
    """
    if not may_fit(k):
        return None
    speakers = [max(stage, key=_weight) for stage in k.load]
    total = sum(
        min(speakers[stage].layer_ps[k.modes[0]][layer] for stage in stages_of(k, layer))
        for layer in range(k.layers)
    ) + sum(_least_boundary(k, speakers, stage) for stage in range(k.stages - 1))
    slowest = max(-(-total // k.stages), least_slowest_ps(k, speakers))
    return (
        k.weights.sum_weight * total
        + k.weights.max_weight * slowest
        + (_least_sync(k) if k.weights.sync else 0)
    )


def may_fit(k: CellCoefficients) -> bool:
    """Whether memory may suffice: each layer alone in some stage, and all in all stages."""

    def alone(layer: int, stage: int) -> int:
        return k.states_bytes[layer] + min(
            k.in_flight[stage] * k.stash_bytes[mode][layer] + k.work_bytes[mode][layer]
            for mode in k.modes
        )

    everything = sum(
        k.states_bytes[layer]
        + min(k.in_flight) * min(k.stash_bytes[mode][layer] for mode in k.modes)
        for layer in range(k.layers)
    )
    return everything <= k.stages * k.free_bytes and all(
        min(alone(layer, stage) for stage in stages_of(k, layer)) <= k.free_bytes
        for layer in range(k.layers)
    )


def least_slowest_ps(k: CellCoefficients, speakers: list[LoadTerms] | None = None) -> int:
    """Return a lower bound on max F: the largest layer, at its best place, with its hops."""
    speakers = speakers or [max(stage, key=_weight) for stage in k.load]
    hops = [_least_hops(k, speakers, stage) for stage in range(k.stages)]
    return max(
        min(
            speakers[stage].layer_ps[k.modes[0]][layer] + hops[stage]
            for stage in stages_of(k, layer)
        )
        for layer in range(k.layers)
    )


def _weight(terms: LoadTerms) -> int:
    """Return by what the tuple of levels that speaks for a stage is chosen."""
    plain = min(sum(row) for row in terms.layer_ps.values())
    return plain + sum(terms.hop_in_ps or ()) + sum(terms.hop_out_ps or ())


def _least_hops(k: CellCoefficients, speakers: list[LoadTerms], stage: int) -> int:
    """Return the least time of a stage's own hops."""
    hop_in, hop_out = speakers[stage].hop_in_ps, speakers[stage].hop_out_ps
    return (0 if hop_in is None else min(hop_in[c] for c in cuts_of(k, stage - 1))) + (
        0 if hop_out is None else min(hop_out[c] for c in cuts_of(k, stage))
    )


def _least_boundary(k: CellCoefficients, speakers: list[LoadTerms], stage: int) -> int:
    """Return the least time of both hops over the boundary after a stage."""
    hop_out, hop_in = speakers[stage].hop_out_ps, speakers[stage + 1].hop_in_ps
    # Every boundary has a stage on either side.
    assert hop_out is not None
    assert hop_in is not None
    return min(hop_out[cut] + hop_in[cut] for cut in cuts_of(k, stage))


def _least_sync(k: CellCoefficients) -> int:
    """Return a lower bound on max X or max Y.

    The first stage has the first layer and hides nothing. Under `nest` some
    stage has the layer of the most sync, and one an even share of all.
    """
    speakers = [max(stage, key=lambda terms: sum(terms.layer_ps)) for stage in k.sync]
    if k.stages == 1:
        return _sync_of(k, speakers[0], range(k.layers))
    if k.objective == "fill-drain":
        return _sync_of(k, speakers[0], range(1))
    layers = range(k.layers)
    share = sum(min(speakers[s].layer_ps[lay] for s in stages_of(k, lay)) for lay in layers)
    single = max(
        min(_sync_of(k, speakers[stage], range(layer, layer + 1)) for stage in stages_of(k, layer))
        for layer in layers
    )
    return max(single, -(-share // k.stages))


def _sync_of(k: CellCoefficients, terms: SyncTerms, layers: range) -> int:
    """Return Y of a run of layers."""
    fixed = sum(
        value
        for name, value in terms.fixed_ps.items()
        if any(k.holds[name][layer] for layer in layers)
    )
    return fixed + sum(terms.layer_ps[layer] for layer in layers)
