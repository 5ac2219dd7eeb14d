"""Blocks that take no time follow a neighbour: some best plan has both in one stage.

A graph with many loose ends (inputs, masks, reshapes) has as many downsets as
ways to cut them off, none of which is of use.
"""

from nest_opt.cost.graph_table import GraphTable
from nest_opt.dp.graph.blocks import Blocks, contract
from nest_opt.problem.downsets import members


def merge_followers(table: GraphTable) -> Blocks:
    """Return a table's blocks, followers merged until there are none.

    Moving a follower to the stage of its leader in any legal plan leaves the
    plan legal and no load larger (`docs/placement_graphs.md`).
    """
    groups: list[tuple[int, ...]] = []
    while True:
        blocks = contract(table, groups)
        found = [
            (blocks.layers[block][0], blocks.layers[leader][0])
            for block in range(len(blocks))
            if (leader := _leader(blocks, block)) is not None
        ]
        if not found:
            return blocks
        groups += found


def _leader(blocks: Blocks, block: int) -> int | None:
    """Return a block that a block may follow, or None."""
    for kind in blocks.kinds:
        heavy = kind.memory_binds and kind.size_bytes[block]
        if kind.time_ps[block] or heavy or not kind.supported[block]:
            return None
    return next(
        (leader for leader in _neighbours(blocks, block) if _moves_for_free(blocks, block, leader)),
        None,
    )


def _neighbours(blocks: Blocks, block: int) -> list[int]:
    """Return the blocks in whose stage a block may be in every legal plan."""
    before, after = blocks.before[block], blocks.after[block]
    if not before and not after:
        touched = [leader for others, _ in blocks.touching[block] for leader in members(others)]
        return touched or [other for other in range(min(len(blocks), 2)) if other != block]
    found = []
    if before:
        # All that is before the block is its last predecessor, or before that.
        last = before.bit_length() - 1
        if before & ~blocks.below[last] == 1 << last:
            found.append(last)
    if after:
        first = after[0]
        if all(blocks.above[first] >> other & 1 for other in after[1:]):
            found.append(first)
    return found


def _moves_for_free(blocks: Blocks, block: int, leader: int) -> bool:
    """Whether what the block shares with its leader alone outweighs all that is not the leader's.

    The two are what is saved and what may be added where the block joins its leader.
    """
    saved = added = 0
    for others, time in blocks.touching[block]:
        if others == 1 << leader:
            saved += time
        elif not others >> leader & 1:
            added += time
    return added <= saved
