"""The checker refuses certificates that were tampered with, or what is left of them is true.

`benchmarks/certificates_tamper.py` alters every single field of more than fifty certificates.
"""

import io
import json
import random
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from certificate_mutations import (
    Mutant,
    Sample,
    at,
    certificate,
    judge,
    mutants,
    one_more,
    places,
    several,
    text_of,
    with_digests,
)

from nest_opt.certify import checker

# They have every proof that there is, constraints, ZeRO, schedules, chunks, tied parameters, and
# any order of layers.
SEEDS = (
    ("aligned", 2),
    ("aligned", 3),
    ("aligned", 6),
    ("aligned", 18),
    ("aligned", 157),
    ("free", 38),
    ("free", 28),
)
EVERY = 12


@cache
def sample(family: str, seed: int) -> Sample:
    found = certificate(seed, family)
    assert found is not None
    return found


@pytest.mark.parametrize(("family", "seed"), SEEDS)
def test_altered_certificates_are_refused_or_true(family: str, seed: int) -> None:
    """Of one value in twelve altered, and of several at once, no mutant deceives the checker."""
    own, rng = sample(family, seed), random.Random(seed)
    some = list(islice(mutants(own, seed), None, None, EVERY))
    others = [sample(*other) for other in SEEDS]
    some += [several(own, others, rng) for _ in range(20)]
    judged = [(mutant, judge(own, mutant)) for mutant in some]
    wrong = [(m.kind, m.path, j.why) for m, j in judged if j.outcome == "finding"]
    assert not wrong
    outcomes = Counter((m.kind.split(":")[0], j.outcome) for m, j in judged)
    assert {outcome for kind, outcome in outcomes if kind == "stale"} == {"refused"}
    assert outcomes["anew", "refused"] > outcomes["anew", "valid"]


@pytest.mark.parametrize(("family", "seed"), SEEDS)
def test_evidence_proves_no_more_than_the_optimum(family: str, seed: int) -> None:
    """With one more claimed than the optimum, no altered evidence is accepted."""
    own = sample(family, seed)
    if own.optimum_ps is None:
        pytest.skip("there is no plan, so that any claim is true")
    claim = {**own.data["claim"], "least_ps": str(own.optimum_ps)}
    forged = replace(own, data=one_more({**own.data, "claim": claim}))
    kinds = [m for m in mutants(forged, seed) if m.path[0] == "evidence"]
    for mutant in (*kinds[::3], Mutant("as it is", (), forged.data)):
        assert judge(own, mutant).outcome == "refused", (mutant.kind, mutant.path)


def test_mutants_alter_every_value() -> None:
    """Every value of a certificate is altered, and no mutant is what it was made of."""
    own = sample("aligned", 18)
    made = list(mutants(own, 0))
    assert {mutant.path for mutant in made} == set(places(own.data))
    assert all(text_of(mutant.data) != text_of(own.data) for mutant in made)


def test_judgement_sees_a_claim_that_is_not_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the checker believed all entries, altered claims and costs would be findings."""
    for proof in ("sum", "room", "thresholds", "chunks"):
        monkeypatch.setattr(checker.Proofs, proof, lambda *_: True)
    own = sample("aligned", 6)
    assert judge(own, Mutant("claim", (), one_more(own.data))).outcome == "finding"
    path = ("table", "pairs", 0, "forward_ps")
    cheap = json.loads(text_of(own.data))
    at(cheap, path[:-1])["forward_ps"] = [0] * len(at(cheap, path))
    at(cheap, path[:-1])["repeated_forward_ps"] = [0] * len(at(cheap, path))
    assert judge(own, Mutant("cost", path, with_digests(cheap))).outcome == "finding"


@pytest.mark.parametrize("family", ["aligned", "free"])
def test_damaged_files_are_refused(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that end early, are no text, nest without end or repeat a key give exit code 2."""
    raw = text_of(sample(family, 28).data if family == "free" else sample(family, 6).data).encode()
    damaged = [
        b"",
        raw[: len(raw) // 2],
        raw.replace(b"{", b'{"claim": 1, ', 1),
        raw.replace(b": 1", b": NaN", 1),
        raw.replace(b": 1", b": 1e999", 1),
        raw.replace(b": 1", b": " + b"9" * 41, 1),
        b"[" * 10**5,
        b"\xff\xfe" + raw,
        b"\x1f\x8b" + raw,
    ]
    path = tmp_path / "certificate.json"
    for content in damaged:
        path.write_bytes(content)
        assert checker.main([str(path)]) == 2
        told = capsys.readouterr()
        assert told.err.startswith("refused: ")
        assert not told.out
    path.write_bytes(raw)
    assert checker.main([str(path)]) == 0


def test_any_name_is_told_on_any_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name that the terminal's encoding lacks is told in escapes, not by a traceback."""
    data = json.loads(text_of(sample("aligned", 6).data))
    data["problem"]["name"] = "\u00e9\ud800"
    path, told = tmp_path / "certificate.json", io.BytesIO()
    path.write_text(text_of(with_digests(data)))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(told, "ascii", write_through=True))
    assert checker.main([str(path)]) == 0
    assert rb"'\xe9\ud800'" in told.getvalue()


def test_thresholds_are_whole() -> None:
    """A threshold that is no whole number is refused: floats are not exact."""
    data = json.loads(text_of(sample("aligned", 6).data))
    entry = next(entry for entry in data["evidence"] if entry["proof"] == "thresholds")
    entry["sync_ps"] = [float(threshold) for threshold in entry["sync_ps"] or [0]]
    with pytest.raises(checker.RefusedError, match="for a number"):
        checker.check(data)


def test_entries_about_nothing_are_steps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries without a group to settle use up the steps of all proofs."""
    data = json.loads(text_of(sample("aligned", 6).data))
    box = {**data["evidence"][0]["box"], "replicas": [0, 0]}
    monkeypatch.setattr(checker, "MOST_STEPS", 10**5)
    checker.check(data)
    data["evidence"] += [{"proof": "sum", "box": box}] * 10**5
    with pytest.raises(checker.RefusedError, match="steps"):
        checker.check(data)


def test_intervals_are_dropped_before_memory_is_full() -> None:
    """Programs of runs, as those of device maps, keep intervals up to a limit and no more."""
    data = sample("free", 38).data
    space = checker.Space(data["problem"], data["table"], "free")
    proofs = checker.Proofs(space, checker.Table(data["table"], space), checker.ENDLESS)
    group = next(group for group in checker.Coverage(space).groups if group.stages > 1)
    for ask in (
        lambda: proofs.run_programs(group, 1),
        lambda: proofs.thresholds(group, None, []),
    ):
        proofs.kept = checker.MOST_INTERVALS + 1
        ask()
        assert 0 < proofs.kept <= checker.MOST_INTERVALS


ENDLESS_NUMBERS: tuple[tuple[tuple[str | int, ...], Any], ...] = (
    (("problem", "job", "global_batch"), 10**39),
    (("problem", "job", "global_batch"), 2**62),
    (("problem", "model", "experts"), 10**39),
    (("problem", "cluster", "network", "levels", 0, "size"), 10**39),
    (("problem", "constraints"), [{"type": "hop-latency", "limit_s": "1e999999999"}]),
    (("problem", "model", "layers", 0, "repeat"), 10**9),
    (("evidence", 0, "box", "zero"), [0, 10**39]),
    (("evidence", 0, "box", "stages"), [1, 10**39]),
)


@pytest.mark.parametrize(("path", "value"), ENDLESS_NUMBERS, ids=lambda of: str(of)[-30:])
def test_endless_numbers_end(path: tuple[str | int, ...], value: Any) -> None:
    """Numbers that no problem has are refused rather than counted up to."""
    data = json.loads(text_of(sample("aligned", 33).data))
    if path[-1] == "experts":
        data["problem"]["search"].pop("ep", None)
    at(data, path[:-1])[path[-1]] = value
    own = sample("aligned", 33)
    assert judge(own, Mutant("huge", path, with_digests(data)), seconds=20).outcome != "finding"
