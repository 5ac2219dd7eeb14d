"""Products cut into tiles, and tiles into waves."""

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from nest_opt.models.catalogue import find_model
from nest_opt.models.derive import Training, layer_types
from nest_opt.models.hardware import find_accelerator
from nest_opt.models.operations import Work, core_kernels, layer_work
from nest_opt.models.share import Share
from nest_opt.models.spec import TransformerSpec
from nest_opt.models.tiles import stretch
from nest_opt.models.weights import block_weights
from nest_opt.problem import Configuration

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


@pytest.mark.parametrize(
    ("name", "ep"),
    [
        ("gpt3-175b", 1),
        ("llama-3-70b", 1),
        ("bert-large", 1),
        ("mixtral-8x7b", 1),
        ("mixtral-8x7b", 2),
        ("deepseek-v3", 1),
        ("deepseek-v3", 2),
    ],
)
@pytest.mark.parametrize("tp", [1, 4])
def test_outputs_of_products(name: str, ep: int, tp: int) -> None:
    """Each of a weight's three products has the inner length that another has as its columns."""
    spec = find_model(name)
    assert isinstance(spec, TransformerSpec)
    share = Share(microbatch=2, sequence_length=512, configuration=Configuration(tp, 1, ep))
    kind = "experts" if spec.moe else "block"
    weights = block_weights(spec, spec.layers - 1)
    work = layer_work(spec, weights, share, kind)
    products = zip(work.forward, work.backward_input, work.backward_weight, strict=False)
    seen = 0
    for forward, backward, weight in products:
        assert forward.output
        assert backward.output
        assert weight.output
        assert inner(forward) == backward.output[1]
        assert inner(backward) == forward.output[1]
        assert inner(weight) == forward.output[0] == backward.output[0]
        assert weight.output[:2] == (forward.output[1], backward.output[1])
        seen += 1
    assert seen == len(work.backward_weight) >= 4
    if spec.moe:
        grouped = {product.output[2] for product in work.backward_weight if product.output}
        assert grouped == {1, spec.moe.experts // ep}


def test_outputs_of_stored_attention() -> None:
    """Scores and their gradients are square; values have 128 columns, queries and keys 192."""
    spec = find_model("deepseek-v3")
    assert isinstance(spec, TransformerSpec)
    share = Share(
        microbatch=2, sequence_length=512, configuration=Configuration(4), attention="stored"
    )
    heads = 2 * spec.heads // 4
    forward, backward = (
        [(work.output, inner(work)) for work in works if work.output]
        for works in core_kernels(spec, share)
    )
    scores, values, keys = (512, 512, heads), (512, 128, heads), (512, 192, heads)
    assert forward == [(scores, 192), (values, 512)]
    assert backward == [(scores, 128), (values, 512), (keys, 512), (keys, 512)]


@pytest.mark.parametrize(("element_bytes", "cut"), [(2, True), (4, False)])
def test_products_of_32_bits_have_no_tiles(element_bytes: int, cut: bool) -> None:
    """Vector units compute them."""
    training = Training(sequence_length=1024, element_bytes=element_bytes)
    node = find_accelerator("a100-80")
    times = [
        layer_types(find_model("linear-2x2304"), accelerator, training, [8], [Configuration(1)])
        for accelerator in (node, replace(node, multiprocessors=None))
    ]
    assert (times[0] != times[1]) is cut


def inner(work: Work) -> Fraction:
    """Return the length over which each element of a product's output is summed."""
    assert work.output
    rows, columns, matrices = work.output
    return work.flops / (2 * rows * columns * matrices)
