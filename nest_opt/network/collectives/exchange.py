"""Transfers without sums: all-to-all, send-receive and broadcast."""

from fractions import Fraction

from nest_opt.network.collectives.shape import PASSES, Collective, Shape, Spread, ceil_log2, uniform


def pairwise(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of an all-to-all in rounds of pairs.

    The buffer is what a rank holds, 1/n of it for each rank. n - 1 steps, in
    n - g of which a rank's partner is outside its subgroup of g ranks (Thakur,
    Rabenseifner and Gropp 2005, long messages).
    """
    if operation != "all-to-all":
        return None
    ranks, below = spread.ranks, spread.below
    outer = (*below[1:], ranks)
    return uniform(
        "exchange",
        tuple(upper - lower for lower, upper in zip(below, outer, strict=True)),
        tuple(Fraction(ranks - lower, ranks) for lower in below),
        overlapped=True,
    )


def direct(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of transfers that all start at once.

    NCCL's all-to-all is a group of sends and receives (nccl-tests,
    src/alltoall.cu): the bytes of pairwise exchange, and one step. In a send-receive each rank
    passes the buffer to the next one, over the outermost level that the
    spread has at worst.
    """
    crossed = max((level for level, count in enumerate(spread.counts) if count > 1), default=-1)
    levels = range(len(spread.counts))
    steps = tuple(int(level == crossed) for level in levels)
    if operation == "send-receive":
        volumes = tuple(Fraction(int(level <= crossed)) for level in levels)
    elif operation == "all-to-all":
        ranks = spread.ranks
        volumes = tuple(Fraction(ranks - lower, ranks) for lower in spread.below)
    else:
        return None
    return uniform("exchange", steps, volumes, overlapped=True)


def bruck(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of Bruck's all-to-all: few steps, for small buffers.

    ceil(log2 n) steps, in each of which at most half of the buffer moves
    (Bruck et al. 1997; Thakur, Rabenseifner and Gropp 2005, short messages). All
    of it is charged to the outermost level that the spread has.
    """
    if operation != "all-to-all":
        return None
    rounds = ceil_log2(spread.ranks)
    crossed = max((level for level, count in enumerate(spread.counts) if count > 1), default=0)
    levels = range(len(spread.counts))
    return uniform(
        "exchange",
        tuple(rounds * (level == crossed) for level in levels),
        tuple(Fraction(rounds * (level <= crossed), 2) for level in levels),
        overlapped=True,
    )


def binomial(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of a binomial tree's broadcast.

    ceil(log2 c) steps over a level with c subgroups, each with the whole
    buffer, from one device (Thakur, Rabenseifner and Gropp 2005).
    """
    if operation != "broadcast":
        return None
    steps = tuple(ceil_log2(count) for count in spread.counts)
    return uniform("stream", steps, tuple(map(Fraction, steps)), overlapped=False)


def scatter_gather(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of a broadcast as a scatter and an all-gather.

    ceil(log2 n) + n - 1 steps and 2 (n - 1) / n buffers (van de Geijn; Thakur,
    Rabenseifner and Gropp 2005). The root's scatter
    leaves through one device on every level, the rings of the gather through all.
    """
    if operation != "broadcast":
        return None
    ranks, below = spread.ranks, spread.below
    outer = (*spread.groups[1:], 1)
    steps = tuple(
        ceil_log2(count) + PASSES["all-gather"] * (here - above)
        for count, here, above in zip(spread.counts, spread.groups, outer, strict=True)
    )
    volumes = tuple(
        Fraction(ranks - lower, ranks) + Fraction(ranks - 1, ranks * lower) * (groups > 1)
        for lower, groups in zip(below, spread.groups, strict=True)
    )
    return uniform("stream", steps, volumes, overlapped=False)
