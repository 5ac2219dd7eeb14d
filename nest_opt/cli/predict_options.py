"""The options of `nest-opt predict`: the fields of a run's file."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from nest_opt.cli.number_types import factor, whole, whole_list

_RECOMPUTE = ("none", "selective", "full")
_SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1")

# Field, option, settings; fields of `model` begin with a point.
_OPTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("model", "--model", {"metavar": "NAME|config.json", "help": "A model of the catalogue."}),
    (".layers", "--layers", {"type": whole, "help": "Blocks of a model by its dimensions."}),
    (".hidden", "--hidden", {"type": whole, "help": "Its hidden size."}),
    (".heads", "--heads", {"type": whole, "help": "Its attention heads."}),
    (".kv_heads", "--kv-heads", {"type": whole, "help": "Its key and value heads."}),
    (".ffn", "--ffn", {"type": whole, "help": "Inner width of its MLP; 4 hidden unless given."}),
    (".vocabulary", "--vocabulary", {"type": whole, "help": "Rows of its token embedding."}),
    (".gated", "--gated/--plain", {"default": None, "help": "Llama's MLP, or GPT's (default)."}),
    ("cluster", "--cluster", {"metavar": "NAME", "help": "A kind of cluster of the catalogue."}),
    ("devices", "--devices", {"type": whole, "help": "Devices, all of which are used."}),
    ("accelerator", "--accelerator", {"metavar": "NAME", "help": "In place of the cluster's."}),
    ("tp", "--tp", {"type": whole, "help": "Tensor-parallel degree."}),
    ("pp", "--pp", {"type": whole, "help": "Pipeline stages."}),
    ("dp", "--dp", {"type": whole, "help": "Data-parallel degree, ep included; what is left."}),
    ("ep", "--ep", {"type": whole, "help": "Expert-parallel degree, a divisor of dp."}),
    ("cp", "--cp", {"type": whole, "help": "Context-parallel degree."}),
    ("virtual_stages", "--virtual-stages", {"type": whole, "help": "Chunks of each stage."}),
    ("microbatch", "--microbatch", {"type": whole, "help": "Sequences in a microbatch."}),
    ("global_batch", "--global-batch", {"type": whole, "help": "Sequences in a batch."}),
    ("sequence_length", "--seq-len", {"type": whole, "help": "Tokens of a sequence."}),
    ("recompute", "--recompute", {"type": click.Choice(_RECOMPUTE), "help": "What is repeated."}),
    ("zero", "--zero", {"type": whole, "help": "ZeRO level; 1 is a distributed optimizer."}),
    ("zero_instances", "--zero-instances", {"type": whole, "help": "Runs of replicas (HSDP)."}),
    ("schedule", "--schedule", {"type": click.Choice(_SCHEDULES), "help": "1f1b unless given."}),
    (
        "precision",
        "--precision",
        {"type": click.Choice(("bf16", "fp16", "fp8")), "help": "Of products."},
    ),
    (
        "sequence_parallel",
        "--sequence-parallel/--no-sequence-parallel",
        {"default": None, "help": "Whether tensor-parallel ranks share out the sequence."},
    ),
    (
        "attention",
        "--attention",
        {"type": click.Choice(("flash", "stored")), "help": "Whether scores are kept."},
    ),
    (
        "context_parallel",
        "--context-parallel",
        {"type": click.Choice(("ring", "all-gather")), "help": "How keys and values pass."},
    ),
    (
        "stage_layers",
        "--stage-layers",
        {"type": whole_list, "metavar": "N,N", "help": "Blocks of each chunk; equal unless given."},
    ),
    (
        "order",
        "--order",
        {
            "type": click.Choice(("dp-inner", "pp-inner")),
            "help": "Of ranks; dp-inner, or this.",
        },
    ),
    (
        "runtime",
        "--runtime",
        {
            "type": click.Choice(("megatron", "deepspeed", "torchtitan")),
            "help": "Whose rules of what is kept in memory hold.",
        },
    ),
    ("fused_loss", "--fused-loss/--plain-loss", {"default": None, "help": "A compiled loss."}),
    ("dropout", "--dropout/--no-dropout", {"default": None, "help": "The family's unless given."}),
    (
        "bytes_per_parameter",
        "--bytes-per-parameter",
        {"type": whole, "help": "16, 18 or 20; the runtime's, or 18."},
    ),
    ("capacity_factor", "--capacity-factor", {"type": factor, "help": "Padding of experts."}),
    ("expert_imbalance", "--expert-imbalance", {"type": factor, "help": "Of tokens routed."}),
)


def run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a run, as one argument `fields`: those that were given."""

    @wraps(function)
    def collect(**parameters: Any) -> Any:
        fields = {}
        for field, _, _ in _OPTIONS:
            value = parameters.pop(_parameter(field))
            if value is not None:
                fields[field] = list(value) if isinstance(value, tuple) else value
        return function(fields=fields, **parameters)

    command: Callable[..., Any] = collect
    for field, option, settings in reversed(_OPTIONS):
        settings = dict(settings)
        if settings.get("type") is whole:
            settings.setdefault("metavar", "N")
        if settings.get("type") is factor:
            settings.setdefault("metavar", "X")
        command = click.option(option, _parameter(field), **settings)(command)
    return command


# Without these there is no run; the rest has defaults.
_NEEDED = (
    *("model", ".layers", ".hidden", ".heads", ".vocabulary"),
    *("cluster", "devices", "global_batch"),
)


def check_given(data: dict[str, Any]) -> None:
    """Refuse a run without a file whose options and arguments leave something out.

    Raises
    ------
    UsageError
        That names the option.
    """
    options = {field: option for field, option, _ in _OPTIONS}
    model = data.get("model")
    for field in _NEEDED:
        if field.startswith("."):
            given = not isinstance(model, dict) or field[1:] in model
        else:
            given = field in data
        if not given:
            raise click.UsageError(
                f"{options[field]}: found nothing, a value is needed: give it, or a RUN file with "
                f"{'model' if field.startswith('.') else ''}{field}"
            )


def _parameter(field: str) -> str:
    return field.replace(".", "model_")


def with_options(data: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Return a run's data with the fields of options in place of its own."""
    changed = dict(data)
    dimensions = {name[1:]: value for name, value in fields.items() if name.startswith(".")}
    changed |= {name: value for name, value in fields.items() if not name.startswith(".")}
    if dimensions:
        if "model" in fields:
            raise click.UsageError(
                f"--model: found {fields['model']!r} beside --{min(dimensions).replace('_', '-')}, "
                "a name or dimensions are allowed: leave one out"
            )
        known = changed.get("model")
        changed["model"] = {**(known if isinstance(known, dict) else {}), **dimensions}
    for name in ("capacity_factor", "expert_imbalance"):
        if name in fields:
            changed[name] = float(fields[name])
    return changed
