"""Activation memory of a layer, tensor by tensor.

The tensors are those that the backward pass reads, 2 bytes an element unless
said; their sum over a GPT layer gives the formulas of Korthikanti et al.
(arXiv:2205.05198, equations 1 to 4): s b h (10 + 24 / t + 5 a s / (h t)) bytes
with tensor parallelism, s b h / t (34 + 5 a s / h) with sequence parallelism
too, without the last term under selective recomputation (equation 6). Llama-style layers have
no published formula; theirs follows from the same tensors. A context-parallel
rank keeps all of them for its own tokens alone.
"""

from fractions import Fraction

from nest_opt.models.operations import ELEMENT_BYTES, heads_bytes, inner_width, keys_bytes
from nest_opt.models.share import Share
from nest_opt.models.spec import LinearSpec, ModelSpec, TransformerSpec


def stash_bytes(spec: ModelSpec, share: Share, kind: str) -> Fraction:
    """Return the bytes per rank that a layer keeps for one microbatch in flight.

    Parameters
    ----------
    kind
        "embedding", "block", "experts" (a block with experts) or "head".
    """
    if isinstance(spec, LinearSpec):
        return Fraction(share.tokens * spec.width * share.element_bytes)
    residual = share.sequence_tokens * spec.hidden
    mask = residual if share.dropout else Fraction(0)
    if kind == "embedding":
        kept = spec.embedding_norm and share.memory.embedding_norm_input
        return mask + (residual * ELEMENT_BYTES if kept else 0)
    if kind == "head":
        # Inputs of the final norm and of the logits.
        return 2 * residual * ELEMENT_BYTES
    return _attention(spec, share, residual) + mask + _mlp(spec, share, kind, residual) + mask


def _attention(spec: TransformerSpec, share: Share, residual: Fraction) -> Fraction:
    """Return the input of the norm and of the projections, q, k, v, scores, and the output."""
    latent = Fraction(0)
    if spec.mla:
        # Latent vectors before and after their norms.
        width = 2 * (spec.mla.q_lora_rank or 0) + 2 * spec.mla.kv_lora_rank + spec.mla.rope_dim
        latent = share.sequence_tokens * width
    whole = (2 * residual + latent) * ELEMENT_BYTES
    return whole + _core_tensors(spec, share) + _scores(spec, share)


def _core_tensors(spec: TransformerSpec, share: Share) -> Fraction:
    """Return the bytes of q, k, v and the output of the attention core."""
    return heads_bytes(spec, share, Fraction(spec.heads, share.tp)) + keys_bytes(spec, share)


def _scores(spec: TransformerSpec, share: Share) -> Fraction:
    """Return the bytes kept of the attention scores.

    Softmax output and, with dropout, mask and dropout output; with flash
    attention one 32-bit number per query and head.
    """
    heads = Fraction(spec.heads, share.tp)
    if share.attention == "flash":
        return 4 * heads * share.tokens
    each = 5 if share.dropout else 2
    return each * heads * share.tokens * share.sequence_length


def _mlp(spec: TransformerSpec, share: Share, kind: str, residual: Fraction) -> Fraction:
    """Return the input of norm and MLP, input and output of the activation, routing."""
    inner = share.tokens * inner_width(spec, share, kind)
    elements = 2 * residual + (3 if spec.gated else 2) * inner
    if kind != "experts" or spec.moe is None:
        return elements * ELEMENT_BYTES
    # Tokens sorted to experts, which each rank multiplies whole; experts' outputs
    # before weighting; 32-bit router scores.
    tokens = share.tokens + share.sequence_tokens
    routed = tokens * spec.hidden * spec.moe.top_k * share.expert_load
    return (elements + routed) * ELEMENT_BYTES + 4 * share.sequence_tokens * spec.moe.experts


def selective_bytes(spec: TransformerSpec, share: Share, kind: str) -> Fraction:
    """Return the bytes that a layer keeps whose attention core is recomputed: all but the scores.

    Korthikanti et al., section 5. Embedding and head have no core.
    """
    scores = _scores(spec, share) if kind in ("block", "experts") else Fraction(0)
    return stash_bytes(spec, share, kind) - scores


def products_bytes(spec: TransformerSpec, share: Share, kind: str) -> Fraction:
    """Return the bytes that a block keeps of which every second matrix product is recomputed.

    Its input, the output of the attention core, and of the products in the
    order in which they run the first, the third and so on: queries, values, the
    first into the MLP and, if there is a gate, the one out of it, before its
    sum over tensor-parallel ranks and after. Embedding and head are not
    recomputed. (torchtitan@9dec370, parallelize_llama.py, the policy of its
    per-operator activation checkpointing.)
    """
    if kind in ("embedding", "head"):
        return stash_bytes(spec, share, kind)
    heads, keys = Fraction(spec.heads, share.tp), Fraction(max(spec.kv_heads, share.tp), share.tp)
    residual = share.sequence_tokens * spec.hidden
    core = share.tokens * (heads * (spec.key_dim + spec.value_dim) + keys * spec.value_dim)
    inner = share.tokens * inner_width(spec, share, kind)
    out = Fraction(share.tokens * spec.hidden) if spec.gated else Fraction(0)
    scattered = 2 * residual if share.configuration.sp else Fraction(0)
    elements = residual + core + inner + out + scattered
    return elements * ELEMENT_BYTES + 4 * heads * share.tokens


def checkpoint_bytes(spec: ModelSpec, share: Share, kind: str) -> Fraction:
    """Return the bytes that a fully recomputed layer keeps: its input.

    Embedding and head are not recomputed: they keep their stash.
    """
    if isinstance(spec, LinearSpec) or kind in ("embedding", "head"):
        return stash_bytes(spec, share, kind)
    return share.sequence_tokens * spec.hidden * ELEMENT_BYTES


def work_bytes(spec: ModelSpec, share: Share, kind: str) -> Fraction:
    """Return the peak bytes beyond the stash while a layer runs.

    For a block the gradients of the activation's input and output, or what
    the attention core needs if that is more, with the gradients of its own
    input and output; under sequence parallelism the gathered input too. For
    the head the logits, as `share.memory` has them.
    """
    if isinstance(spec, LinearSpec):
        return Fraction(2 * share.tokens * spec.width * share.element_bytes)
    whole = Fraction(share.tokens * spec.hidden * ELEMENT_BYTES)
    gathered = whole if share.configuration.sp else Fraction(0)
    if kind == "embedding":
        return whole
    if kind == "head":
        vocabulary = -(-spec.vocabulary // share.tp)
        logit = share.memory.bytes_of_logit(share.tp)
        return Fraction(logit * share.tokens * vocabulary) + gathered
    inner = share.tokens * inner_width(spec, share, kind) * ELEMENT_BYTES
    activation = (3 if spec.gated else 2) * inner
    return max(activation, _core_work(spec, share)) + 2 * whole + gathered


def _core_work(spec: TransformerSpec, share: Share) -> Fraction:
    """Return the bytes that the attention core needs in its backward pass beyond the stash.

    The gradients of q, k, v and the output. Keys and values of other ranks
    with their gradients: all of them gathered, or those of a step of the ring
    and of the next.
    """
    others = Fraction(0)
    if share.cp > 1:
        blocks = 2 if share.context_parallel == "ring" else share.cp
        others = 2 * blocks * keys_bytes(spec, share)
    return _core_tensors(spec, share) + others


def first_stage_bytes(layer_bytes: Fraction, layers: int, stages: int, chunks: int = 1) -> Fraction:
    """Return the activation bytes of the first stage of a pipeline of equal layers.

    Under 1F1B the first stage holds S microbatches of L / S layers; with v
    interleaved chunks a factor 1 + (S - 1) / (S v) more (Korthikanti et al.,
    section 4.2.3).
    """
    if chunks == 1:
        return layer_bytes * layers
    return layer_bytes * layers * (1 + Fraction(stages - 1, stages * chunks))
