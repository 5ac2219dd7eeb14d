"""How well a matrix product fills an accelerator: tiles and waves.

A product computes its output in tiles, one at a time on each multiprocessor. Tiles that
reach beyond the output, and multiprocessors that are idle in the last wave, take time
all the same (NVIDIA, Matrix Multiplication Background User's Guide, chapter 3). Large
tiles load fewer operands for each multiply-add, small ones leave less over: the library
takes what is faster.
"""

from fractions import Fraction
from functools import lru_cache

# Sizes that cuBLAS has (the same guide, section 2.3), each way round.
_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
# What it costs to load one row or column of a tile's operands, in multiply-adds. Chosen, not
# fitted: the smallest tile then gets 62% of what the largest gets.
_OPERAND = 48


def _step(rows: int, columns: int) -> int:
    """Return the time of a tile's step along the inner dimension, in multiply-adds."""
    return rows * columns + _OPERAND * (rows + columns)


# Of one output element in the largest tile, which is what attained shares are stated for.
_BEST = Fraction(_step(*_TILES[0]), _TILES[0][0] * _TILES[0][1])


@lru_cache(maxsize=4096)
def stretch(rows: int, columns: int, matrices: int, multiprocessors: int) -> Fraction:
    """Return the time of products over that of as many FLOPs in full waves of the largest tile.

    Parameters
    ----------
    rows, columns
        Of the output of each product.
    matrices
        Products of this shape that run at once.
    multiprocessors
        Tiles that the accelerator computes at once.

    Returns
    -------
    Fraction
        1 at least.
    """
    fastest = min(
        -(-matrices * -(-rows // tile[0]) * -(-columns // tile[1]) // multiprocessors)
        * _step(*tile)
        for tile in _TILES
    )
    return fastest * multiprocessors / (_BEST * rows * columns * matrices)
