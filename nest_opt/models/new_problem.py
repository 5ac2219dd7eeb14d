"""A problem from a model, a cluster and a batch: nobody writes a layer table by hand."""

from collections.abc import Sequence
from typing import Any

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Accelerator
from nest_opt.models.derive import Training, layer_kinds, layer_types
from nest_opt.models.operations import training_flops
from nest_opt.models.parameters import expert_parallel_degrees, tensor_parallel_degrees
from nest_opt.models.spec import LinearSpec, ModelSpec
from nest_opt.network import planned_levels
from nest_opt.problem import Cluster, Configuration, Problem
from nest_opt.problem.job import BytesPerParameter, Objective
from nest_opt.problem.validation import build

# Weights, gradients, optimizer states. ZeRO paper (arXiv:1910.02054); Megatron-LM
# docs, dist_optimizer: 16-bit weights with 32-bit gradients, and fp16 with extra
# 32-bit copies of weights and gradients.
BYTE_CONVENTIONS: dict[int, tuple[int, int, int]] = {
    16: (2, 2, 12),
    18: (2, 4, 12),
    20: (2, 2, 16),
}

DEFAULT_MICROBATCHES = (1, 2, 4, 8)
DEFAULT_CONTEXT_PARALLEL_DEGREES = (1,)


def new_problem(
    spec: ModelSpec,
    cluster: Cluster,
    accelerator: Accelerator,
    training: Training,
    *,
    global_batch: int,
    bytes_per_parameter: int | BytesPerParameter = 18,
    objective: Objective = "fill-drain",
    microbatches: Sequence[int] = DEFAULT_MICROBATCHES,
    context_parallel_degrees: Sequence[int] = DEFAULT_CONTEXT_PARALLEL_DEGREES,
    configurations: Sequence[Configuration] | None = None,
    name: str | None = None,
) -> Problem:
    """Derive a problem.

    Parameters
    ----------
    spec, training
        The model and how it is trained, see `nest_opt.models.derive`.
    cluster, accelerator
        Devices and network; compute times follow from the accelerator.
    global_batch
        G in sequences.
    bytes_per_parameter
        16, 18 or 20, see `BYTE_CONVENTIONS`, or each part.
    microbatches
        Microbatch sizes to derive profiles for; those that do not divide G
        are left out.
    context_parallel_degrees
        Degrees to derive profiles for.
    configurations
        The configurations to derive profiles for; None: all that the usual
        degrees allow.

    Raises
    ------
    InstanceError
        If a number is out of range, no microbatch size divides G, or a
        context-parallel degree does not divide half the sequence.
    """
    if isinstance(bytes_per_parameter, int) and bytes_per_parameter not in BYTE_CONVENTIONS:
        raise InstanceError(
            f"bytes per parameter: found {bytes_per_parameter}, one of "
            f"{', '.join(map(str, BYTE_CONVENTIONS))} is needed: choose one, or edit "
            "job.bytes_per_parameter in the problem file"
        )
    sizes = [size for size in microbatches if size >= 1 and global_batch % size == 0]
    if not sizes:
        raise InstanceError(
            f"global batch: found {global_batch} sequences, which none of the microbatch sizes "
            f"{', '.join(map(str, microbatches))} divides: change one of them"
        )
    if configurations is None:
        configurations = _configurations(spec, cluster, context_parallel_degrees)
    cp = sorted({k.cp for k in configurations})
    model: dict[str, Any] = {
        "flops_per_sequence": training_flops(spec, training.sequence_length),
        "layer_types": layer_types(spec, accelerator, training, sizes, configurations),
        "layers": [
            {"id": name, "type": kind, "repeat": repeat} for name, kind, repeat in layer_kinds(spec)
        ],
    }
    if not isinstance(spec, LinearSpec):
        model["attention_heads"] = spec.heads
        if spec.moe:
            model["experts"] = spec.moe.experts
    data = {
        "name": (name or f"{spec.name} on {cluster.device_count} x {accelerator.name}")[:200],
        "note": _note(spec, accelerator, training, max(cp)),
        "model": model,
        "cluster": cluster.model_dump(mode="json"),
        "job": {
            "global_batch": global_batch,
            "sequence_length": training.sequence_length,
            "bytes_per_parameter": _state_bytes(bytes_per_parameter),
            "objective": objective,
        },
        "search": {
            "microbatch": sizes,
            "tp": sorted({k.tp for k in configurations}),
            **({} if cp == [1] else {"cp": cp}),
            "ep": sorted({k.ep for k in configurations}),
            "sp": sorted({k.sp for k in configurations}),
        },
    }
    return build(Problem, data, spec.name)


def _configurations(
    spec: ModelSpec, cluster: Cluster, context_parallel_degrees: Sequence[int]
) -> list[Configuration]:
    """Return the configurations to derive profiles for.

    tp: powers of two that split every weight, within the innermost network
    group; cp: as asked; ep: divisors of the number of experts; sequence
    parallelism with tensor parallelism only.
    """
    devices = cluster.device_count
    innermost = planned_levels(cluster).levels[0].size
    powers = [t for t in tensor_parallel_degrees(spec, innermost) if t.bit_count() == 1]
    return [
        Configuration(tp, cp, ep, sp)
        for tp in powers
        for cp in context_parallel_degrees
        for ep in expert_parallel_degrees(spec)
        if tp * ep <= devices
        for sp in ((False, True) if tp > 1 and not isinstance(spec, LinearSpec) else (False,))
    ]


def _state_bytes(asked: int | BytesPerParameter) -> dict[str, Any]:
    if isinstance(asked, BytesPerParameter):
        return asked.model_dump(mode="json", exclude_defaults=True)
    names = ("weights", "gradients", "optimizer")
    return dict(zip(names, BYTE_CONVENTIONS[asked], strict=True))


def _note(spec: ModelSpec, accelerator: Accelerator, training: Training, most_cp: int) -> str:
    mask = "" if isinstance(spec, LinearSpec) else ("causal " if spec.causal else "full ")
    exchange = f"{training.context_parallel} context parallelism, " if most_cp > 1 else ""
    return (
        f"Derived for {spec.name} ({spec.source}), sequence length {training.sequence_length}, "
        f"{mask}{training.attention} attention, {exchange}dropout "
        f"{'on' if training.dropout else 'off'}, on "
        f"{accelerator.name} at {float(accelerator.product_share.value):.3g} of "
        f"{float(accelerator.matmul_16bit_flops.value):.4g} FLOP/s and "
        f"{float(accelerator.memory_efficiency.value):.3g} (other kernels "
        f"{float(accelerator.elementwise_share.value):.3g}) of "
        f"{float(accelerator.memory_bandwidth_bytes_per_s.value):.4g} bytes/s."
    )
