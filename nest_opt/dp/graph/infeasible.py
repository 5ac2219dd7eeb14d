"""Why a placement graph has no legal split: the first of a few plain reasons, or none of them."""

from collections.abc import Sequence
from dataclasses import replace

from nest_opt.cost.graph_table import GraphTable
from nest_opt.dp.graph.blocks import Blocks, contract
from nest_opt.problem.base import listed


def obstacle(table: GraphTable) -> str:
    """Return what stands in the way of any split, in one sentence.

    Each reason but the last is enough by itself: layers that share a device
    and no kind supports together, or no device holds; memory of the devices
    that hold some layers, which is less than these need.
    """
    blocks = contract(table if table.contiguous else replace(table, precedence=()))
    holders = []
    for block in range(len(blocks)):
        supporting = [k for k, kind in enumerate(blocks.kinds) if kind.supported[block]]
        found = tuple(k for k in supporting if _excess_bytes(blocks, k, block) <= 0)
        if not found:
            return _homeless(table, blocks, block, supporting)
        holders.append(found)
    every = tuple(range(len(blocks.kinds)))
    for kinds in sorted({*holders, every}, key=lambda kinds: (len(kinds), kinds)):
        bound = [block for block, found in enumerate(holders) if set(found) <= set(kinds)]
        need = sum(min(blocks.kinds[k].size_bytes[b] for k in holders[b]) for b in bound)
        usable = sum(blocks.kinds[k].usable_bytes * blocks.kinds[k].devices for k in kinds)
        if need > usable:
            layers = sum(len(blocks.layers[block]) for block in bound)
            return (
                f"{layers:,} layers that devices of kind {_names(table, kinds)} alone hold need "
                f"{need:,} bytes at least, {usable:,} bytes are usable on all of these together"
            )
    return (
        "each layer fits a device, and their sum all devices together, but no way to divide them "
        f"is legal{' in a contiguous split' if table.contiguous else ''}"
    )


def _homeless(table: GraphTable, blocks: Blocks, block: int, supporting: Sequence[int]) -> str:
    """Return why no device takes a block."""
    layers = blocks.layers[block]
    what = f"layer {listed(table.layers[layer] for layer in layers)}"
    if len(layers) > 1:
        what = what.replace("layer", "layers", 1) + ", which must share a device,"
    if not supporting:
        return f"{what} are not all supported by any one kind of devices"
    # The kind that lacks least, in words that are true of the others too.
    kind = min(supporting, key=lambda k: _excess_bytes(blocks, k, block))
    return (
        f"{what} fit{'s' if len(layers) == 1 else ''} on no device: "
        f"{blocks.kinds[kind].size_bytes[block]:,} bytes on one of kind {_names(table, [kind])}, "
        f"{blocks.kinds[kind].usable_bytes:,} bytes are usable there"
    )


def _excess_bytes(blocks: Blocks, kind: int, block: int) -> int:
    return blocks.kinds[kind].size_bytes[block] - blocks.kinds[kind].usable_bytes


def _names(table: GraphTable, kinds: Sequence[int]) -> str:
    return listed(table.kinds[kind].name for kind in kinds)
