"""A run from the arguments of Megatron-LM: those that say what `RunConfiguration` asks for.

Names and defaults are those of megatron/training/arguments.py; `--deepspeed` and
`--zero-stage` are Megatron-DeepSpeed's.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from nest_opt.errors import InstanceError

_MAX_DIGITS = 12
# A second or so of splitting into words; launch scripts have a few thousand characters.
_MAX_CHARACTERS = 2**18

# Argument, field of the run's file.
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
    "--zero-stage": "zero",
}
# Where two arguments state one dimension, the later here goes before the earlier.
_DIMENSIONS = {
    "--num-layers": "layers",
    "--hidden-size": "hidden",
    "--num-attention-heads": "heads",
    "--num-query-groups": "kv_heads",
    "--ffn-hidden-size": "ffn",
    "--num-experts": "experts",
    "--moe-router-topk": "top_k",
    "--moe-ffn-hidden-size": "expert_ffn",
    "--vocab-size": "vocabulary",
    "--pad-vocab-size-to": "vocabulary",
    "--padded-vocab-size": "vocabulary",
}
_FLAGS: dict[str, tuple[str, Any]] = {
    "--sequence-parallel": ("sequence_parallel", True),
    "--use-distributed-optimizer": ("zero", 1),
    "--use-torch-fsdp2": ("zero", 3),
    "--deepspeed": ("runtime", "deepspeed"),
    "--checkpoint-activations": ("recompute", "full"),
    "--recompute-activations": ("recompute", "selective"),
    "--fp16": ("precision", "fp16"),
    "--bf16": ("precision", "bf16"),
    "--fp8-format": ("precision", "fp8"),
    "--use-flash-attn": ("attention", "flash"),
    "--use-tp-pp-dp-mapping": ("order", "pp-inner"),
}
_DIMENSION_FLAGS: dict[str, tuple[str, Any]] = {
    "--swiglu": ("gated", True),
    "--untie-embeddings-and-output-weights": ("tied", False),
    "--embed-layernorm": ("embedding_norm", True),
    "--use-rotary-position-embeddings": ("positions", 0),
    "--no-position-embedding": ("positions", 0),
}
# Argument, and the field and value that each of its words means; None: nothing is said.
_CHOICES: dict[str, dict[str, tuple[str, Any] | None]] = {
    "--recompute-granularity": {
        "full": ("recompute", "full"),
        "selective": ("recompute", "selective"),
    },
    "--recompute-method": {"uniform": None},
    "--recompute-modules": {"core_attn": None},
    "--recompute-num-layers": {"1": None},
    "--data-parallel-sharding-strategy": {
        "no_shard": ("zero", 0),
        "optim": ("zero", 1),
        "optim_grads": ("zero", 2),
        "optim_grads_params": ("zero", 3),
    },
    "--cp-comm-type": {
        "p2p": ("context_parallel", "ring"),
        "all_gather": ("context_parallel", "all-gather"),
    },
    "--attention-backend": {
        "auto": None,
        "flash": ("attention", "flash"),
        "fused": ("attention", "flash"),
        "unfused": ("attention", "stored"),
        "local": ("attention", "stored"),
    },
}
# What changes time or memory in ways that no field states, and what to do instead.
_STAGES = "leave it out, and give --stage-layers"
_CONFIG = "leave it out, and give --model with a config.json"
_REFUSED = {
    "--decoder-first-pipeline-num-layers": _STAGES,
    "--decoder-last-pipeline-num-layers": _STAGES,
    "--account-for-embedding-in-pipeline-split": _STAGES,
    "--account-for-loss-in-pipeline-split": _STAGES,
    "--pipeline-model-parallel-layout": _STAGES,
    "--multi-latent-attention": _CONFIG,
    "--moe-shared-expert-intermediate-size": _CONFIG,
    "--moe-layer-freq": _CONFIG,
    "--mtp-num-layers": "leave it out: it is not counted",
    "--distribute-saved-activations": "leave it out: it is not counted",
    "--optimizer-cpu-offload": "leave it out: it is not counted",
    "--cpu-offloading": "leave it out: it is not counted",
}
_PER_CHUNK = "--num-layers-per-virtual-pipeline-stage"
_DROPOUTS = ("--hidden-dropout", "--attention-dropout")
_TOP_K = 2
_VOCABULARY_MULTIPLE = 128

_Arguments = Mapping[str, tuple[str, ...]]


def megatron_fields(text: str) -> dict[str, Any]:
    """Return the fields of a run's file that an argument line or a launch script states.

    Arguments that change neither time nor memory as they are predicted are
    passed over, and so is the rest of a script. Variables are not looked up.
    What an argument line does not say is left out: cluster and devices, for two.

    Raises
    ------
    InstanceError
        If the text is too long; if a known argument has no number, is there twice
        with different ones, or asks for what is not predicted; or if layers in a
        stage do not divide the model's.
    """
    if len(text) > _MAX_CHARACTERS:
        raise InstanceError(
            f"launch script: found {len(text)} characters, at most {_MAX_CHARACTERS} are read: "
            "keep the launch command alone"
        )
    arguments = _arguments(text)
    for name, remedy in _REFUSED.items():
        if name in arguments:
            raise InstanceError(f"{name}: found it, which no prediction knows: {remedy}")
    fields: dict[str, Any] = {
        "runtime": "megatron",
        **_stated(arguments, _FLAGS, _NUMBERS),
        **dict(_chosen(arguments)),
    }
    fields |= _dropout(arguments)
    model = _model(arguments, fields.get("tp", 1))
    if _PER_CHUNK in arguments:
        per_chunk = _whole(_PER_CHUNK, arguments)
        fields["virtual_stages"] = _chunks(model, fields, per_chunk)
    if fields.get("tp", 1) == 1:
        # Megatron-LM switches it off with a warning.
        fields.pop("sequence_parallel", None)
    _check_expert_tensor(arguments, fields.get("tp", 1))
    if model:
        fields["model"] = model
    return fields


def _arguments(text: str) -> dict[str, tuple[str, ...]]:
    """Return each argument with the words that follow it.

    Raises
    ------
    InstanceError
        If one that is known is there twice and followed by different words.
    """
    known = {*_NUMBERS, *_DIMENSIONS, *_CHOICES, _PER_CHUNK}
    found: dict[str, tuple[str, ...]] = {}
    name, values = "", list[str]()
    for word in (*_words(text), "--"):
        if not word.startswith("--"):
            values.append(word)
            continue
        before, now = found.get(name), tuple(values)
        if name in known and before is not None and before[:1] != now[:1]:
            shown = " and ".join(" ".join(each[:1])[:40] or "nothing" for each in (before, now))
            raise InstanceError(
                f"{name}: found it twice, with {shown}, one value is needed: keep the one that "
                "holds"
            )
        if name:
            found[name] = now
        name, values = word, []
    return found


def _words(text: str) -> Iterator[str]:
    """Yield the words of a script; quotes of a shell may be left open by what is cut out."""
    for line in text.splitlines():
        # A comment ends with its line, whatever its last character.
        line = re.sub(r"(^|\s)#.*", "", line).rstrip().removesuffix("\\")
        try:
            words = shlex.split(line)
        except ValueError:
            words = re.sub(r"[\"']", " ", line).split()
        for word in words:
            for part in word.split():
                # What a variable is set to begins after its name: ARGS="--seq-length 2048".
                part = re.sub(r"^\w+\+?=\(?(?=--)", "", part).rstrip(");")
                name, sign, value = part.partition("=")
                yield from (name, value) if sign and name.startswith("--") else (part,)


def _whole(name: str, arguments: _Arguments) -> int:
    text = arguments[name][0] if arguments[name] else ""
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS:
        raise InstanceError(
            f"{name}: found {text[:40]!r}, a whole number of at most {_MAX_DIGITS} digits is "
            "needed (variables of a shell are not looked up): write the number"
        )
    return int(text)


def _stated(
    arguments: _Arguments, flags: Mapping[str, tuple[str, Any]], numbers: Mapping[str, str]
) -> dict[str, Any]:
    """Return the fields that flags and numbers state; numbers go before flags."""
    found = dict(flags[name] for name in flags if name in arguments)
    return found | {
        field: _whole(name, arguments) for name, field in numbers.items() if name in arguments
    }


def _chosen(arguments: _Arguments) -> Iterator[tuple[str, Any]]:
    """Yield the fields of arguments that are followed by a word of a few."""
    for name in (name for name in _CHOICES if name in arguments):
        choices, words = _CHOICES[name], arguments[name] or ("",)
        for word in words if name == "--recompute-modules" else words[:1]:
            if word not in choices:
                raise InstanceError(
                    f"{name}: found {word[:40]!r}, {' or '.join(choices)} is needed (no prediction "
                    "knows another): change it"
                )
            if choice := choices[word]:
                yield choice


def _dropout(arguments: _Arguments) -> dict[str, Any]:
    """Return whether there is dropout, where an argument says so: either is 0.1 unless given."""
    if not any(name in arguments for name in _DROPOUTS):
        return {}
    words = ["".join(arguments.get(name, ("0.1",))[:1]) for name in _DROPOUTS]
    for name, word in zip(_DROPOUTS, words, strict=True):
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}", word):
            raise InstanceError(
                f"{name}: found {word[:40]!r}, a number such as 0.1 is needed: write it out"
            )
    return {"dropout": any(float(word) > 0 for word in words)}


def _model(arguments: _Arguments, tp: int) -> dict[str, Any]:
    """Return the model's dimensions, with Megatron-LM's defaults where they are not the file's."""
    model = _stated(arguments, _DIMENSION_FLAGS, _DIMENSIONS)
    if "".join(arguments.get("--position-embedding-type", ())[:1]) in ("rope", "alibi", "none"):
        model["positions"] = 0
    if "--vocab-size" in arguments and model["vocabulary"] == _whole("--vocab-size", arguments):
        multiple = max(1, tp) * (
            _whole("--make-vocab-size-divisible-by", arguments)
            if "--make-vocab-size-divisible-by" in arguments
            else _VOCABULARY_MULTIPLE
        )
        model["vocabulary"] += -model["vocabulary"] % max(1, multiple)
    if model.get("gated"):
        model.setdefault("tied", True)
        if "hidden" in model:
            # Two thirds of 4 hidden, since a gated MLP has three products for two.
            model.setdefault("ffn", 8 * model["hidden"] // 192 * 64)
    if "experts" in model:
        model.setdefault("top_k", _TOP_K)
    _check_head(arguments, model)
    return model


def _check_head(arguments: _Arguments, model: Mapping[str, Any]) -> None:
    """Refuse heads that do not share out the hidden size between them."""
    if "--kv-channels" not in arguments or not {"heads", "hidden"} <= model.keys():
        return
    width, heads, hidden = _whole("--kv-channels", arguments), model["heads"], model["hidden"]
    if width * heads != hidden:
        raise InstanceError(
            f"--kv-channels: found {width} with {heads} heads, {hidden} / {heads} is needed "
            f"(hidden size by heads): {_CONFIG}"
        )


def _check_expert_tensor(arguments: _Arguments, tp: int) -> None:
    name = "--expert-tensor-parallel-size"
    if name in arguments and _whole(name, arguments) != tp:
        raise InstanceError(
            f"{name}: found {_whole(name, arguments)}, {tp} is needed (the tensor-parallel size, "
            "which experts are split by as well): change one of the two"
        )


def _chunks(model: Mapping[str, Any], fields: Mapping[str, Any], per_chunk: int) -> int:
    """Return v of a number of layers in each chunk."""
    layers: int = model.get("layers", 0)
    pp: int = fields.get("pp", 1)
    whole, rest = divmod(layers, max(1, pp * per_chunk))
    if rest or not whole or not per_chunk:
        raise InstanceError(
            f"{_PER_CHUNK}: found {per_chunk} with {layers} layers and pp {pp}, a divisor of "
            "their quotient is needed: change one of them"
        )
    return whole
