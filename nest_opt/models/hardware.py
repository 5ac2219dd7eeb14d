"""The catalogue of accelerators. `docs/hardware.md` shows it as tables."""

from dataclasses import replace
from decimal import Decimal

from nest_opt.models.accelerator import Accelerator
from nest_opt.models.figure import Figure, guessed
from nest_opt.models.lookup import find

_TERA = 10**12
_GIGA = 10**9

_STAS = (
    "stas00/ml-engineering@744d01e18b compute/accelerator/README.md and network/README.md, "
    "vendor figures"
)
_STAS_MEASURED = "stas00/ml-engineering@744d01e18b compute/accelerator/README.md, MAMF (measured)"
_STAS_NETWORK = "stas00/ml-engineering@744d01e18b network/README.md (measured)"
_KLOCKWOOD = "glennklockwood.com/garden/processors"
_VOLTA = "NVIDIA Tesla V100 white paper, quoted by maosong.website/p/nvidia-gpu-specs"
_SCALING_BOOK = "jax-ml/scaling-book@0819a7d8c5 tpus.md and Google Cloud TPU documentation"
_NEURON = "awsdocs-neuron: Trainium2 architecture and Amazon EC2 Trn2 architecture"

# NCCL has one constant for all generations of NVLink.
_NVLINK_LATENCY = Figure(
    Decimal("3.4e-6"),
    "NVIDIA/nccl@5067397 src/graph/tuning.cc, hwLatencies: NVLink, ring, Simple protocol",
)
_CUDA_CONTEXT = Figure(
    1_600_000_000,
    "BigScience notes on training on A100: 1.3 to 1.6 GB a GPU for context and kernels; the "
    "larger end",
)
_LIKE_A100_CONTEXT = guessed(1_600_000_000, "as BigScience measured on A100")
_NCCL_BUFFERS = guessed(
    3 * 688 * 10**6,
    "three communicators (tensor, pipeline, data) of the 688 MB that NVIDIA/nccl issue 964 "
    "measured on A100; issue 1685 saw 3.3 GB more after an all-to-all on H100",
)
_LIKE_NCCL_BUFFERS = guessed(3 * 688 * 10**6, "as NCCL's on A100 (NVIDIA/nccl issue 964)")
_MEMORY_EFFICIENCY = guessed(
    Decimal("0.85"), "between the 0.82 measured on A100 and the 0.91 measured on H100"
)
# Constants of training runs, fitted by `benchmarks/fidelity.py --fit`.
_FIT_A100 = "fitted by benchmarks/fidelity.py --fit to runs on A100 of eight sources"
_FIT_H100 = "fitted by benchmarks/fidelity.py --fit to runs on H100 of five sources"
_LAUNCH = Figure(
    Decimal("70e-6"),
    "VIA-Research/vTrain@f8dda8473a data/ground_truth_single.csv: of 63, 70, 77 and 84 us the "
    "least median error over small models on 2 to 8 A100",
)
_BATCH = Figure(
    Decimal("0.01"), "as launch_s, of 10 and 20 ms: the runs take 0.1 to 1 s an iteration"
)
_LIKE_A100_LAUNCH = guessed(Decimal("70e-6"), "the host's, as fitted on nodes of A100")
_CALL = "nest_opt.models.fabrics, low_latency_call_s: fitted to nccl-tests sweeps"
_FA3 = "FlashAttention-3, arXiv:2407.08608, figure 5"


def _like(value: str, basis: str) -> Figure:
    return guessed(Decimal(value), basis)


_WHOLE_NOMINAL = guessed(1, "as on A100 and H100, whose drivers report more than the nominal size")


def _tera(value: int | Decimal, source: str) -> Figure:
    return Figure(int(value * _TERA), source)


def _giga(value: int | Decimal, source: str) -> Figure:
    return Figure(int(value * _GIGA), source)


_V100 = Accelerator(
    name="v100-32",
    aliases=("v100", "v100-32gb", "v100-sxm2-32gb", "v100-sxm2"),
    matmul_16bit_flops=_tera(125, f"{_VOLTA} (fp16; no bf16)"),
    vector_fp32_flops=_tera(Decimal("15.7"), _VOLTA),
    memory_bytes=_giga(
        32, "nominal; NVML of a Tesla V100-SXM2-32GB reports 34058272768 bytes (pastebin AaFUPNi5)"
    ),
    memory_bandwidth_bytes_per_s=_giga(900, _VOLTA),
    fast_link_bytes_per_s=_giga(150, "NVIDIA V100: NVLink2, 6 links of 25 GB/s a direction"),
    fast_link_latency_s=_NVLINK_LATENCY,
    usable_share=Figure(
        1, "NVML reports 34.1e9 bytes (pastebin AaFUPNi5): 6% above nominal, left for fragmentation"
    ),
    context_bytes=_LIKE_A100_CONTEXT,
    communicator_bytes=_LIKE_NCCL_BUFFERS,
    matmul_efficiency=guessed(Decimal("0.80"), "between H100's 0.80 and A100's 0.87"),
    product_share=_like("0.64", "81% of what large products get, as fitted on A100"),
    attention_flops=guessed(62 * _TERA, "half of the peak, as on H100"),
    elementwise_share=_like("0.81", "as fitted on A100"),
    launch_s=_LIKE_A100_LAUNCH,
    call_s=Figure(Decimal("31e-6"), f"{_CALL} of V100"),
    batch_s=_BATCH,
    multiprocessors=Figure(80, "NVIDIA Tesla V100 white paper"),
    memory_efficiency=_MEMORY_EFFICIENCY,
    fast_link_efficiency=Figure(
        Decimal("0.907"),
        "vTrain's profile, all-reduce on 8 GPUs: fitted asymptote 136 of 150 GB/s",
    ),
    note="Links form a hybrid cube mesh: groups of 2 and 4 get 22.6 and 87.7 GB/s (vTrain), not "
    "150.",
)

_A100_80 = Accelerator(
    name="a100-80",
    aliases=("a100", "a100-80gb", "a100-sxm4-80gb", "a100-sxm"),
    matmul_16bit_flops=_tera(312, _STAS),
    vector_fp32_flops=_tera(
        Decimal("19.5"), "stas00/ml-engineering@007447327a compute/accelerator/README.md"
    ),
    memory_bytes=_giga(80, _STAS),
    memory_bandwidth_bytes_per_s=_giga(2039, f"{_KLOCKWOOD}/A100"),
    fast_link_bytes_per_s=_giga(300, f"{_STAS}: NVLink3, 12 links of 25 GB/s a direction"),
    fast_link_latency_s=_NVLINK_LATENCY,
    usable_share=Figure(
        1,
        "PyTorch reports 79.15 GiB = 85.0e9 bytes (vllm-project/vllm issue 4408): 6% above "
        "nominal, left for fragmentation",
    ),
    context_bytes=_CUDA_CONTEXT,
    communicator_bytes=_NCCL_BUFFERS,
    matmul_efficiency=Figure(Decimal("0.869"), f"{_STAS_MEASURED}: 271.2 of 312 TFLOP/s"),
    product_share=Figure(Decimal("0.70"), _FIT_A100),
    attention_flops=Figure(
        156 * _TERA,
        "FlashAttention-2, arXiv:2307.08691, abstract: 50 to 73% of the peak on A100; the least",
    ),
    elementwise_share=Figure(Decimal("0.81"), _FIT_A100),
    launch_s=_LAUNCH,
    call_s=Figure(Decimal("53e-6"), f"{_CALL} of A100"),
    batch_s=_BATCH,
    multiprocessors=Figure(108, "NVIDIA A100 white paper"),
    memory_efficiency=Figure(
        Decimal("0.824"),
        "Azure ND_A100_v4_results.md, BabelStream: 1610 to 1750 of 2039 GB/s, middle",
    ),
    fast_link_efficiency=Figure(
        Decimal("0.777"), f"{_STAS_NETWORK}: all-reduce on 8 GPUs 231 to 235 of 300 GB/s, middle"
    ),
)

_A100_40 = replace(
    _A100_80,
    name="a100-40",
    aliases=("a100-40gb", "a100-sxm4-40gb"),
    memory_bytes=_giga(40, f"{_KLOCKWOOD}/A100"),
    memory_bandwidth_bytes_per_s=_giga(1555, f"{_KLOCKWOOD}/A100"),
    usable_share=Figure(
        1,
        "PyTorch reports 39.50 GiB = 42.4e9 bytes (TianheWu/CoSeR issue 10): 6% above nominal, "
        "left for fragmentation",
    ),
    memory_efficiency=guessed(Decimal("0.824"), "as measured on the 80 GB version"),
)

_H100 = Accelerator(
    name="h100",
    aliases=("h100-80", "h100-80gb", "h100-sxm", "h100-sxm5", "h100-sxm5-80gb"),
    matmul_16bit_flops=_tera(989, _STAS),
    matmul_fp8_flops=_tera(1979, _STAS),
    vector_fp32_flops=_tera(
        67,
        "stas00/ml-engineering@007447327a compute/accelerator/README.md; 66.9 in "
        f"{_KLOCKWOOD}/h100",
    ),
    memory_bytes=_giga(80, _STAS),
    memory_bandwidth_bytes_per_s=_giga(3350, _STAS),
    fast_link_bytes_per_s=_giga(450, f"{_STAS}: NVLink4, 18 links of 25 GB/s a direction"),
    fast_link_latency_s=_NVLINK_LATENCY,
    usable_share=Figure(
        1,
        "PyTorch reports 79.11 GiB = 84.9e9 bytes (vllm-project/vllm issue 27508): 6% above "
        "nominal, left for fragmentation",
    ),
    context_bytes=_LIKE_A100_CONTEXT,
    communicator_bytes=_NCCL_BUFFERS,
    matmul_efficiency=Figure(Decimal("0.803"), f"{_STAS_MEASURED}: 794.5 of 989 TFLOP/s"),
    product_share=Figure(Decimal("0.80"), _FIT_H100),
    attention_flops=_tera(
        500, f"{_FA3}: cuDNN, causal, head dimension 128, 484 to 529 TFLOP/s for 2k to 8k tokens"
    ),
    elementwise_share=Figure(Decimal("0.15"), _FIT_H100),
    launch_s=_LIKE_A100_LAUNCH,
    call_s=Figure(Decimal("27e-6"), f"{_CALL} of H100"),
    batch_s=_BATCH,
    multiprocessors=Figure(132, "NVIDIA H100 white paper, SXM5"),
    memory_efficiency=Figure(
        Decimal("0.907"),
        "Azure ND_H100_v5_results.md, BabelStream: 2900 to 3180 of 3350 GB/s, middle",
    ),
    fast_link_efficiency=Figure(
        Decimal("0.809"),
        f"{_STAS_NETWORK}: ring all-reduce, all-gather and reduce-scatter on 8 GPUs 361 to 367 of "
        "450 GB/s, middle",
    ),
    note="All-reduce inside the switch (NVLS) reaches 480 GB/s; all-gather and reduce-scatter do "
    "not.",
)

_H200 = replace(
    _H100,
    name="h200",
    aliases=("h200-141", "h200-141gb", "h200-sxm"),
    memory_bytes=_giga(141, _STAS),
    memory_bandwidth_bytes_per_s=_giga(4800, _STAS),
    usable_share=_WHOLE_NOMINAL,
    memory_efficiency=Figure(
        Decimal("0.883"),
        "Azure ND_H200_v5_results.md, BabelStream: 4000 to 4480 of 4800 GB/s, middle",
    ),
    fast_link_efficiency=Figure(
        Decimal("0.816"), f"{_STAS_NETWORK}: ring all-reduce on 8 GPUs 367 of 450 GB/s"
    ),
)

_H800 = replace(
    _H100,
    name="h800",
    aliases=("h800-80gb", "h800-sxm"),
    fast_link_bytes_per_s=guessed(
        200 * _GIGA, "half of 400 GB/s for both directions, from memory; arXiv:2412.19437 says H800"
    ),
    usable_share=_WHOLE_NOMINAL,
    matmul_efficiency=guessed(Decimal("0.803"), "as measured on H100, the same chip"),
    memory_efficiency=guessed(Decimal("0.907"), "as measured on H100, the same memory"),
    fast_link_efficiency=guessed(Decimal("0.809"), "as measured on H100, with more links"),
    note="H100 with NVLink cut.",
)

_B200 = Accelerator(
    name="b200",
    aliases=("b200-180", "b200-sxm", "b200-180gb"),
    matmul_16bit_flops=_tera(2250, _STAS),
    matmul_fp8_flops=_tera(4500, _STAS),
    vector_fp32_flops=_tera(80, f"{_KLOCKWOOD}/B200, HGX at 1000 W"),
    memory_bytes=_giga(180, f"{_STAS}: 180 of 192 GB are usable in HGX"),
    memory_bandwidth_bytes_per_s=_giga(8000, _STAS),
    fast_link_bytes_per_s=_giga(900, f"{_STAS}: NVLink5, 18 links of 50 GB/s a direction"),
    fast_link_latency_s=_NVLINK_LATENCY,
    usable_share=_WHOLE_NOMINAL,
    context_bytes=_LIKE_A100_CONTEXT,
    communicator_bytes=_LIKE_NCCL_BUFFERS,
    matmul_efficiency=Figure(Decimal("0.776"), f"{_STAS_MEASURED}: 1745 of 2250 TFLOP/s"),
    product_share=_like("0.77", "as fitted on H100: what large products get"),
    attention_flops=guessed(1125 * _TERA, "half of the peak, as on H100"),
    elementwise_share=_like("0.15", "as fitted on H100"),
    launch_s=_LIKE_A100_LAUNCH,
    call_s=Figure(Decimal("31e-6"), f"{_CALL} of B200"),
    batch_s=_BATCH,
    multiprocessors=guessed(148, "two dies of 74, as it is quoted; no source at hand"),
    memory_efficiency=_MEMORY_EFFICIENCY,
    fast_link_efficiency=Figure(
        Decimal("0.758"), f"{_STAS_NETWORK}: ring all-reduce on 8 GPUs 682 of 900 GB/s"
    ),
    note="All-reduce inside the switch (NVLS) reaches 839 to 846 GB/s.",
)

_GB200 = replace(
    _B200,
    name="gb200",
    aliases=("gb200-nvl72", "gb200-186"),
    matmul_16bit_flops=_tera(
        2450, "NVIDIA/dgxc-benchmarking READMEs, the denominator of their MFU; data sheet: 2500"
    ),
    matmul_fp8_flops=_tera(4900, "NVIDIA/dgxc-benchmarking READMEs; data sheet: 5000"),
    vector_fp32_flops=_tera(
        80, f"hmc-tech.com, 160 for the two GPUs of a superchip; 90 in {_KLOCKWOOD}/B200"
    ),
    memory_bytes=_giga(186, _STAS),
    matmul_efficiency=Figure(Decimal("0.744"), f"{_STAS_MEASURED}: 1822 of 2450 TFLOP/s"),
    fast_link_efficiency=guessed(
        Decimal("0.758"),
        "the ring on 8 B200; coreweave/nccl-tests saw 835 of 900 GB/s on 72 GPUs, an all-reduce",
    ),
    note="One of the two GPUs of a superchip.",
)

_MI300X = Accelerator(
    name="mi300x",
    aliases=("mi300x-192", "mi300x-192gb"),
    matmul_16bit_flops=_tera(
        1307, "AMD Instinct MI300X data sheet, 1307.4, quoted by alpharomercoma/MI300X-vs-H200"
    ),
    matmul_fp8_flops=_tera(2610, _STAS),
    vector_fp32_flops=_tera(
        Decimal("163.4"), "stas00/ml-engineering@007447327a compute/accelerator/README.md"
    ),
    memory_bytes=_giga(192, _STAS),
    memory_bandwidth_bytes_per_s=_giga(5300, _STAS),
    fast_link_bytes_per_s=_giga(448, f"{_STAS}: xGMI, 7 links of 64 GB/s a direction"),
    fast_link_latency_s=guessed(
        Decimal("2.7e-6"),
        "ROCm/rccl@0023b9b0 src/graph/tuning.cc, hwLat: ring, Simple protocol, of older devices",
    ),
    usable_share=Figure(
        1,
        "HIP reports 206.1e9 bytes (ROCm/hipBLASLt pull request 1539): 7% above nominal, left for "
        "fragmentation",
    ),
    context_bytes=guessed(1_600_000_000, "as a CUDA context on A100"),
    communicator_bytes=_LIKE_NCCL_BUFFERS,
    matmul_efficiency=Figure(Decimal("0.511"), f"{_STAS_MEASURED}: 668.4 of 1307 TFLOP/s"),
    product_share=_like("0.51", "as fitted on H100: what large products get"),
    attention_flops=guessed(400 * _TERA, "60% of what large products get, as on H100"),
    elementwise_share=_like("0.15", "as fitted on H100"),
    launch_s=_LIKE_A100_LAUNCH,
    call_s=guessed(Decimal("53e-6"), "as on A100"),
    batch_s=_BATCH,
    memory_efficiency=_MEMORY_EFFICIENCY,
    fast_link_efficiency=Figure(
        Decimal("0.698"), f"{_STAS_NETWORK}: all-reduce on 8 GPUs 312.9 of 448 GB/s"
    ),
    note="Fully connected: two GPUs share one link of 64 GB/s, so groups smaller than 8 and hops "
    "get less than 448.",
)

_FRONTIER_NODE = "OLCF Frontier user guide; glennklockwood.com/garden/systems/frontier"
_MI250X_GCD = Accelerator(
    name="mi250x-gcd",
    aliases=("mi250x", "gcd"),
    matmul_16bit_flops=_tera(
        Decimal("191.5"), f"{_STAS}: MI250X, 383 for two dies, one of which is a device"
    ),
    memory_bytes=_giga(64, f"{_STAS}: MI250X, 128 for two dies"),
    memory_bandwidth_bytes_per_s=_giga(Decimal("1638.5"), f"{_STAS}: MI250X, 3,277 for two dies"),
    fast_link_bytes_per_s=_giga(
        50, f"{_FRONTIER_NODE}: xGMI, 50 to 100 between modules, 200 inside one; the worst pair"
    ),
    fast_link_latency_s=guessed(
        Decimal("2.7e-6"),
        "ROCm/rccl@0023b9b0 src/graph/tuning.cc, hwLat: ring, Simple protocol",
    ),
    usable_share=guessed(1, "as mi300x"),
    context_bytes=guessed(1_600_000_000, "as a CUDA context on A100"),
    communicator_bytes=_LIKE_NCCL_BUFFERS,
    matmul_efficiency=guessed(Decimal("0.511"), "as measured on mi300x"),
    product_share=_like("0.51", "as on MI300X"),
    attention_flops=guessed(58 * _TERA, "60% of what large products get on MI300X, as on H100"),
    elementwise_share=_like("0.15", "as fitted on H100"),
    launch_s=_LIKE_A100_LAUNCH,
    call_s=guessed(Decimal("53e-6"), "as on A100"),
    batch_s=_BATCH,
    memory_efficiency=_MEMORY_EFFICIENCY,
    fast_link_efficiency=guessed(Decimal("0.698"), "as measured on mi300x"),
    note="One of the two dies of an MI250X, which is what software schedules.",
)

_XLA_RESERVED = 1_342_177_280
_TPU_MATMUL = guessed(Decimal("0.85"), "within the 0.74 to 0.87 measured on NVIDIA's accelerators")
_TPU_LINK = guessed(Decimal("0.85"), "within the 0.70 to 0.91 measured on GPUs")

_TPU_V4 = Accelerator(
    name="tpuv4",
    aliases=("tpu-v4", "v4", "tpu4"),
    matmul_16bit_flops=_tera(275, _SCALING_BOOK),
    memory_bytes=_giga(32, _SCALING_BOOK),
    memory_bandwidth_bytes_per_s=_giga(1200, _SCALING_BOOK),
    fast_link_bytes_per_s=_giga(
        270, f"{_SCALING_BOOK}: ICI, 6 links of 45 GB/s a direction (Google: 50)"
    ),
    fast_link_latency_s=Figure(
        Decimal("1e-6"), "jax-ml/scaling-book sharding.md, about 1 us a hop in its examples"
    ),
    usable_share=Figure(
        1,
        "XLA counts 32 GiB = 34.4e9 bytes (erfanzar/EasyDeL issue 166): 7% above nominal, left for "
        "fragmentation",
    ),
    context_bytes=Figure(_XLA_RESERVED, "XLA reserves 1.25 GiB (erfanzar/EasyDeL issue 166)"),
    communicator_bytes=guessed(0, "XLA places collective buffers among a program's temporaries"),
    matmul_efficiency=_TPU_MATMUL,
    product_share=_like(
        "0.65", "76% of what large products get, as on A100 with what tiles and waves leave over"
    ),
    attention_flops=guessed(137 * _TERA, "half of the peak, as on H100"),
    elementwise_share=_like("0.81", "as fitted on A100"),
    launch_s=guessed(Decimal("1e-6"), "next to nothing: XLA compiles a step into one program"),
    call_s=guessed(Decimal("1e-6"), "next to nothing: XLA compiles a step into one program"),
    batch_s=_BATCH,
    memory_efficiency=_MEMORY_EFFICIENCY,
    fast_link_efficiency=_TPU_LINK,
    note="A 3D torus: one axis has two links, 90 GB/s.",
)

_TPU_V5P = replace(
    _TPU_V4,
    name="tpuv5p",
    aliases=("tpu-v5p", "v5p"),
    matmul_16bit_flops=_tera(459, _SCALING_BOOK),
    attention_flops=guessed(229 * _TERA, "half of the peak, as on H100"),
    memory_bytes=_giga(95, _SCALING_BOOK),
    memory_bandwidth_bytes_per_s=_giga(2765, _SCALING_BOOK),
    fast_link_bytes_per_s=_giga(
        540, f"{_SCALING_BOOK}: ICI, 6 links of 90 GB/s a direction (Google: 100)"
    ),
    usable_share=guessed(1, "as TPU v4"),
    context_bytes=guessed(_XLA_RESERVED, "as XLA reserves on TPU v4"),
    note="A 3D torus: one axis has two links, 180 GB/s.",
)

_TPU_V5E = replace(
    _TPU_V4,
    name="tpuv5e",
    aliases=("tpu-v5e", "v5e"),
    matmul_16bit_flops=_tera(197, _SCALING_BOOK),
    attention_flops=guessed(98 * _TERA, "half of the peak, as on H100"),
    memory_bytes=_giga(16, _SCALING_BOOK),
    memory_bandwidth_bytes_per_s=_giga(819, _SCALING_BOOK),
    fast_link_bytes_per_s=_giga(
        180, f"{_SCALING_BOOK}: ICI, 4 links of 45 GB/s a direction (Google: 50)"
    ),
    usable_share=guessed(1, "as TPU v4"),
    context_bytes=guessed(_XLA_RESERVED, "as XLA reserves on TPU v4"),
    note="A 2D torus: one axis has two links, 90 GB/s.",
)

_TPU_V6E = replace(
    _TPU_V4,
    name="tpuv6e",
    aliases=("tpu-v6e", "v6e", "trillium"),
    matmul_16bit_flops=_tera(918, _SCALING_BOOK),
    attention_flops=guessed(459 * _TERA, "half of the peak, as on H100"),
    memory_bytes=_giga(32, _SCALING_BOOK),
    memory_bandwidth_bytes_per_s=_giga(1638, _SCALING_BOOK),
    fast_link_bytes_per_s=_giga(
        360, f"{_SCALING_BOOK}: ICI, 4 links of 90 GB/s a direction (Google: 100)"
    ),
    usable_share=guessed(1, "as TPU v4"),
    context_bytes=Figure(
        805_306_368, "XLA has 31.25 of 32 GiB (EnzymeAD/Enzyme-JAX pull request 2422)"
    ),
    note="A 2D torus: one axis has two links, 180 GB/s.",
)

_TRAINIUM2 = Accelerator(
    name="trainium2",
    aliases=("trn2",),
    matmul_16bit_flops=_tera(667, f"{_NEURON}; 655 in its early versions"),
    matmul_fp8_flops=_tera(1299, f"{_NEURON}; 1287 in its early versions"),
    vector_fp32_flops=None,
    memory_bytes=_giga(96, f"{_NEURON} (96 GiB there, 96e9 here)"),
    memory_bandwidth_bytes_per_s=_giga(2900, _NEURON),
    fast_link_bytes_per_s=Figure(
        640 * _GIGA,
        f"{_NEURON}: NeuronLink-v3, 1.28 TB/s a chip, taken as the sum of both directions, which "
        "AWS does not say",
    ),
    fast_link_latency_s=guessed(Decimal("3.4e-6"), "as NVLink"),
    usable_share=Figure(1, f"{_NEURON}: 96 GiB, 7% above nominal, left for fragmentation"),
    context_bytes=guessed(1_600_000_000, "as a CUDA context on A100"),
    communicator_bytes=_LIKE_NCCL_BUFFERS,
    matmul_efficiency=guessed(
        Decimal("0.75"), "the lower end of what NVIDIA's accelerators attain (0.74 to 0.87)"
    ),
    product_share=_like(
        "0.57", "76% of what large products get, as on A100 with what tiles and waves leave over"
    ),
    attention_flops=guessed(330 * _TERA, "half of the peak, as on H100"),
    elementwise_share=_like("0.81", "as fitted on A100"),
    launch_s=_LIKE_A100_LAUNCH,
    call_s=guessed(Decimal("53e-6"), "as on A100"),
    batch_s=_BATCH,
    memory_efficiency=_MEMORY_EFFICIENCY,
    fast_link_efficiency=guessed(Decimal("0.80"), "within the 0.70 to 0.91 measured on GPUs"),
    note="A 4x4 torus of four neighbours a chip. AWS's 181 fp32 TFLOP/s are the matrix unit's, "
    "hence no vector peak here.",
)

ACCELERATORS: tuple[Accelerator, ...] = (
    _V100,
    _A100_40,
    _A100_80,
    _H100,
    _H200,
    _H800,
    _B200,
    _GB200,
    _MI300X,
    _MI250X_GCD,
    _TPU_V4,
    _TPU_V5E,
    _TPU_V5P,
    _TPU_V6E,
    _TRAINIUM2,
)


def find_accelerator(name: str | Accelerator) -> Accelerator:
    """Return the accelerator of that name; case and punctuation do not count.

    One with constants of one's own is returned as it is.

    Raises
    ------
    InstanceError
        If the catalogue has none; the message proposes the nearest names.
    """
    if isinstance(name, Accelerator):
        return name
    return find("accelerator", name, ACCELERATORS)
