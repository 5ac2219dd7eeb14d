"""`nest-opt predict`: files, options, Megatron-LM's arguments, and what is printed."""

from pathlib import Path
from typing import Any

import pytest
from cli_running import run, run_json, write

from nest_opt import InstanceError, predict
from nest_opt.plan.files import read_plan
from nest_opt.prediction.file import run_of
from nest_opt.prediction.megatron import megatron_fields

RUN: dict[str, Any] = {
    "format": "nest-opt-run",
    "version": 1,
    "model": "opt-6.7b",
    "cluster": "dgx-a100",
    "devices": 32,
    "tp": 2,
    "pp": 4,
    "global_batch": 64,
    "sequence_length": 2048,
}
DIMENSIONS = {"layers": 32, "hidden": 4096, "heads": 32, "vocabulary": 51200}
SCRIPT = """
# --tensor-model-parallel-size 4
GPUS=8
ARGS="--tensor-model-parallel-size 2 --sequence-parallel \\
  --pipeline-model-parallel-size=4"
torchrun pretrain_gpt.py $ARGS --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
  --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 --bf16 --vocab-size 51200 \\
  --num-layers-per-virtual-pipeline-stage 4 --recompute-granularity full --lr 1e-4 \\
  --use-distributed-optimizer --position-embedding-type rope --swiglu --num-query-groups 8
"""
# The least that states a model and a batch.
LINE = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 50257 "
    "--seq-length 2048 --global-batch-size 64 "
)


def test_json_is_the_prediction(tmp_path: Path) -> None:
    """The object's numbers are those of `predict` on the same run."""
    data = run_json("predict", write(tmp_path / "run.json", RUN))
    found = predict(run_of(RUN, "run"))
    assert data["status"] == "fits"
    assert data["iteration_is"] == "simulated"
    assert data["iteration_ps"] == str(found.iteration_ps)
    assert data["tokens_per_s_device"] == found.tokens_per_s_device
    assert [rate["utilisation"] for rate in data["flops"]] == [r.utilisation for r in found.rates]
    assert sum(map(int, data["formula_terms_ps"].values())) == found.formula_ps
    assert (data["degrees"]["dp"], data["degrees"]["pp"], data["global_batch"]) == (4, 4, 64)
    assert (data["precision"], data["recompute"], data["runtime"]) == ("bf16", "none", None)
    assert data["memory"]["peak_bytes"] == max(
        sum(stage["terms_bytes"].values()) for stage in data["memory"]["stages"]
    )


def test_options_go_before_the_file(tmp_path: Path) -> None:
    """An option replaces its field; the plan that is written has it."""
    plan = tmp_path / "plan.json"
    path = write(tmp_path / "run.json", RUN)
    result = run("predict", path, "--pp", "8", "--zero", "1", "--formula", "-o", plan)
    assert result.exit_code == 0
    assert "the closed form" in result.stdout
    written = read_plan(plan)
    assert (len(written.stages), written.dp, written.zero) == (8, 2, 1)  # type: ignore[union-attr]
    assert run("verify", plan, "--no-bounds").exit_code == 0


def test_a_run_without_room_is_predicted_with_a_warning(tmp_path: Path) -> None:
    """The exit code is 0, and both outputs say that it is out of memory."""
    path = write(tmp_path / "run.json", {**RUN, "devices": 8, "tp": 1, "pp": 1})
    result = run("predict", path)
    assert result.exit_code == 0
    assert "out of memory: 1 stage" in result.stdout
    assert run_json("predict", path)["status"] == "out-of-memory"


def test_a_model_by_its_dimensions(tmp_path: Path) -> None:
    """Options and a file state the same model."""
    options = [f"--{name}={value}" for name, value in DIMENSIONS.items()]
    common = ["--cluster", "dgx-a100", "--devices", "32", "--tp", "2", "--pp", "4"]
    batch = ["--global-batch", "64", "--seq-len", "2048"]
    by_options = run_json("predict", *options, *common, *batch)
    by_file = run_json("predict", write(tmp_path / "run.json", {**RUN, "model": DIMENSIONS}))
    assert by_options == by_file
    assert by_file["model"]["parameters"] == pytest.approx(12 * 32 * 4096**2, rel=0.05)


def test_arguments_of_megatron(tmp_path: Path) -> None:
    """A launch script states degrees, batch and model; comments and the rest are passed over."""
    fields = megatron_fields(SCRIPT)
    assert fields == {
        "runtime": "megatron",
        "tp": 2,
        "pp": 4,
        "virtual_stages": 2,
        "sequence_parallel": True,
        "sequence_length": 2048,
        "microbatch": 1,
        "global_batch": 64,
        "precision": "bf16",
        "recompute": "full",
        "zero": 1,
        "model": {
            **DIMENSIONS,
            **{"positions": 0, "gated": True, "kv_heads": 8, "tied": True, "ffn": 10880},
        },
    }
    script = tmp_path / "launch.sh"
    script.write_text(SCRIPT)
    data = run_json("predict", "--megatron", script, "--cluster", "dgx-a100", "--devices", "32")
    assert data["microbatches"] == 16


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("--fp8-format hybrid --bf16", "precision", "fp8"),
        ("--recompute-granularity full --recompute-method uniform", "recompute", "full"),
        ("--hidden-dropout 0 --attention-dropout 0.0", "dropout", False),
        ("--hidden-dropout 0", "dropout", True),
        ("--data-parallel-sharding-strategy optim_grads_params", "zero", 3),
        ("--cp-comm-type all_gather", "context_parallel", "all-gather"),
        ("# --micro-batch-size 8 \\\n--micro-batch-size 2 \\\r\n", "microbatch", 2),
        ("GPT_ARGS=(--micro-batch-size 2)", "microbatch", 2),
        ('A+="--micro-batch-size 2"; B=\'x', "microbatch", 2),
        ("--micro-batch-size 2 && echo --micro-batch-size=2", "microbatch", 2),
        ("--save /x--fp16 --bf16", "precision", "bf16"),
        ("--seq-length 4096", "sequence_length", None),
    ],
)
def test_what_an_argument_states(text: str, field: str, value: object) -> None:
    """The field has that value whatever the order; two values for one argument are refused."""
    if value is None:
        with pytest.raises(InstanceError, match="--seq-length: found it twice, with 2048 and 4096"):
            megatron_fields(LINE + text)
    else:
        assert megatron_fields(LINE + text)[field] == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--tensor-model-parallel-size 8", {"vocabulary": 51200}),
        ("--make-vocab-size-divisible-by 1", {"vocabulary": 50257}),
        ("--padded-vocab-size 60000", {"vocabulary": 60000}),
        ("--swiglu", {"ffn": 10880, "tied": True}),
        ("--swiglu --untie-embeddings-and-output-weights", {"tied": False}),
        ("--swiglu --ffn-hidden-size 14336 --num-experts 8", {"ffn": 14336, "top_k": 2}),
    ],
)
def test_what_is_not_said_is_as_megatron_has_it(text: str, expected: dict[str, Any]) -> None:
    """Defaults are Megatron-LM's where the run's file has others."""
    assert expected.items() <= megatron_fields(LINE + text)["model"].items()


def test_a_text_without_arguments_is_refused_as_a_run(tmp_path: Path) -> None:
    """An empty script states nothing, and is no output path either."""
    script = tmp_path / "launch.json"
    script.write_text("")
    result = run("predict", "--megatron", script)
    assert (result.exit_code, result.stderr[:21]) == (2, "error: --model: found")
    result = run("predict", "--megatron", script, "-o", script, width=400)
    assert result.exit_code == 2
    assert "is the input file itself" in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--recompute-granularity full --recompute-method block", ("method", "block", "uniform")),
        ("--recompute-num-layers 2", ("--recompute-num-layers", "2", "1 is needed")),
        ("--recompute-modules core_attn mlp", ("--recompute-modules", "mlp", "core_attn")),
        ("--decoder-first-pipeline-num-layers 7", ("decoder-first", "--stage-layers")),
        ("--expert-tensor-parallel-size 2", ("--expert-tensor", "2", "1 is needed")),
        ("--num-attention-heads 32 --hidden-size 4096 --kv-channels 96", ("96", "4096 / 32")),
        ("--a " * 2**16 + "-", ("262145 characters", "262144")),
        ("--hidden-dropout a", ("--hidden-dropout", "'a'", "number")),
        ("--num-layers 8 --num-layers 16", ("--num-layers", "8 and 16")),
        ("--num-layers $LAYERS", ("--num-layers", "$LAYERS", "variables")),
        ("--micro-batch-size", ("--micro-batch-size", "whole number")),
        ("--recompute-granularity some", ("some", "full or selective")),
        ("--num-layers 30 --num-layers-per-virtual-pipeline-stage 4", ("30", "4", "divisor")),
    ],
)
def test_arguments_that_cannot_be_read_are_refused(text: str, words: tuple[str, ...]) -> None:
    """The message names the argument and what was found."""
    with pytest.raises(InstanceError) as error:
        megatron_fields(text)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "nest-opt-plan"}, ("format", "nest-opt-run")),
        ({"version": 2}, ("version", "2", "1")),
        ({"version": True}, ("version", "true", "1")),
        ({"model": None}, ("run.json: model: found null",)),
        ({"model": {**DIMENSIONS, "gated": True, "positions": 9}}, ("model.positions", "9")),
        ({"model": {**DIMENSIONS, "gated": True, "embedding_norm": True}}, ("model.embedding",)),
        ({"tpp": 8}, ("tpp", "unknown field", "call it tp")),
        ({"foo": 8}, ("foo", "unknown field", "docs/cli.md")),
        ({"model": {"layers": 2}}, ("model", "hidden")),
        ({"model": DIMENSIONS, "sequence_length": None}, ("sequence_length", "dimensions")),
        ({"model": {**DIMENSIONS, "experts": 8}}, ("model.experts", "gated")),
        ({"model": {**DIMENSIONS, "layers": 10**30}}, ("model.layers",)),
        ({"devices": 10**15}, ("devices",)),
        ({"stage_layers": [8, 8, 8, 9]}, ("stage layers", "33", "32")),
        ({"capacity_factor": "nan"}, ("capacity_factor",)),
        ({"tp": 8, "pp": 8}, ("devices", "32", "64")),
    ],
)
def test_a_wrong_file_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    """Exit code 2, no traceback, and a message with the field and the number."""
    result = run("predict", write(tmp_path / "run.json", {**RUN, **changes}), width=400)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (["--model", "opt-6.7b"], "--cluster"),
        (["--layers", "8", "--hidden", "512", "--heads", "8"], "--vocabulary"),
        (["--model", "opt-6.7b", "--cluster", "dgx-a100", "--devices", "8"], "--global-batch"),
    ],
)
def test_what_options_leave_out_is_named(options: list[str], missing: str) -> None:
    """The message names the option that would give it."""
    result = run("predict", *options, width=400)
    assert result.exit_code == 2
    assert f"error: {missing}: found nothing, a value is needed" in result.stderr


def test_a_name_beside_dimensions_is_refused() -> None:
    """One of the two states the model."""
    result = run("predict", "--model", "opt-6.7b", "--layers", "8", "--cluster", "dgx-a100")
    assert result.exit_code == 2
    assert "a name or dimensions are allowed" in result.stderr
