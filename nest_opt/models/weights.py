"""The weights of a model, layer by layer.

Parameter counts, operations and bytes per rank derive from these lists and
from nothing else. Projections into heads, MLP or vocabulary are split by
columns, those back to the residual stream by rows, everything else is held
whole by each tensor-parallel rank.
"""

from nest_opt.errors import InstanceError
from nest_opt.models.spec import LinearSpec, MlaSpec, ModelSpec, MoeSpec, TransformerSpec
from nest_opt.models.weight import Role, Split, Tokens, Weight


def block_kinds(spec: ModelSpec) -> tuple[tuple[tuple[Weight, ...], int], ...]:
    """Return the weights of each kind of block with the number of such blocks."""
    sparse = spec.moe_layers if isinstance(spec, TransformerSpec) else 0
    kinds = ((False, spec.layers - sparse), (True, sparse))
    return tuple((_block(spec, experts), number) for experts, number in kinds if number)


def block_weights(spec: ModelSpec, layer: int) -> tuple[Weight, ...]:
    """Return the weights of one block.

    Parameters
    ----------
    layer
        Counted from 0.

    Raises
    ------
    InstanceError
        If the model has no such block.
    """
    if not 0 <= layer < spec.layers:
        raise InstanceError(
            f"model {spec.name!r}: found layer {layer}, 0 to {spec.layers - 1} are allowed: "
            "correct it"
        )
    return _block(spec, isinstance(spec, TransformerSpec) and spec.is_moe_layer(layer))


def embedding_weights(spec: ModelSpec) -> tuple[Weight, ...]:
    """Return the weights before the first block."""
    if isinstance(spec, LinearSpec):
        return ()
    weights = [_embedding(spec, "token", spec.vocabulary, "vocabulary")]
    if spec.learned_positions:
        weights.append(_embedding(spec, "position", spec.learned_positions))
    if spec.token_types:
        weights.append(_embedding(spec, "token type", spec.token_types))
    if spec.embedding_norm:
        weights.extend(_norm(spec, "embedding norm"))
    return tuple(weights)


def final_weights(spec: ModelSpec) -> tuple[Weight, ...]:
    """Return the weights after the last block: norm, head, BERT's pooler."""
    if isinstance(spec, LinearSpec):
        return ()
    weights = list(_norm(spec, "final norm")) if spec.final_norm else []
    if spec.pooler:
        weights.extend(_dense(spec, "pooler", "pooler", spec.hidden, tokens="first"))
    if spec.next_sentence:
        weights.extend(_dense(spec, "next sentence", "pooler", 2, tokens="first"))
    return (*weights, *_head(spec))


def _head(spec: TransformerSpec) -> tuple[Weight, ...]:
    if spec.head == "none":
        return ()
    shape = (spec.vocabulary, spec.hidden)
    logits = Weight(
        name="logits", role="head", shape=shape, split="vocabulary", tokens="all", tied=spec.tied
    )
    if spec.head == "linear":
        return (logits,)
    bias = Weight(name="logits bias", role="head", shape=shape[:1], split="vocabulary")
    dense = _dense(spec, "head transform", "head", spec.hidden, tokens="all")
    return (*dense, *_norm(spec, "head norm"), logits, bias)


def _embedding(spec: TransformerSpec, kind: str, rows: int, split: Split = "replicated") -> Weight:
    shape = (rows, spec.hidden)
    return Weight(name=f"{kind} embedding", role="embedding", shape=shape, split=split)


def _norm(spec: TransformerSpec, name: str) -> tuple[Weight, ...]:
    scale = Weight(name=name, role="norm", shape=(spec.hidden,))
    if spec.norm == "rms":
        return (scale,)
    return scale, Weight(name=f"{name} bias", role="norm", shape=(spec.hidden,))


def _dense(
    spec: TransformerSpec, name: str, role: Role, outputs: int, tokens: Tokens
) -> tuple[Weight, ...]:
    """Return a projection with bias that no rank shares out, as BERT's small ones."""
    return (
        Weight(name=name, role=role, shape=(outputs, spec.hidden), tokens=tokens),
        Weight(name=f"{name} bias", role=role, shape=(outputs,)),
    )


def _block(spec: ModelSpec, experts: bool) -> tuple[Weight, ...]:
    if isinstance(spec, LinearSpec):
        square = (spec.width, spec.width)
        return (Weight(name="matrix", role="mlp", shape=square, split="column", tokens="all"),)
    attention = _latent_attention(spec, spec.mla) if spec.mla else _attention(spec)
    mixed = spec.moe if experts else None
    mlp = _mixture(spec, mixed) if mixed else _mlp(spec, "mlp", "mlp", spec.ffn)
    return (*_norm(spec, "attention norm"), *attention, *_norm(spec, "mlp norm"), *mlp)


def _attention(spec: TransformerSpec) -> tuple[Weight, ...]:
    weights = [
        *_into_heads(spec, "query", spec.heads),
        *_into_heads(spec, "key", spec.kv_heads),
        *_into_heads(spec, "value", spec.kv_heads),
    ]
    if spec.qk_norm:
        for name in ("query norm", "key norm"):
            weights.append(Weight(name=name, role="norm", shape=(spec.head_dim,)))
    weights.append(_out_of_heads(spec))
    if spec.output_bias:
        weights.append(Weight(name="output bias", role="attention", shape=(spec.hidden,)))
    return tuple(weights)


def _into_heads(spec: TransformerSpec, name: str, heads: int) -> tuple[Weight, ...]:
    width = heads * spec.head_dim
    shapes: dict[str, tuple[int, ...]] = {name: (width, spec.hidden)}
    if spec.qkv_bias:
        shapes[f"{name} bias"] = (width,)
    return tuple(
        Weight(
            name=part,
            role="attention",
            shape=shape,
            split="column",
            units=heads,
            shareable=name != "query",
            tokens="all" if part == name else None,
        )
        for part, shape in shapes.items()
    )


def _out_of_heads(spec: TransformerSpec) -> Weight:
    return Weight(
        name="output",
        role="attention",
        shape=(spec.hidden, spec.heads * spec.value_dim),
        split="row",
        units=spec.heads,
        tokens="all",
    )


def _latent_attention(spec: TransformerSpec, mla: MlaSpec) -> tuple[Weight, ...]:
    """Return the projections into and out of the latent spaces (arXiv:2405.04434, eqs 9 to 19).

    Those down to a latent space are small and held whole by every rank, as by
    Megatron-Core's; those up to the heads are split by heads.
    """
    queries = spec.heads * spec.key_dim
    up_kv = (spec.heads * (mla.nope_dim + mla.value_dim), mla.kv_lora_rank)
    query = [_up(spec, "query up", (queries, mla.q_lora_rank or spec.hidden))]
    if mla.q_lora_rank is not None:
        query = [
            _whole("query down", (mla.q_lora_rank, spec.hidden)),
            Weight(name="query latent norm", role="norm", shape=(mla.q_lora_rank,)),
            *query,
        ]
    return (
        *query,
        _whole("key value down", (mla.kv_lora_rank + mla.rope_dim, spec.hidden)),
        Weight(name="key value latent norm", role="norm", shape=(mla.kv_lora_rank,)),
        _up(spec, "key value up", up_kv),
        _out_of_heads(spec),
    )


def _whole(name: str, shape: tuple[int, int]) -> Weight:
    return Weight(name=name, role="attention", shape=shape, tokens="all")


def _up(spec: TransformerSpec, name: str, shape: tuple[int, int]) -> Weight:
    return Weight(
        name=name, role="attention", shape=shape, split="column", units=spec.heads, tokens="all"
    )


def _mlp(
    spec: TransformerSpec, name: str, role: Role, ffn: int, moe: MoeSpec | None = None
) -> tuple[Weight, ...]:
    """Return the matrices and biases of an MLP, or of the routed experts of `moe`."""

    def weight(
        part: str, shape: tuple[int, ...], split: Split, tokens: Tokens | None = None
    ) -> Weight:
        return Weight(
            name=f"{name} {part}",
            role=role,
            shape=shape,
            split=split,
            parameter_class="expert" if moe else "dense",
            copies=moe.experts if moe else 1,
            visited=moe.top_k if moe else 1,
            tokens=tokens,
        )

    tokens: Tokens = "routed" if moe else "all"
    inward = ("gate", "up") if spec.gated else ("up",)
    weights = [weight(part, (ffn, spec.hidden), "column", tokens) for part in inward]
    weights.append(weight("down", (spec.hidden, ffn), "row", tokens))
    if spec.mlp_bias:
        weights.extend(weight(f"{part} bias", (ffn,), "column") for part in inward)
        weights.append(weight("down bias", (spec.hidden,), "replicated"))
    return tuple(weights)


def _mixture(spec: TransformerSpec, moe: MoeSpec) -> tuple[Weight, ...]:
    weights = [
        Weight(name="router", role="router", shape=(moe.experts, spec.hidden), tokens="all"),
    ]
    if moe.router_bias:
        weights.append(Weight(name="router bias", role="router", shape=(moe.experts,)))
    weights.extend(_mlp(spec, "expert", "expert", moe.expert_ffn, moe))
    if moe.shared_ffn:
        weights.extend(_mlp(spec, "shared expert", "shared expert", moe.shared_ffn))
    if moe.shared_gate:
        gate = (1, spec.hidden)
        weights.append(
            Weight(name="shared expert scale", role="shared expert", shape=gate, tokens="all")
        )
    return tuple(weights)
