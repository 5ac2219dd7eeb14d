"""Lower bounds of a cell in closed form: which cells need no program. No Pyomo here.

For each stage one maximal tuple of levels speaks, so every number is at most
what the stage really takes.
"""

from collections.abc import Mapping, Sequence

from nest_opt.cost.table import Row
from nest_opt.milp.cells import FreeCell
from nest_opt.milp.coefficients import CellCoefficients, LoadTerms, SyncTerms
from nest_opt.milp.index_sets import chunks_of, cuts_of, stage_chunks
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
    times = [_least_times(speakers, stage) for stage in range(k.stages)]
    total = least_sum_ps(k)
    slowest = max(
        -(-total // k.stages),
        _least_slowest_ps(k, speakers, times),
        _least_share_ps(k, speakers),
    )
    if k.has_fill:
        pipeline = _least_filled(k, total, slowest)
    else:
        pipeline = k.weights.sum_weight * total + k.weights.max_weight * slowest
    return k.weights.whole_ps(pipeline) + (_least_sync(k) if k.weights.sync else 0)


def least_sum_ps(k: CellCoefficients) -> int:
    """Return a lower bound on sum F: each layer and each boundary at its best place."""
    return _least_sum(k, _speakers(k), hidden=0)


def least_fill_ps(k: CellCoefficients) -> int:
    """Return a lower bound on the sum of fills, where a fill is what W leaves of F: (72)."""
    return max(0, _least_sum(k, _speakers(k), k.weights.hidden_weight))


def most_slowest_ps(k: CellCoefficients, below_ps: int) -> int:
    """Return the most that max F can be in a plan of the cell of a value below a limit."""
    weights = k.weights
    left = below_ps - 1 - (_least_sync(k) if weights.sync else 0)
    if k.has_fill:
        most = left // weights.round_weight
        rest = weights.round_weight - weights.sum_weight
        if weights.sum_weight and rest:
            most = min(most, (left - least_fill_ps(k)) // rest)
        return most
    if not weights.max_weight:
        return left
    left = left * weights.chunks - weights.sum_weight * least_sum_ps(k)
    return left // weights.max_weight


def _least_filled(k: CellCoefficients, total: int, slowest: int) -> int:
    """Return a lower bound on w_sum * sum f + max L with (72).

    Under `fill-drain` that is, for each stage k, m F_k + the fills of the
    others, so at least m F_k; with f_k <= F_k, at least sum f + (m - 1) F_k;
    and at least the mean over k. Under `nest` it is m F_k + (S - 1) f_k for
    each stage k, and so at least the mean.
    """
    weights, fills = k.weights, least_fill_ps(k)
    rounds = weights.round_weight
    if not weights.sum_weight:
        mean = rounds * total + weights.fill_weight * fills
        return max(rounds * slowest, -(-mean // k.stages))
    mean = rounds * total + (k.stages - 1) * fills
    return max(rounds * slowest, (rounds - 1) * slowest + fills, -(-mean // k.stages))


def _least_sum(k: CellCoefficients, speakers: list[LoadTerms], hidden: int) -> int:
    """Return a lower bound on the sum over stages of F - hidden * W."""
    times = [
        _least_times(speakers, stage, hidden, k.weight_gradient_ps) for stage in range(k.stages)
    ]
    return sum(
        min(times[k.stage_of(chunk)][layer] for chunk in chunks_of(k, layer))
        for layer in range(k.layers)
    ) + sum(_least_boundary(k, speakers, chunk) for chunk in range(k.chunks - 1))


def least_hops_ps(k: CellCoefficients, stage: int) -> int:
    """Return the least time of a stage's own hops."""
    return _least_hops(k, _speakers(k), stage)


def _speakers(k: CellCoefficients) -> list[LoadTerms]:
    """Return, for each stage, the tuple of levels that speaks for it."""
    return [max(stage, key=_weight) for stage in k.load]


def may_fit(k: CellCoefficients) -> bool:
    """Whether memory may suffice: each layer alone in some stage, and all in all stages.

    The largest stash of a stage's v chunks is at least a v-th of them all.
    """
    v = k.cell.schedule.chunks

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
            v * k.states_bytes[option.configuration][layer]
            + min(k.in_flight) * k.stash_bytes[option][layer]
            for option in options
        )
        for layer in range(k.layers)
    )
    return everything <= k.chunks * k.free_bytes and all(
        min(alone(layer, k.stage_of(chunk)) for chunk in chunks_of(k, layer)) <= k.free_bytes
        for layer in range(k.layers)
    )


def _least_slowest_ps(k: CellCoefficients, speakers: list[LoadTerms], times: list[Row]) -> int:
    """Return a lower bound on max F: the largest layer, at its best place, with its hops."""
    hops = [_least_hops(k, speakers, stage) for stage in range(k.stages)]
    return max(
        min(times[stage][layer] + hops[stage] for stage in map(k.stage_of, chunks_of(k, layer)))
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
            for chunk in chunks_of(k, layer)
            for option, row in speakers[k.stage_of(chunk)].layer_ps.items()
        )
        for layer in range(k.layers)
    )
    return -(-work * k.cell.replicas // k.devices)


def _least_times(
    speakers: list[LoadTerms],
    stage: int,
    hidden: int = 0,
    weight_gradient_ps: Mapping[Configuration, Row] | None = None,
) -> Row:
    """Return the least time of each layer in a stage, over what that may choose.

    Some multiple of the time of its weights' gradients is taken off.
    """
    rows = list(speakers[stage].layer_ps.values())
    if hidden and weight_gradient_ps:
        rows = [
            tuple(
                time - hidden * part
                for time, part in zip(row, weight_gradient_ps[option.configuration], strict=True)
            )
            for option, row in speakers[stage].layer_ps.items()
        ]
    return tuple(map(min, *rows)) if len(rows) > 1 else rows[0]


def _weight(terms: LoadTerms) -> int:
    """Return by what the tuple of levels that speaks for a stage is chosen."""
    plain = min(sum(row) for row in terms.layer_ps.values())
    hops = [*(terms.hop_in_ps or {}).values(), *(terms.hop_out_ps or {}).values()]
    return plain + sum(map(sum, hops))


def _least_hops(k: CellCoefficients, speakers: list[LoadTerms], stage: int) -> int:
    """Return the least time of a stage's own hops, of all its chunks."""
    hop_in, hop_out = speakers[stage].hop_in_ps, speakers[stage].hop_out_ps
    total = 0
    for chunk in stage_chunks(k, stage):
        if hop_in is not None and chunk > 0:
            total += _least_hop(hop_in, cuts_of(k, chunk - 1))
        if hop_out is not None and chunk + 1 < k.chunks:
            total += _least_hop(hop_out, cuts_of(k, chunk))
    return total


def _least_hop(hop_ps: Mapping[Configuration, Row], cuts: Sequence[int]) -> int:
    return min(row[cut] for row in hop_ps.values() for cut in cuts)


def _least_boundary(k: CellCoefficients, speakers: list[LoadTerms], chunk: int) -> int:
    """Return the least time of both hops over the boundary after a chunk."""
    hop_out = speakers[k.stage_of(chunk)].hop_out_ps
    hop_in = speakers[k.stage_of(chunk + 1)].hop_in_ps
    # Every boundary has a stage on either side.
    assert hop_out is not None
    assert hop_in is not None
    return min(
        min(row[cut] for row in hop_out.values()) + min(row[cut] for row in hop_in.values())
        for cut in cuts_of(k, chunk)
    )


def _least_sync(k: CellCoefficients) -> int:
    """Return a lower bound on max X or max Y.

    The first stage has a layer that may be first and hides nothing. Where no stage hides
    any, some one has the layer of the most sync, and one an even share of all.
    Ends pay for tied gradients besides.
    """
    speakers = [max(stage, key=_sync_weight) for stage in k.sync]
    if k.stages == 1:
        return _sync_of(k, speakers[0], range(k.layers))
    if k.hides_sync:
        first = [0]
        if k.graph is not None:
            first = [layer for layer in range(k.layers) if not k.graph.ancestors[layer]]
        return min(_sync_of(k, speakers[0], [layer]) for layer in first) + k.exchange_ps
    layers = range(k.layers)
    share = sum(
        min(
            row[lay]
            for chunk in chunks_of(k, lay)
            for row in speakers[k.stage_of(chunk)].layer_ps.values()
        )
        for lay in layers
    )
    single = max(
        min(
            _sync_of(k, speakers[k.stage_of(chunk)], range(layer, layer + 1))
            for chunk in chunks_of(k, layer)
        )
        for layer in layers
    )
    ends = max(
        _sync_of(k, speakers[0], layers[:1]),
        _sync_of(k, speakers[-1], layers[-1:]),
    )
    return max(single, -(-share // k.stages), ends + k.exchange_ps)


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
