"""A model, and a problem derived from it, in a few lines."""

from collections.abc import Iterable

from nest_opt.cli.console import printable
from nest_opt.cli.units import bytes_text, count_text
from nest_opt.models.new_problem import BYTE_CONVENTIONS
from nest_opt.models.parameters import (
    active_parameters,
    dense_parameters,
    expert_parameters,
    parameters,
)
from nest_opt.models.request import DerivedProblem
from nest_opt.models.spec import LinearSpec, ModelSpec, TransformerSpec
from nest_opt.network import planned_levels
from nest_opt.problem import Problem


def problem_text(problem: Problem) -> str:
    """Return what a problem is, in one line."""
    return (
        f"problem {printable(problem.name)!r}, {count_text(len(problem.model.ids), 'layer')}, "
        f"{count_text(problem.cluster.device_count, 'device')}, "
        f"a global batch of {count_text(problem.job.global_batch, 'sequence')}"
    )


def derived_facts(derived: DerivedProblem) -> dict[str, str]:
    """Return rows on what a problem was derived from."""
    return {
        **model_facts(derived.spec),
        "states": _states_text(derived),
        "batch": _batch_text(derived),
        "training": _training_text(derived),
        "cluster": _cluster_text(derived),
    }


def model_facts(spec: ModelSpec) -> dict[str, str]:
    """Return rows on a model."""
    return {"model": _model_text(spec), "counts": _parameters_text(spec)}


def _model_text(spec: ModelSpec) -> str:
    name = printable(spec.name)
    if isinstance(spec, LinearSpec):
        return f"{name}: square matrices of width {spec.width:,}, {spec.layers:,} of them"
    heads = count_text(spec.heads, "head")
    if spec.kv_heads != spec.heads:
        heads += f" ({spec.kv_heads:,} of keys and values)"
    parts = [
        f"{name} ({spec.family}): {count_text(spec.layers, 'block')}",
        f"hidden size {spec.hidden:,}",
        heads,
        *_experts_text(spec),
        f"vocabulary {spec.vocabulary:,}" + (" (tied)" if spec.tied else ""),
    ]
    return ", ".join(parts)


def _experts_text(spec: TransformerSpec) -> list[str]:
    if spec.moe is None:
        return []
    return [
        f"{count_text(spec.moe.experts, 'expert')} in {spec.moe_layers:,} of the blocks, "
        f"{spec.moe.top_k:,} for each token"
    ]


def _parameters_text(spec: ModelSpec) -> str:
    text = count_text(parameters(spec), "parameter")
    if expert_parameters(spec) == 0:
        return f"{text}, all dense"
    return (
        f"{text}: {dense_parameters(spec):,} dense and {expert_parameters(spec):,} of experts; "
        f"{active_parameters(spec):,} active for each token"
    )


def _states_text(derived: DerivedProblem) -> str:
    each = derived.request.bytes_per_parameter
    weights, gradients, optimizer = BYTE_CONVENTIONS[each]
    total = parameters(derived.spec) * each
    return (
        f"{each} bytes per parameter (weights {weights}, gradients {gradients}, optimizer "
        f"{optimizer}): {bytes_text(total)} for one copy of the model"
    )


def _batch_text(derived: DerivedProblem) -> str:
    job = derived.problem.job
    left_out = [b for b in derived.request.microbatches if job.global_batch % b]
    note = ""
    if left_out:
        verb = "does" if len(left_out) == 1 else "do"
        note = f" ({_listed(left_out)} {verb} not divide the batch)"
    return (
        f"{count_text(job.global_batch, 'sequence')} of "
        f"{count_text(derived.training.sequence_length, 'token')} ({derived.length_rule}); "
        f"microbatch {_listed(derived.problem.search.microbatch or ())}{note}"
    )


def _training_text(derived: DerivedProblem) -> str:
    spec, training = derived.spec, derived.training
    objective = f"objective {derived.problem.job.objective}"
    if isinstance(spec, LinearSpec):
        return objective
    mask = "causal" if spec.causal else "full"
    dropout = "with dropout" if training.dropout else "without dropout"
    parts = [f"{mask} attention ({training.attention})", dropout]
    degrees = derived.problem.search.cp
    if max(degrees) > 1:
        parts.append(f"context parallelism {_listed(degrees)} ({training.context_parallel})")
    if spec.moe:
        parts.append(f"capacity factor {float(training.capacity):g}")
        parts.append(f"expert imbalance {float(training.imbalance):g}")
    return ", ".join((*parts, objective))


def _cluster_text(derived: DerivedProblem) -> str:
    cluster = derived.problem.cluster
    kind = cluster.device_kind
    levels = ", ".join(f"{level.name} {level.size:,}" for level in planned_levels(cluster).levels)
    bandwidth = "attained bandwidths" if derived.request.achievable else "peak bandwidths"
    if derived.request.network:
        bandwidth = "bandwidths as given"
    return (
        f"{derived.template.name}: {cluster.device_count:,} x {derived.accelerator.name}, "
        f"network levels {levels}; {bytes_text(kind.usable_bytes)} of memory usable on each, "
        f"{bytes_text(kind.reserve_bytes)} of it reserved; {bandwidth}"
    )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(f"{number:,}" for number in numbers)
