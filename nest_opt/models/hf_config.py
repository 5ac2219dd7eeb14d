"""Import of a Hugging Face config.json.

Fields that change no weight's shape are skipped. Dimensions must be there;
options that are absent take the default of the model's class in the
transformers library (release 5.24), written here. Options that would change
shapes in a way that no specification can say are refused.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from nest_opt.errors import InstanceError
from nest_opt.models.families import bert, deepseek, gpt, llama
from nest_opt.models.spec import (
    MAX_BLOCKS,
    MAX_DIMENSION,
    MAX_NAME,
    MlaSpec,
    MoeSpec,
    TransformerSpec,
)
from nest_opt.problem.base import Flag
from nest_opt.problem.validation import build, read_json

_Size = Annotated[int, Field(strict=True, ge=1, le=MAX_DIMENSION)]
_Number = Annotated[int, Field(strict=True, ge=0, le=MAX_DIMENSION)]
_Blocks = Annotated[int, Field(strict=True, ge=1, le=MAX_BLOCKS)]


def read_hf_config(path: Path) -> TransformerSpec:
    """Return the model that a Hugging Face config.json describes.

    It is named after the file, or after the folder of a config.json. Its
    default sequence length is the longest that the file allows.

    Raises
    ------
    InstanceError
        If the file cannot be read, is of a `model_type` that is not
        supported, lacks a dimension, or contradicts itself.
    """
    data = read_json(path)
    reader = _READERS[_model_type(path, data)]
    name = path.stem if path.stem != "config" else path.resolve().parent.name
    try:
        return build(reader, data, str(path)).spec((name or "model")[:MAX_NAME], path.name)
    except InstanceError as error:
        text = str(error)
        raise InstanceError(text if text.startswith(str(path)) else f"{path}: {text}") from error


def _model_type(path: Path, data: Any) -> str:
    supported = ", ".join(_READERS)
    if not isinstance(data, dict):
        raise InstanceError(
            f"{path}: found no JSON object, one is needed: give the config.json of a model"
        )
    found = data.get("model_type")
    if not isinstance(found, str) or found not in _READERS:
        shown = "nothing" if found is None else repr(found)[:60]
        raise InstanceError(
            f"{path}: model_type: found {shown}, one of {supported} is needed: "
            "describe the model by a TransformerSpec instead"
        )
    return found


class _Config(BaseModel):
    """Base of all families."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model_type: str

    def spec(self, name: str, source: str) -> TransformerSpec:
        """Return the specification, under this name and source."""
        raise NotImplementedError


class _Decoder(_Config):
    """What all decoders with RMS norms and a gated MLP state."""

    hidden_size: _Size
    intermediate_size: _Size
    num_hidden_layers: _Blocks
    num_attention_heads: _Size
    num_key_value_heads: _Size | None = None
    head_dim: _Size | None = None
    vocab_size: _Size
    max_position_embeddings: _Size
    tie_word_embeddings: Flag = False

    def decoder(
        self,
        name: str,
        source: str,
        *,
        qkv_bias: bool = False,
        output_bias: bool = False,
        mlp_bias: bool = False,
        qk_norm: bool = False,
        moe: MoeSpec | None = None,
    ) -> TransformerSpec:
        """Return the specification, with what the family adds."""
        return llama(
            name,
            family=self.model_type,
            source=source,
            layers=self.num_hidden_layers,
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            kv_heads=self.num_key_value_heads or self.num_attention_heads,
            head_dim=self.head_dim,
            ffn=self.intermediate_size,
            vocabulary=self.vocab_size,
            sequence_length=self.max_position_embeddings,
            qkv_bias=qkv_bias,
            output_bias=output_bias,
            mlp_bias=mlp_bias,
            qk_norm=qk_norm,
            tied=self.tie_word_embeddings,
            moe=moe,
        )


class _Llama(_Decoder):
    attention_bias: Flag = False
    mlp_bias: Flag = False

    def spec(self, name: str, source: str) -> TransformerSpec:
        return self.decoder(
            name,
            source,
            qkv_bias=self.attention_bias,
            output_bias=self.attention_bias,
            mlp_bias=self.mlp_bias,
        )


class _Mistral(_Decoder):
    num_key_value_heads: _Size | None = 8

    def spec(self, name: str, source: str) -> TransformerSpec:
        return self.decoder(name, source)


class _Mixtral(_Mistral):
    num_local_experts: _Size
    num_experts_per_tok: _Size

    def spec(self, name: str, source: str) -> TransformerSpec:
        moe = MoeSpec(
            experts=self.num_local_experts,
            top_k=self.num_experts_per_tok,
            expert_ffn=self.intermediate_size,
        )
        return self.decoder(name, source, moe=moe)


class _Qwen2(_Decoder):
    num_key_value_heads: _Size | None = 32

    def spec(self, name: str, source: str) -> TransformerSpec:
        return self.decoder(name, source, qkv_bias=True)


class _Qwen3(_Decoder):
    num_key_value_heads: _Size | None = 32
    head_dim: _Size | None = 128
    attention_bias: Flag = False

    def spec(self, name: str, source: str) -> TransformerSpec:
        bias = self.attention_bias
        return self.decoder(name, source, qkv_bias=bias, output_bias=bias, qk_norm=True)


class _QwenMoe(_Decoder):
    """What both mixtures of Qwen state."""

    num_experts: _Size = Field(validation_alias=AliasChoices("num_experts", "num_local_experts"))
    num_experts_per_tok: _Size
    moe_intermediate_size: _Size
    decoder_sparse_step: _Size = 1
    mlp_only_layers: Annotated[tuple[_Number, ...], Field(max_length=MAX_BLOCKS)] | None = None

    def moe(self, name: str, shared_ffn: int = 0) -> MoeSpec:
        """Return the mixture; layers with a plain MLP must come first."""
        plain = sorted(self.mlp_only_layers or ())
        if plain != list(range(len(plain))):
            raise InstanceError(
                f"model {name!r}: mlp_only_layers: found {len(plain)} layers with a gap before or "
                "among them, only 0, 1, 2, ... are supported: the model cannot be imported"
            )
        return MoeSpec(
            experts=self.num_experts,
            top_k=self.num_experts_per_tok,
            expert_ffn=self.moe_intermediate_size,
            shared_ffn=shared_ffn,
            shared_gate=shared_ffn > 0,
            first_dense=len(plain),
            every=self.decoder_sparse_step,
        )


class _Qwen2Moe(_QwenMoe):
    num_key_value_heads: _Size | None = 16
    shared_expert_intermediate_size: _Size
    qkv_bias: Flag = True

    def spec(self, name: str, source: str) -> TransformerSpec:
        moe = self.moe(name, self.shared_expert_intermediate_size)
        return self.decoder(name, source, qkv_bias=self.qkv_bias, moe=moe)


class _Qwen3Moe(_QwenMoe):
    num_key_value_heads: _Size | None = 4
    attention_bias: Flag = False

    def spec(self, name: str, source: str) -> TransformerSpec:
        bias = self.attention_bias
        return self.decoder(
            name, source, qkv_bias=bias, output_bias=bias, qk_norm=True, moe=self.moe(name)
        )


class _DeepSeek(_Config):
    """What DeepSeek-V2 and V3 state; the multi-token prediction module is left out."""

    hidden_size: _Size
    intermediate_size: _Size
    num_hidden_layers: _Blocks
    num_attention_heads: _Size
    vocab_size: _Size
    max_position_embeddings: _Size
    tie_word_embeddings: Flag = False
    attention_bias: Literal[False] = False
    q_lora_rank: _Size | None
    kv_lora_rank: _Size
    qk_nope_head_dim: _Size
    qk_rope_head_dim: _Size
    v_head_dim: _Size
    n_routed_experts: _Size = Field(
        validation_alias=AliasChoices("n_routed_experts", "num_local_experts")
    )
    n_shared_experts: _Number | None
    num_experts_per_tok: _Size
    moe_intermediate_size: _Size
    first_k_dense_replace: _Number
    moe_layer_freq: Literal[1] = 1
    topk_method: str = "greedy"

    def spec(self, name: str, source: str) -> TransformerSpec:
        return deepseek(
            name,
            family=self.model_type,
            source=source,
            layers=self.num_hidden_layers,
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            ffn=self.intermediate_size,
            vocabulary=self.vocab_size,
            sequence_length=self.max_position_embeddings,
            tied=self.tie_word_embeddings,
            moe=self._moe(),
            mla=MlaSpec(
                q_lora_rank=self.q_lora_rank,
                kv_lora_rank=self.kv_lora_rank,
                nope_dim=self.qk_nope_head_dim,
                rope_dim=self.qk_rope_head_dim,
                value_dim=self.v_head_dim,
            ),
        )

    def _moe(self) -> MoeSpec:
        return MoeSpec(
            experts=self.n_routed_experts,
            top_k=self.num_experts_per_tok,
            expert_ffn=self.moe_intermediate_size,
            shared_ffn=(self.n_shared_experts or 0) * self.moe_intermediate_size,
            first_dense=self.first_k_dense_replace,
            router_bias=self.topk_method == "noaux_tc",
        )


class _DeepSeekV3(_DeepSeek):
    topk_method: str = "noaux_tc"


class _Gpt2(_Config):
    n_embd: _Size
    n_layer: _Blocks
    n_head: _Size
    n_positions: _Size = 1024
    n_inner: _Size | None = None
    vocab_size: _Size
    tie_word_embeddings: Flag = True
    add_cross_attention: Literal[False] = False

    def spec(self, name: str, source: str) -> TransformerSpec:
        return gpt(
            name,
            source=source,
            layers=self.n_layer,
            hidden=self.n_embd,
            heads=self.n_head,
            vocabulary=self.vocab_size,
            positions=self.n_positions,
            ffn=self.n_inner,
            tied=self.tie_word_embeddings,
        )


class _GptNeoX(_Config):
    hidden_size: _Size
    intermediate_size: _Size
    num_hidden_layers: _Blocks
    num_attention_heads: _Size
    vocab_size: _Size
    max_position_embeddings: _Size
    tie_word_embeddings: Flag = False
    attention_bias: Flag = True

    def spec(self, name: str, source: str) -> TransformerSpec:
        return gpt(
            name,
            family="gpt_neox",
            source=source,
            layers=self.num_hidden_layers,
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            vocabulary=self.vocab_size,
            positions=self.max_position_embeddings,
            position_rows=0,
            ffn=self.intermediate_size,
            tied=self.tie_word_embeddings,
            attention_bias=self.attention_bias,
        )


class _Opt(_Config):
    hidden_size: _Size
    ffn_dim: _Size
    num_hidden_layers: _Blocks
    num_attention_heads: _Size
    vocab_size: _Size
    max_position_embeddings: _Size
    word_embed_proj_dim: _Size | None = None
    do_layer_norm_before: Literal[True] = True
    remove_final_layer_norm: Literal[False] = Field(
        default=False, validation_alias="_remove_final_layer_norm"
    )
    layer_norm_elementwise_affine: Literal[True] = True
    enable_bias: Flag = True
    tie_word_embeddings: Flag = True

    def spec(self, name: str, source: str) -> TransformerSpec:
        if self.word_embed_proj_dim not in (None, self.hidden_size):
            raise InstanceError(
                f"model {name!r}: word_embed_proj_dim: found {self.word_embed_proj_dim}, "
                f"{self.hidden_size} is needed (hidden_size): projections next to the embedding, "
                "as in opt-350m, are not supported"
            )
        return gpt(
            name,
            family="opt",
            source=source,
            layers=self.num_hidden_layers,
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            vocabulary=self.vocab_size,
            positions=self.max_position_embeddings,
            # Positions start at 2; the first two rows exist all the same.
            position_rows=self.max_position_embeddings + 2,
            ffn=self.ffn_dim,
            tied=self.tie_word_embeddings,
            attention_bias=self.enable_bias,
            mlp_bias=self.enable_bias,
        )


class _Bloom(_Config):
    hidden_size: _Size = Field(validation_alias=AliasChoices("hidden_size", "n_embed"))
    n_layer: _Blocks = Field(validation_alias=AliasChoices("n_layer", "num_hidden_layers"))
    n_head: _Size = Field(validation_alias=AliasChoices("n_head", "num_attention_heads"))
    vocab_size: _Size
    seq_length: _Size = 2048
    tie_word_embeddings: Flag = True

    def spec(self, name: str, source: str) -> TransformerSpec:
        return gpt(
            name,
            family="bloom",
            source=source,
            layers=self.n_layer,
            hidden=self.hidden_size,
            heads=self.n_head,
            vocabulary=self.vocab_size,
            positions=self.seq_length,
            position_rows=0,
            tied=self.tie_word_embeddings,
            embedding_norm=True,
        )


class _Bert(_Config):
    hidden_size: _Size
    intermediate_size: _Size
    num_hidden_layers: _Blocks
    num_attention_heads: _Size
    vocab_size: _Size
    max_position_embeddings: _Size
    type_vocab_size: _Size = 2
    tie_word_embeddings: Literal[True] = True
    position_embedding_type: Literal["absolute"] = "absolute"
    is_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False

    def spec(self, name: str, source: str) -> TransformerSpec:
        return bert(
            name,
            source=source,
            layers=self.num_hidden_layers,
            hidden=self.hidden_size,
            heads=self.num_attention_heads,
            ffn=self.intermediate_size,
            vocabulary=self.vocab_size,
            positions=self.max_position_embeddings,
            token_types=self.type_vocab_size,
        )


_READERS: dict[str, type[_Config]] = {
    "llama": _Llama,
    "mistral": _Mistral,
    "mixtral": _Mixtral,
    "qwen2": _Qwen2,
    "qwen2_moe": _Qwen2Moe,
    "qwen3": _Qwen3,
    "qwen3_moe": _Qwen3Moe,
    "deepseek_v2": _DeepSeek,
    "deepseek_v3": _DeepSeekV3,
    "gpt2": _Gpt2,
    "gpt_neox": _GptNeoX,
    "opt": _Opt,
    "bloom": _Bloom,
    "bert": _Bert,
}
MODEL_TYPES = tuple(_READERS)
