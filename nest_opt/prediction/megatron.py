"""A run from the arguments of Megatron-LM: those that say what `RunConfiguration` asks for."""

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from nest_opt.errors import InstanceError

_MAX_DIGITS = 12


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS:
        raise InstanceError(
            f"{name}: found {text[:40]!r}, a whole number is needed (variables of a shell are not "
            "looked up): write the number"
        )
    return int(text)


# Megatron-LM, megatron/training/arguments.py: argument, field of the run's file.
_NUMBERS = {
    "--tensor-model-parallel-size": "tp",
    "--pipeline-model-parallel-size": "pp",
    "--context-parallel-size": "cp",
    "--expert-model-parallel-size": "ep",
    "--num-virtual-stages-per-pipeline-rank": "virtual_stages",
    "--micro-batch-size": "microbatch",
    "--global-batch-size": "global_batch",
    "--seq-length": "sequence_length",
    "--num-distributed-optimizer-instances": "zero_instances",
    "--num-layers-per-virtual-pipeline-stage": "layers of a chunk",
}
_PER_CHUNK = "layers of a chunk"
_DIMENSIONS = {
    "--num-layers": "layers",
    "--hidden-size": "hidden",
    "--num-attention-heads": "heads",
    "--num-query-groups": "kv_heads",
    "--ffn-hidden-size": "ffn",
    "--num-experts": "experts",
    "--moe-router-topk": "top_k",
    "--moe-ffn-hidden-size": "expert_ffn",
    "--padded-vocab-size": "vocabulary",
    "--vocab-size": "vocabulary",
    "--pad-vocab-size-to": "vocabulary",
}
_FLAGS: dict[str, tuple[str, Any]] = {
    "--sequence-parallel": ("sequence_parallel", True),
    "--use-distributed-optimizer": ("zero", 1),
    "--recompute-activations": ("recompute", "selective"),
    "--checkpoint-activations": ("recompute", "full"),
    "--bf16": ("precision", "bf16"),
    "--fp16": ("precision", "fp16"),
    "--use-flash-attn": ("attention", "flash"),
    "--use-tp-pp-dp-mapping": ("order", "pp-inner"),
}
_DIMENSION_FLAGS = {
    "--swiglu": ("gated", True),
    "--untie-embeddings-and-output-weights": ("tied", False),
    "--embed-layernorm": ("embedding_norm", True),
}


def megatron_fields(text: str) -> dict[str, Any]:
    """Return the fields of a run's file that an argument line or a launch script states.

    Arguments that change neither time nor memory as they are predicted are
    passed over, and so is the rest of a script. Variables are not looked up.
    What an argument line does not say is left out: cluster and devices, for two.

    Raises
    ------
    InstanceError
        If a known argument has no number, or layers in a stage do not divide the model's.
    """
    fields: dict[str, Any] = {"runtime": "megatron"}
    model: dict[str, Any] = {}
    words = list(_words(text))
    for word, value in zip(words, [*words[1:], ""], strict=True):
        for target, numbers, flags in (
            (fields, _NUMBERS, _FLAGS),
            (model, _DIMENSIONS, _DIMENSION_FLAGS),
        ):
            if word in numbers:
                target[numbers[word]] = _whole(word, value)
            elif word in flags:
                name, found = flags[word]
                target[name] = found
        if word in _SPECIAL:
            _SPECIAL[word](value, fields, model)
    if _PER_CHUNK in fields:
        fields["virtual_stages"] = _chunks(model, fields, fields.pop(_PER_CHUNK))
    if fields.get("tp", 1) == 1:
        # Megatron-LM switches it off with a warning.
        fields.pop("sequence_parallel", None)
    if model:
        fields["model"] = model
    return fields


def _words(text: str) -> Iterator[str]:
    """Yield the words of a script; quotes of a shell may be left open by what is cut out."""
    plain = re.sub(r"\\\n", " ", text)
    for line in plain.splitlines():
        line = re.sub(r"(^|\s)#.*", "", line)
        try:
            words = shlex.split(line)
        except ValueError:
            words = re.sub(r"[\"']", " ", line).split()
        for word in words:
            for part in word.split():
                # What a variable is set to begins after its name: ARGS="--seq-length 2048".
                part = part[max(0, part.find("--")) :].rstrip(")")
                name, sign, value = part.partition("=")
                yield from (name, value) if sign and name.startswith("--") else (part,)


def _recompute(value: str, fields: dict[str, Any], _: dict[str, Any]) -> None:
    if value not in ("full", "selective"):
        raise InstanceError(
            f"--recompute-granularity: found {value[:40]!r}, full or selective is needed: "
            "correct it"
        )
    fields["recompute"] = value


def _fp8(_: str, fields: dict[str, Any], __: dict[str, Any]) -> None:
    fields["precision"] = "fp8"


def _positions(value: str, _: dict[str, Any], model: dict[str, Any]) -> None:
    if value in ("rope", "alibi", "none"):
        model["positions"] = 0


_SPECIAL: dict[str, Callable[[str, dict[str, Any], dict[str, Any]], None]] = {
    "--recompute-granularity": _recompute,
    "--fp8-format": _fp8,
    "--position-embedding-type": _positions,
}


def _chunks(model: dict[str, Any], fields: dict[str, Any], per_chunk: int) -> int:
    """Return v of a number of layers in each chunk."""
    layers: int = model.get("layers", 0)
    pp: int = fields.get("pp", 1)
    whole, rest = divmod(layers, max(1, pp * per_chunk))
    if rest or not whole:
        raise InstanceError(
            f"--num-layers-per-virtual-pipeline-stage: found {per_chunk} with {layers} layers and "
            f"pp {pp}, a divisor of their quotient is needed: change one of them"
        )
    return whole
