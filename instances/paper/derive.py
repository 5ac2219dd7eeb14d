"""Derive the paper instances: published model dimensions on published clusters.

`python instances/paper/derive.py --write` writes the problem files beside this
script, `--check` compares. Counts (parameters, FLOPs, bytes of tensors and
collectives) follow the formulas named below. Times are a rough roofline: FLOPs
at half the accelerator's peak, one fixed share for every kernel. What has no
published source is marked GUESS here and named in each instance's note.

Sources
-------
Narayanan et al. 2021, arXiv:2104.04473 (SC'21): parameters and FLOPs of a
    layer, tensor-parallel all-reduces (section 2.3).
Korthikanti et al. 2022, arXiv:2205.05198: bytes of activations (table 2).
Megatron-LM, megatron/training/training.py: grouped queries, SwiGLU, experts.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent

MICROBATCHES = (1, 2, 4)
TENSOR_DEGREES = (1, 2, 4, 8)

# H100 SXM5: NVIDIA H100 datasheet, dense bf16, HBM3. The share of the peak that
# large layers reach (GUESS; measured GEMM maxima are 0.8, whole runs 0.4 to 0.5).
PEAK_FLOPS = 989 * 10**12
MEMORY_BYTES = 80 * 10**9
MEMORY_BYTES_PER_S = 3350 * 10**9
ATTAINED = Fraction(1, 2)
# CUDA context 1.3 to 1.6 GB (BigScience notes) and communicators: GUESS for the sum.
RESERVE_BYTES = 4 * 10**9

PS_PER_S = 10**12
WORD = 2  # bytes of a bf16 element


@dataclass(frozen=True)
class Model:
    """Dimensions of a transformer, in the symbols of the papers.

    Attributes
    ----------
    layers, hidden, heads, kv_heads, ffn, vocabulary, sequence
        L, h, a, k, f, V, s. The vocabulary is padded so that 8 ranks divide it.
    gated
        SwiGLU: three matrices of h * f instead of two.
    causal
        Half of the attention scores are skipped.
    biased
        Biases, LayerNorm, dropout and learned positions (GPT-3, BERT);
        otherwise RMSNorm and none of these.
    experts, chosen
        E experts of width f, of which each token visits K.
    segments
        Rows of a table of segment embeddings.
    source
        Where the dimensions are published.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence: int
    gated: bool
    causal: bool
    biased: bool
    source: str
    experts: int = 1
    chosen: int = 1
    segments: int = 0

    @property
    def kv_width(self) -> int:
        """Width of the keys (and of the values): k heads of h / a."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def matrices(self) -> int:
        """Matrices of h * f in an MLP or expert."""
        return 3 if self.gated else 2


BERT_LARGE = Model(
    "bert-large", 24, 1024, 16, 16, 4096, 30528, 512, False, False, True,
    "Devlin et al. 2018, arXiv:1810.04805 (vocabulary 30522 padded to 30528)", segments=2,
)  # fmt: skip
LLAMA_2_7B = Model(
    "llama-2-7b", 32, 4096, 32, 32, 11008, 32000, 4096, True, True, False,
    "Touvron et al. 2023, arXiv:2307.09288",
)  # fmt: skip
LLAMA_3_70B = Model(
    "llama-3-70b", 80, 8192, 64, 8, 28672, 128256, 8192, True, True, False,
    "Llama Team 2024, arXiv:2407.21783, table 3 (vocabulary 128256)",
)  # fmt: skip
GPT_3_175B = Model(
    "gpt-3-175b", 96, 12288, 96, 96, 49152, 51200, 2048, False, True, True,
    "Brown et al. 2020, arXiv:2005.14165, table 2.1 (vocabulary 50257 padded to 51200)",
)  # fmt: skip
MIXTRAL_8X7B = Model(
    "mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 4096, True, True, False,
    "Jiang et al. 2024, arXiv:2401.04088, table 1", experts=8, chosen=2,
)  # fmt: skip


@dataclass(frozen=True)
class Degrees:
    """Microbatch size, tensor and expert degree of a profile."""

    microbatch: int
    tp: int
    ep: int

    @property
    def key(self) -> dict[str, int]:
        """The fields of a profile's key."""
        return {"microbatch": self.microbatch, "tp": self.tp, "ep": self.ep}


def share(total: int, ranks: int) -> int:
    """Return total / ranks, which must be whole: counts are exact or refused."""
    if total % ranks:
        raise ValueError(f"{total} is not a multiple of {ranks} ranks: pad the dimension")
    return total // ranks


def seconds(flops: Fraction, memory_bytes: Fraction = Fraction(0)) -> float:
    """Return FLOPs and memory traffic as seconds, rounded to picoseconds."""
    exact = flops / (PEAK_FLOPS * ATTAINED) + memory_bytes / (MEMORY_BYTES_PER_S * ATTAINED)
    return round(exact * PS_PER_S) / PS_PER_S


def hidden_bytes(model: Model, microbatch: int) -> int:
    """Return the bytes of one tensor of hidden states: 2sbh."""
    return WORD * model.sequence * microbatch * model.hidden


def all_reduces(model: Model, degrees: Degrees, phase: str, count: int) -> list[dict[str, Any]]:
    """Return tensor-parallel all-reduces of hidden states (SC'21, section 2.3)."""
    if degrees.tp == 1:
        return []
    size = hidden_bytes(model, degrees.microbatch)
    return [
        {"operation": "all-reduce", "group": "tp", "phase": phase, "bytes": size, "count": count}
    ]


# --- blocks ---------------------------------------------------------------------------


def block_parameters(model: Model, degrees: Degrees) -> tuple[int, int]:
    """Return a block's dense and expert parameters per rank.

    Attention 2h^2 (1 + k/a), MLP 2hf or 3hf, biases 3h + h and f + h, norms
    4h or 2h (SC'21 eq. 2: 12h^2 + 13h for GPT); router hE.
    """
    h, f = model.hidden, model.ffn
    attention = 2 * h * h + 2 * h * model.kv_width
    mlp = model.matrices * h * f
    dense = share(attention, degrees.tp) + (4 if model.biased else 2) * h
    if model.biased:
        dense += share(3 * h + f, degrees.tp) + 2 * h
    if model.experts == 1:
        return dense + share(mlp, degrees.tp), 0
    experts = share(model.experts, degrees.ep) * share(mlp, degrees.tp)
    return dense + h * model.experts, experts


def block_flops(model: Model, degrees: Degrees) -> tuple[Fraction, Fraction]:
    """Return a block's forward FLOPs per rank: those of GEMMs, and of the attention core.

    GEMMs 4bsh^2 (1 + k/a) + (4 or 6) bshf K, core (2 or 4) bs^2 h. Every
    tensor-parallel rank runs the router, 2bshE.
    """
    b, s, h = degrees.microbatch, model.sequence, model.hidden
    projections = 4 * b * s * h * (h + model.kv_width)
    mlp = 2 * model.matrices * b * s * h * model.ffn * model.chosen
    router = 2 * b * s * h * model.experts if model.experts > 1 else 0
    core = (2 if model.causal else 4) * b * s * s * h
    return Fraction(projections + mlp, degrees.tp) + router, Fraction(core, degrees.tp)


def block_times(model: Model, degrees: Degrees) -> dict[str, float]:
    """Return a block's times.

    The backward pass of a GEMM is one of its size for each of the two
    gradients; that of the core, twice its forward, has no weights.
    """
    gemm, core = block_flops(model, degrees)
    return {
        "forward_s": seconds(gemm + core),
        "backward_input_s": seconds(gemm + 2 * core),
        "backward_weight_s": seconds(gemm),
    }


def block_stash(model: Model, degrees: Degrees) -> int:
    """Return the bytes that a block keeps for its backward pass, with flash attention.

    With biases: sbh (10 + 24/t) (Korthikanti et al., table 2, the attention core
    recomputed). Without: the same tensors counted by hand (GUESS in so far as no
    paper prints the sum): inputs of the norms and what they hand on 8sbh; q, k, v
    and the core's output, gate, up and their product, split over ranks. Of experts
    also the dispatched and the returned tokens, K each.
    """
    b, s, h = degrees.microbatch, model.sequence, model.hidden
    if model.biased:
        return 10 * s * b * h + share(24 * s * b * h, degrees.tp)
    split = WORD * (2 * h + 2 * model.kv_width + 3 * model.ffn * model.chosen)
    kept = 8 * h
    if model.experts > 1:
        kept += 2 * WORD * h * model.chosen
    return s * b * kept + share(s * b * split, degrees.tp)


def block_profile(model: Model, degrees: Degrees) -> dict[str, Any]:
    """Return the profile of a transformer block."""
    dense, expert = block_parameters(model, degrees)
    stash = block_stash(model, degrees)
    # Gradients of the two widest tensors while the layer runs backward: GUESS.
    work = share(2 * WORD * model.sequence * degrees.microbatch * model.ffn, degrees.tp)
    work *= model.chosen
    checkpoint = hidden_bytes(model, degrees.microbatch)
    return {
        **degrees.key,
        **block_times(model, degrees),
        "dense_parameters": dense,
        **({"expert_parameters": expert} if expert else {}),
        "collectives": [
            *all_reduces(model, degrees, "forward", 2),
            *all_reduces(model, degrees, "backward", 2),
            *all_to_alls(model, degrees),
        ],
        "recompute": {
            "none": {"stash_bytes": stash, "work_bytes": work},
            "full": {"stash_bytes": checkpoint, "work_bytes": work + stash - checkpoint},
        },
    }


def all_to_alls(model: Model, degrees: Degrees) -> list[dict[str, Any]]:
    """Return dispatch and combine, both again backward: K copies of every token.

    Without sequence parallelism every tensor rank holds, and sends, all tokens.
    """
    if degrees.ep == 1:
        return []
    size = model.chosen * hidden_bytes(model, degrees.microbatch)
    return [
        {"operation": "all-to-all", "group": "ep", "phase": phase, "bytes": size, "count": 2}
        for phase in ("forward", "backward")
    ]


# --- embedding and head ---------------------------------------------------------------


def embedding_profile(model: Model, degrees: Degrees) -> dict[str, Any]:
    """Return the profile of the embedding: a look-up, split over the vocabulary.

    It reads and writes a tensor of hidden states; the gradient reads two and
    writes one. It keeps token ids, and dropout's mask of one byte an element.
    """
    b, s, h = degrees.microbatch, model.sequence, model.hidden
    moved = Fraction(hidden_bytes(model, b))
    parameters = share(model.vocabulary * h, degrees.tp)
    if model.biased:
        parameters += s * h + model.segments * h
    kept = 8 * s * b + (s * b * h if model.biased else 0)
    footprint = {"stash_bytes": kept, "work_bytes": hidden_bytes(model, b)}
    return {
        **degrees.key,
        "forward_s": seconds(Fraction(0), 2 * moved),
        "backward_input_s": 0,
        "backward_weight_s": seconds(Fraction(0), 3 * moved),
        "dense_parameters": parameters,
        "collectives": all_reduces(model, degrees, "forward", 1),
        "recompute": {"none": footprint, "full": footprint},
    }


def head_profile(model: Model, degrees: Degrees) -> dict[str, Any]:
    """Return the profile of final norm, logits and loss.

    Logits 2bshV FLOPs, split over the vocabulary; the loss all-reduces three
    numbers of 4 bytes a token. Work: logits in 32 bits and their gradient in 16
    (the gradient's width is a GUESS). BERT's masked-token transform is left out.
    """
    b, s, h = degrees.microbatch, model.sequence, model.hidden
    gemm = Fraction(2 * b * s * h * model.vocabulary, degrees.tp)
    stash, checkpoint = 2 * hidden_bytes(model, b), hidden_bytes(model, b)
    work = share((4 + WORD) * s * b * model.vocabulary, degrees.tp)
    loss = {
        "operation": "all-reduce",
        "group": "tp",
        "phase": "forward",
        "bytes": 4 * s * b,
        "count": 3,
    }
    return {
        **degrees.key,
        "forward_s": seconds(gemm),
        "backward_input_s": seconds(gemm),
        "backward_weight_s": seconds(gemm),
        "dense_parameters": share(model.vocabulary * h, degrees.tp)
        + (2 if model.biased else 1) * h,
        "collectives": [
            *([loss] if degrees.tp > 1 else []),
            *all_reduces(model, degrees, "backward", 1),
        ],
        "recompute": {
            "none": {"stash_bytes": stash, "work_bytes": work},
            "full": {"stash_bytes": checkpoint, "work_bytes": work + stash - checkpoint},
        },
    }


# --- clusters -------------------------------------------------------------------------


def level(name: str, size: int, gigabytes_per_s: float, latency_us: float) -> dict[str, Any]:
    """Return a network level."""
    return {
        "name": name,
        "size": size,
        "bandwidth_bytes_per_s": round(gigabytes_per_s * 10**9),
        "latency_s": latency_us / 10**6,
    }


# NVLink 4, 18 links of 25 GB/s a direction (H100 datasheet); NDR InfiniBand 400 Gbit/s
# a GPU, scalable units of 32 nodes, full fat tree (DGX SuperPOD reference architecture).
# Latencies: NCCL src/graph/tuning.cc, ring, protocol Simple: NVLink 3.4 us, network
# 14 us; 2 us more for another tier of switches (GUESS). Link rates, not what
# collectives attain of them.
SUPERPOD_64 = [level("node", 8, 450, 3.4), level("leaf", 8, 50, 14)]
SUPERPOD_1024 = [level("node", 8, 450, 3.4), level("unit", 32, 50, 14), level("spine", 4, 50, 16)]
# 100 Gbit/s a GPU (as GCP A3 High: 100 GB/s a node of 8), racks of 4 nodes (GUESS).
SPINE_LEAF_64 = [
    level("node", 8, 450, 3.4),
    level("leaf", 4, 12.5, 14),
    level("spine", 2, 12.5, 16),
]

CLUSTER_NOTES = {
    "h100": "DGX H100 SuperPOD: 8 GPUs a node on NVLink (450 GB/s a direction), 50 GB/s of "
    "InfiniBand a GPU between nodes",
    "spine-leaf": "H100 nodes of 8 on NVLink, 12.5 GB/s a GPU on a spine-leaf Ethernet",
}


def cluster(levels: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a cluster of H100s that fills its network."""
    count = 1
    for tier in levels:
        count *= tier["size"]
    return {
        "device_kinds": {
            "h100-80gb": {
                "memory_bytes": MEMORY_BYTES,
                "reserve_bytes": RESERVE_BYTES,
                "peak_flops": PEAK_FLOPS,
                "memory_bandwidth_bytes_per_s": MEMORY_BYTES_PER_S,
            }
        },
        "devices": [{"kind": "h100-80gb", "count": count}],
        "network": {"type": "hierarchical", "algorithms": ["ring", "tree"], "levels": levels},
    }


# --- problems -------------------------------------------------------------------------


def note(model: Model, fabric: str) -> str:
    """Return what an instance is, and what in it is not published."""
    tied = (
        "Embedding and head are tied in the published model; here each has its copy, and the "
        "gradient all-reduce between the two is left out. "
        if model.biased
        else ""
    )
    return (
        f"{model.name}, sequences of {model.sequence} tokens. Dimensions: {model.source}. "
        f"{CLUSTER_NOTES[fabric]}. bf16 weights and gradients, Adam in 32 bits: 2 + 2 + 12 bytes "
        "a parameter. Counts follow the formulas named in derive.py. Guesses: every layer runs at "
        "half the peak (989 TFLOP/s), 4 GB of each device are reserved, work bytes of a block, "
        "latency of upper network tiers"
        + (", bytes of activations without a published formula. " if not model.biased else ". ")
        + tied
        + "No sequence parallelism, no overlap of communication with compute."
    )


def layer_type(model: Model, profile: Any, degrees: list[Degrees]) -> dict[str, Any]:
    """Return a layer type with one profile for each combination of degrees."""
    return {
        "output_bytes": {str(b): hidden_bytes(model, b) for b in MICROBATCHES},
        "profiles": [profile(model, each) for each in degrees],
    }


def flops_per_sequence(model: Model) -> int:
    """Return the FLOPs of forward and backward pass of one sequence: three times the forward."""
    head = 2 * model.sequence * model.hidden * model.vocabulary
    return 3 * (model.layers * int(sum(block_flops(model, Degrees(1, 1, 1)))) + head)


def problem(
    model: Model, fabric: str, levels: list[dict[str, Any]], global_batch: int
) -> dict[str, Any]:
    """Return the problem of training a model on a cluster."""
    devices = cluster(levels)
    count = devices["devices"][0]["count"]
    expert_degrees = [e for e in (1, 2, 4, 8) if model.experts % e == 0]
    degrees = [
        Degrees(b, t, e) for b in MICROBATCHES for t in TENSOR_DEGREES for e in expert_degrees
    ]
    return {
        "format": "nest-opt-problem",
        "version": 1,
        "name": f"{model.name} on {count} {fabric}",
        "note": note(model, fabric),
        "model": {
            "layer_types": {
                "embedding": layer_type(model, embedding_profile, degrees),
                "block": layer_type(model, block_profile, degrees),
                "head": layer_type(model, head_profile, degrees),
            },
            "layers": [
                {"id": "embedding", "type": "embedding"},
                {"id": "block", "type": "block", "repeat": model.layers},
                {"id": "head", "type": "head"},
            ],
            "flops_per_sequence": flops_per_sequence(model),
            "attention_heads": model.heads,
            **({"experts": model.experts} if model.experts > 1 else {}),
        },
        "cluster": devices,
        "job": {
            "global_batch": global_batch,
            "sequence_length": model.sequence,
            "bytes_per_parameter": {"weights": 2, "gradients": 2, "optimizer": 12},
        },
    }


def problems() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file name, problem) of every instance."""
    for model, fabric, levels, batch in (
        (BERT_LARGE, "h100", SUPERPOD_64, 4096),
        (LLAMA_2_7B, "h100", SUPERPOD_64, 1024),
        (LLAMA_3_70B, "h100", SUPERPOD_64, 1024),
        (GPT_3_175B, "h100", SUPERPOD_64, 1024),
        (MIXTRAL_8X7B, "h100", SUPERPOD_64, 1024),
        (LLAMA_2_7B, "spine-leaf", SPINE_LEAF_64, 1024),
        (GPT_3_175B, "spine-leaf", SPINE_LEAF_64, 1024),
        (GPT_3_175B, "h100", SUPERPOD_1024, 1024),
    ):
        data = problem(model, fabric, levels, batch)
        count = data["cluster"]["devices"][0]["count"]
        yield f"{model.name}-{fabric}-{count}.json", data


def text(data: Any, indent: int = 0) -> str:
    """Return JSON with one line for whatever fits in it, and for each profile."""
    line = json.dumps(data)
    if not isinstance(data, dict | list) or len(line) + indent <= 100 or "forward_s" in data:
        return line
    pad, close = " " * (indent + 1), " " * indent
    if isinstance(data, dict):
        items = [f"{json.dumps(key)}: {text(value, indent + 1)}" for key, value in data.items()]
        return "{\n" + ",\n".join(pad + item for item in items) + "\n" + close + "}"
    return "[\n" + ",\n".join(pad + text(item, indent + 1) for item in data) + "\n" + close + "]"


def main() -> int:
    """Write the instances, or check those that are there."""
    parser = argparse.ArgumentParser(description="Derive the paper instances.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the problem files")
    action.add_argument("--check", action="store_true", help="exit 1 if they differ")
    options = parser.parse_args()
    stale = []
    for name, data in problems():
        path, content = FOLDER / name, text(data) + "\n"
        if options.write:
            path.write_text(content, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != content:
            stale.append(name)
    for name in stale:
        print(f"{name}: not what this script derives: run with --write", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
