"""Trees: reduce to a root and back, half of the buffer in each of two trees."""

from fractions import Fraction

from nest_opt.network.collectives.shape import Collective, Shape, Spread, ceil_log2, uniform


def tree_volume(count: int) -> Fraction:
    """Return what the busiest of `count` nodes sends in an all-reduce over two trees.

    Each node is a leaf of one tree and has two children in the other (Sanders,
    Speck and Traeff 2009): half of the buffer up from the leaf, half up
    and half down to each child: 2 buffers. Of three nodes none has two
    children, 3/2; of two each is root of one tree and leaf of the other, 1.
    """
    return Fraction(min(count, 4), 2) if count > 1 else Fraction(0)


def tree(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of a double binary tree on every level.

    2 ceil(log2 c) steps over a level with c subgroups, up and down.
    """
    if operation != "all-reduce":
        return None
    return uniform(
        "stream",
        tuple(2 * ceil_log2(count) for count in spread.counts),
        _volumes(spread, tree_volume(spread.counts[0])),
        overlapped=True,
    )


def chain_tree(operation: Collective, spread: Spread) -> Shape | None:
    """Return the shape of NCCL's tree: a chain inside the node, double binary trees above.

    2 (c - 1) steps inside a node of c ranks and 2 ceil(log2 K) between K
    nodes (NCCL, src/graph/tuning.cc). A rank in a chain passes the buffer up and down.
    """
    if operation != "all-reduce":
        return None
    inside, *above = spread.counts
    return uniform(
        "stream",
        (2 * (inside - 1), *(2 * ceil_log2(count) for count in above)),
        _volumes(spread, Fraction(min(inside - 1, 2))),
        overlapped=True,
    )


def above_node(spread: Spread) -> tuple[tuple[int, ...], tuple[Fraction, ...]]:
    """Return steps and volumes of double binary trees over all levels but the innermost."""
    steps = tuple(2 * ceil_log2(count) for count in spread.counts[1:])
    return steps, _volumes(spread, Fraction(0))[1:]


def _volumes(spread: Spread, inside: Fraction) -> tuple[Fraction, ...]:
    """Return volumes by level, those of a subgroup shared out over its devices."""
    above = zip(spread.counts[1:], spread.below[1:], strict=True)
    return (inside, *(tree_volume(count) / below for count, below in above))
