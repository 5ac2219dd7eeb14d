"""Import of Hugging Face configurations: the catalogue's models again, and what is refused."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hf_configs import CONFIGS

from nest_opt.errors import InstanceError
from nest_opt.models.catalogue import find_model
from nest_opt.models.hf_config import MODEL_TYPES, read_hf_config
from nest_opt.models.parameters import active_parameters, parameters
from nest_opt.models.spec import TransformerSpec


def write(folder: Path, config: Any, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", CONFIGS)
def test_config_gives_the_catalogues_specification(name: str, tmp_path: Path) -> None:
    """A published config.json is read as the model that the catalogue has under its name."""
    config = CONFIGS[name]
    spec = read_hf_config(write(tmp_path, config))
    length = config.get("max_position_embeddings") or config.get("n_positions") or 2048
    known = find_model(name)
    assert isinstance(known, TransformerSpec)
    # A file states the longest sequence, the catalogue the one that was trained on.
    assert replace(spec, name=name, source=known.source) == replace(known, sequence_length=length)


def test_every_supported_type_has_a_config_above() -> None:
    """No family is supported without a published configuration among the tests."""
    assert {config["model_type"] for config in CONFIGS.values()} == set(MODEL_TYPES)


def test_model_is_named_after_its_file(tmp_path: Path) -> None:
    """A config.json takes its folder's name, any other file its own."""
    folder = tmp_path / "my-model"
    folder.mkdir()
    assert read_hf_config(write(folder, CONFIGS["gpt2-xl"])).name == "my-model"
    assert read_hf_config(write(folder, CONFIGS["gpt2-xl"], "other.json")).name == "other"


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("llama-2-7b", {"num_key_value_heads": None}, {"kv_heads": 32}),
        ("llama-2-7b", {"tie_word_embeddings": True}, {"tied": True}),
        ("llama-2-7b", {"attention_bias": True}, {"qkv_bias": True, "output_bias": True}),
        ("llama-2-7b", {"mlp_bias": True}, {"mlp_bias": True}),
        ("llama-2-7b", {"head_dim": 64}, {"head_dim": 64}),
        ("qwen3-30b-a3b", {"head_dim": None}, {"head_dim": 64}),
        ("gpt2-xl", {"n_inner": 100}, {"ffn": 100}),
        ("gpt2-xl", {"tie_word_embeddings": False}, {"tied": False}),
        ("gpt-neox-20b", {"attention_bias": False}, {"qkv_bias": False, "mlp_bias": True}),
        ("opt-1.3b", {"enable_bias": False}, {"qkv_bias": False, "mlp_bias": False}),
        ("bert-large", {"type_vocab_size": 1}, {"token_types": 1}),
    ],
)
def test_options_that_change_shapes_are_read(
    name: str, changes: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    """Options with defaults reach the specification when they are stated."""
    spec = read_hf_config(write(tmp_path, {**CONFIGS[name], **changes}))
    assert {field: getattr(spec, field) for field in expected} == expected


@pytest.mark.parametrize(
    ("name", "field", "expected"),
    [
        ("llama-2-7b", "num_key_value_heads", {"kv_heads": 32}),
        ("mistral-7b", "num_key_value_heads", {"kv_heads": 8}),
        ("llama-2-7b", "tie_word_embeddings", {"tied": False}),
        ("qwen2-7b", "tie_word_embeddings", {"tied": False}),
        ("qwen3-32b", "head_dim", {"head_dim": 128}),
        ("qwen3-30b-a3b", "head_dim", {"head_dim": 64}),
        ("opt-1.3b", "word_embed_proj_dim", {"hidden": 2048}),
    ],
)
def test_absent_options_take_the_librarys_defaults(
    name: str, field: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    """What a file leaves out is what the transformers library would assume."""
    config = {key: value for key, value in CONFIGS[name].items() if key != field}
    spec = read_hf_config(write(tmp_path, config))
    assert {item: getattr(spec, item) for item in expected} == expected


def test_layers_without_experts_are_counted(tmp_path: Path) -> None:
    """Qwen's plain layers at the beginning, and its step between layers with experts, are read."""
    config = CONFIGS["qwen3-30b-a3b"] | {"mlp_only_layers": [1, 0], "decoder_sparse_step": 3}
    spec = read_hf_config(write(tmp_path, config | {"num_hidden_layers": 9}))
    assert [layer for layer in range(9) if spec.is_moe_layer(layer)] == [2, 5, 8]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama-2-7b", {"model_type": "t5"}, "model_type: found 't5', one of llama, mistral"),
        ("llama-2-7b", {"model_type": None}, "model_type: found nothing, one of"),
        ("llama-2-7b", {"model_type": ["llama"]}, "model_type: found \\['llama'\\]"),
        ("llama-2-7b", {"hidden_size": "4096"}, 'hidden_size: found "4096"'),
        ("llama-2-7b", {"hidden_size": 4096.5}, "hidden_size: found 4096.5"),
        ("llama-2-7b", {"hidden_size": -1}, "hidden_size: found -1"),
        ("llama-2-7b", {"num_hidden_layers": 10**9}, "num_hidden_layers: found 1000000000"),
        ("llama-2-7b", {"num_attention_heads": 7}, "heads: found 7, a divisor of 4096"),
        ("llama-2-7b", {"num_key_value_heads": 5}, "kv_heads: found 5, a divisor of 32"),
        ("gpt2-xl", {"add_cross_attention": True}, "add_cross_attention: found true"),
        ("opt-1.3b", {"word_embed_proj_dim": 512}, "word_embed_proj_dim: found 512, 2048"),
        ("opt-1.3b", {"do_layer_norm_before": False}, "do_layer_norm_before: found false"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [3]}, "mlp_only_layers: found 1 layers"),
        ("deepseek-v3", {"moe_layer_freq": 2}, "moe_layer_freq: found 2"),
        ("deepseek-v3", {"num_experts_per_tok": 257}, "moe.top_k: found 257, at most 256"),
    ],
)
def test_configs_that_cannot_be_read_are_refused(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """A wrong or unsupported value is refused by file, field, what was found and allowed."""
    path = write(tmp_path, {**CONFIGS[name], **changes})
    with pytest.raises(InstanceError, match=f"{path}.*{message}"):
        read_hf_config(path)


@pytest.mark.parametrize("field", ["hidden_size", "vocab_size", "num_attention_heads"])
def test_missing_dimension_is_named(field: str, tmp_path: Path) -> None:
    """A dimension is never guessed."""
    config = {key: value for key, value in CONFIGS["llama-2-7b"].items() if key != field}
    with pytest.raises(InstanceError, match=f"{field}: found nothing, a value is needed"):
        read_hf_config(write(tmp_path, config))


def test_file_that_is_no_object_is_refused(tmp_path: Path) -> None:
    """A JSON array is not a configuration."""
    with pytest.raises(InstanceError, match="found no JSON object"):
        read_hf_config(write(tmp_path, [1]))


# fmt: off
ODD_VALUES = (
    None, True, False, 0, 1, 2, 4, 8, 16, 64, -3, 7, 2**24, 2**24 + 1, 10**40, 0.5, 1e300,
    "", "7", "x" * 5000, [], [0], [0, 1], [-1], ["a"], {}, {"a": 1}, [[[]]],
)
# fmt: on


def test_only_instance_errors_come_out_of_damaged_configs(tmp_path: Path) -> None:
    """Of 3,000 damaged configurations each is refused in words or yields a countable model."""
    generator = random.Random(20260)
    configs = list(CONFIGS.values())
    read = 0
    messages = []
    for _ in range(3000):
        config = dict(generator.choice(configs))
        for _ in range(generator.choice((1, 1, 1, 2))):
            field = generator.choice(list(config))
            if generator.random() < 0.3:
                del config[field]
            else:
                config[field] = generator.choice(ODD_VALUES)
            if not config:
                break
        text = json.dumps(config)
        if generator.random() < 0.1:
            text = text[: generator.randrange(len(text))]
        path = tmp_path / "config.json"
        path.write_text(text, encoding="utf-8")
        try:
            spec = read_hf_config(path)
        except InstanceError as error:
            messages.append(str(error))
        else:
            read += 1
            assert parameters(spec) >= active_parameters(spec) > 0
    assert min(read, len(messages)) > 500
    assert max(map(len, messages)) < 2000


def test_binary_file_is_refused(tmp_path: Path) -> None:
    """Bytes that are no text are an error in words."""
    path = tmp_path / "config.json"
    path.write_bytes(random.Random(1).randbytes(400))
    with pytest.raises(InstanceError):
        read_hf_config(path)
