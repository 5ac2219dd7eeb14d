"""A kind of accelerator: peaks, memory, fast link, and what of them is attained."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal

from nest_opt.errors import InstanceError
from nest_opt.models.figure import Figure

# Of the operands of matrix products.
Precision = Literal["bf16", "fp16", "fp8"]
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp16", "fp8")


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One accelerator of the catalogue, every number with its source.

    Peaks are dense (without structured sparsity). Bytes are decimal: 80 GB is
    80e9. None where no source was found.

    Attributes
    ----------
    matmul_16bit_flops
        Peak FLOP/s of 16-bit matrix products: bf16, or fp16 where there is no bf16.
    matmul_fp8_flops
        Peak FLOP/s of fp8 matrix products.
    vector_fp32_flops
        Peak FLOP/s of fp32 arithmetic outside the matrix units.
    memory_bytes, memory_bandwidth_bytes_per_s
        Nominal size and peak bandwidth of the device memory.
    fast_link_bytes_per_s
        Bandwidth into the fast domain (NVLink, xGMI, ICI, NeuronLink) per
        device and direction, all links together.
    fast_link_latency_s
        Latency of one step of a collective, or of one hop, over the fast link.
    usable_share
        Share of `memory_bytes` that a job may fill, contexts and buffers included.
    context_bytes
        What runtime, context and kernels take of it.
    communicator_bytes
        What the buffers of a training job's communicators take of it.
    matmul_efficiency
        Attained share of `matmul_16bit_flops` on large matrix products by themselves.
    product_share
        Attained share of `matmul_16bit_flops` by the matrix products of training runs that fill
        their waves of tiles.
    multiprocessors
        Tiles of a matrix product that are computed at once: see `tiles`. None where products
        are taken to fill the accelerator.
    attention_flops
        Attained FLOP/s of fused attention kernels, forward and backward.
    memory_efficiency
        Attained share of `memory_bandwidth_bytes_per_s` on large arrays.
    elementwise_share
        Share of `memory_bandwidth_bytes_per_s` that the kernels without matrix products attain in
        training runs, over the bytes that they would move if fused as `operations` has it.
    launch_s
        Time of the host to launch what a kernel of `operations` stands for.
    call_s
        Time of a collective inside a layer besides its steps and bytes.
    batch_s
        Time of a batch besides kernels and communication.
    fast_link_efficiency
        Attained share of `fast_link_bytes_per_s` in large collectives
        (nccl-tests' bus bandwidth over the peak).
    """

    name: str
    aliases: tuple[str, ...] = ()
    matmul_16bit_flops: Figure
    matmul_fp8_flops: Figure | None = None
    vector_fp32_flops: Figure | None = None
    memory_bytes: Figure
    memory_bandwidth_bytes_per_s: Figure
    fast_link_bytes_per_s: Figure
    fast_link_latency_s: Figure
    usable_share: Figure
    context_bytes: Figure
    communicator_bytes: Figure
    matmul_efficiency: Figure
    product_share: Figure
    attention_flops: Figure
    memory_efficiency: Figure
    elementwise_share: Figure
    launch_s: Figure
    call_s: Figure
    batch_s: Figure
    fast_link_efficiency: Figure
    multiprocessors: Figure | None = None
    note: str = ""

    @property
    def reserve_bytes(self) -> int:
        """Bytes that contexts and communicators keep from the job."""
        return int(self.context_bytes.value + self.communicator_bytes.value)

    def at_precision(self, precision: Precision) -> "Accelerator":
        """Return the accelerator with the peak of matrix products of a precision.

        Raises
        ------
        InstanceError
            If that peak is not known.
        """
        if precision != "fp8":
            return self
        if self.matmul_fp8_flops is None:
            raise InstanceError(
                f"precision: found fp8 on {self.name}, whose fp8 peak is not known: ask for bf16, "
                "or choose another accelerator"
            )
        return replace(self, matmul_16bit_flops=self.matmul_fp8_flops)

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Yield every number that the accelerator has, with its field's name."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Figure):
                yield field.name, value
