"""A roofline: the time of kernels on an accelerator."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Accelerator
from nest_opt.models.operations import Kernel, LayerWork, Work
from nest_opt.problem.base import json_number

PS_PER_S = 10**12


def layer_s(
    work: LayerWork, accelerator: Accelerator, calls: tuple[int, int], fp32: bool = False
) -> tuple[int | float | str, ...]:
    """Return a layer's forward, input gradient and weight gradient times in seconds.

    Each kernel takes the longer of its FLOPs and its bytes at what its kind
    attains, and each call of a collective what it takes whatever its bytes and
    ranks. The host launches kernels ahead of the accelerator: where a layer's
    launches, both passes together, take longer than its kernels, they are its time.

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
    called = Fraction(accelerator.call_s.value)
    busy = [
        _busy_s(works, accelerator, fp32) + count * called
        for works, count in zip(passes, (*calls, 0), strict=True)
    ]
    launched = [len(works) * Fraction(accelerator.launch_s.value) for works in passes]
    return tuple(map(_rounded, launched if sum(launched) > sum(busy) else busy))


def busy_s(works: Sequence[Work], accelerator: Accelerator) -> int | float | str:
    """Return the time that kernels keep the accelerator busy, in seconds."""
    return _rounded(_busy_s(works, accelerator, fp32=False))


def _rounded(seconds: Fraction) -> int | float | str:
    """Return seconds rounded half up to picoseconds."""
    picoseconds = (2 * seconds * PS_PER_S + 1) // 2
    return json_number(Decimal(picoseconds) / PS_PER_S)


def _busy_s(works: Sequence[Work], accelerator: Accelerator, fp32: bool) -> Fraction:
    speeds = _speeds(accelerator, fp32)
    return sum((_kernel_s(work, *speeds[work.kind]) for work in works), Fraction(0))


def _kernel_s(work: Work, flops_per_s: Fraction, bytes_per_s: Fraction) -> Fraction:
    return max(work.flops / flops_per_s, work.moved_bytes / bytes_per_s)


def _speeds(accelerator: Accelerator, fp32: bool) -> dict[Kernel, tuple[Fraction, Fraction]]:
    """Return attained FLOP/s and bytes/s of each kind of kernel."""
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
    return {
        "product": (product, large),
        "attention": (Fraction(accelerator.attention_flops.value), large),
        "elementwise": (product, elementwise),
    }
