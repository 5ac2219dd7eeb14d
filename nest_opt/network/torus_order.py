"""Orders of a torus by boxes: groups of every level are equal boxes, met along a snake.

Boxes of a level lie in the boxes of the next, consecutive ones side by side,
each with the same order inside. So devices at equal places of consecutive
groups are as far apart as the groups, all in the same direction, and rings
over them share few links.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from nest_opt.errors import InstanceError
from nest_opt.problem.networks import nested_boxes


@dataclass(frozen=True)
class BoxOrder:
    """Devices by their place in the order, and devices in a box of each level but the outermost."""

    devices: tuple[int, ...]
    sizes: tuple[int, ...]


def torus_order(shape: Sequence[int], boxes: Sequence[Sequence[int]] | None = None) -> BoxOrder:
    """Return the order of `topologies.torus` of a shape by boxes.

    Parameters
    ----------
    boxes
        Shape of the boxes of each level but the outermost, innermost first;
        None: those of `nested_boxes`.

    Raises
    ------
    InstanceError
        If a box does not fill the next with copies of itself.
    """
    nested = nested_boxes(shape) if boxes is None else [tuple(box) for box in boxes]
    whole = (1,) * len(shape), *nested, tuple(shape)
    order = [(0,) * len(shape)]
    for inner, outer in pairwise(whole):
        if len(inner) != len(outer) or any(
            size < 1 or outside % size for size, outside in zip(inner, outer, strict=True)
        ):
            raise InstanceError(
                f"boxes: found {list(inner)} in {list(outer)}, sizes that divide those outside "
                "are needed on every axis: correct them"
            )
        ratios = [outside // size for size, outside in zip(inner, outer, strict=True)]
        order = [
            tuple(at * size + within for at, size, within in zip(corner, inner, place, strict=True))
            for corner in _snake(ratios)
            for place in order
        ]
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    sizes = dict.fromkeys(prod(box) for box in nested)
    return BoxOrder(
        tuple(sum(a * s for a, s in zip(place, strides, strict=True)) for place in order),
        tuple(size for size in sizes if 1 < size < prod(shape)),
    )


def _snake(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the places of a box in an order in which each is beside the one before."""
    if not shape:
        return [()]
    inner = _snake(shape[1:])
    return [(at, *place) for at in range(shape[0]) for place in (inner[::-1] if at % 2 else inner)]
