"""Products cut into tiles, and tiles into waves."""

from fractions import Fraction
from random import Random

import pytest

from nest_opt.models.tiles import stretch

A100 = 108


@pytest.mark.parametrize(
    ("rows", "columns", "matrices", "expected"),
    [
        # One wave of the largest tile, and of its transpose; one matrix for each multiprocessor.
        (256 * A100, 128, 1, Fraction(1)),
        (128, 256 * A100, 1, Fraction(1)),
        (256, 128, A100, Fraction(1)),
        # The guide's example (section 3.2): 98 tiles of 256 x 128 for 108 multiprocessors.
        (1792, 1792, 1, Fraction(108, 98)),
        # One smallest tile: 64 * 64 + 48 * 128 multiply-adds, where the largest takes 25 for 16.
        (64, 64, 1, Fraction(10240 * A100 * 16, 25 * 64 * 64)),
        # A head of width 96 in tiles of 128: 4 of 3, 8 * 27 of them are two waves.
        (2048, 96, 27, Fraction(4, 3)),
        # 109 of the largest tile would be two waves of 51200; 218 of 128 x 128 are three of 28672.
        (256 * 109, 128, 1, Fraction(3 * 28672 * A100 * 16, 25 * 256 * 109 * 128)),
    ],
)
def test_by_hand(rows: int, columns: int, matrices: int, expected: Fraction) -> None:
    """Waves of the tile that is fastest, over the multiply-adds in full waves of the largest."""
    assert stretch(rows, columns, matrices, A100) == expected


def test_a_larger_product_is_not_faster() -> None:
    """Stretch is 1 at least, and time never falls as rows, columns or matrices are added."""
    random = Random(8)
    for _ in range(500):
        rows, columns, matrices = (random.randint(1, most) for most in (5000, 5000, 40))
        multiprocessors = random.choice((80, 108, 132))
        time = stretch(rows, columns, matrices, multiprocessors) * rows * columns * matrices
        assert time >= rows * columns * matrices
        for more in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
            shape = (rows + more[0], columns + more[1], matrices + more[2])
            larger = stretch(*shape, multiprocessors) * shape[0] * shape[1] * shape[2]
            assert larger >= time
            # Both ways round, all is the same.
            assert stretch(shape[1], shape[0], shape[2], multiprocessors) == stretch(
                *shape, multiprocessors
            )
