"""Families of models: builders that fill in what all members of a family share."""

from nest_opt.errors import InstanceError
from nest_opt.models.spec import MlaSpec, MoeSpec, TransformerSpec


def gpt(
    name: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    source: str,
    family: str = "gpt2",
    vocabulary: int = 50257,
    positions: int = 1024,
    position_rows: int | None = None,
    ffn: int | None = None,
    tied: bool = True,
    attention_bias: bool = True,
    mlp_bias: bool = True,
    embedding_norm: bool = False,
) -> TransformerSpec:
    """Return a decoder in the manner of GPT-2: layer norms, biases, an MLP without gate.

    Parameters
    ----------
    positions
        Longest sequence, and the default one.
    position_rows
        Rows of the position embedding where they are not `positions`; 0 for
        relative or rotary positions.
    ffn
        Inner width of the MLP, 4 hidden unless given.
    """
    return TransformerSpec(
        name=name,
        family=family,
        source=source,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=even_head_dim(name, hidden, heads),
        ffn=ffn or 4 * hidden,
        gated=False,
        vocabulary=vocabulary,
        sequence_length=positions,
        norm="layer",
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=mlp_bias,
        learned_positions=positions if position_rows is None else position_rows,
        embedding_norm=embedding_norm,
        tied=tied,
    )


def llama(
    name: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    vocabulary: int,
    sequence_length: int,
    source: str,
    family: str = "llama",
    head_dim: int | None = None,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    tied: bool = False,
    moe: MoeSpec | None = None,
) -> TransformerSpec:
    """Return a decoder in the manner of Llama: RMS norms, rotary positions, a gated MLP."""
    return TransformerSpec(
        name=name,
        family=family,
        source=source,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim or even_head_dim(name, hidden, heads),
        ffn=ffn,
        gated=True,
        vocabulary=vocabulary,
        sequence_length=sequence_length,
        norm="rms",
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
        qk_norm=qk_norm,
        tied=tied,
        moe=moe,
    )


def bert(
    name: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocabulary: int,
    positions: int,
    token_types: int,
    source: str,
) -> TransformerSpec:
    """Return BERT with both heads it was trained with: masked tokens and next sentence."""
    return TransformerSpec(
        name=name,
        family="bert",
        source=source,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=even_head_dim(name, hidden, heads),
        ffn=ffn,
        gated=False,
        vocabulary=vocabulary,
        sequence_length=positions,
        causal=False,
        norm="layer",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        learned_positions=positions,
        token_types=token_types,
        embedding_norm=True,
        final_norm=False,
        head="mlm",
        tied=True,
        pooler=True,
        next_sentence=True,
    )


def deepseek(
    name: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocabulary: int,
    sequence_length: int,
    source: str,
    family: str,
    moe: MoeSpec,
    mla: MlaSpec,
    tied: bool = False,
) -> TransformerSpec:
    """Return DeepSeek-V2 or V3: as Llama, with latent attention and many small experts."""
    return TransformerSpec(
        name=name,
        family=family,
        source=source,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=mla.nope_dim + mla.rope_dim,
        ffn=ffn,
        gated=True,
        vocabulary=vocabulary,
        sequence_length=sequence_length,
        norm="rms",
        tied=tied,
        moe=moe,
        mla=mla,
    )


def even_head_dim(name: str, hidden: int, heads: int) -> int:
    """Return hidden / heads.

    Raises
    ------
    InstanceError
        If it is not a whole number.
    """
    if heads < 1 or hidden % heads:
        raise InstanceError(
            f"model {name!r}: heads: found {heads}, a divisor of {hidden} is needed (hidden): "
            "correct one of them, or state the dimensions of a head"
        )
    return hidden // heads
