"""Alter every single field of certificates, and see that the checker is not deceived.

    python benchmarks/certificates_tamper.py --count 20000 --seed 0

Certificates of both families are made of seeded problems that draw from the whole space
(`tests/whole_space.py`). Of each, every value is altered once: removed, doubled, exchanged,
renamed, of another type, larger, smaller, negative, huge; in problem and table with the digests
as they were, and with those of the altered parts; in the evidence also with a claim of one more.
Then several values at once, parts of another certificate, and damage to the text of the
file, until there are `--count` mutants and `--certificates` certificates. Each mutant is to be
refused, or its claim to be true of its own problem under its own cost table, which the
dynamic program is asked for. Anything else is a finding: a claim that is not true, a crash, a
check that does not end. Prints a table by kind, what was refused why; exits with 1 on a finding.
"""

import argparse
import contextlib
import faulthandler
import gzip
import io
import json
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from certificate_mutations import (  # noqa: E402
    HangError,
    Judged,
    Mutant,
    Sample,
    certificate,
    judge,
    message_class,
    mutants,
    places,
    several,
    text_of,
    watchdog,
)

from nest_opt.certify import checker  # noqa: E402

# One certificate in three is of the free family.
FAMILIES = ("aligned", "aligned", "free")
MOST_VALUES = 500
# The share of damaged files among what is altered further.
TEXT_SHARE = 0.2
WATCH_S = 40
OUTCOMES = ("refused", "valid", "unread", "finding")

Tally = Counter[tuple[str, str, str]]


def study(sample: Sample, others: list[Sample], more: int, seed: int) -> tuple[Tally, list[str]]:
    """Judge all mutants of a certificate; return how many came out how, and what was found."""
    # A step of the interpreter that never ends hears no alarm.
    faulthandler.dump_traceback_later(10 * WATCH_S, exit=True)
    rng = random.Random(f"{sample.name} {seed} more")
    tally, found = Tally(), []
    texts = round(more * TEXT_SHARE)
    altered = [*mutants(sample, seed), *(several(sample, others, rng) for _ in range(more - texts))]
    judged = ((mutant, judge(sample, mutant, WATCH_S)) for mutant in altered)
    damaged = (_judged_text(sample, rng) for _ in range(texts))
    for mutant, what in (*judged, *damaged):
        tally[mutant.kind, what.outcome, what.why] += 1
        if what.outcome == "finding":
            found.append(f"{sample.name}: {mutant.kind} {list(mutant.path)}: {what.why}")
        faulthandler.dump_traceback_later(10 * WATCH_S, exit=True)
    faulthandler.cancel_dump_traceback_later()
    return tally, found


def _judged_text(sample: Sample, rng: random.Random) -> tuple[Mutant, Judged]:
    """Damage a file as bytes and read it as the command does: it says 0 or 2, and nothing else."""
    kind, raw = _damaged(text_of(sample.data).encode(), rng)
    mutant = Mutant(f"file: {kind}", (), None)
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        path.write_bytes(raw)
        try:
            with (
                watchdog(WATCH_S),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                code = checker.main([str(path)])
        except HangError:
            return mutant, Judged("finding", f"runs for more than {WATCH_S} s")
        except BaseException as error:  # Whatever it is, it should not have come out.
            return mutant, Judged("finding", f"crash: {type(error).__name__}: {error}")
    if code == 2 and err.getvalue().startswith("refused: "):
        return mutant, Judged("refused", message_class(err.getvalue().removeprefix("refused: ")))
    # What is read is altered data, of which the claim has to be true again.
    if code == 0:
        return mutant, judge(sample, Mutant(mutant.kind, (), _reread(raw)), WATCH_S)
    return mutant, Judged("finding", f"exit code {code}, {err.getvalue()[:80]!r}")


def _reread(raw: bytes) -> Any:
    return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)


def _damaged(raw: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return a file's bytes with something wrong."""
    place = rng.randrange(len(raw))
    match rng.randrange(9):
        case 0:
            return "cut off", raw[:place]
        case 1:
            return "other byte", raw[:place] + bytes([rng.randrange(256)]) + raw[place + 1 :]
        case 2:
            return "bytes left out", raw[:place] + raw[place + rng.randint(1, 9) :]
        case 3:
            key = rng.choice((b'"claim"', b'"table"', b'"evidence"', b'"version"'))
            return "key twice", raw.replace(b"{", b"{" + key + b": 1, ", 1)
        case 4:
            number = rng.choice(
                (b"NaN", b"-Infinity", b"1e999", b"9" * 41, b"9" * 5000, b"-0", b"1.0")
            )
            return "other number", _with_number(raw, number, rng)
        case 5:
            return "deeply nested", b"[" * 10**5 if rng.random() < 0.5 else b'{"a":' * 10**5
        case 6:
            packed = bytearray(gzip.compress(raw, 1))
            packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
            return "packed, a bit flipped", bytes(packed)
        case 7:
            return "packed, cut off", gzip.compress(raw, 1)[: rng.randrange(2, 200)]
        case _:
            return "not UTF-8", raw[:place] + b"\xff\xfe" + raw[place:]


def _with_number(raw: bytes, number: bytes, rng: random.Random) -> bytes:
    """Return JSON text with one number replaced."""
    starts = [i for i in range(1, len(raw)) if raw[i : i + 1].isdigit() and raw[i - 1 : i] in b" ["]
    start = rng.choice(starts)
    end = next(i for i in range(start, len(raw)) if raw[i : i + 1] not in b"0123456789.e-+")
    return raw[:start] + number + raw[end:]


def drawn(certificates: int, seed: int, console: Console) -> list[Sample]:
    """Return so many certificates that are small, and tell what they prove by what."""
    found: list[Sample] = []
    proofs: Counter[str] = Counter()
    for number in count(seed):
        sample = certificate(number, FAMILIES[number % len(FAMILIES)])
        # Without groups there is nothing to prove; one in ten is left.
        if sample is None or (not sample.data["evidence"] and number % 10):
            continue
        if sum(1 for _ in places(sample.data)) <= MOST_VALUES:
            found.append(sample)
            proofs.update(entry["proof"] for entry in sample.data["evidence"])
        if len(found) == certificates:
            break
    console.print(f"{len(found)} certificates, entries by proof: {dict(proofs)}", markup=False)
    return found


def told(tally: Tally) -> list[Table]:
    """Return the tables of what came out, by kind and by message."""
    by_kind = Table("kind", "mutants", *OUTCOMES, title="Mutants by kind")
    for kind in sorted({kind for kind, _, _ in tally}):
        of = [
            sum(n for (k, o, _), n in tally.items() if (k, o) == (kind, name)) for name in OUTCOMES
        ]
        by_kind.add_row(kind, *map(str, (sum(of), *of)))
    by_why = Table("outcome", "mutants", "class of message", title="Why")
    whys: Counter[tuple[str, str]] = Counter()
    for (_, outcome, why), number in tally.items():
        whys[outcome, why] += number
    for (outcome, why), number in sorted(whys.items(), key=lambda item: (item[0][0], -item[1])):
        by_why.add_row(outcome, str(number), why)
    return [by_kind, by_why]


def main() -> int:
    """Run the study; return 1 on a finding."""
    parser = argparse.ArgumentParser(description="Tamper with certificates.")
    parser.add_argument("--count", type=int, default=20000, help="mutants, at least")
    parser.add_argument("--certificates", type=int, default=54, help="certificates altered")
    parser.add_argument("--seed", type=int, default=0, help="first seed, and that of the mutations")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    console, start = Console(width=120), time.perf_counter()
    samples = drawn(arguments.certificates, arguments.seed, console)
    values = sum(1 for sample in samples for _ in places(sample.data))
    more = max(100, (arguments.count - values) // len(samples) + 1)
    tally, found, done = Tally(), [], 0
    with ProcessPoolExecutor(arguments.processes) as pool, Progress(console=console) as progress:
        task = progress.add_task("certificates", total=len(samples))
        of = partial(study, others=samples, more=more, seed=arguments.seed)
        try:
            for future in as_completed([pool.submit(of, sample) for sample in samples]):
                counts, messages = future.result()
                tally.update(counts)
                found += messages
                done += 1
                progress.advance(task)
                for message in messages:
                    console.print(message, markup=False)
        except KeyboardInterrupt:
            # What is done is told.
            pool.shutdown(wait=False, cancel_futures=True)
    for table in told(tally):
        console.print(table)
    total = Counter[str]()
    for (_, outcome, _), number in tally.items():
        total[outcome] += number
    console.print(
        f"{done} of {len(samples)} certificates with {values} values, {tally.total()} mutants: "
        f"{', '.join(f'{total[name]} {name}' for name in OUTCOMES)}, "
        f"{time.perf_counter() - start:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
