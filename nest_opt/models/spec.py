"""What a model is: the dimensions from which weights, operations and bytes are derived.

A specification says nothing of how a model is trained or placed. Fields are
named after the papers' terms; whatever does not change the shape of a weight
(activation, kind of rotary embedding, place of a norm) is left out.
"""

from dataclasses import dataclass
from typing import Literal

from nest_opt.errors import InstanceError

Norm = Literal["rms", "layer"]
NORMS: tuple[Norm, ...] = ("rms", "layer")
Head = Literal["linear", "mlm", "none"]
HEADS: tuple[Head, ...] = ("linear", "mlm", "none")

MAX_BLOCKS = 10_000
MAX_DIMENSION = 2**24
MAX_NAME = 200


@dataclass(frozen=True, kw_only=True)
class MoeSpec:
    """A mixture of experts in place of the MLP of some blocks.

    Attributes
    ----------
    experts, top_k, expert_ffn
        Routed experts, how many of them a token visits, inner width of each.
    shared_ffn
        Inner width of the expert that every token visits, 0 for none; several
        shared experts are one of their summed width.
    shared_gate
        Whether a gate of one output scales the shared expert (Qwen2-MoE).
    first_dense
        Blocks at the beginning that keep a plain MLP (DeepSeek).
    every
        Of the blocks after those, block i (from 0) has experts if (i + 1) is
        a multiple of this.
    router_bias
        Whether the router adds a bias per expert (DeepSeek-V3).
    """

    experts: int
    top_k: int
    expert_ffn: int
    shared_ffn: int = 0
    shared_gate: bool = False
    first_dense: int = 0
    every: int = 1
    router_bias: bool = False

    def validate(self, model: str) -> None:
        """Raise InstanceError, naming `model`, if the dimensions contradict each other."""
        for item in ("experts", "top_k", "expert_ffn", "every"):
            check_whole(model, f"moe.{item}", getattr(self, item), 1)
        for item in ("shared_ffn", "first_dense"):
            check_whole(model, f"moe.{item}", getattr(self, item), 0)
        if self.top_k > self.experts:
            raise _error(
                model,
                "moe.top_k",
                f"{self.top_k}",
                f"at most {self.experts} is allowed (moe.experts)",
                "a token visits each expert once at most",
            )
        if self.shared_gate and not self.shared_ffn:
            raise _error(
                model,
                "moe.shared_gate",
                "true",
                "a shared expert is needed (moe.shared_ffn is 0)",
                "set shared_ffn, or shared_gate to false",
            )


@dataclass(frozen=True, kw_only=True)
class MlaSpec:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Attributes
    ----------
    q_lora_rank
        Width of the compressed queries, None where queries are not compressed.
    kv_lora_rank
        Width of the compressed keys and values.
    nope_dim, rope_dim, value_dim
        Per head: dimensions of query and key without and with rotary
        embedding, and of the value. All heads share the rotary part of the key.
    """

    q_lora_rank: int | None
    kv_lora_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int

    def validate(self, model: str) -> None:
        """Raise InstanceError, naming `model`, if a dimension is out of range."""
        for item in ("kv_lora_rank", "nope_dim", "rope_dim", "value_dim"):
            check_whole(model, f"mla.{item}", getattr(self, item), 1)
        if self.q_lora_rank is not None:
            check_whole(model, "mla.q_lora_rank", self.q_lora_rank, 1)


@dataclass(frozen=True, kw_only=True)
class TransformerSpec:
    """A stack of transformer blocks between an embedding and a head.

    Attributes
    ----------
    name, family, source
        The catalogue's name, the kind of architecture, and where the
        dimensions are published.
    hidden, layers, heads, kv_heads, head_dim
        Width of the residual stream, blocks, query heads, key and value heads
        (each shared by heads / kv_heads query heads), dimensions of a head.
    ffn, gated
        Inner width of the plain MLP, and whether it has a gate projection
        beside its up projection (SwiGLU) or two matrices (GELU, ReLU).
    vocabulary
        Rows of the token embedding, padding rows of the published model included.
    sequence_length
        Default training length in tokens.
    causal
        Whether a token attends to itself and earlier tokens only.
    norm
        "rms" (a weight) or "layer" (a weight and a bias); each block has two.
    qkv_bias, output_bias, mlp_bias
        Biases of the attention's input and output projections and of all MLPs.
    qk_norm
        Whether queries and keys pass an RMS norm of head_dim (Qwen3).
    learned_positions, token_types
        Rows of these embeddings, 0 for none.
    embedding_norm, final_norm
        Whether there is a norm after the embedding, and after the last block.
    head, tied
        "linear": logits over the vocabulary; "mlm": BERT's, a dense layer and
        a norm before them and a bias on them; "none". `tied`: the logits use
        the token embedding's weight.
    pooler, next_sentence
        BERT's dense layer on the first token, and the classifier of two
        outputs after it.
    moe, mla
        A mixture of experts, and latent attention, where the model has them.

    Raises
    ------
    InstanceError
        Where built from dimensions out of range or that contradict each other.
    """

    name: str
    family: str
    source: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool
    vocabulary: int
    sequence_length: int
    norm: Norm
    causal: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    learned_positions: int = 0
    token_types: int = 0
    embedding_norm: bool = False
    final_norm: bool = True
    head: Head = "linear"
    tied: bool = False
    pooler: bool = False
    next_sentence: bool = False
    moe: MoeSpec | None = None
    mla: MlaSpec | None = None

    @property
    def key_dim(self) -> int:
        """Dimensions of a query or key head, over which attention scores sum."""
        return self.mla.nope_dim + self.mla.rope_dim if self.mla else self.head_dim

    @property
    def value_dim(self) -> int:
        """Dimensions of a value head."""
        return self.mla.value_dim if self.mla else self.head_dim

    @property
    def moe_layers(self) -> int:
        """Blocks that have experts."""
        return sum(self.is_moe_layer(layer) for layer in range(self.layers))

    def is_moe_layer(self, layer: int) -> bool:
        """Whether block `layer`, counted from 0, has experts in place of the MLP."""
        moe = self.moe
        return moe is not None and layer >= moe.first_dense and (layer + 1) % moe.every == 0

    def __post_init__(self) -> None:
        check_name(self.name)
        for item in (
            "hidden",
            "heads",
            "kv_heads",
            "head_dim",
            "ffn",
            "vocabulary",
            "sequence_length",
        ):
            check_whole(self.name, item, getattr(self, item), 1)
        for item in ("learned_positions", "token_types"):
            check_whole(self.name, item, getattr(self, item), 0)
        check_whole(self.name, "layers", self.layers, 1, MAX_BLOCKS)
        self._check_choices()
        self._check_heads()
        if self.moe:
            self.moe.validate(self.name)
            if not self.moe_layers:
                raise _error(
                    self.name,
                    "moe",
                    f"experts in none of {self.layers} layers",
                    "in 1 at least is needed",
                    "lower first_dense or every, or leave moe out",
                )

    def _check_choices(self) -> None:
        for item, found, allowed in (("norm", self.norm, NORMS), ("head", self.head, HEADS)):
            if found not in allowed:
                names = ", ".join(allowed)
                raise _error(
                    self.name, item, repr(found), f"one of {names} is needed", "choose one"
                )
        if self.next_sentence and not self.pooler:
            raise _error(
                self.name,
                "next_sentence",
                "true without a pooler",
                "a pooler is needed (its input)",
                "set pooler to true",
            )

    def _check_heads(self) -> None:
        if self.heads % self.kv_heads:
            raise _error(
                self.name,
                "kv_heads",
                f"{self.kv_heads}",
                f"a divisor of {self.heads} is needed (heads)",
                "each key head serves the same number of query heads",
            )
        if self.mla is None:
            return
        self.mla.validate(self.name)
        if self.kv_heads != self.heads:
            raise _error(
                self.name,
                "kv_heads",
                f"{self.kv_heads}",
                f"{self.heads} is needed (heads)",
                "latent attention expands a key and a value for every head",
            )
        if self.head_dim != self.key_dim:
            raise _error(
                self.name,
                "head_dim",
                f"{self.head_dim}",
                f"{self.key_dim} is needed (mla.nope_dim + mla.rope_dim)",
                "correct one of them",
            )
        if self.qkv_bias or self.output_bias or self.qk_norm:
            raise _error(
                self.name,
                "mla",
                "a bias or qk_norm beside it",
                "neither is supported with latent attention",
                "set qkv_bias, output_bias and qk_norm to false",
            )


@dataclass(frozen=True, kw_only=True)
class LinearSpec:
    """A stack of square matrices without norms, biases, embedding or head.

    It is no published model: its costs can be worked out by hand.

    Attributes
    ----------
    layers, width
        Number of matrices; rows and columns of each.
    """

    layers: int
    width: int
    source: str = "by definition"

    @property
    def name(self) -> str:
        """The name by which the catalogue knows it."""
        return f"linear-{self.layers}x{self.width}"

    @property
    def family(self) -> str:
        """The family's name."""
        return "linear"

    def __post_init__(self) -> None:
        check_whole("linear stack", "layers", self.layers, 1, MAX_BLOCKS)
        check_whole("linear stack", "width", self.width, 1)


ModelSpec = TransformerSpec | LinearSpec


def check_name(name: str) -> None:
    """Raise InstanceError unless a name has 1 to MAX_NAME characters."""
    if not 1 <= len(name) <= MAX_NAME:
        raise InstanceError(
            f"model name: found {len(name)} characters, 1 to {MAX_NAME} are allowed: "
            "choose another name"
        )


def check_whole(
    model: str, item: str, found: object, least: int, most: int = MAX_DIMENSION
) -> None:
    """Raise InstanceError unless `found` is a whole number from `least` to `most`."""
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        # An endless number is a user's mistake too; it must not fill the screen.
        raise _error(
            model,
            item,
            repr(found)[:40] if not isinstance(found, int) else _short(found),
            f"a whole number from {least} to {most} is needed",
            "correct the value",
        )


def _short(number: int) -> str:
    return str(number) if abs(number) < 10**20 else "more than 20 digits"


def _error(model: str, item: str, found: str, allowed: str, remedy: str) -> InstanceError:
    return InstanceError(f"model {model!r}: {item}: found {found}, {allowed}: {remedy}")
