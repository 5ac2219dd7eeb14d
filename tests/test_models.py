"""Model specifications: parameter counts to the last parameter, and what is refused."""

import re
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from published_models import (
    DEEPSEEK_R1_HUB_TOTAL,
    DEEPSEEK_V3_HUB_TOTAL,
    LLAMA2_HUB_TOTALS,
    MEGATRON_LOGS,
    QWEN3_HUB_TOTALS,
    SC21_TABLE_1,
    TOTALS,
)

from nest_opt.errors import InstanceError
from nest_opt.models.catalogue import MODELS, find_model
from nest_opt.models.families import gpt
from nest_opt.models.lookup import spelling
from nest_opt.models.parameters import (
    active_parameters,
    dense_parameters,
    expert_parallel_degrees,
    expert_parameters,
    parameters,
    parameters_per_rank,
    tensor_parallel_degrees,
    tied_parameters_per_rank,
)
from nest_opt.models.spec import LinearSpec, MlaSpec, ModelSpec, MoeSpec, TransformerSpec
from nest_opt.models.weight import Weight
from nest_opt.models.weights import (
    block_kinds,
    block_weights,
    embedding_weights,
    final_weights,
)

ROOT = Path(__file__).resolve().parent.parent
NAMES = tuple(entry.name for entry in MODELS)


def transformer(name: str) -> TransformerSpec:
    spec = find_model(name)
    assert isinstance(spec, TransformerSpec)
    return spec


def all_weights(spec: ModelSpec) -> list[Weight]:
    blocks = [weight for layer in range(spec.layers) for weight in block_weights(spec, layer)]
    return [*embedding_weights(spec), *blocks, *final_weights(spec)]


# Totals


@pytest.mark.parametrize(("name", "total", "source"), TOTALS, ids=[row[0] for row in TOTALS])
def test_total_is_the_published_one(name: str, total: int, source: str) -> None:
    """A catalogued model has exactly as many parameters as its publishers count."""
    assert parameters(find_model(name)) == total, source


@pytest.mark.parametrize(("name", "total"), LLAMA2_HUB_TOTALS)
def test_llama_2_files_hold_rotary_buffers_besides(name: str, total: int) -> None:
    """The hub's totals of Llama 2 are the parameters and one rotary table per layer."""
    spec = transformer(name)
    assert parameters(spec) + spec.layers * spec.head_dim // 2 == total


@pytest.mark.parametrize(("name", "total"), QWEN3_HUB_TOTALS)
def test_small_qwen_3_files_hold_the_tied_head_twice(name: str, total: int) -> None:
    """The hub's totals of tied Qwen 3 models count the embedding twice."""
    spec = transformer(name)
    assert parameters(spec) + tied_parameters_per_rank(final_weights(spec)) == total


def test_deepseek_files_are_the_model_a_prediction_module_and_scales() -> None:
    """DeepSeek's two hub totals are reproduced: with the MTP module, and with FP8 scales."""
    spec = transformer("deepseek-v3")
    # The module is one more block, two norms and a projection before it, a norm after it, and
    # copies of embedding and head.
    block = sum(weight.parameters for weight in block_weights(spec, spec.layers - 1))
    module = block + 2 * spec.hidden**2 + 3 * spec.hidden + 2 * spec.vocabulary * spec.hidden
    assert parameters(spec) + module == DEEPSEEK_R1_HUB_TOTAL

    # One scale per 128 x 128 tile of each matrix of a block, router and shared gate apart.
    def scales(weights: tuple[Weight, ...]) -> int:
        return sum(
            weight.copies * prod(-(-length // 128) for length in weight.shape)
            for weight in weights
            if weight.tokens and weight.role != "router"
        )

    blocks = sum(number * scales(weights) for weights, number in block_kinds(spec))
    module_scales = scales(block_weights(spec, spec.layers - 1))
    assert DEEPSEEK_R1_HUB_TOTAL + blocks + module_scales == DEEPSEEK_V3_HUB_TOTAL


@pytest.mark.parametrize(
    ("name", "encoder", "masked"),
    [("bert-base", 109_482_240, 109_514_298), ("bert-large", 335_141_888, 335_174_458)],
)
def test_bert_counts_depend_on_its_heads(name: str, encoder: int, masked: int) -> None:
    """BertModel has the pooler and no head, BertForMaskedLM the head and no pooler."""
    spec = transformer(name)
    assert parameters(replace(spec, head="none", next_sentence=False)) == encoder
    assert parameters(replace(spec, pooler=False, next_sentence=False)) == masked


@pytest.mark.parametrize(("billions", "layers", "hidden", "heads"), SC21_TABLE_1)
def test_gpt_sizes_round_to_the_printed_ones(
    billions: str, layers: int, hidden: int, heads: int
) -> None:
    """Megatron-LM's table of GPT sizes is reproduced to its printed digits."""
    spec = gpt(
        "gpt",
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=51200,
        positions=2048,
        source="arXiv:2104.04473, table 1",
    )
    assert f"{parameters(spec) / 10**9:.1f}" == billions


@pytest.mark.parametrize(
    ("name", "billions"),
    [("mixtral-8x7b", "12.9"), ("deepseek-v2", "21.4"), ("qwen1.5-moe-a2.7b", "2.7")],
)
def test_active_parameters_round_to_the_published_ones(name: str, billions: str) -> None:
    """What a token visits is what the model cards print."""
    assert f"{active_parameters(find_model(name)) / 10**9:.1f}" == billions


def test_deepseek_activates_what_its_weight_page_says() -> None:
    """Without the embedding, 36.6 of DeepSeek-V3's parameters (in billions) are active."""
    spec = transformer("deepseek-v3")
    embedding = sum(weight.parameters for weight in embedding_weights(spec))
    assert f"{(active_parameters(spec) - embedding) / 10**9:.1f}" == "36.6"


@pytest.mark.parametrize("name", NAMES)
def test_lists_by_layer_and_by_kind_agree(name: str) -> None:
    """The weights of all layers, one by one, make up the totals of each class."""
    spec = find_model(name)
    weights = all_weights(spec)
    assert sum(weight.parameters for weight in weights) == parameters(spec)
    assert dense_parameters(spec) + expert_parameters(spec) == parameters(spec)
    assert parameters_per_rank(weights) == (dense_parameters(spec), expert_parameters(spec))
    assert active_parameters(spec) <= parameters(spec)
    for weights_of_kind, _ in block_kinds(spec):
        names = [weight.name for weight in weights_of_kind]
        assert len(set(names)) == len(names)


def test_embedding_and_head_count_in_their_own_stage() -> None:
    """Of four stages of a small model the last, three blocks with norm and head, is largest."""
    # A public case: the largest stage counts, not the average.
    spec = TransformerSpec(
        name="small",
        family="gpt2",
        source="test",
        hidden=16,
        layers=8,
        heads=2,
        kv_heads=2,
        head_dim=8,
        ffn=64,
        gated=False,
        vocabulary=32,
        sequence_length=8,
        norm="layer",
    )
    counts, layer = [], 0
    for stage, size in enumerate((1, 2, 2, 3)):
        held = [weight for i in range(layer, layer + size) for weight in block_weights(spec, i)]
        held = [*embedding_weights(spec), *held] if stage == 0 else held
        held = [*held, *final_weights(spec)] if stage == 3 else held
        counts.append(parameters_per_rank(held).dense)
        layer += size
    assert counts == [3648, 6272, 6272, 9952]
    assert sum(counts) == parameters(spec)


def test_linear_stack_has_square_matrices_and_no_more() -> None:
    """Eight matrices of width 2304 are all there is, and tensor parallelism divides them once."""
    spec = find_model("linear-8x2304")
    assert spec == LinearSpec(layers=8, width=2304)
    assert parameters(spec) == active_parameters(spec) == 8 * 2304**2
    assert parameters_per_rank(all_weights(spec), tp=4) == (2 * 2304**2, 0)
    assert embedding_weights(spec) == final_weights(spec) == ()


# Per rank


@pytest.mark.parametrize(("name", "padded", "tp", "pp", "stage", "count", "source"), MEGATRON_LOGS)
def test_counts_per_rank_are_those_that_megatron_prints(
    name: str, padded: int, tp: int, pp: int, stage: int, count: int, source: str
) -> None:
    """A rank holds exactly as many parameters as training runs of Megatron-LM have logged."""
    # Megatron-LM pads the vocabulary to a multiple of 128 tp; it is padded here beforehand.
    spec = replace(transformer(name), vocabulary=padded)
    size = spec.layers // pp
    held = [w for i in range(stage * size, (stage + 1) * size) for w in block_weights(spec, i)]
    held = [*embedding_weights(spec), *held] if stage == 0 else held
    final = final_weights(spec) if stage == pp - 1 else ()
    tied = tied_parameters_per_rank(final, tp) if pp > 1 else 0
    assert parameters_per_rank([*held, *final], tp).dense + tied == count, source


def held_whole(spec: TransformerSpec) -> int:
    """Count from the dimensions what every tensor-parallel rank holds all of."""
    h, norm = spec.hidden, spec.hidden * (2 if spec.norm == "layer" else 1)
    each = 2 * norm + 2 * spec.head_dim * spec.qk_norm + h * spec.output_bias
    if spec.mla:
        each += spec.mla.kv_lora_rank * (h + 1) + spec.mla.rope_dim * h
        each += (spec.mla.q_lora_rank or 0) * (h + 1)
    total = spec.layers * each + h * spec.mlp_bias * (spec.layers - spec.moe_layers)
    if spec.moe:
        total += spec.moe_layers * spec.moe.experts * (h + spec.moe.router_bias)
        total += spec.moe_layers * h * spec.moe.shared_gate
    total += h * (spec.learned_positions + spec.token_types)
    total += norm * (spec.embedding_norm + spec.final_norm)
    total += (h * h + h) * spec.pooler + (2 * h + 2) * spec.next_sentence
    return total + (h * h + h + norm) * (spec.head == "mlm")


def added_by_splitting(spec: TransformerSpec, tp: int) -> int:
    """Count what padding the vocabulary and repeating key and value heads add over all ranks."""
    padding = -spec.vocabulary % tp
    rows = spec.hidden * (1 if spec.tied else 2) + (spec.head == "mlm")
    repeated = 0 if spec.mla else max(0, tp - spec.kv_heads)
    per_head = 2 * spec.head_dim * (spec.hidden + spec.qkv_bias)
    return padding * rows + spec.layers * repeated * per_head


@pytest.mark.parametrize("name", NAMES)
def test_ranks_hold_the_model_and_what_is_not_split(name: str) -> None:
    """Over all tensor- and expert-parallel ranks, each parameter is held as often as it must be."""
    spec = transformer(name)
    weights = all_weights(spec)
    for tp in tensor_parallel_degrees(spec, 128):
        expected = parameters(spec) + (tp - 1) * held_whole(spec) + added_by_splitting(spec, tp)
        dense, expert = parameters_per_rank(weights, tp)
        assert tp * (dense + expert) == expected
        for ep in expert_parallel_degrees(spec):
            shared = parameters_per_rank(weights, tp, ep)
            assert (shared.dense, ep * shared.expert) == (dense, expert)


@pytest.mark.parametrize("name", NAMES)
def test_legal_tensor_degrees_follow_from_heads_and_widths(name: str) -> None:
    """A degree divides heads and widths; key and value heads it divides or is a multiple of."""
    spec = transformer(name)
    widths = {spec.heads}
    if spec.moe_layers < spec.layers:
        widths.add(spec.ffn)
    if spec.moe:
        widths |= {spec.moe.expert_ffn, spec.moe.shared_ffn}
    legal = [
        tp
        for tp in range(1, 257)
        if all(width % tp == 0 for width in widths)
        and (spec.kv_heads % tp == 0 or tp % spec.kv_heads == 0)
    ]
    assert list(tensor_parallel_degrees(spec, 256)) == legal


def test_tied_head_multiplies_and_counts_once() -> None:
    """GPT-2's logits are a matrix product with a weight that counts in the embedding alone."""
    spec = transformer("gpt2")
    head = final_weights(spec)[-1]
    assert (head.tied, head.tokens, head.parameters) == (True, "all", 0)
    assert head.shape == (50257, 768)
    assert parameters_per_rank([head], tp=3) == (0, 0)
    assert tied_parameters_per_rank(final_weights(spec), tp=3) == 16753 * 768
    assert tied_parameters_per_rank(final_weights(transformer("llama-2-7b"))) == 0


def test_shapes_of_a_rank() -> None:
    """Columns, rows, key heads, vocabulary and experts are shared out along the right axis."""
    block = {weight.name: weight for weight in block_weights(find_model("qwen3-30b-a3b"), 0)}
    assert block["query"].rank_shape(8) == (512, 2048)
    assert block["key"].rank_shape(2) == (256, 2048)
    assert block["key"].rank_shape(8) == (128, 2048)
    assert block["output"].rank_shape(8) == (2048, 512)
    assert block["expert gate"].rank_shape(4) == (192, 2048)
    assert block["expert down"].rank_shape(4) == (2048, 192)
    assert block["router"].rank_shape(4) == (128, 2048)
    assert (block["expert up"].rank_copies(16), block["query"].rank_copies(16)) == (8, 1)
    assert block["expert up"].tokens == "routed"
    token = embedding_weights(find_model("gpt2"))[0]
    assert (token.rank_shape(2), token.tokens) == ((25129, 768), None)


# A product with every matrix is 2 operations per parameter and token (formulas of SC'21).


def test_matrix_operations_of_a_block_are_the_published_form() -> None:
    """What all tokens multiply by in a GPT block is 12 h^2; in Llama's 2h^2(1 + k/a) + 3hf."""

    def multiplied(name: str) -> int:
        return sum(
            weight.visited * prod(weight.shape)
            for weight in block_weights(find_model(name), 0)
            if weight.tokens
        )

    assert multiplied("megatron-22b") == 12 * 6144**2
    h, f = 8192, 28672
    assert multiplied("llama-3-70b") == 2 * h**2 + 2 * h**2 * 8 // 64 + 3 * h * f
    assert multiplied("mixtral-8x7b") == multiplied("mistral-7b") + 3 * 4096 * 14336 + 8 * 4096


# Errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 0}, "hidden: found 0, a whole number from 1"),
        ({"layers": 20_000}, "layers: found 20000, a whole number from 1 to 10000"),
        ({"ffn": 4.0}, "ffn: found 4.0, a whole number"),
        ({"vocabulary": True}, "vocabulary: found True, a whole number"),
        ({"heads": 10**30}, "heads: found more than 20 digits"),
        ({"kv_heads": 5}, "kv_heads: found 5, a divisor of 12 is needed"),
        ({"norm": "batch"}, "norm: found 'batch', one of rms, layer is needed"),
        ({"head": "span"}, "head: found 'span', one of linear, mlm, none"),
        ({"name": ""}, "model name: found 0 characters"),
        ({"next_sentence": True}, "next_sentence: found true without a pooler"),
        ({"moe": MoeSpec(experts=4, top_k=5, expert_ffn=8)}, "moe.top_k: found 5, at most 4"),
        ({"moe": MoeSpec(experts=4, top_k=1, expert_ffn=0)}, "moe.expert_ffn: found 0"),
        (
            {"moe": MoeSpec(experts=4, top_k=1, expert_ffn=8, first_dense=12)},
            "moe: found experts in none of 12 layers",
        ),
        (
            {"moe": MoeSpec(experts=4, top_k=1, expert_ffn=8, shared_gate=True)},
            "moe.shared_gate: found true, a shared expert is needed",
        ),
        (
            {"mla": MlaSpec(q_lora_rank=0, kv_lora_rank=8, nope_dim=8, rope_dim=8, value_dim=8)},
            "mla.q_lora_rank: found 0",
        ),
        (
            {"mla": MlaSpec(q_lora_rank=8, kv_lora_rank=8, nope_dim=8, rope_dim=8, value_dim=8)},
            "head_dim: found 64, 16 is needed",
        ),
        (
            {"mla": MlaSpec(q_lora_rank=8, kv_lora_rank=8, nope_dim=32, rope_dim=32, value_dim=8)},
            "mla: found a bias or qk_norm beside it",
        ),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str) -> None:
    """A specification that cannot be built names the item, what was found and what is allowed."""
    with pytest.raises(InstanceError, match=re.escape(message)):
        replace(transformer("gpt2"), **changes)


@pytest.mark.parametrize(
    ("name", "tp", "ep", "message"),
    [
        ("gpt2", 5, 1, "weight 'query': found 5 tensor-parallel ranks, a divisor of 12"),
        ("llama-3-8b", 3, 1, "weight 'query': found 3 tensor-parallel ranks, a divisor of 32"),
        ("llama-3-8b", 0, 1, "tp: found 0, a whole number from 1"),
        ("mixtral-8x7b", 1, 3, "weight 'expert gate': found 3 expert-parallel ranks, a divisor"),
        ("mixtral-8x7b", 1, 16, "a divisor of 8 is needed (experts)"),
        ("linear-2x6", 4, 1, "weight 'matrix': found 4 tensor-parallel ranks, a divisor of 6"),
    ],
)
def test_degrees_that_do_not_divide_are_refused(name: str, tp: int, ep: int, message: str) -> None:
    """A degree that cannot share out a weight is refused by the weight's name."""
    with pytest.raises(InstanceError, match=re.escape(message)):
        parameters_per_rank(block_weights(find_model(name), 0), tp, ep)


def test_key_heads_that_no_rank_could_share_evenly_are_refused() -> None:
    """With 12 key heads, 8 ranks neither divide them nor are a multiple of them."""
    spec = replace(transformer("gpt2"), heads=24, kv_heads=12, head_dim=32)
    with pytest.raises(InstanceError, match=r"'key': found 8 .* or a multiple of it"):
        parameters_per_rank(block_weights(spec, 0), tp=8)


@pytest.mark.parametrize("layer", [-1, 12])
def test_a_layer_that_does_not_exist_is_refused(layer: int) -> None:
    """Layers are counted from 0 to one below their number."""
    with pytest.raises(InstanceError, match=f"found layer {layer}, 0 to 11 are allowed"):
        block_weights(find_model("gpt2"), layer)


# Names


def test_names_and_aliases_are_unique() -> None:
    """No two models answer to the same spelling."""
    owners: dict[str, set[str]] = {}
    for entry in MODELS:
        for name in (entry.name, *entry.aliases):
            owners.setdefault(spelling(name), set()).add(entry.name)
    assert {key: names for key, names in owners.items() if len(names) > 1} == {}
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("LLAMA-2-7B", "llama-2-7b"),
        ("meta-llama/Llama-3.1-70B", "llama-3-70b"),
        ("Qwen2.5-7B", "qwen2-7b"),
        ("bert large uncased", "bert-large"),
        ("Linear-3x5", "linear-3x5"),
        ("OPT 1.3B", "opt-1.3b"),
        ("OPT 13B", "opt-13b"),
    ],
)
def test_names_are_found_in_any_case(asked: str, name: str) -> None:
    """Case, punctuation and the hub's identifiers lead to the same model."""
    assert find_model(asked).name == name


def test_unknown_name_proposes_the_nearest() -> None:
    """A misspelt name is answered with names that exist."""
    with pytest.raises(InstanceError, match=r"found 'mixtral-8x8b'.*did you mean mixtral-8x7b"):
        find_model("mixtral-8x8b")


def test_endless_linear_stack_is_refused() -> None:
    """A stack beyond the limits is an error, not an endless computation."""
    with pytest.raises(InstanceError, match="layers: found 999999999"):
        find_model("linear-999999999x4")


# Documentation


def test_documented_counts_are_the_computed_ones() -> None:
    """The table of docs/models.md lists every model, with the counts that the package computes."""
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| ([\d,]+) \| ([\d,]+) \|", page, re.MULTILINE)
    shown = {name: (total, active) for name, total, active in rows}
    computed = {
        entry.name: (f"{parameters(entry.spec):,}", f"{active_parameters(entry.spec):,}")
        for entry in MODELS
    }
    assert shown == computed
    for name, total, source in TOTALS:
        assert re.search(
            rf"^\| `{re.escape(name)}` \| {total:,} \|.*\| {re.escape(source)} \|$",
            page,
            re.MULTILINE,
        )
