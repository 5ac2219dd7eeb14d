"""Rings: every rank passes on to the next."""

from fractions import Fraction

from nest_opt.network.collectives.shape import PASSES, Collective, Shape, Spread, uniform


def ring(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of rings through all ranks, one for each device of a subgroup.

    A chunk makes n - 1 steps a pass, and over level l those between its
    subgroups: with N_l of them, N_l - N_(l+1) steps (NCCL,
    src/graph/tuning.cc: 2 (K - 1) of an all-reduce's 2 (n - 1) steps are
    between K nodes). Each byte of the full buffer takes (n - 1) / n of a pass
    over every link (Thakur, Rabenseifner and Gropp 2005,
    all-gather and all-reduce). As many rings as a subgroup has devices leave it through links of
    their own, so that each carries its share: stas00/ml-engineering,
    network/README.md; NCCL calls them rails.

    A broadcast streams the whole buffer along the ring (NCCL's ring
    broadcast): n - 1 steps, every link carries the buffer once.
    """
    ranks = spread.ranks
    following = (*spread.groups[1:], 1)
    steps = tuple(here - above for here, above in zip(spread.groups, following, strict=True))
    if operation == "broadcast":
        passes, share = 1, Fraction(int(ranks > 1))
    elif operation in PASSES:
        passes = PASSES[operation]
        share = passes * Fraction(ranks - 1, ranks)
    else:
        return None
    return uniform(
        "stream",
        tuple(passes * count for count in steps),
        tuple(
            share / below if groups > 1 else Fraction(0)
            for below, groups in zip(spread.below, spread.groups, strict=True)
        ),
        overlapped=True,
    )


def flat_ring(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of one ring, whose every link carries all of it.

    What `ring` is where the devices of a node share one way out: equation (4)
    of the formulation, with each step at the level that it crosses.
    """
    shape = ring(operation, spread)
    if shape is None:
        return None
    volumes = tuple(
        volume * below for volume, below in zip(shape.volumes, spread.below, strict=True)
    )
    return uniform("stream", shape.steps, volumes, overlapped=True)
