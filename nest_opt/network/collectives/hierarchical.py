"""Level by level: what leaves a node is each device's share alone."""

from fractions import Fraction

from nest_opt.network.collectives.shape import PASSES, Collective, Shape, Spread, uniform


def hierarchical(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of a ring on every level, one level after the other.

    All-reduce: reduce-scatter inside, all-reduce of the shares between, all-gather
    inside, for two levels or more (Cho et al. 2019, BlueConnect; two
    levels: Mikami et al. 2018, arXiv:1811.05233). c - 1 steps a pass over
    a level with c subgroups, and (c - 1) / c of the share 1 / (ranks below).

    All-to-all: first to the rank of the node whose place the receiver has in
    its own, then between nodes; all bytes but those that stay cross each
    level (DeepSpeed-MoE, arXiv:2201.05596).
    """
    if operation == "all-to-all":
        steps = tuple(count - 1 for count in spread.counts)
        volumes = tuple(Fraction(count - 1, count) for count in spread.counts)
        return uniform("exchange", steps, volumes, overlapped=False)
    if operation not in PASSES:
        return None
    passes = PASSES[operation]
    return uniform(
        "stream",
        tuple(passes * (count - 1) for count in spread.counts),
        tuple(
            passes * Fraction(count - 1, count * below)
            for count, below in zip(spread.counts, spread.below, strict=True)
        ),
        overlapped=False,
    )
