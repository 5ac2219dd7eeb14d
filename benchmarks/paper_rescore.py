"""The artifact's comparison three times: as published, as released, as corrected.

`released` are the baselines that the artifact's inputs carry, scored as its
release scores them, and the recorded runs of its search. `corrected` are the
same configurations with their stages put right, by the one evaluator, and the
optimum of the artifact's own cost model in place of its search. `paper.py`
runs this and writes what comes of it.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from published_speedups import Row, published

from nest_opt import solve
from nest_opt.models.nest_artifact import read_baselines, read_nest_artifact
from nest_opt.plan.evaluate import Costs
from nest_opt.planners.artifact_baselines import (
    Fixed,
    Score,
    corrected_score,
    layer_counts,
    released_score,
)

BASELINES = ("Manual", "MCMC", "Phaze")
COLUMNS = ("published", "released", "corrected")
SEQUENCES = 4096
TOLERANCE = 1e-9
# Where the manual baseline first has a plan: what speedups of figure 5 are relative to.
BASE_DEVICES = {"bert": 64, "llama2": 64, "llama3": 128, "mixtral": 128, "gpt3": 128}


@dataclass(frozen=True)
class Scores:
    """Batch times of one input, in seconds; None where there is no plan.

    Attributes
    ----------
    released, corrected
        By method: the baselines, and `NEST`.
    reasons
        Why a baseline has no time, by (column, method).
    """

    released: dict[str, float | None]
    corrected: dict[str, float | None]
    reasons: dict[tuple[str, str], str]


def recorded(data: Path) -> dict[tuple[str, str], float | None]:
    """Return the times of results.csv by (input, method); None where it says infeasible."""
    found: dict[tuple[str, str], float | None] = {}
    with (data / "results.csv").open() as file:
        for row in csv.DictReader(file):
            stem = f"{row['setup']}__{row['model']}__mbs{row['mbs']}__{row['devices']}"
            text = row["time_per_batch_s"]
            if text:
                found[stem, row["method"]] = None if text == "infeasible" else float(text)
    return found


def seconds(score: Score) -> float | None:
    """Return a score in seconds."""
    return None if score.value_ps is None else score.value_ps / 1e12


def score_input(path: Path, runs: dict[tuple[str, str], float | None], search: bool) -> Scores:
    """Score an input's baselines both ways, and find the optimum of its search space.

    Without `search` that is the recorded one, which is the same.
    """
    problem = read_nest_artifact(path)
    costs = Costs(problem)
    found = Scores({}, {}, {})
    for name, baseline in read_baselines(path).items():
        counts = layer_counts(baseline.layers, baseline.pp, baseline.partition)
        fixed = Fixed(baseline.tp, baseline.dp, counts)
        for column, times, score in (
            ("released", found.released, released_score(costs, fixed)),
            ("corrected", found.corrected, corrected_score(costs, fixed)),
        ):
            times[name] = seconds(score)
            if score.reason:
                found.reasons[column, name] = score.reason
    found.released["NEST"] = runs.get((path.stem, "NEST"))
    found.corrected["NEST"] = runs.get((path.stem, "EXACT-same-cost-model"))
    if search:
        optimum = solve(problem).evaluation
        found.corrected["NEST"] = None if optimum is None else optimum.value_ps / 1e12
    return found


def mismatches(
    scores: dict[str, Scores], runs: dict[tuple[str, str], float | None]
) -> tuple[dict[str, int], list[str]]:
    """Hold every baseline's score against its row; return rows by column, and what is off."""
    counts, off = {"released": 0, "corrected": 0}, []
    for (stem, method), expected in runs.items():
        name, _, kind = method.partition("-")
        if name not in BASELINES:
            continue
        column = kind or "released"
        found = (scores[stem].corrected if kind else scores[stem].released)[name]
        counts[column] += 1
        if not is_met(found, expected):
            off.append(f"{stem} {method}: found {found}, recorded {expected}")
    return counts, off


def is_met(found: float | None, expected: float | None) -> bool:
    """Whether a time is the recorded one, or there is none on either side."""
    if found is None or expected is None:
        return found is expected
    return abs(found / expected - 1) <= TOLERANCE


def base_stem(row: Row) -> str:
    """Return the input whose manual baseline a row's speedups are relative to."""
    if row.setup == "h100_spineLeaf":
        return row.stem
    devices = BASE_DEVICES[row.model] if row.figure == "figure 5" else 256
    return f"tpuv4_fatTree__{row.model}__mbs1__{devices}"


def speedup(row: Row, method: str, column: str, scores: dict[str, Scores]) -> float | None:
    """Return a throughput as a multiple of the manual baseline's in the same column.

    The batch has 4,096 sequences in every input, so that throughputs are as times.
    """
    if row.stem not in scores:
        return None
    own, base = (getattr(scores[stem], column) for stem in (row.stem, base_stem(row)))
    time, manual = own.get(method), base.get("Manual")
    return None if time is None or manual is None else manual / time


def cells(row: Row, method: str, scores: dict[str, Scores]) -> str:
    """Return `published / released / corrected` in the digits that are published."""
    digits = 3 if row.figure == "table 3" else 2
    texts = [row.speedups.get(method) or "-"]
    for column in ("released", "corrected"):
        value = speedup(row, method, column, scores)
        texts.append("-" if value is None else f"{value:.{digits}f}")
    return " / ".join(texts)


def is_printed_as(value: float | None, printed: str | None) -> bool:
    """Whether a multiple is a printed one: within half a unit of its last digit."""
    if value is None or printed is None:
        return False
    # A little more, since the time that it is relative to was rounded before.
    return abs(value - float(printed)) <= 0.51 * 10.0 ** -len(printed.partition(".")[2])


def agreement(scores: dict[str, Scores]) -> tuple[int, int, list[str]]:
    """Return (figures that the release reproduces, figures, the others) of what is published."""
    same, all_figures, other = 0, 0, []
    for row in published():
        for method in (*BASELINES, "NEST"):
            value = speedup(row, method, "released", scores)
            printed = row.speedups[method]
            if value is None and printed is None:
                continue
            all_figures += 1
            if is_printed_as(value, printed):
                same += 1
                continue
            shown = "none" if value is None else f"{value:.4f}"
            other.append(f"{row.figure}, {row.stem}, {method}: {printed or '-'} for {shown}")
    return same, all_figures, other


def advantage(
    methods: Sequence[str], column: str, scores: dict[str, Scores]
) -> tuple[float, float, int]:
    """Return (geometric mean, largest, number) of NEST's throughput over that of the best of some.

    Over the rows of figure 5 where the published, the released and the
    corrected comparison all have both.
    """
    ratios = []
    for row in published():
        if row.figure != "figure 5":
            continue
        both = {}
        for each in COLUMNS:
            own = _multiple(row, "NEST", each, scores)
            best = max(_multiple(row, name, each, scores) for name in methods)
            if own and best:
                both[each] = own / best
        if len(both) == 3:
            ratios.append(both[column])
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return mean, max(ratios), len(ratios)


def _multiple(row: Row, method: str, column: str, scores: dict[str, Scores]) -> float:
    """Return a throughput as a multiple of the manual baseline's, 0 where there is none."""
    if column == "published":
        return float(row.speedups[method] or 0)
    return speedup(row, method, column, scores) or 0.0


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    names = list(header)
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def tables(scores: dict[str, Scores]) -> Iterator[str]:
    """Yield the lines of all tables of the page."""
    methods = ("Manual", "MCMC", "Phaze", "NEST")
    titles = {
        "figure 5": "Figure 5: 64 to 1,024 devices of tpuv4, microbatch 1",
        "figure 6": "Figure 6: microbatch 1 to 8 on 256 devices of tpuv4",
        "table 3": "Table 3: h100",
    }
    for figure, title in titles.items():
        yield f"#### {title}"
        yield ""
        yield from markdown(
            ("model", "devices", "microbatch", *methods),
            (
                (
                    row.model,
                    f"{row.devices:,}",
                    str(row.microbatch),
                    *(cells(row, method, scores) for method in methods),
                )
                for row in published()
                if row.figure == figure
            ),
        )
        yield ""
    yield "#### All h100 inputs with baselines: batch times, in the files' seconds"
    yield ""
    yield from markdown(
        ("model", "devices", *methods),
        (
            (model, f"{devices:,}", *(_times(scores[stem], method) for method in methods))
            for model, devices, stem in _h100(scores)
        ),
    )
    yield ""
    yield "#### NEST over each baseline, rows of figure 5"
    yield ""
    yield from markdown(
        ("baseline", "rows", *(f"{column}: mean, largest" for column in COLUMNS)),
        (
            (
                name,
                str(advantage(methods, "corrected", scores)[2]),
                *(
                    "{:.2f}, {:.2f}".format(*advantage(methods, column, scores)[:2])
                    for column in COLUMNS
                ),
            )
            for name, methods in (
                *((method, (method,)) for method in BASELINES),
                ("the best of the three", BASELINES),
            )
        ),
    )


def _h100(scores: dict[str, Scores]) -> list[tuple[str, int, str]]:
    """Return model, devices and name of every h100 input that carries baselines."""
    found = []
    for stem, each in scores.items():
        setup, model, _, devices = stem.split("__")
        if setup == "h100_spineLeaf" and set(each.corrected) - {"NEST"}:
            found.append((model, int(devices), stem))
    return sorted(found)


def _times(scores: Scores, method: str) -> str:
    """Return `released / corrected`; nothing where the input has no such baseline."""
    if method not in scores.corrected:
        return ""
    times = scores.released.get(method), scores.corrected[method]
    return " / ".join("-" if time is None else f"{time:,.5g}" for time in times)


def all_scores(
    data: Path, search: bool = True
) -> tuple[dict[str, Scores], dict[tuple[str, str], float | None]]:
    """Return the scores of every input, and the recorded rows."""
    runs, paths = recorded(data), sorted((data / "inputs").glob("*.json"))
    return {path.stem: score_input(path, runs, search) for path in paths}, runs


class Multiple(NamedTuple):
    """A throughput of one method on one input, in all three columns; empty where there is none.

    Attributes
    ----------
    published, released, corrected
        As multiples of the manual baseline's throughput, in the same column.
    released_per_s, corrected_per_s
        Sequences per second, of the seconds of the artifact's files.
    """

    figure: str
    setup: str
    model: str
    microbatch: int
    devices: int
    method: str
    published: str
    released: str
    corrected: str
    released_per_s: str
    corrected_per_s: str


def multiples(scores: dict[str, Scores]) -> Iterator[Multiple]:
    """Yield every published row by method, and the h100 inputs of which nothing is published."""
    rows = published()
    stems = {row.stem for row in rows}
    for model, devices, stem in _h100(scores):
        if stem not in stems:
            setup = stem.partition("__")[0]
            rows.append(Row("h100, not published", setup, model, 1, devices, {}))
    for row in rows:
        for method in (*BASELINES, "NEST"):
            values = [speedup(row, method, column, scores) for column in COLUMNS[1:]]
            times = [
                getattr(scores[row.stem], column).get(method) if row.stem in scores else None
                for column in COLUMNS[1:]
            ]
            yield Multiple(
                *row[:5],
                method,
                row.speedups.get(method) or "",
                *("" if value is None else f"{value:.6g}" for value in values),
                *("" if time is None else f"{SEQUENCES / time:.6g}" for time in times),
            )


def report(
    scores: dict[str, Scores], runs: dict[tuple[str, str], float | None]
) -> tuple[list[str], bool]:
    """Return lines on what is met and what is not, and whether every score is the recorded one."""
    counts, off = mismatches(scores, runs)
    same, figures, other = agreement(scores)
    lines = [f"as {column}: {count} rows of results.csv" for column, count in counts.items()]
    lines += [f"not met: {len(off)}", *(f"  {line}" for line in off)]
    lines += [f"published figures that the release gives: {same} of {figures}"]
    return lines + [f"  {line}" for line in other], not off
