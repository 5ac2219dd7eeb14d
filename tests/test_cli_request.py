"""Problems by name: `new`, `solve` with the same options, `import hf-config`, `list`."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import pytest
from cli_running import run, run_json, write
from hf_configs import CONFIGS

from nest_opt import InstanceError
from nest_opt.cli.request_options import ATTENTIONS, COLLECTIVES, OBJECTIVES
from nest_opt.models.catalogue import MODELS, find_model
from nest_opt.models.clusters import CLUSTERS, SHAPED_CLUSTERS, build_cluster
from nest_opt.models.hardware import ACCELERATORS, find_accelerator
from nest_opt.models.parameters import parameters
from nest_opt.models.request import (
    MAX_DEFAULT_LENGTH,
    MAX_TOKENS,
    Request,
    derive_problem,
    find_spec,
)
from nest_opt.models.share import Attention
from nest_opt.models.spec import TransformerSpec
from nest_opt.problem import Configuration
from nest_opt.problem.files import read_problem, to_json_text
from nest_opt.problem.hierarchical import CollectiveModel
from nest_opt.problem.job import OBJECTIVES as JOB_OBJECTIVES

SMALL = Request(model="bert-large", cluster="dgx-h100", devices=4, global_batch=16)
OPTIONS = (
    "--model", "bert-large", "--cluster", "dgx-h100", "--devices", 4, "--global-batch", 16,
)  # fmt: skip


def without(option: str) -> tuple[object, ...]:
    """Return the options with one of them, and its value, left out."""
    place = OPTIONS.index(option)
    return OPTIONS[:place] + OPTIONS[place + 2 :]


def stash(request: Request, kind: str = "block") -> int:
    """Return a layer's stash for microbatch 1 on one rank."""
    profile = derive_problem(request).problem.model.layer_types[kind].by_key[1, Configuration(1)]
    return profile.recompute["none"].stash_bytes


# Requests


def test_a_request_reaches_every_part_of_the_problem() -> None:
    """Devices, network, batch, byte convention, objective and microbatches are as asked for."""
    request = replace(
        SMALL,
        devices=16,
        sequence_length=256,
        bytes_per_parameter=20,
        objective="nest",
        microbatches=(2, 3, 4),
        algorithms=("ring",),
        accelerator="h200",
    )
    problem = derive_problem(request).problem
    assert problem.cluster.device_count == 16
    assert problem.cluster.device_kind == build_cluster("dgx-h100", 16, "h200").device_kind
    assert problem.cluster.network.algorithms == ("ring",)
    assert problem.job.global_batch == 16
    assert problem.job.sequence_length == 256
    assert problem.job.bytes_per_parameter.total == 20
    assert problem.job.objective == "nest"
    assert problem.search.microbatch == (2, 4)
    assert problem.name == "bert-large on 16 x h200 (dgx-h100)"


def test_bandwidths_are_attained_ones_unless_peaks_are_asked_for() -> None:
    """Attained bandwidth is the peak times the catalogue's efficiency, and the note says which."""
    attained, peak = (derive_problem(replace(SMALL, achievable=a)).problem for a in (True, False))
    h100 = find_accelerator("h100")
    levels = [problem.cluster.network.levels[0] for problem in (attained, peak)]
    assert levels[1].bandwidth_bytes_per_s == h100.fast_link_bytes_per_s.value
    assert levels[0].bandwidth_bytes_per_s == (
        h100.fast_link_bytes_per_s.value * h100.fast_link_efficiency.value
    )
    assert "bandwidths attained by large collectives" in attained.note
    assert "bandwidths at their peak" in peak.note


def test_attention_and_capacity_change_what_is_kept() -> None:
    """Stored scores cost memory, and padded experts keep more than balanced ones."""
    flash, stored = (stash(replace(SMALL, attention=a)) for a in ("flash", "stored"))
    assert stored > flash
    moe = replace(SMALL, model="qwen1.5-moe-a2.7b", microbatches=(1,))
    balanced, padded = (
        stash(replace(moe, capacity_factor=factor), "experts")
        for factor in (Fraction(1), Fraction(3, 2))
    )
    assert padded > balanced


def test_sequence_length_rule() -> None:
    """Without a length the model's default is taken up to the cap, and the rule is said."""
    short, long = (replace(SMALL, model=name) for name in ("llama-2-7b", "mixtral-8x7b"))
    found = derive_problem(short)
    assert (found.training.sequence_length, found.length_rule) == (4096, "the model's default")
    found = derive_problem(long)
    assert found.training.sequence_length == MAX_DEFAULT_LENGTH == found.problem.job.sequence_length
    assert "default of 32,768 is capped at 8,192" in found.length_rule
    found = derive_problem(replace(long, sequence_length=32768))
    assert (found.training.sequence_length, found.length_rule) == (32768, "as asked")


def test_a_model_may_be_a_specification_with_a_long_name() -> None:
    """A specification needs no catalogue, and its name is cut where the problem's has no room."""
    spec = find_model("bert-base")
    assert isinstance(spec, TransformerSpec)
    found = derive_problem(replace(SMALL, model=replace(spec, name="x" * 200)))
    assert found.problem.name.endswith("x on 4 x h100 (dgx-h100)")
    assert len(found.problem.name) == 200


def test_names_and_paths_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .json or a file in a folder is a path; a hub's name is none, even beside such a folder."""
    monkeypatch.chdir(tmp_path)
    Path("openai-community/gpt2").mkdir(parents=True)
    write(Path("mine.json"), CONFIGS["llama-2-7b"])
    write(Path("openai-community/settings"), CONFIGS["llama-2-7b"])
    assert find_spec("openai-community/gpt2") == find_model("gpt2")
    assert find_spec("mine.json").name == "mine"
    assert find_spec("openai-community/settings").name == "settings"
    for missing in ("nowhere.json", "nowhere/settings", "x/" * 3000):
        with pytest.raises(InstanceError, match=r"cannot be read|found '"):
            find_spec(missing)


def test_choices_are_those_of_the_engine() -> None:
    """Objectives and kinds of attention that the options allow are all there are."""
    assert OBJECTIVES == JOB_OBJECTIVES
    assert set(ATTENTIONS) == set(get_args(Attention))
    assert set(COLLECTIVES) == set(get_args(CollectiveModel))


# new


def test_new_prints_the_problem_and_says_what_it_is(tmp_path: Path) -> None:
    """The problem is the derived one, on standard output or in a file; the rest goes beside it."""
    path = tmp_path / "problem.json"
    text = to_json_text(derive_problem(SMALL).problem)
    printed, written = run("new", *OPTIONS), run("new", *OPTIONS, "-o", path)
    data = run_json("new", *OPTIONS, "-o", path)
    assert (printed.exit_code, written.exit_code) == (0, 0)
    assert printed.stdout == text == path.read_text()
    assert json.loads(text) == data["problem"]
    assert (data["status"], data["output"]) == ("derived", str(path))
    assert written.stdout.startswith(f"wrote {path}: problem 'bert-large on 4 x h100 (dgx-h100)'")
    assert written.stderr == ""
    summary = written.stdout.partition("\n")[2]
    assert printed.stderr == summary
    assert read_problem(path) == derive_problem(SMALL).problem


def test_the_summary_has_the_numbers_that_matter() -> None:
    """Parameters, states, batch, length with its rule, training and memory are said."""
    moe = ("--model", "mixtral-8x7b", *without("--model"), "--microbatch", "1,3")
    text = " ".join(run("new", *moe).stderr.split())
    for part in (
        "46,702,792,704 parameters: 1,605,636,096 dense and 45,097,156,608 of experts; "
        "12,879,925,248 active for each token",
        "18 bytes per parameter (weights 2, gradients 4, optimizer 12): 840.7 GB",
        "16 sequences of 8,192 tokens (the model's default of 32,768 is capped at 8,192 unless "
        "asked for); microbatch 1 (3 does not divide the batch)",
        "causal attention (flash), without dropout, capacity factor 1, expert imbalance 1, "
        "objective fill-drain",
        "dgx-h100: 4 x h100, network levels node 8; 80 GB of memory usable on each, 3.664 GB of "
        "it reserved; attained bandwidths",
    ):
        assert part in text
    data = run_json("new", *moe)["derived_from"]
    assert data["model"]["parameters"] == 46_702_792_704
    assert data["model"]["active_parameters"] == 12_879_925_248
    assert data["training"]["sequence_length"] == 8192
    assert data["cluster"]["usable_bytes"] == 80 * 10**9


def test_options_reach_the_problem() -> None:
    """Each option changes the request's field of its name."""
    options = (
        *("--seq-len", 128, "--accelerator", "A100", "--bytes-per-parameter", 16),
        *("--objective", "bottleneck", "--microbatch", "2, 4", "--attention", "stored"),
        "--peak-bandwidth",
    )
    expected = replace(
        SMALL,
        sequence_length=128,
        accelerator="a100-80",
        bytes_per_parameter=16,
        objective="bottleneck",
        microbatches=(2, 4),
        attention="stored",
        achievable=False,
    )
    printed = run("new", *OPTIONS, *options).stdout
    assert printed == to_json_text(derive_problem(expected).problem)
    moe = ("--model", "qwen-moe", *without("--model"), "--capacity-factor", "1.25")
    asked = replace(SMALL, model="qwen-moe", capacity_factor=Fraction(5, 4))
    assert run("new", *moe).stdout == to_json_text(derive_problem(asked).problem)
    wide = (*moe, "--cp", "1,2", "--context-parallel", "all-gather", "--expert-imbalance", "2.5")
    asked = replace(
        asked,
        context_parallel_degrees=(1, 2),
        context_parallel="all-gather",
        expert_imbalance=Fraction(5, 2),
    )
    found = run("new", *wide)
    assert found.stdout == to_json_text(derive_problem(asked).problem)
    assert "context parallelism 1, 2 (all-gather), capacity factor 1.25, expert imbalance 2.5" in (
        " ".join(found.stderr.split())
    )
    training = run_json("new", *wide)["derived_from"]["training"]
    assert training["cp"] == [1, 2]
    assert training["context_parallel"] == "all-gather"
    assert training["expert_imbalance"] == 2.5


def test_a_fixed_cp_has_profiles() -> None:
    """`solve --fix cp=2` derives what it needs, on the smallest number of devices too."""
    data = run_json("solve", *OPTIONS, "--fix", "cp=2")
    assert data["plan"]["cp"] == 2
    assert data["derived_from"]["training"]["cp"] == [2]
    fixed = ("solve", *without("--devices"), "--smallest", "--fix", "cp=16", "--fix", "pp=1")
    for options in (fixed, (*fixed, "--cp", "1,16")):
        data = run_json(*options)
        assert (data["plan"]["cp"], data["smallest"]["devices"]) == (16, 16)
    refused = run("solve", *OPTIONS, "--cp", "1", "--fix", "cp=2")
    assert refused.exit_code == 2
    assert "cp=2 has no profile" in refused.stderr


BAD: list[tuple[tuple[object, ...], str]] = [
    (without("--model"), "--model: found nothing, a model (see `nest-opt list models`)"),
    (without("--cluster"), "--cluster: found nothing, a kind of cluster"),
    (without("--devices"), "--devices: found nothing, a number of devices, or --smallest, is"),
    (without("--global-batch"), "--global-batch: found nothing, a number of sequences is needed"),
    ((*OPTIONS, "--smallest"), "--smallest: found --devices 4 beside it, one of the two is"),
    ((*OPTIONS, "--model", "lama-2-7b"), "did you mean llama-2-7b"),
    ((*OPTIONS, "--model", "nowhere.json"), "nowhere.json: cannot be read"),
    ((*OPTIONS, "--cluster", "dgx-h10"), "did you mean dgx-h100"),
    ((*OPTIONS, "--accelerator", "h1000"), "did you mean h100"),
    ((*OPTIONS, "--devices", 0), "found 0 devices, 1 to 1048576 are allowed"),
    ((*OPTIONS, "--devices", -8), "found -8 devices, 1 to 1048576 are allowed"),
    ((*OPTIONS, "--devices", 12), "a multiple of 8 is needed beyond 8"),
    ((*OPTIONS, "--devices", 10**9), "found 1000000000 devices, 1 to 1048576 are allowed"),
    ((*OPTIONS, "--devices", "9" * 5000), "a whole number of at most 20 characters is needed"),
    ((*OPTIONS, "--devices", "eight"), "found 'eight', a whole number"),
    ((*OPTIONS, "--devices", "8.0"), "found '8.0', a whole number"),
    ((*OPTIONS, "--global-batch", 0), "global batch: found 0, a whole number from 1 to"),
    ((*OPTIONS, "--global-batch", 2**41), "global batch: found 2199023255552, a whole number"),
    ((*OPTIONS, "--seq-len", 0), "sequence length: found 0, a whole number from 1 to 16777216"),
    ((*OPTIONS, "--seq-len", 513), "found 513 tokens, at most 512 are allowed (learned positions"),
    ((*OPTIONS, "--bytes-per-parameter", 17), "found 17, one of 16, 18, 20 is needed"),
    ((*OPTIONS, "--objective", "speed"), "'speed' is not one of 'fill-drain', 'nest'"),
    ((*OPTIONS, "--microbatch", "3,5"), "none of the microbatch sizes 3, 5 divides"),
    ((*OPTIONS, "--microbatch", "1,0"), "microbatch: found 0, a whole number from 1"),
    ((*OPTIONS, "--microbatch", "1,1"), "microbatch: found 1 twice, once is allowed"),
    ((*OPTIONS, "--microbatch", "1,"), "found '', a whole number"),
    ((*OPTIONS, "--microbatch", 2**20), "at most 16777216 tokens in a microbatch are allowed"),
    ((*OPTIONS, "--attention", "fast"), "'fast' is not one of 'flash', 'stored'"),
    ((*OPTIONS, "--capacity-factor", "1.5"), "only 1 is allowed for bert-large, which has no"),
    ((*OPTIONS, "--capacity-factor", "0"), "found 0, 1 to 100 is needed"),
    ((*OPTIONS, "--capacity-factor", "101"), "found 101, 1 to 100"),
    ((*OPTIONS, "--capacity-factor", "1/2"), "found '1/2', a number such as 1.25 is needed"),
    ((*OPTIONS, "--cp", "1,2.5"), "found '2.5', a whole number"),
    ((*OPTIONS, "--cp", "3"), "found 3 context-parallel ranks for sequences of 512 tokens"),
    ((*OPTIONS, "--context-parallel", "all-gather"), "a cp above 1 is needed: ask for one, as in"),
    ((*OPTIONS, "--expert-imbalance", "2"), "only 1 is allowed for bert-large, which has no"),
    (
        (*OPTIONS, "--model", "linear-2x64", "--attention", "stored"),
        "attention: found 'stored', none can be chosen for linear-2x64",
    ),
]


@pytest.mark.parametrize("command", ["new", "solve"])
@pytest.mark.parametrize(("options", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_options_are_refused(command: str, options: tuple[object, ...], message: str) -> None:
    """A wrong option exits with 2 and says what is needed, in text and in JSON."""
    plain, as_json = run(command, *options), run(command, *options, "--json")
    assert plain.exit_code == as_json.exit_code == 2
    assert plain.stdout == ""
    assert plain.stderr.startswith("error: ")
    assert message in plain.stderr
    assert message in json.loads(as_json.stdout)["error"]


def test_longest_sequence_is_derived() -> None:
    """The limit on tokens is itself allowed."""
    request = replace(SMALL, model="qwen2-0.5b", sequence_length=MAX_TOKENS, microbatches=(1,))
    assert derive_problem(request).problem.job.sequence_length == MAX_TOKENS


def test_new_refuses_output_paths(tmp_path: Path) -> None:
    """The model's own file is not overwritten, and a path that cannot be written exits with 2."""
    config = write(tmp_path / "mine.json", CONFIGS["llama-2-7b"])
    before = config.read_text()
    options = ("--model", config, *without("--model"))
    result = run("new", *options, "-o", config)
    assert result.exit_code == 2
    assert "is the input file itself" in result.stderr
    assert run("new", *OPTIONS, "-o", tmp_path / "no" / "problem.json").exit_code == 2
    assert config.read_text() == before


# solve


def test_solve_takes_the_same_options(tmp_path: Path) -> None:
    """Solving by options is solving the file that `new` writes; the plan has the problem."""
    path, plan = tmp_path / "problem.json", tmp_path / "plan.json"
    run("new", *OPTIONS, "-o", path)
    by_file = run_json("solve", path)
    by_name = run_json("solve", *OPTIONS, "-o", plan)
    assert by_name["plan"] == by_file["plan"] == json.loads(plan.read_text())
    assert by_name["derived_from"] == run_json("new", *OPTIONS)["derived_from"]
    assert "derived_from" not in by_file
    text = run("solve", *OPTIONS).stdout
    assert text.startswith("optimal: ")
    assert f"counts     {parameters(find_model('bert-large')):,} parameters, all dense" in text


def test_a_file_and_options_exclude_each_other(tmp_path: Path) -> None:
    """Both, or neither, is a wrong input that names what was found."""
    path = tmp_path / "problem.json"
    run("new", *OPTIONS, "-o", path)
    both = run("solve", path, "--model", "gpt2", "--smallest")
    assert both.exit_code == 2
    assert "found a problem file and --model, --smallest, one of the two is allowed" in both.stderr
    neither = run("solve", "--fix", "tp=1")
    assert neither.exit_code == 2
    assert "Missing argument 'PROBLEM': give a problem file, or in its place" in neither.stderr


def test_utilisation_is_model_flops_over_the_peak() -> None:
    """The share of the peak is G times the model's FLOPs over peak, devices used and time."""
    data = run_json("solve", *OPTIONS, "--fix", "dp=2", "--fix", "pp=1", "--fix", "tp=1")
    problem = data["plan"]["problem"]
    flops = 16 * problem["model"]["flops_per_sequence"]
    assert data["devices"]["used"] == 2
    expected = flops / (989e12 * 2 * data["objective"]["value_s"])
    assert data["throughput"]["utilisation"] == pytest.approx(expected, rel=1e-12)
    text = run("solve", *OPTIONS, "--fix", "dp=2", "--fix", "pp=1", "--fix", "tp=1").stdout
    assert f"of peak    {100 * expected:.1f}% of the FLOP/s of the devices used" in text


@pytest.mark.parametrize(
    ("fix", "kept"),
    [
        ("tp=1", {"tp": [1], "sp": [False]}),
        ("sp=true", {"sp": [True], "tp": [2, 4]}),
        ("tp=4", {"tp": [4], "sp": [False, True]}),
    ],
)
def test_fix_leaves_out_what_has_no_profile_beside_it(fix: str, kept: dict[str, Any]) -> None:
    """With tp fixed at 1 there is no sequence parallelism, and with sp there is no tp of 1."""
    result = run("solve", *OPTIONS, "--fix", fix, "--json")
    assert result.exit_code == 0, result.stderr
    search = json.loads(result.stdout)["plan"]["problem"]["search"]
    # A plan file leaves out what is at its default.
    assert {"sp": [False], **{name: search[name] for name in kept if name in search}} == {
        "sp": [False],
        **kept,
    }


def test_fix_names_what_has_profiles() -> None:
    """A degree that nothing was profiled for is refused with those that were."""
    result = run("solve", *OPTIONS, "--fix", "tp=3")
    assert result.exit_code == 2
    assert (
        "--fix: tp=3 has no profile, profiled in all layers are 1, 2, 4: choose one of these"
        in result.stderr
    )


# Case (b) of the public cases


def test_llama_3_70b_on_16_devices() -> None:
    """Its states alone take 79.4e9 of 80e9 bytes: the term is named, and 24 devices suffice."""
    options = (
        *("--model", "llama-3-70b", "--cluster", "dgx-h100", "--devices", 16),
        *("--global-batch", 1024, "--seq-len", 8192, "--bytes-per-parameter", 18),
    )
    result = run("solve", *options, "--json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    terms = data["diagnosis"]["memory_terms_bytes"]
    assert terms["states"] == max(terms.values())
    assert 79.3e9 < terms["states"] < 79.5e9
    assert parameters(find_model("llama-3-70b")) * 18 / 16 == pytest.approx(79.4e9, rel=1e-3)
    assert data["diagnosis"]["usable_bytes"] == 80 * 10**9
    assert data["smallest"]["devices"] == 24
    assert data["smallest"]["below"]["devices"] == 16
    text = " ".join(run("solve", *options).stdout.split())
    assert "its largest memory term is states, 79.38 GB" in text
    assert "or 24 devices of dgx-h100, the fewest on which something fits" in text


# import hf-config


def test_hf_config_without_a_cluster_describes_the_model(tmp_path: Path) -> None:
    """The summary and the JSON object have the model's parameters and main dimensions."""
    path = write(tmp_path / "mine.json", CONFIGS["mixtral-8x7b"])
    spec = find_spec(str(path))
    assert isinstance(spec, TransformerSpec)
    result, data = run("import", "hf-config", path), run_json("import", "hf-config", path)
    assert result.exit_code == 0
    assert result.stdout.startswith("model      mine (mixtral): ")
    assert f"{parameters(spec):,} parameters: " in result.stdout
    assert f"sequence   {spec.sequence_length:,} tokens at most" in result.stdout
    assert (data["status"], data["format"], data["problem"]) == ("imported", "hf-config", None)
    assert data["model"]["parameters"] == parameters(spec)
    assert spec.moe is not None
    assert data["model"]["experts"] == spec.moe.experts


def test_hf_config_with_a_cluster_is_new(tmp_path: Path) -> None:
    """With a cluster and a batch the problem is that of `new --model FILE`."""
    path, output = write(tmp_path / "mine.json", CONFIGS["llama-2-7b"]), tmp_path / "problem.json"
    rest = without("--model")
    imported = run("import", "hf-config", path, *rest, "-o", output)
    assert imported.exit_code == 0
    assert output.read_text() == run("new", "--model", path, *rest).stdout
    data = run_json("import", "hf-config", path, *rest)
    assert (data["status"], data["format"]) == ("imported", "hf-config")
    assert data["problem"] == json.loads(output.read_text())


def test_hf_config_refuses(tmp_path: Path) -> None:
    """An output without a cluster, half a cluster and another file each exit with 2."""
    path = write(tmp_path / "mine.json", CONFIGS["llama-2-7b"])
    other = write(tmp_path / "other.json", {"model_type": "t5"})
    for arguments, message in (
        ((path, "-o", tmp_path / "p.json"), "-o: found"),
        ((path, "--cluster", "dgx-h100"), "--devices: found nothing"),
        ((other,), "model_type: found 't5', one of llama"),
        ((tmp_path / "missing.json",), "cannot be read"),
        ((path, "--model", "gpt2"), "No such option"),
    ):
        result = run("import", "hf-config", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stderr.startswith("error: ")
    assert not (tmp_path / "p.json").exists()


# list


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("models", MODELS),
        ("clusters", (*CLUSTERS, *SHAPED_CLUSTERS)),
        ("accelerators", ACCELERATORS),
    ],
)
def test_list_has_every_entry(name: str, entries: tuple[Any, ...]) -> None:
    """Each entry of a catalogue has a row, within 80 columns, and a JSON object."""
    result = run("list", name)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split()[0] for line in lines if line.startswith(" ") and line.strip()]
    assert [entry.name for entry in entries] == [row for row in rows if row in _names(entries)]
    objects = run_json("list", name)[name]
    assert [each["name"] for each in objects] == [entry.name for entry in entries]
    assert [each["aliases"] for each in objects] == [list(entry.aliases) for entry in entries]


def _names(entries: tuple[Any, ...]) -> set[str]:
    return {entry.name for entry in entries}


def test_list_names_its_catalogues() -> None:
    """Without a catalogue there is help, with an unknown one the names of those there are."""
    assert "accelerators" in run("list").stdout
    result = run("list", "things")
    assert result.exit_code == 2
    assert "found catalogue 'things', one of these is needed: accelerators, clusters" in (
        result.stderr
    )
