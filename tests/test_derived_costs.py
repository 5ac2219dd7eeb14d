"""Derived memory, times and collectives against published formulas and known answers."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from nest_opt import InstanceError, Problem, solve
from nest_opt.cost.states import state_bytes
from nest_opt.models.accelerator import Accelerator
from nest_opt.models.activations import (
    checkpoint_bytes,
    first_stage_bytes,
    selective_bytes,
    stash_bytes,
    work_bytes,
)
from nest_opt.models.catalogue import find_model
from nest_opt.models.clusters import build_cluster
from nest_opt.models.derive import Training, default_training, layer_kinds, layer_types
from nest_opt.models.figure import Figure
from nest_opt.models.hardware import find_accelerator
from nest_opt.models.new_problem import BYTE_CONVENTIONS, new_problem
from nest_opt.models.operations import attention_flops, core_kernels, layer_work, model_flops
from nest_opt.models.parameters import parameters, parameters_per_rank
from nest_opt.models.share import Attention, Share
from nest_opt.models.spec import TransformerSpec
from nest_opt.models.weights import block_weights, embedding_weights, final_weights
from nest_opt.problem import Configuration
from nest_opt.problem.job import BytesPerParameter
from nest_opt.problem.validation import build

GIB = 2**30

# Korthikanti et al., arXiv:2205.05198, table 3 and figure 7: microbatch, hidden,
# heads, layers, stages, chunks; GiB of the first stage without recomputation
# (tensor parallelism 8) and with sequence parallelism and selective recomputation.
KORTHIKANTI = {
    "22B": (4, 6144, 64, 48, 1, 1, "59.25", "9.5625"),
    "175B": (1, 12288, 96, 96, 8, 3, "66.84375", "12.3516"),
    "530B": (1, 20480, 128, 105, 35, 3, "114.0234", "23.0762"),
    "1T": (1, 25600, 160, 128, 64, 1, "131.25", "26.5625"),
}


def gpt_spec(hidden: int, heads: int, layers: int) -> TransformerSpec:
    """Return a GPT of Megatron's shape."""
    return TransformerSpec(
        name="gpt",
        family="megatron",
        source="test",
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=4 * hidden,
        gated=False,
        vocabulary=51200,
        sequence_length=2048,
        norm="layer",
        learned_positions=2048,
    )


def gpt_share(microbatch: int, tp: int, sp: bool, attention: Attention) -> Share:
    """Return a rank's share of a microbatch of 2,048-token sequences with dropout."""
    return Share(
        microbatch=microbatch,
        sequence_length=2048,
        configuration=Configuration(tp, sp=sp),
        dropout=True,
        attention=attention,
    )


@pytest.mark.parametrize("size", KORTHIKANTI)
@pytest.mark.parametrize("selective", [False, True])
def test_first_stage_activations_of_korthikanti(size: str, selective: bool) -> None:
    """First-stage activation memory equals the published figures to their last digit."""
    microbatch, hidden, heads, layers, stages, chunks, *printed = KORTHIKANTI[size]
    share = gpt_share(microbatch, 8, selective, "stored")
    kept = selective_bytes if selective else stash_bytes
    layer = kept(gpt_spec(hidden, heads, layers), share, "block")
    total = first_stage_bytes(layer, layers, stages, chunks) / GIB
    digits = len(printed[selective].partition(".")[2])
    assert round(total, digits) == Fraction(printed[selective])


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("sp", [False, True])
@pytest.mark.parametrize("selective", [False, True])
def test_gpt_layer_formula(tp: int, sp: bool, selective: bool) -> None:
    """The sum over tensors is s b h (10 + 24/t + 5as/(ht)), with /t throughout under sp.

    Under selective recomputation the last term is gone, and with it all of the scores.
    """
    s, b, h, a = 2048, 3, 6144, 64
    core = 0 if selective else Fraction(5 * a * s, h * tp)
    outside = Fraction(10, tp if sp else 1)
    expected = s * b * h * (outside + Fraction(24, tp) + core)
    share = gpt_share(b, tp, sp, "stored")
    kept = selective_bytes if selective else stash_bytes
    assert kept(gpt_spec(h, a, 48), share, "block") == expected


def stored_profiles(
    attention: Attention = "stored", tp: int = 8, accelerator: str | Accelerator = "a100-80"
) -> dict[str, dict[str, Any]]:
    """Return Korthikanti's 22B model at microbatch 4 on A100s: a profile for each kind of layer."""
    training = Training(sequence_length=2048, dropout=True, attention=attention)
    accelerator, k = find_accelerator(accelerator), Configuration(tp)
    kinds = layer_types(gpt_spec(6144, 64, 48), accelerator, training, [4], [k])
    return {name: kind["profiles"][0] for name, kind in kinds.items()}


def test_selective_recomputation_of_korthikanti() -> None:
    """It repeats 5.9% of a layer's compute, full 35%; measured were 7% and 39% (table 4)."""
    block = stored_profiles()["block"]
    compute = block["forward_s"] + block["backward_input_s"] + block["backward_weight_s"]
    repeated = block["recompute"]["selective"]["repeated_forward_s"]
    assert round(repeated / compute, 3) == 0.059
    assert round(block["forward_s"] / compute, 3) == 0.35


def test_selective_footprint_by_hand() -> None:
    """It keeps all but 5 a s T bytes, which the work brings back; the core's kernels run again."""
    b, s, h, a, tp = 4, 2048, 6144, 64, 8
    accelerator = replace(find_accelerator("a100-80"), multiprocessors=None)
    footprints = stored_profiles(accelerator=accelerator)["block"]["recompute"]
    none, selective = footprints["none"], footprints["selective"]
    pairs = a * b * s * s // tp
    assert none["stash_bytes"] - selective["stash_bytes"] == 5 * pairs
    assert selective["work_bytes"] - none["work_bytes"] == 5 * pairs
    # Scores are written, softmax and dropout read and write them, dropout a mask; the output
    # reads them. Each product moves 2 of q, k, v and output. All are bound by memory, of which
    # products attain more; the output would not be if its 96 columns were cut into tiles.
    products, others = (2 + 2) * pairs + 2 * 4 * b * s * h // tp, (4 + 5) * pairs
    bandwidth = Fraction(accelerator.memory_bandwidth_bytes_per_s.value)
    expected = products / (bandwidth * Fraction(accelerator.memory_efficiency.value))
    expected += others / (bandwidth * Fraction(accelerator.elementwise_share.value))
    found = Fraction(str(selective["repeated_forward_s"]))
    assert abs(found - expected) <= Fraction(1, 10**12)


def test_launches_hide_collectives() -> None:
    """Where launches take longer than kernels they are the time, and the rest of it hides calls."""

    def block(launch_s: str) -> tuple[Fraction, Fraction]:
        """Return the time of all passes, and what of it hides collectives."""
        accelerator = replace(node, launch_s=Figure(Decimal(launch_s), "a test"))
        found = stored_profiles(accelerator=accelerator)["block"]
        passes = ("forward_s", "backward_input_s", "backward_weight_s")
        time = sum((Fraction(str(found[name])) for name in passes), Fraction(0))
        calls = found["collectives"]
        hidden = [Fraction(str(call.get("hidden_s", 0))) * call["count"] for call in calls]
        assert len(set(hidden)) == 1
        return time, sum(hidden, Fraction(0))

    node = find_accelerator("a100-80")
    spec = gpt_spec(6144, 64, 48)
    work = layer_work(spec, block_weights(spec, 0), gpt_share(4, 8, False, "stored"), "block")
    kernels = sum(len(works) for works in (work.forward, work.backward_input, work.backward_weight))
    busy, none = block("1e-6")
    assert none == 0
    launched, hidden = block("0.01")
    assert launched == Fraction(kernels, 100)
    assert abs(hidden - (launched - busy)) <= Fraction(5, 10**12)


def test_selective_recomputation_repeats_no_more_than_the_forward_pass() -> None:
    """Where launches are a narrow layer's time, its core may take longer than its forward pass."""
    spec = replace(
        gpt_spec(128, 12, 2), head_dim=64, ffn=256, learned_positions=1024, sequence_length=1024
    )
    training = Training(sequence_length=1024, attention="stored", dropout=True)
    kinds = layer_types(spec, find_accelerator("h100"), training, [4], [Configuration(1)])
    (block,) = kinds["block"]["profiles"]
    assert block["recompute"]["selective"]["repeated_forward_s"] == block["forward_s"]


def test_a_layer_takes_about_what_korthikanti_measured() -> None:
    """7.7 ms forward, 11.9 ms backward, collectives in them (table 4), no part of a fit: 15%."""
    block = stored_profiles()["block"]
    node = find_accelerator("a100-80")
    link = float(node.fast_link_bytes_per_s.value) * float(node.fast_link_efficiency.value)
    calls = 2 * 2 * 7 / 8 * block["collectives"][0]["bytes"] / link
    assert block["forward_s"] + calls == pytest.approx(7.7e-3, rel=0.1)
    backward = block["backward_input_s"] + block["backward_weight_s"] + calls
    assert backward == pytest.approx(11.9e-3, rel=0.15)


def test_nothing_is_repeated_outside_blocks() -> None:
    """Embedding and head lose nothing under selective recomputation, and repeat nothing."""
    profiles = stored_profiles()
    for kind in ("embedding", "head"):
        footprints = profiles[kind]["recompute"]
        assert footprints["selective"] == {**footprints["none"], "repeated_forward_s": 0}


def test_flash_attention_has_nothing_to_recompute_selectively() -> None:
    """With flash attention no layer offers the mode; the backward pass repeats the core anyway."""
    for profile in stored_profiles("flash").values():
        assert set(profile["recompute"]) == {"none", "full"}


def test_stored_scores_have_all_products() -> None:
    """Without flash attention the core has 2 products forward and 4 backward, of the whole square.

    With it a causal mask halves them, and the backward pass has one more.
    """
    spec, b, s, h = gpt_spec(6144, 64, 48), 2, 2048, 6144
    for attention, expected in (("stored", (4, 8)), ("flash", (2, 5))):
        kernels = core_kernels(spec, gpt_share(b, 8, False, attention))
        for works, products in zip(kernels, expected, strict=True):
            assert 8 * sum(work.flops for work in works) == products * b * s**2 * h


@pytest.mark.parametrize(("sp", "expected"), [(False, 2), (True, Fraction(2, 8))])
def test_full_recomputation_keeps_the_input(sp: bool, expected: Fraction) -> None:
    """A recomputed layer keeps 2 s b h bytes, sharded under sequence parallelism."""
    share = gpt_share(1, 8, sp, "flash")
    kept = checkpoint_bytes(gpt_spec(6144, 64, 48), share, "block")
    assert kept == expected * 2048 * 6144


def test_head_works_on_32_bit_logits() -> None:
    """The head's peak is 4 bytes a logit of the rank's part of the vocabulary."""
    share = gpt_share(2, 8, False, "flash")
    assert work_bytes(gpt_spec(6144, 64, 48), share, "head") == 4 * 2 * 2048 * 51200 // 8


def test_llama_layer_by_hand() -> None:
    """Llama-3-8B at tp 2: inputs of norms and projections, q, k, v, output, gate, up, product."""
    spec = find_model("llama-3-8b")
    share = Share(microbatch=1, sequence_length=4096, configuration=Configuration(2))
    tokens, h, f, kv, a = 4096, 4096, 14336, 1024, 32
    whole = 4 * h
    split = (2 * h + 2 * kv + 3 * f) // 2
    expected = 2 * tokens * (whole + split) + 4 * tokens * a // 2
    assert stash_bytes(spec, share, "block") == expected


def test_mixture_keeps_tokens_per_visited_expert() -> None:
    """Mixtral keeps, per token, the tensors of two experts, and the router's scores."""
    spec = find_model("mixtral-8x7b")
    share = Share(microbatch=1, sequence_length=64, configuration=Configuration(1))
    h, f, kv, a = 4096, 14336, 1024, 32
    per_token = 2 * (4 * h + 2 * h + 2 * kv + 2 * 3 * f + 2 * 2 * h) + 4 * a + 4 * 8
    assert stash_bytes(spec, share, "experts") == 64 * per_token


def test_forward_flops_of_megatron_gpt() -> None:
    """Products and attention of a GPT layer are 24 b s h^2 + 4 b s^2 h (2 under a causal mask)."""
    spec, b, s, h = gpt_spec(6144, 64, 48), 2, 2048, 6144
    assert model_flops(spec, block_weights(spec, 0), b, s) == 24 * b * s * h**2
    assert attention_flops(spec, b, s) == 2 * b * s**2 * h
    assert model_flops(spec, final_weights(spec), b, s) == 2 * b * s * h * 51200


@pytest.mark.parametrize("name", ["llama-3-70b", "gpt-3-175b", "mixtral-8x7b", "deepseek-v3"])
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_ranks_share_the_products(name: str, tp: int) -> None:
    """FLOPs of split products over all ranks are those of the model; none is lost or doubled."""
    spec = find_model(name)
    assert isinstance(spec, TransformerSpec)
    weights = [w for w in block_weights(spec, spec.layers - 1) if w.split != "replicated"]
    if tp > spec.kv_heads:
        weights = [w for w in weights if not w.shareable]
    share = Share(microbatch=1, sequence_length=2048, configuration=Configuration(tp))
    kind = "experts" if spec.moe else "block"
    core = attention_flops(spec, 1, 2048)
    found = sum(work.flops for work in layer_work(spec, weights, share, kind).forward)
    assert tp * found == model_flops(spec, weights, 1, 2048) + core


@pytest.mark.parametrize(
    ("convention", "expected"),
    [
        (16, ["16", "4 + 12/D", "2 + 14/D", "16/D"]),
        (18, ["18", "6 + 12/D", "2 + 16/D", "18/D"]),
        (20, ["20", "4 + 16/D", "2 + 18/D", "20/D"]),
    ],
)
@pytest.mark.parametrize("copies", [1, 2, 7, 64])
def test_bytes_per_parameter_of_zero(convention: int, expected: list[str], copies: int) -> None:
    """Each level shards one more part of the state over the copies."""
    weights, gradients, optimizer = BYTE_CONVENTIONS[convention]
    given = BytesPerParameter(weights=weights, gradients=gradients, optimizer=optimizer)
    for level, formula in enumerate(expected):
        terms = [term.split("/D") for term in formula.split(" + ")]
        value = sum(Fraction(int(n[0]), copies if len(n) > 1 else 1) for n in terms)
        assert state_bytes(given, level, copies) == value


def test_zero_paper_example() -> None:
    """7.5e9 parameters on 64 ranks: 120, 31.4, 16.6 and 1.9 GB (ZeRO paper, figure 1)."""
    given = BytesPerParameter(weights=2, gradients=2, optimizer=12)
    sizes = [float(75 * 10**8 * state_bytes(given, level, 64)) / 1e9 for level in range(4)]
    assert [round(size, 1) for size in sizes] == [120.0, 31.4, 16.6, 1.9]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_tensor_parallelism_divides_states_exactly_once(level: int) -> None:
    """States of the split weights at tp 8 are one eighth of those at tp 1, at any ZeRO level."""
    spec = find_model("gpt-3-175b")
    split = [w for w in block_weights(spec, 0) if w.split != "replicated"]
    given = BytesPerParameter(weights=2, gradients=4, optimizer=12)
    one, eight = (
        parameters_per_rank(split, tp).dense * state_bytes(given, level, 16) for tp in (1, 8)
    )
    assert one == 8 * eight


def linear_problem(bandwidth: int, **search: list[int]) -> Problem:
    """Return eight 2304-wide fp32 layers, batch 16,384, on 4 devices of some bandwidth."""
    spec, accelerator = find_model("linear-8x2304"), find_accelerator("a100-80")
    data = build_cluster("dgx-a100", 4).model_dump(mode="json")
    data["network"]["levels"][0] |= {"bandwidth_bytes_per_s": bandwidth, "latency_s": 0}
    cluster = type(build_cluster("dgx-a100", 4)).model_validate(data)
    training = default_training(spec).__class__(sequence_length=1, element_bytes=4)
    problem = new_problem(
        spec, cluster, accelerator, training, global_batch=16384, microbatches=(4096, 16384)
    )
    data = problem.model_dump(mode="json")
    data["search"] |= search
    data["job"]["bytes_per_parameter"] = {"weights": 4, "gradients": 4, "optimizer": 8}
    return build(Problem, data, "linear")


@pytest.mark.parametrize("bandwidth", [10**6, 10**9, 10**11, 10**13])
def test_data_parallelism_beats_tensor_parallelism_of_small_layers(bandwidth: int) -> None:
    """Gradients of 8 x 2304^2 are fewer bytes than activations of 16,384 rows, at any bandwidth."""
    values = []
    for search in (
        {"tp": [1], "dp": [4], "pp": [1], "microbatch": [4096]},
        {"tp": [4], "dp": [1], "pp": [1], "microbatch": [16384]},
    ):
        result = solve(linear_problem(bandwidth, **search))
        assert result.evaluation is not None
        values.append(result.evaluation.value_ps)
    assert values[0] < values[1]


def test_llama_3_70b_at_18_bytes_leaves_no_room_on_16_devices() -> None:
    """States alone take 79.4e9 bytes of each of 16 devices; the diagnosis names what does fit."""
    spec = find_model("llama-3-70b")
    assert parameters(spec) == 70_553_706_496
    assert 79.3e9 < parameters(spec) * 18 / 16 < 79.4e9
    cluster = build_cluster("dgx-h100", 16)
    training = default_training(spec, 8192)
    problem = new_problem(
        spec, cluster, find_accelerator("h100"), training, global_batch=64, microbatches=(1,)
    )
    result = solve(problem)
    assert result.status == "infeasible"
    assert result.diagnosis is not None
    heaviest = result.diagnosis.heaviest
    assert heaviest is not None
    terms = heaviest.memory_terms_bytes
    assert max(terms, key=lambda name: terms[name]) == "states"
    assert heaviest.memory_bytes > heaviest.usable_bytes
    assert result.diagnosis.devices is not None
    assert result.diagnosis.devices > 16


def test_embedding_blocks_and_head_hold_all_parameters() -> None:
    """The layers of a derived graph hold the model's parameters, each once where untied."""
    spec = find_model("deepseek-v3")
    kinds = layer_kinds(spec)
    assert [kind for _, kind, _ in kinds] == ["embedding", "block", "experts", "head"]
    problem = new_problem(
        spec,
        build_cluster("dgx-h100", 8),
        find_accelerator("h100"),
        default_training(spec, 4096),
        global_batch=8,
        microbatches=(1,),
    )
    types = problem.model.types
    profiles = [kind.by_key[1, Configuration(1)] for kind in types]
    assert sum(p.dense_parameters + p.expert_parameters for p in profiles) == parameters(spec)
    assert len(embedding_weights(spec)) == 1


def test_a_sequence_beyond_the_table_of_positions_is_refused() -> None:
    """GPT-2 has 1,024 positions; 2,048 tokens are refused with both numbers."""
    with pytest.raises(InstanceError, match="found 2048 tokens, at most 1024 are allowed"):
        default_training(find_model("gpt2"), 2048)


def test_an_unknown_byte_convention_is_refused() -> None:
    """17 bytes a parameter is no convention; the known ones are named."""
    spec = find_model("gpt2")
    with pytest.raises(InstanceError, match="found 17, one of 16, 18, 20 is needed"):
        new_problem(
            spec,
            build_cluster("dgx-h100", 8),
            find_accelerator("h100"),
            default_training(spec),
            global_batch=8,
            bytes_per_parameter=17,
        )
