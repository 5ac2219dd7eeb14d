"""What launchers keep in memory where they differ, and published peaks of theirs."""

from dataclasses import replace
from fractions import Fraction

import pytest

from nest_opt import InstanceError, RunConfiguration, SolveResult, bound, check, predict, solve
from nest_opt.cost.states import state_bytes
from nest_opt.models.activations import products_bytes, stash_bytes, work_bytes
from nest_opt.models.catalogue import find_model
from nest_opt.models.families import gpt
from nest_opt.models.memory import MEMORY_RULES, memory_rules, runtime_state_bytes
from nest_opt.models.share import Share
from nest_opt.models.spec import TransformerSpec
from nest_opt.prediction.predict import Reading
from nest_opt.problem import Configuration

LLAMA = find_model("llama-3-8b")
assert isinstance(LLAMA, TransformerSpec)
BLOOM = gpt(
    "bloom",
    source="BigScience, tr11-176B-ml/chronicles-prequel.md",
    layers=72,
    hidden=14336,
    heads=64,
    vocabulary=250880,
    positions=2048,
    position_rows=0,
    embedding_norm=True,
)


def share(runtime: str | None, tp: int = 1) -> Share:
    """Return two sequences of 8,192 tokens under the rules of a runtime."""
    return Share(
        microbatch=2,
        sequence_length=8192,
        configuration=Configuration(tp, 1, 1, False),
        memory=memory_rules(runtime),
    )


@pytest.mark.parametrize(
    ("runtime", "tp", "each"),
    [(None, 1, 4), ("megatron", 8, 6), ("torchtitan", 1, 12), ("torchtitan", 8, 16)],
)
def test_a_logit_takes_what_the_runtimes_loss_keeps(
    runtime: str | None, tp: int, each: int
) -> None:
    """The head's work is that many bytes for each logit of a rank."""
    logits = 2 * 8192 * (LLAMA.vocabulary // tp)
    assert work_bytes(LLAMA, share(runtime, tp), "head") == each * logits


def test_a_norm_after_the_embedding_keeps_its_input_under_a_runtime() -> None:
    """16 bits an element of the embedding's output, which problems without a runtime leave out."""
    elements = 2 * 8192 * BLOOM.hidden
    plain, kept = (stash_bytes(BLOOM, share(name), "embedding") for name in (None, "deepspeed"))
    assert (plain, kept) == (0, 2 * elements)


def test_every_second_product_is_kept() -> None:
    """A block of Llama keeps its input, q, v, the core's output, the gate and the last product.

    In widths of the hidden size 1 + 1 + 1/4 + 1 + 3.5 + 1, and 32 bits a head and token.
    """
    tokens = 2 * 8192
    widths = Fraction(31, 4) * LLAMA.hidden
    found = products_bytes(LLAMA, share("torchtitan"), "block")
    assert found == 2 * tokens * widths + 4 * tokens * LLAMA.heads


@pytest.mark.parametrize(
    ("runtime", "precision", "zero", "copies", "each"),
    [
        ("megatron", "fp16", 0, 1, 16),
        ("megatron", "bf16", 1, 4, 6 + 3),
        ("deepspeed", "fp16", 1, 1, 22),
        ("deepspeed", "bf16", 1, 8, 8 + Fraction(12, 8)),
        ("torchtitan", "bf16", 3, 8, 2),
        ("torchtitan", "fp8", 1, 8, 6 + 2),
    ],
)
def test_states_are_those_of_the_runtimes_optimizer(
    runtime: str, precision: str, zero: int, copies: int, each: Fraction
) -> None:
    """Bytes per parameter of one of some copies, as docs/runtimes.md adds them up."""
    convention = runtime_state_bytes(runtime, precision, zero)  # type: ignore[arg-type]
    assert state_bytes(convention, zero, copies) == each


def test_an_unknown_runtime_is_refused() -> None:
    """The message names it and the known ones."""
    with pytest.raises(InstanceError, match="'alpa', one of megatron, deepspeed, torchtitan"):
        memory_rules("alpa")
    assert list(MEMORY_RULES) == ["megatron", "deepspeed", "torchtitan"]


def test_products_of_experts_are_not_known() -> None:
    """Selective recomputation under torchtitan is refused for a mixture of experts, by name."""
    run = replace(TITAN, model="mixtral-8x7b", ep=8)
    with pytest.raises(InstanceError, match=r"selective under torchtitan .* has experts"):
        predict(run)


ZERO_BUBBLE = RunConfiguration(
    model=gpt(
        "6.2B", source="Qi et al. 2023, table 3", layers=30, hidden=4096, heads=32, tied=False
    ),
    cluster="dgx-a100",
    devices=8,
    pp=8,
    global_batch=72,
    microbatch=3,
    precision="fp16",
    attention="stored",
    stage_layers=(3, *[4] * 6, 3),
    runtime="megatron",
)
SWEEP = RunConfiguration(
    model=BLOOM,
    cluster="dgx-a100",
    devices=384,
    tp=8,
    pp=12,
    global_batch=2048,
    recompute="full",
    zero=1,
    attention="stored",
    precision="fp16",
    runtime="deepspeed",
)
TITAN = RunConfiguration(
    model=LLAMA,
    cluster="dgx-h100",
    devices=8,
    global_batch=16,
    microbatch=2,
    sequence_length=8192,
    recompute="selective",
    zero=3,
    runtime="torchtitan",
)
MIB = 2**20


@pytest.mark.parametrize(
    ("run", "reading", "peak"),
    [
        (ZERO_BUBBLE, "allocated", 39e9),
        (replace(ZERO_BUBBLE, schedule="zb-h1"), "allocated", 42e9),
        (SWEEP, "device", 29e3 * MIB),
        (replace(SWEEP, microbatch=4), "device", 49e3 * MIB),
        (replace(SWEEP, pp=6), "device", 38e3 * MIB),
        (TITAN, "reserved", 77.0 * 1024 * MIB),
        (replace(TITAN, devices=128, global_batch=256), "reserved", 62.0 * 1024 * MIB),
    ],
)
def test_published_peaks_are_met(run: RunConfiguration, reading: Reading, peak: float) -> None:
    """Within 10% of Qi et al. (table 4), BigScience's sweep, and torchtitan's tables 1 and 3."""
    found = predict(run, simulate=False)
    assert found.reading_bytes(reading) == pytest.approx(peak, rel=0.1)


def test_a_published_failure_is_recognised() -> None:
    """BigScience's run with pp 1 ran out of memory; with pp 2 it ran."""
    one = replace(SWEEP, pp=1, global_batch=2016)
    assert not predict(one, simulate=False).fits
    assert predict(replace(one, pp=2), simulate=False).fits


def test_readings_build_on_each_other() -> None:
    """The allocator holds 6% more than is allocated; the device the reserve besides."""
    found = predict(SWEEP, simulate=False)
    allocated = found.reading_bytes("allocated")
    reserve = found.memory[0].terms_bytes["reserve"]
    assert found.peak_bytes == allocated + reserve
    assert found.reading_bytes("reserved") == -(-allocated * 106 // 100)
    assert found.reading_bytes("device") == found.reading_bytes("reserved") + reserve


def test_what_is_not_sharded_reaches_search_and_certificate() -> None:
    """The best plan of a run holds 20 bytes a parameter in all, and a proof of it is checked."""
    found = predict(replace(ZERO_BUBBLE, runtime="deepspeed", precision="bf16"))
    plain = predict(replace(ZERO_BUBBLE, runtime=None, bytes_per_parameter=18))
    problem = found.plan().problem
    solved, bounded = solve(problem), bound(problem)
    assert isinstance(solved, SolveResult)
    assert solved.evaluation is not None
    held = sum(stage.memory_terms_bytes["states"] for stage in solved.evaluation.stages)
    assert 18 * held == 20 * sum(stage.terms_bytes["states"] for stage in plain.memory)
    assert bounded.certificate is not None
    assert check(bounded.certificate, problem).least_ps == solved.bound_ps
