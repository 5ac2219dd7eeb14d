"""Recursive halving and doubling: partners at distances 1, 2, 4, ..."""

from fractions import Fraction

from nest_opt.network.collectives.shape import Collective, Shape, Spread, ceil_log2, uniform


def halving_doubling(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of recursive halving, recursive doubling, or one after the other.

    Near partners exchange the large pieces: a level with c subgroups is
    crossed with the share that the ranks below have left. With c a power of
    two, log2 c steps and (c - 1) / c of that share a pass (Rabenseifner 2004;
    Thakur, Rabenseifner and Gropp 2005).
    """
    levels = [_level(operation, count) for count in spread.counts]
    found = [level for level in levels if level is not None]
    if len(found) < len(levels):
        return None
    return uniform(
        "stream",
        tuple(steps for steps, _ in found),
        tuple(volume / below for (_, volume), below in zip(found, spread.below, strict=True)),
        overlapped=False,
    )


def _level(operation: Collective, count: int) -> tuple[int, Fraction] | None:
    """Return steps and bytes over one level, of the share that is left there.

    Where c is not a power of two, c' the next lower one: in the sums, c - c'
    ranks first give their buffer to a partner and at last get the result.
    MPICH, src/mpi/coll, comment of the all-reduce by reduce-scatter and
    all-gather: 2 floor(log2 c) + 2 steps and 2 (c' - 1) / c' + 2 buffers; its
    reduce-scatter by recursive halving returns 1/c of a buffer. A gather needs
    no partner: ceil(log2 c) steps of Bruck's (Bruck et al. 1997).
    """
    power = 1 << (count.bit_length() - 1)
    pass_bytes = Fraction(power - 1, power)
    if operation == "all-gather":
        return ceil_log2(count), Fraction(count - 1, count)
    if operation not in ("all-reduce", "reduce-scatter"):
        return None
    both = operation == "all-reduce"
    steps, volume = (1 + both) * ceil_log2(power), (1 + both) * pass_bytes
    if count == power:
        return steps, volume
    return steps + 2, volume + 1 + (Fraction(1) if both else Fraction(1, count))
