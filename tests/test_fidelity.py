"""Predicted iteration times against published ones: a table of cited runs, and all of them."""

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from nest_opt import RunConfiguration, predict
from nest_opt.models.families import gpt, llama
from nest_opt.models.share import Attention
from nest_opt.models.spec import TransformerSpec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from fidelity import Predicted, kendall, sweeps  # noqa: E402
from published_runs import predicted_s, published_runs, single_node_runs  # noqa: E402


def gpt_model(
    layers: int, hidden: int, heads: int, vocabulary: int, length: int
) -> TransformerSpec:
    """Return a GPT by its dimensions."""
    return gpt(
        "gpt",
        source="published",
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=vocabulary,
        positions=length,
    )


LLAMA_405B = llama(
    "llama",
    source="published",
    layers=126,
    hidden=16384,
    heads=128,
    kv_heads=8,
    ffn=53248,
    vocabulary=128256,
    sequence_length=8192,
)


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published run.

    Attributes
    ----------
    source
        Where its iteration time is printed, or follows from the FLOP/s or tokens/s printed.
    seconds
        That time.
    """

    source: str
    seconds: float
    model: TransformerSpec
    cluster: str
    devices: int
    batch: int
    length: int = 2048
    microbatch: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    virtual: int = 1
    zero: int = 0
    attention: Attention = "stored"
    full: bool = True
    ends: bool = False

    def run(self) -> RunConfiguration:
        """Return the run as its launcher states it; `ends` have one block fewer each."""
        flash = self.attention == "flash"
        chunks = self.pp * self.virtual
        each = (self.model.layers + 2) // chunks
        return RunConfiguration(
            model=self.model,
            cluster=self.cluster,
            devices=self.devices,
            global_batch=self.batch,
            sequence_length=self.length,
            microbatch=self.microbatch,
            tp=self.tp,
            pp=self.pp,
            cp=self.cp,
            virtual_stages=self.virtual,
            sequence_parallel=flash and self.tp > 1,
            recompute="full" if self.full else "none",
            zero=self.zero,
            stage_layers=(each - 1, *[each] * (chunks - 2), each - 1) if self.ends else None,
            attention=self.attention,
            overlap_gradients=flash,
            bytes_per_parameter=18 if flash else 16,
        )


GPT_175B = gpt_model(96, 12288, 96, 51200, 2048)
GPT_18B = gpt_model(40, 6144, 48, 50257, 2048)
BLOOM = gpt_model(70, 14336, 112, 250880, 2048)
PTD = "Narayanan et al., arXiv:2104.04473, table 2"
VTRAIN = "vTrain (MICRO 2024), ground truth of several nodes"
DGXC = "NVIDIA/dgxc-benchmarking, Llama 3.1 405B, v25.04.02"
ZB = "Qi et al., arXiv:2401.10241"
PUBLISHED = (
    Published(
        source=PTD,
        seconds=76.78,
        model=GPT_175B,
        cluster="dgx-a100",
        devices=384,
        tp=8,
        pp=12,
        batch=1536,
    ),
    Published(
        source=PTD,
        seconds=39.42,
        model=GPT_175B,
        cluster="dgx-a100",
        devices=768,
        tp=8,
        pp=12,
        batch=1536,
    ),
    Published(
        source=VTRAIN,
        seconds=9.928,
        model=GPT_18B,
        cluster="a100-12.5",
        devices=256,
        tp=8,
        microbatch=4,
        batch=1024,
    ),
    Published(
        source=VTRAIN,
        seconds=10.03,
        model=GPT_18B,
        cluster="a100-12.5",
        devices=256,
        tp=4,
        pp=2,
        microbatch=2,
        batch=1024,
    ),
    Published(
        source=VTRAIN,
        seconds=10.93,
        model=GPT_18B,
        cluster="a100-12.5",
        devices=256,
        tp=8,
        pp=4,
        microbatch=2,
        batch=1024,
    ),
    Published(
        source="BigScience, tr11-176B-ml chronicles",
        seconds=105,
        model=BLOOM,
        cluster="jean-zay-a100",
        devices=384,
        tp=4,
        pp=12,
        microbatch=2,
        batch=2048,
        zero=1,
        ends=True,
    ),
    Published(
        source="BigScience, tr11-176B-ml chronicles",
        seconds=102.27,
        model=gpt_model(70, 14336, 64, 250880, 2048),
        cluster="jean-zay-a100",
        devices=384,
        tp=4,
        pp=12,
        microbatch=4,
        batch=2048,
        zero=1,
        ends=True,
    ),
    Published(
        source=f"{ZB}, table 4",
        seconds=2.571,
        model=gpt_model(30, 4096, 32, 51200, 1024),
        cluster="dgx-a100",
        devices=8,
        pp=8,
        microbatch=3,
        batch=72,
        length=1024,
        full=False,
        ends=True,
    ),
    Published(
        source=f"{ZB}, table 4",
        seconds=2.143,
        model=gpt_model(46, 5120, 40, 51200, 1024),
        cluster="dgx-a100",
        devices=16,
        pp=16,
        batch=48,
        length=1024,
        full=False,
        ends=True,
    ),
    Published(
        source=DGXC,
        seconds=19.78,
        model=LLAMA_405B,
        cluster="dgx-h100",
        devices=512,
        tp=8,
        pp=8,
        cp=2,
        virtual=8,
        batch=256,
        length=8192,
        zero=1,
        attention="flash",
        full=False,
        ends=True,
    ),
    Published(
        source=DGXC,
        seconds=19.87,
        model=LLAMA_405B,
        cluster="dgx-h100",
        devices=2048,
        tp=8,
        pp=8,
        cp=2,
        virtual=8,
        batch=1024,
        length=8192,
        zero=1,
        attention="flash",
        full=False,
        ends=True,
    ),
    Published(
        source="Megatron-LM README, H100 weak scaling",
        seconds=3.648,
        model=gpt_model(92, 10240, 80, 131072, 4096),
        cluster="dgx-h100",
        devices=1536,
        tp=8,
        pp=4,
        batch=768,
        length=4096,
        zero=1,
        attention="flash",
        full=False,
    ),
)


@pytest.fixture(scope="module")
def errors() -> list[float]:
    """Return predicted over published time, less 1, of the table."""
    return [predict(row.run(), simulate=False).iteration_s / row.seconds - 1 for row in PUBLISHED]


def test_each_cited_run_is_near_what_was_published(errors: list[float]) -> None:
    """Twelve runs of six sources on three clusters are within 20%."""
    far = {
        f"{row.source}, {row.devices} devices": error
        for row, error in zip(PUBLISHED, errors, strict=True)
        if abs(error) > 0.2
    }
    assert far == {}


def test_cited_runs_are_near_in_the_middle(errors: list[float]) -> None:
    """The median error is within 8%, and neither sign has all of them."""
    assert median(map(abs, errors)) < 0.08
    assert min(errors) < 0 < max(errors)


def test_a_sample_of_all_published_runs(shared_data: Path) -> None:
    """Every fifteenth row on A100 and H100: median error within 10%, nine in ten within 30%."""
    rows = [
        row
        for row in published_runs(shared_data / "facts")
        if row.family in ("A100", "H100") and row.precision == "16-bit"
    ]
    assert len(rows) > 400
    found = sorted(abs(predicted_s(row) / row.measured_s - 1) for row in rows[::15])
    assert median(found) < 0.10
    assert found[int(0.9 * len(found))] < 0.30


def test_first_choices_of_published_sweeps(shared_data: Path) -> None:
    """Sweeps of whole runs and a quarter of the rest: tau 0.7, 80% of choices within 5%."""
    facts = shared_data / "facts"
    sources = ("BigScience", "Zero Bubble", "vTrain")
    whole = [row for row in published_runs(facts) if row.source in sources]
    shapes = ("12x1024x16", "24x2048x16")
    alone = [row for row in single_node_runs(facts) if row.sweep[4] in shapes]
    found = list(sweeps(Predicted(row, predicted_s(row)) for row in (*whole, *alone)))
    assert len(found) == 9 + 24
    assert median(sweep.tau for sweep in found) >= 0.7
    assert sum(sweep.lost <= 0.05 for sweep in found) >= 0.8 * len(found)


def test_kendall_by_hand() -> None:
    """Pairs in order less pairs out of order, over all, or over those that differ (tau-b)."""
    assert kendall([(1, 1), (2, 2), (3, 4), (4, 3)]) == pytest.approx(4 / 6)
    assert kendall([(1, 1), (1, 2), (2, 3)]) == pytest.approx(2 / 6**0.5)
    assert kendall([(1, 1), (1, 1)]) == 0
