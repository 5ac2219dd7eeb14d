"""The catalogue of models. `docs/models.md` shows it as a table with its sources."""

import re
from dataclasses import dataclass

from nest_opt.models.families import bert, deepseek, gpt, llama
from nest_opt.models.lookup import find
from nest_opt.models.spec import LinearSpec, MlaSpec, ModelSpec, MoeSpec, TransformerSpec

_LINEAR = re.compile(r"linear[- _]?(\d{1,9})x(\d{1,9})", re.IGNORECASE)


@dataclass(frozen=True)
class CatalogueEntry:
    """A specification and the other names it is found by."""

    spec: TransformerSpec
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The specification's name."""
        return self.spec.name


def find_model(name: str) -> ModelSpec:
    """Return the model of that name or alias; case and punctuation do not count.

    A point between digits does: opt-1.3b is not opt-13b. `linear-8x2304` is a
    stack of 8 square matrices of width 2304, and so on.

    Raises
    ------
    InstanceError
        If the catalogue has no such model; the message proposes the nearest names.
    """
    stack = _LINEAR.fullmatch(name.strip())
    if stack:
        return LinearSpec(layers=int(stack[1]), width=int(stack[2]))
    return find("model", name, MODELS, "the path of a config.json, linear-LAYERSxWIDTH or ").spec


def _hub(identifier: str, paper: str) -> str:
    return f"config.json of {identifier} on the Hugging Face hub; {paper}"


# GPT-2, GPT-3, and the models of a paper on Megatron-LM.


def _gpt2(name: str, layers: int, hidden: int, heads: int) -> CatalogueEntry:
    source = _hub(f"openai-community/{name}", "Radford et al. 2019, table 2")
    spec = gpt(name, layers=layers, hidden=hidden, heads=heads, source=source)
    return CatalogueEntry(spec, (f"openai-community/{name}",))


def _megatron(name: str, layers: int, hidden: int, heads: int) -> CatalogueEntry:
    spec = gpt(
        name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=51200,
        positions=2048,
        source="Korthikanti et al., arXiv:2205.05198, table 3",
    )
    return CatalogueEntry(spec)


_GPT = (
    CatalogueEntry(_gpt2("gpt2", 12, 768, 12).spec, ("gpt2-small", "openai-community/gpt2")),
    _gpt2("gpt2-medium", 24, 1024, 16),
    _gpt2("gpt2-large", 36, 1280, 20),
    _gpt2("gpt2-xl", 48, 1600, 25),
    CatalogueEntry(
        gpt(
            "gpt3-175b",
            layers=96,
            hidden=12288,
            heads=96,
            positions=2048,
            source="Brown et al., arXiv:2005.14165, table 2.1; GPT-2's vocabulary, tied",
        ),
        ("gpt3", "gpt-3-175b"),
    ),
    _megatron("megatron-22b", 48, 6144, 64),
    _megatron("megatron-175b", 96, 12288, 96),
    _megatron("megatron-530b", 105, 20480, 128),
    _megatron("megatron-1t", 128, 25600, 160),
)


# EleutherAI's GPT-NeoX and Pythia, Meta's OPT, BigScience's BLOOM.


def _neox(
    name: str, layers: int, hidden: int, heads: int, vocabulary: int, paper: str
) -> CatalogueEntry:
    spec = gpt(
        name,
        family="gpt_neox",
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        positions=2048,
        position_rows=0,
        tied=False,
        source=_hub(f"EleutherAI/{name}", paper),
    )
    return CatalogueEntry(spec, (f"EleutherAI/{name}",))


def _pythia(
    size: str, layers: int, hidden: int, heads: int, vocabulary: int = 50304
) -> CatalogueEntry:
    paper = "Biderman et al., arXiv:2304.01373, table 1"
    return _neox(f"pythia-{size}", layers, hidden, heads, vocabulary, paper)


def _opt(size: str, layers: int, hidden: int, heads: int) -> CatalogueEntry:
    spec = gpt(
        f"opt-{size}",
        family="opt",
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=50272,
        positions=2048,
        # Positions start at 2; the first two rows exist all the same.
        position_rows=2050,
        source=_hub(f"facebook/opt-{size}", "Zhang et al., arXiv:2205.01068, table 1"),
    )
    return CatalogueEntry(spec, (f"facebook/opt-{size}",))


def _bloom(
    name: str, identifier: str, layers: int, hidden: int, heads: int, *aliases: str
) -> CatalogueEntry:
    spec = gpt(
        name,
        family="bloom",
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=250880,
        positions=2048,
        position_rows=0,
        embedding_norm=True,
        source=_hub(identifier, "arXiv:2211.05100"),
    )
    return CatalogueEntry(spec, (identifier, *aliases))


_OPEN_GPT = (
    _neox("gpt-neox-20b", 44, 6144, 64, 50432, "Black et al., arXiv:2204.06745"),
    _pythia("70m", 6, 512, 8),
    _pythia("160m", 12, 768, 12),
    _pythia("410m", 24, 1024, 16),
    _pythia("1b", 16, 2048, 8),
    _pythia("1.4b", 24, 2048, 16),
    _pythia("2.8b", 32, 2560, 32),
    _pythia("6.9b", 32, 4096, 32, 50432),
    _pythia("12b", 36, 5120, 40, 50688),
    _opt("125m", 12, 768, 12),
    _opt("1.3b", 24, 2048, 32),
    _opt("2.7b", 32, 2560, 32),
    _opt("6.7b", 32, 4096, 32),
    _opt("13b", 40, 5120, 40),
    _opt("30b", 48, 7168, 56),
    _opt("66b", 64, 9216, 72),
    CatalogueEntry(
        gpt(
            "opt-175b",
            family="opt",
            layers=96,
            hidden=12288,
            heads=96,
            vocabulary=50272,
            positions=2048,
            position_rows=2050,
            source="Zhang et al., arXiv:2205.01068, table 1; the rest as in its smaller models",
        )
    ),
    _bloom("bloom-7b1", "bigscience/bloom-7b1", 30, 4096, 32),
    _bloom("bloom-176b", "bigscience/bloom", 70, 14336, 112, "bloom"),
)


def _bert(name: str, layers: int, hidden: int, heads: int) -> CatalogueEntry:
    spec = bert(
        name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=4 * hidden,
        vocabulary=30522,
        positions=512,
        token_types=2,
        source=_hub(f"google-bert/{name}-uncased", "Devlin et al., arXiv:1810.04805, section 3"),
    )
    return CatalogueEntry(spec, (f"{name}-uncased", f"google-bert/{name}-uncased"))


_BERT = (_bert("bert-base", 12, 768, 12), _bert("bert-large", 24, 1024, 16))

_LLAMA1_PAPER = "Touvron et al., arXiv:2302.13971, table 2"
_LLAMA2_PAPER = "Touvron et al., arXiv:2307.09288"
_LLAMA3_PAPER = "Llama Team, arXiv:2407.21783, table 3 and section 3.4.1"


def _llama2(
    size: str, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int
) -> CatalogueEntry:
    identifier = f"meta-llama/Llama-2-{size}-hf"
    spec = llama(
        f"llama-2-{size}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        vocabulary=32000,
        sequence_length=4096,
        source=_hub(identifier, _LLAMA2_PAPER),
    )
    return CatalogueEntry(spec, (identifier,))


def _llama3(
    name: str, identifier: str, layers: int, hidden: int, heads: int, ffn: int, *aliases: str
) -> CatalogueEntry:
    spec = llama(
        name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        ffn=ffn,
        vocabulary=128256,
        sequence_length=8192,
        source=_hub(identifier, _LLAMA3_PAPER),
    )
    return CatalogueEntry(spec, (identifier, *aliases))


_LLAMA = (
    CatalogueEntry(
        llama(
            "llama-65b",
            layers=80,
            hidden=8192,
            heads=64,
            kv_heads=64,
            ffn=22016,
            vocabulary=32000,
            sequence_length=2048,
            source=_hub("huggyllama/llama-65b", _LLAMA1_PAPER),
        ),
        ("llama-1-65b", "huggyllama/llama-65b"),
    ),
    _llama2("7b", 32, 4096, 32, 32, 11008),
    _llama2("13b", 40, 5120, 40, 40, 13824),
    _llama2("70b", 80, 8192, 64, 8, 28672),
    _llama3(
        "llama-3-8b",
        "meta-llama/Meta-Llama-3-8B",
        32,
        4096,
        32,
        14336,
        "llama-3.1-8b",
        "meta-llama/Llama-3.1-8B",
    ),
    _llama3(
        "llama-3-70b",
        "meta-llama/Meta-Llama-3-70B",
        80,
        8192,
        64,
        28672,
        "llama-3.1-70b",
        "meta-llama/Llama-3.1-70B",
    ),
    _llama3(
        "llama-3.1-405b",
        "meta-llama/Llama-3.1-405B",
        126,
        16384,
        128,
        53248,
        "llama-3-405b",
    ),
)

_MISTRAL = (
    CatalogueEntry(
        llama(
            "mistral-7b",
            family="mistral",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            ffn=14336,
            vocabulary=32000,
            sequence_length=8192,
            source=_hub("mistralai/Mistral-7B-v0.1", "Jiang et al., arXiv:2310.06825, table 1"),
        ),
        ("mistral-7b-v0.1", "mistralai/Mistral-7B-v0.1"),
    ),
    CatalogueEntry(
        llama(
            "mixtral-8x7b",
            family="mixtral",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            ffn=14336,
            vocabulary=32000,
            sequence_length=32768,
            moe=MoeSpec(experts=8, top_k=2, expert_ffn=14336),
            source=_hub("mistralai/Mixtral-8x7B-v0.1", "Jiang et al., arXiv:2401.04088, table 1"),
        ),
        ("mixtral-8x7b-v0.1", "mistralai/Mixtral-8x7B-v0.1"),
    ),
    CatalogueEntry(
        llama(
            "mixtral-8x22b",
            family="mixtral",
            layers=56,
            hidden=6144,
            heads=48,
            kv_heads=8,
            ffn=16384,
            vocabulary=32000,
            sequence_length=65536,
            moe=MoeSpec(experts=8, top_k=2, expert_ffn=16384),
            source=_hub("mistralai/Mixtral-8x22B-v0.1", "its model card"),
        ),
        ("mixtral-8x22b-v0.1", "mistralai/Mixtral-8x22B-v0.1"),
    ),
)

_QWEN2_PAPER = "Qwen Team, arXiv:2407.10671, table 1"
_QWEN25_PAPER = "Qwen Team, arXiv:2412.15115"
_QWEN3_PAPER = "Qwen Team, arXiv:2505.09388, tables 1 and 2"


def _qwen2(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    vocabulary: int,
    *aliases: str,
    tied: bool = False,
) -> CatalogueEntry:
    identifier = f"Qwen/{name.replace('qwen', 'Qwen').replace('b', 'B')}"
    paper = _QWEN25_PAPER if name.startswith("qwen2.5") else _QWEN2_PAPER
    spec = llama(
        name,
        family="qwen2",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        vocabulary=vocabulary,
        sequence_length=4096,
        qkv_bias=True,
        tied=tied,
        source=_hub(identifier, paper),
    )
    return CatalogueEntry(spec, (identifier, *aliases))


def _qwen3(
    size: str,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    *,
    kv_heads: int = 8,
    tied: bool = False,
    moe: MoeSpec | None = None,
) -> CatalogueEntry:
    identifier = f"Qwen/Qwen3-{size.upper()}"
    spec = llama(
        f"qwen3-{size}",
        family="qwen3_moe" if moe else "qwen3",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=128,
        ffn=ffn,
        vocabulary=151936,
        sequence_length=4096,
        qk_norm=True,
        tied=tied,
        moe=moe,
        source=_hub(identifier, _QWEN3_PAPER),
    )
    return CatalogueEntry(spec, (identifier,))


_QWEN = (
    _qwen2("qwen2-0.5b", 24, 896, 14, 2, 4864, 151936, "qwen2.5-0.5b", tied=True),
    _qwen2("qwen2-1.5b", 28, 1536, 12, 2, 8960, 151936, "qwen2.5-1.5b", tied=True),
    _qwen2("qwen2-7b", 28, 3584, 28, 4, 18944, 152064, "qwen2.5-7b"),
    _qwen2("qwen2.5-14b", 48, 5120, 40, 8, 13824, 152064),
    _qwen2("qwen2.5-32b", 64, 5120, 40, 8, 27648, 152064),
    _qwen2("qwen2-72b", 80, 8192, 64, 8, 29568, 152064, "qwen2.5-72b"),
    _qwen3("0.6b", 28, 1024, 16, 3072, tied=True),
    _qwen3("1.7b", 28, 2048, 16, 6144, tied=True),
    _qwen3("4b", 36, 2560, 32, 9728, tied=True),
    _qwen3("8b", 36, 4096, 32, 12288),
    _qwen3("14b", 40, 5120, 40, 17408),
    _qwen3("32b", 64, 5120, 64, 25600),
    _qwen3(
        "30b-a3b",
        48,
        2048,
        32,
        6144,
        kv_heads=4,
        moe=MoeSpec(experts=128, top_k=8, expert_ffn=768),
    ),
    _qwen3(
        "235b-a22b",
        94,
        4096,
        64,
        12288,
        kv_heads=4,
        moe=MoeSpec(experts=128, top_k=8, expert_ffn=1536),
    ),
    CatalogueEntry(
        llama(
            "qwen1.5-moe-a2.7b",
            family="qwen2_moe",
            layers=24,
            hidden=2048,
            heads=16,
            kv_heads=16,
            ffn=5632,
            vocabulary=151936,
            sequence_length=8192,
            qkv_bias=True,
            moe=MoeSpec(experts=60, top_k=4, expert_ffn=1408, shared_ffn=5632, shared_gate=True),
            source=_hub("Qwen/Qwen1.5-MoE-A2.7B", "its model card"),
        ),
        ("Qwen/Qwen1.5-MoE-A2.7B", "qwen-moe"),
    ),
    CatalogueEntry(
        llama(
            "qwen2-57b-a14b",
            family="qwen2_moe",
            layers=28,
            hidden=3584,
            heads=28,
            kv_heads=4,
            ffn=18944,
            vocabulary=151936,
            sequence_length=4096,
            qkv_bias=True,
            moe=MoeSpec(experts=64, top_k=8, expert_ffn=2560, shared_ffn=20480, shared_gate=True),
            source=_hub("Qwen/Qwen2-57B-A14B", _QWEN2_PAPER),
        ),
        ("Qwen/Qwen2-57B-A14B",),
    ),
)


def _deepseek(
    name: str,
    identifier: str,
    paper: str,
    *aliases: str,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocabulary: int,
    q_lora_rank: int | None,
    moe: MoeSpec,
    family: str = "deepseek_v2",
) -> CatalogueEntry:
    mla = MlaSpec(
        q_lora_rank=q_lora_rank, kv_lora_rank=512, nope_dim=128, rope_dim=64, value_dim=128
    )
    spec = deepseek(
        name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=ffn,
        vocabulary=vocabulary,
        sequence_length=4096,
        source=_hub(identifier, paper),
        family=family,
        moe=moe,
        mla=mla,
    )
    return CatalogueEntry(spec, (identifier, *aliases))


_DEEPSEEK = (
    _deepseek(
        "deepseek-v2-lite",
        "deepseek-ai/DeepSeek-V2-Lite",
        "arXiv:2405.04434, appendix B",
        layers=27,
        hidden=2048,
        heads=16,
        ffn=10944,
        vocabulary=102400,
        q_lora_rank=None,
        moe=MoeSpec(experts=64, top_k=6, expert_ffn=1408, shared_ffn=2 * 1408, first_dense=1),
    ),
    _deepseek(
        "deepseek-v2",
        "deepseek-ai/DeepSeek-V2",
        "arXiv:2405.04434, section 3.1.2",
        layers=60,
        hidden=5120,
        heads=128,
        ffn=12288,
        vocabulary=102400,
        q_lora_rank=1536,
        moe=MoeSpec(experts=160, top_k=6, expert_ffn=1536, shared_ffn=2 * 1536, first_dense=1),
    ),
    _deepseek(
        "deepseek-v3",
        "deepseek-ai/DeepSeek-V3",
        "arXiv:2412.19437, section 4.2; without the multi-token prediction module",
        "deepseek-v3-671b",
        "deepseek-r1",
        "deepseek-ai/DeepSeek-R1",
        family="deepseek_v3",
        layers=61,
        hidden=7168,
        heads=128,
        ffn=18432,
        vocabulary=129280,
        q_lora_rank=1536,
        moe=MoeSpec(
            experts=256,
            top_k=8,
            expert_ffn=2048,
            shared_ffn=2048,
            first_dense=3,
            router_bias=True,
        ),
    ),
)

MODELS: tuple[CatalogueEntry, ...] = (
    *_GPT,
    *_OPEN_GPT,
    *_BERT,
    *_LLAMA,
    *_MISTRAL,
    *_QWEN,
    *_DEEPSEEK,
)
