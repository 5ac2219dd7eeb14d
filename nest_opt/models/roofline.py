"""A roofline: the time of kernels on an accelerator."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Accelerator
from nest_opt.models.operations import Kernel, LayerWork, Work
from nest_opt.models.tiles import stretch
from nest_opt.problem.base import json_number

PS_PER_S = 10**12


@dataclass(frozen=True)
class LayerTime:
    """The time of a layer and microbatch, without what collectives take for their bytes and steps.

    Attributes
    ----------
    forward_s, backward_input_s, backward_weight_s
        Of the passes, in seconds.
    idle_s
        Part of them, in seconds, in which the accelerator waits for the host's launches.
    """

    forward_s: int | float | str
    backward_input_s: int | float | str
    backward_weight_s: int | float | str
    idle_s: Fraction


def layer_time(
    work: LayerWork, accelerator: Accelerator, calls: tuple[int, int], fp32: bool = False
) -> LayerTime:
    """Return the time of a layer.

    Each kernel takes the longer of its FLOPs and its bytes at what its kind
    attains, and each call of a collective what it takes whatever its bytes and
    ranks. The host launches kernels ahead of the accelerator: where a layer's
    launches, both passes together, take longer than its kernels, they are its
    time, and what they take longer is idle.

    Parameters
    ----------
    calls
        Of collectives, in the forward and in the backward pass.

    Raises
    ------
    InstanceError
        If 32-bit products are asked for and their peak is not known.
    """
    passes = (work.forward, work.backward_input, work.backward_weight)
    called, speeds = Fraction(accelerator.call_s.value), _speeds(accelerator, fp32)
    busy = [
        _busy_s(works, speeds) + count * called
        for works, count in zip(passes, (*calls, 0), strict=True)
    ]
    launched = [len(works) * Fraction(accelerator.launch_s.value) for works in passes]
    idle = max(Fraction(0), sum(launched, Fraction(0)) - sum(busy))
    forward, backward_input, backward_weight = map(rounded, launched if idle else busy)
    return LayerTime(forward, backward_input, backward_weight, idle)


def busy_s(works: Sequence[Work], accelerator: Accelerator) -> Fraction:
    """Return the time that kernels keep the accelerator busy, in exact seconds."""
    return _busy_s(works, _speeds(accelerator, fp32=False))


def rounded(seconds: Fraction) -> int | float | str:
    """Return seconds rounded half up to picoseconds."""
    picoseconds = (2 * seconds * PS_PER_S + 1) // 2
    return json_number(Decimal(picoseconds) / PS_PER_S)


@dataclass(frozen=True)
class _Speeds:
    """Attained FLOP/s and bytes/s of each kind of kernel, and tiles computed at once, 0 for any."""

    of_kind: dict[Kernel, tuple[Fraction, Fraction]]
    multiprocessors: int


def _busy_s(works: Sequence[Work], speeds: _Speeds) -> Fraction:
    return sum((_kernel_s(work, speeds) for work in works), Fraction(0))


def _kernel_s(work: Work, speeds: _Speeds) -> Fraction:
    flops_per_s, bytes_per_s = speeds.of_kind[work.kind]
    computed = work.flops / flops_per_s
    if work.output and speeds.multiprocessors:
        computed *= stretch(*work.output, speeds.multiprocessors)
    return max(computed, work.moved_bytes / bytes_per_s)


def _speeds(accelerator: Accelerator, fp32: bool) -> _Speeds:
    peak = accelerator.vector_fp32_flops if fp32 else accelerator.matmul_16bit_flops
    if peak is None:
        raise InstanceError(
            f"accelerator {accelerator.name}: found no 32-bit peak, one is needed for 4-byte "
            "elements: choose another accelerator"
        )
    product = Fraction(peak.value) * Fraction(accelerator.product_share.value)
    bandwidth = Fraction(accelerator.memory_bandwidth_bytes_per_s.value)
    large = bandwidth * Fraction(accelerator.memory_efficiency.value)
    elementwise = bandwidth * Fraction(accelerator.elementwise_share.value)
    # Tiles are those of the matrix units.
    parts = None if fp32 else accelerator.multiprocessors
    return _Speeds(
        {
            "product": (product, large),
            "attention": (Fraction(accelerator.attention_flops.value), large),
            "elementwise": (product, elementwise),
        },
        int(parts.value) if parts else 0,
    )
