"""The operations of a layer: what one rank computes and moves for one microbatch.

Matrix products follow from the weights. Everything else (norms, residual
additions, activation functions, rotary embedding, routing, the loss) is bound
by memory and counted by the bytes that it reads and writes, 2 bytes an element
unless said; kernels are taken to be fused as Megatron-Core fuses them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod
from typing import Literal

from nest_opt.models.share import Share
from nest_opt.models.spec import LinearSpec, ModelSpec, TransformerSpec
from nest_opt.models.weight import Weight
from nest_opt.models.weights import block_weights, final_weights
from nest_opt.problem.profile import Recompute

ELEMENT_BYTES = 2

Kernel = Literal["product", "attention", "elementwise"]


@dataclass(frozen=True)
class Work:
    """FLOPs of matrix units and bytes to and from memory of one kernel or fused group.

    Attributes
    ----------
    flops
        Multiply-adds count 2; 0 for what is bound by memory.
    moved_bytes
        Read plus written.
    kind
        "product" of matrices, fused "attention", or "elementwise": what each attains differs.
    output
        Of products: rows, columns and number of their outputs, which `tiles` cuts up.
    """

    flops: Fraction
    moved_bytes: Fraction
    kind: Kernel = "product"
    output: tuple[int, int, int] | None = None

    @classmethod
    def elementwise(cls, moved_bytes: Fraction) -> "Work":
        """Return a kernel that is bound by memory."""
        return cls(Fraction(0), moved_bytes, "elementwise")


@dataclass(frozen=True)
class LayerWork:
    """The work of one layer and microbatch, kernel by kernel, by phase."""

    forward: tuple[Work, ...]
    backward_input: tuple[Work, ...]
    backward_weight: tuple[Work, ...]


def layer_work(spec: ModelSpec, weights: Iterable[Weight], share: Share, kind: str) -> LayerWork:
    """Return the work of a layer.

    Parameters
    ----------
    spec
        The model.
    weights
        The layer's weights.
    share
        Microbatch, sequence length and degrees.
    kind
        "embedding", "block", "experts" (a block with experts) or "head".
    """
    products = [_product(spec, weight, share) for weight in weights if weight.tokens is not None]
    forward = [forward for forward, _, _ in products]
    backward = [backward for _, backward, _ in products]
    if isinstance(spec, TransformerSpec):
        if kind in ("block", "experts"):
            forward_core, backward_core = core_kernels(spec, share)
            forward.extend(forward_core)
            backward.extend(backward_core)
        for forward_bytes, backward_bytes in _memory_bound(spec, share, kind):
            forward.append(Work.elementwise(forward_bytes))
            backward.append(Work.elementwise(backward_bytes))
    return LayerWork(tuple(forward), tuple(backward), tuple(weight for _, _, weight in products))


def _product(spec: ModelSpec, weight: Weight, share: Share) -> tuple[Work, Work, Work]:
    """Return a matrix product's forward, input gradient and weight gradient.

    Weight gradients are accumulated in 32 bits: read and written. Copies are one grouped
    product, with equal parts of the rows, in whole rows.
    """
    outputs, inputs = weight.rank_shape(share.tp)
    copies = weight.rank_copies(share.ep)
    each = ceil(_rows(weight, share) / copies)
    rows = Fraction(each * copies)
    flops = 2 * rows * outputs * inputs
    activations = ELEMENT_BYTES * rows * (outputs + inputs)
    parameters = Fraction(copies * outputs * inputs)
    element = share.element_bytes if isinstance(spec, LinearSpec) else ELEMENT_BYTES
    moved = activations + element * parameters
    return (
        Work(flops, moved, output=(each, outputs, copies)),
        Work(flops, moved, output=(each, inputs, copies)),
        Work(flops, activations + 8 * parameters, output=(outputs, inputs, copies)),
    )


def _rows(weight: Weight, share: Share) -> Fraction:
    """Return the rows that one rank multiplies by a weight, over all copies.

    Of routed tokens the busiest rank's experts receive what `Share.expert_load` says.
    What each rank of a tensor-parallel group holds whole works on that rank's
    part of the sequence under sequence parallelism, else on all of it.
    """
    if weight.tokens == "first":
        return Fraction(share.microbatch)
    if weight.tokens == "routed":
        return Fraction(share.tokens) * weight.visited * share.expert_load
    return share.sequence_tokens if weight.split == "replicated" else Fraction(share.tokens)


def core_kernels(spec: TransformerSpec, share: Share) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Return the kernels of the attention core, forward and backward."""
    if share.attention == "stored":
        return _stored_core(spec, share)
    forward, backward = attention_core(spec, share)
    return (forward,), (backward,)


def _stored_core(spec: TransformerSpec, share: Share) -> tuple[tuple[Work, ...], tuple[Work, ...]]:
    """Return the kernels of a core whose scores pass through memory, forward and backward.

    One product each for scores and output, with scale, mask and softmax fused
    and dropout apart, as Megatron-LM does without flash attention; the
    backward pass has 4 products, one with the scores' shape, of values, queries
    and keys one each. All scores are computed, causal mask or not.
    """
    heads = Fraction(spec.heads, share.tp)
    pairs = heads * share.tokens * share.sequence_length
    scores = ELEMENT_BYTES * pairs
    # Queries with as many outputs, and keys with values, apart by their widths.
    width = Fraction(spec.key_dim, spec.key_dim + spec.value_dim)
    tensors = heads_bytes(spec, share, heads) + keys_bytes(spec, share)
    length, matrices = share.sequence_length, ceil(heads * share.microbatch)

    def product(inner: int, part: Fraction, columns: int) -> Work:
        moved = scores + part * tensors
        return Work(2 * pairs * inner, moved, output=(length, columns, matrices))

    key, value = (spec.key_dim, width), (spec.value_dim, 1 - width)
    score, output = product(*key, length), product(*value, spec.value_dim)
    to_scores, to_keys = product(*value, length), product(*key, spec.key_dim)
    softmax = (Work.elementwise(2 * scores), Work.elementwise(3 * scores))
    # Read, write, and a mask of 1 byte an element.
    dropout = (Work.elementwise(2 * scores + pairs),) if share.dropout else ()
    return (
        (score, softmax[0], *dropout, output),
        (to_scores, output, *dropout, softmax[1], to_keys, to_keys),
    )


def attention_core(spec: TransformerSpec, share: Share) -> tuple[Work, Work]:
    """Return scores times values by flash attention, forward and backward.

    A causal mask halves the work. The backward pass computes the scores again
    and has 5 products where the forward has 2 (FlashAttention-2,
    arXiv:2307.08691, section 2.3). A context-parallel rank has its queries
    meet the keys of all; in a ring it reads queries and writes outputs once a
    step.
    """
    heads = Fraction(spec.heads, share.tp)
    pairs = share.tokens * Fraction(share.sequence_length, 2 if spec.causal else 1)
    score, value = 2 * pairs * heads * spec.key_dim, 2 * pairs * heads * spec.value_dim
    steps = share.cp if share.context_parallel == "ring" else 1
    queries = steps * heads_bytes(spec, share, heads)
    moved = queries + share.cp * keys_bytes(spec, share)
    return (
        Work(score + value, moved, "attention"),
        Work(3 * score + 2 * value, 2 * moved, "attention"),
    )


def heads_bytes(spec: TransformerSpec, share: Share, heads: Fraction) -> Fraction:
    """Return the bytes of a query and an output, or a key and a value, of a rank's tokens."""
    return ELEMENT_BYTES * share.tokens * heads * (spec.key_dim + spec.value_dim)


def keys_bytes(spec: TransformerSpec, share: Share) -> Fraction:
    """Return the bytes of the keys and values of a rank's tokens."""
    return heads_bytes(spec, share, Fraction(max(spec.kv_heads, share.tp), share.tp))


def _memory_bound(
    spec: TransformerSpec, share: Share, kind: str
) -> Iterator[tuple[Fraction, Fraction]]:
    """Yield the (forward, backward) bytes of a layer's operations without matrix products."""
    residual = share.sequence_tokens * spec.hidden * ELEMENT_BYTES
    if kind == "embedding":
        yield 2 * residual, 2 * residual
    if kind == "head":
        yield 2 * residual, 3 * residual
        # Cross entropy in 32 bits: logits converted (2 + 4), read and written as
        # probabilities (4 + 4); backward reads them and writes 16-bit gradients.
        logits = share.tokens * Fraction(_padded(spec.vocabulary, share.tp), share.tp)
        yield 14 * logits, 6 * logits
    if kind in ("block", "experts"):
        # Two norms (read, write; backward reads input and gradient, writes
        # one), two residual additions with their dropout.
        yield 4 * residual, 6 * residual
        yield 6 * residual, 6 * residual
        if not spec.learned_positions:
            heads = Fraction(spec.heads + max(spec.kv_heads, share.tp), share.tp)
            rotated = share.tokens * heads * spec.key_dim * ELEMENT_BYTES
            yield 2 * rotated, 2 * rotated
        inner = share.tokens * inner_width(spec, share, kind) * ELEMENT_BYTES
        # Activation: reads one or two arrays and writes one; backward reads
        # the gradient too and writes one or two.
        yield (3 * inner, 5 * inner) if spec.gated else (2 * inner, 3 * inner)
    if kind == "experts" and spec.moe:
        # Tokens are sorted to their experts and back.
        routed = residual * spec.moe.top_k * share.expert_load
        yield 4 * routed, 4 * routed


def inner_width(spec: TransformerSpec, share: Share, kind: str) -> Fraction:
    """Return the inner width of all MLPs that a token passes, per rank.

    For experts the width over all tokens that the busiest rank computes,
    divided by the tokens that it has.
    """
    if kind == "experts" and spec.moe:
        routed = spec.moe.top_k * spec.moe.expert_ffn * share.expert_load
        return Fraction(routed + spec.moe.shared_ffn) / share.tp
    return Fraction(spec.ffn, share.tp)


def _padded(length: int, degree: int) -> int:
    return -(-length // degree) * degree


def model_flops(spec: ModelSpec, weights: Iterable[Weight], microbatch: int, sequence: int) -> int:
    """Return the forward FLOPs of matrix products, over the copies that a token visits."""
    total = 0
    for weight in weights:
        if weight.tokens is not None:
            rows = microbatch * (1 if weight.tokens == "first" else sequence)
            total += 2 * rows * weight.visited * prod(weight.shape)
    return total


def training_flops(spec: ModelSpec, sequence: int) -> int:
    """Return the model FLOPs of one sequence, forward and backward.

    Three forward passes of every layer and the head (Narayanan et al.,
    arXiv:2104.04473, appendix), with causal attention at half its square.
    """
    layers = [block_weights(spec, layer) for layer in range(spec.layers)]
    forward = sum(model_flops(spec, weights, 1, sequence) for weights in layers)
    forward += spec.layers * attention_flops(spec, 1, sequence)
    return 3 * (forward + model_flops(spec, final_weights(spec), 1, sequence))


def recomputed_flops(spec: ModelSpec, sequence: int, mode: Recompute) -> int:
    """Return the FLOPs of one sequence that recomputation repeats.

    A forward pass of every block, as of Narayanan et al. (arXiv:2104.04473,
    appendix: 96 in place of 72 B s l h^2), or of every attention core
    (Korthikanti et al., arXiv:2205.05198, appendix A); never of the head.
    """
    if mode == "none":
        return 0
    repeated = spec.layers * attention_flops(spec, 1, sequence)
    if mode == "full":
        blocks = (block_weights(spec, layer) for layer in range(spec.layers))
        repeated += sum(model_flops(spec, weights, 1, sequence) for weights in blocks)
    return repeated


def attention_flops(spec: ModelSpec, microbatch: int, sequence: int) -> int:
    """Return the FLOPs of one block's attention core in a forward pass."""
    if isinstance(spec, LinearSpec):
        return 0
    full = 2 * microbatch * sequence**2 * spec.heads * (spec.key_dim + spec.value_dim)
    return full // 2 if spec.causal else full
