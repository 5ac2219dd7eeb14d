"""What `paper.py` makes of its rows: blocks of docs/paper.md, figures and the CSV files beside."""

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from paper_instances import CLUSTERS, GLOBAL_BATCH
from paper_rescore import BASELINES as ARTIFACT_BASELINES
from paper_rescore import COLUMNS, Multiple, markdown
from paper_study import ABLATIONS, AGNOSTIC, BASELINES, MODELS, OPTIMUM, Row
from plotting import new_figure, save_figure

ALL = "all"


class Agnostic(NamedTuple):
    """How far the best of the plans without network levels is from the optimum.

    Attributes
    ----------
    planner
        The one whose plan takes the least time.
    excess, placed_excess
        By which share of the optimum's time it takes longer; the least of any of these planners'
        plans where it is put on the best device map.
    """

    model: str
    cluster: str
    devices: int
    ratio: int
    zero: str
    planner: str
    excess: float
    placed_excess: float


def best_agnostic(rows: Iterable[Row]) -> list[Agnostic]:
    """Return the best plan without network levels of every problem that has one."""
    by_problem: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.planner in AGNOSTIC and row.value_ps:
            by_problem.setdefault(row[:5], []).append(row)
    found = []
    for head, plans in by_problem.items():
        best = min(plans, key=lambda row: int(row.value_ps))
        placed = min(plans, key=lambda row: int(row.placed_ps))
        found.append(Agnostic(*head, best.planner, best.excess or 0, placed.placed_excess or 0))
    return found


def ratios(rows: Iterable[Row | Agnostic]) -> list[int]:
    """Return the ratios of the outer links that there are rows of."""
    return sorted({row.ratio for row in rows})


def sizes_text(rows: Iterable[Row]) -> str:
    """Return the numbers of devices that there are rows of."""
    sizes = [f"{size:,}" for size in sorted({row.devices for row in rows})]
    return f"{' and '.join([', '.join(sizes[:-1]), sizes[-1]] if sizes[1:] else sizes)} devices"


def mean(shares: Sequence[float]) -> float:
    """Return the geometric mean of 1 + share, less 1."""
    return math.expm1(sum(map(math.log1p, shares)) / len(shares))


def percent(share: float) -> str:
    """Return a share in percent, `tie` for none at all; what rounds to nothing is told apart."""
    if share == 0:
        return "tie"
    return "<0.05%" if share < 5e-4 else f"{100 * share:.1f}%"


def mean_text(shares: Sequence[float]) -> str:
    """Return `mean, largest`."""
    return f"{amount(mean(shares))}, {amount(max(shares))}" if shares else "-"


def amount(share: float) -> str:
    """Return a mean or a largest share in percent."""
    return "0%" if share == 0 else percent(share)


def cell(row: Row) -> str:
    """Return by how much a plan is slower, `tie`, or `none`."""
    return "none" if row.excess is None else percent(row.excess)


# ---------------------------------------------------------------- part one: the paper instances


def instance_tables(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table for each cluster: the optimum, its certified gap, and every baseline."""
    for cluster in CLUSTERS:
        yield f"**{cluster}**"
        yield ""
        header = ("model", "devices", OPTIMUM, "certified gap", *BASELINES)
        yield from markdown(header, (_instance(*each) for each in _instances(rows, cluster)))
        yield ""


def _instances(rows: Sequence[Row], cluster: str) -> Iterator[tuple[Row, dict[str, Row]]]:
    by_planner: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        if row.cluster == cluster:
            by_planner.setdefault(row[:5], {})[row.planner] = row
    for planners in by_planner.values():
        yield planners[OPTIMUM], planners


def _instance(best: Row, planners: dict[str, Row]) -> tuple[str, ...]:
    rate = GLOBAL_BATCH * 10**12 / int(best.value_ps)
    gap = 1 - int(best.bound_ps) / int(best.value_ps)
    return (
        best.model,
        f"{best.devices:,}",
        f"{rate:,.1f} sequences/s" if rate < 1000 else f"{rate:,.0f} sequences/s",
        f"{100 * gap:g}%",
        *(cell(planners[name]) for name in BASELINES),
    )


def planner_table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of all planners and ablations: plans, ties, means by cluster, and why."""
    header = ("planner", "plans", "ties", *CLUSTERS, "worst", "mostly")
    yield from markdown(header, (_planner(rows, name) for name in (*BASELINES, *ABLATIONS)))


def _planner(rows: Sequence[Row], name: str) -> tuple[str, ...]:
    own = [row for row in rows if row.planner == name and row.excess is not None]
    worst = max(own, key=lambda row: row.excess or 0)
    terms = Counter(row.mostly for row in own if row.mostly)
    reasons = ", ".join(
        f"{term} {count}" for term, count in sorted(terms.items(), key=lambda e: (-e[1], e[0]))[:3]
    )
    by_cluster = (
        mean_text([row.excess or 0 for row in own if row.cluster == cluster])
        for cluster in CLUSTERS
    )
    return (
        f"`{name}`",
        str(len(own)),
        str(sum(row.is_tie for row in own)),
        *by_cluster,
        f"{worst.model}, {worst.cluster}, {worst.devices:,}",
        reasons or "-",
    )


# ---------------------------------------------------------------- part two: slower outer links


def ablation_table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of what each ablation costs on each cluster at each ratio."""
    yield from markdown(
        ("ablation", "cluster", *(f"1:{ratio}" for ratio in ratios(rows))),
        (
            (
                f"`{name}`",
                cluster,
                *(_ablation(rows, name, cluster, ratio) for ratio in ratios(rows)),
            )
            for name in ABLATIONS
            for cluster in (*CLUSTERS, ALL)
        ),
    )


def _ablation(rows: Sequence[Row], name: str, cluster: str, ratio: int) -> str:
    return mean_text(
        [
            row.excess
            for row in rows
            if row.planner == name
            and row.excess is not None
            and cluster in (row.cluster, ALL)
            and row.ratio == ratio
        ]
    )


def agnostic_table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of the best plan without levels, by model, cluster and ratio."""
    found = {(a.model, a.cluster, a.ratio): a for a in best_agnostic(rows)}
    yield from markdown(
        ("model", "cluster", *(f"1:{ratio}" for ratio in ratios(rows))),
        (
            (model, cluster, *(_agnostic(found[model, cluster, ratio]) for ratio in ratios(rows)))
            for model in MODELS
            for cluster in CLUSTERS
        ),
    )


def _agnostic(each: Agnostic) -> str:
    own, placed = percent(each.excess), percent(each.placed_excess)
    return own if own == placed else f"{own} ({placed})"


# ---------------------------------------------------------------- the answer


def answer(planners: Sequence[Row], slower: Sequence[Row]) -> Iterator[str]:
    """Yield the sentences that say what joint planning gains, and where."""
    optima = [row for row in planners if row.planner == OPTIMUM]
    others = [row for row in planners if row.planner != OPTIMUM and row.value_ps]
    yield (
        f"- No plan of any planner is better than nest_opt's: {len(others)} plans on {len(optima)} "
        f"instances ({sizes_text(planners)}), each optimum certified at a gap of 0. "
        f"{sum(row.is_tie for row in others)} of these plans tie."
    )
    yield from _baseline_sentences(planners)
    without, with_zero = sizes_text(planners), sizes_text(slower)
    yield from _agnostic_sentences(
        best_agnostic(planners), f"without ZeRO, {without}", by="cluster"
    )
    yield from _agnostic_sentences(
        best_agnostic(slower), f"with ZeRO 0 to 3, {with_zero}", by="ratio"
    )
    yield from _agnostic_sentences(
        best_agnostic(planners + slower), "all of these problems", by="model"
    )
    yield from _belief_sentences(planners, slower)
    yield from _part_sentences(planners, slower)


def _baseline_sentences(rows: Sequence[Row]) -> Iterator[str]:
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if row.planner in BASELINES and row.excess is not None:
            best[row[:5]] = min(row.excess, best.get(row[:5], math.inf))
    shares = list(best.values())
    worst = max(best, key=lambda head: best[head])
    yield (
        f"- The best of the five baselines ties on {shares.count(0)} of {len(shares)} instances; "
        f"its batch is {amount(mean(shares))} longer in the mean, at most "
        f"{amount(max(shares))} ({_place(worst)})."
    )


def _agnostic_sentences(found: Sequence[Agnostic], where: str, by: str) -> Iterator[str]:
    yield f"- Over the best topology-agnostic plan, {where}, by {by}:"
    groups: dict[Any, list[Agnostic]] = {}
    for each in found:
        groups.setdefault(getattr(each, by), []).append(each)
    for group, members in groups.items():
        worst = max(members, key=lambda each: each.excess)
        shares = [each.excess for each in members]
        placed = [each.placed_excess for each in members]
        name = f"outer links 1:{group}" if by == "ratio" else group
        at = f" ({_place(worst)})" if max(shares) else ""
        yield (
            f"  - {name}: {amount(mean(shares))} in the mean, at most "
            f"{amount(max(shares))}{at}; {shares.count(0)} of {len(shares)} tie. On the best "
            f"device map for the same degrees and stages, {amount(mean(placed))} in the mean."
        )


def _belief_sentences(planners: Sequence[Row], slower: Sequence[Row]) -> Iterator[str]:
    """Yield what it costs to hold one belief about the network everywhere."""
    for rows, where in ((planners, "without ZeRO"), (slower, "with ZeRO 0 to 3")):
        shares = {
            name: [row.excess for row in rows if row.planner == name and row.excess is not None]
            for name in AGNOSTIC
        }
        ordered = sorted(shares, key=lambda name: mean(shares[name]))
        texts = ", ".join(f"`{name}` {mean_text(shares[name])}" for name in ordered)
        yield f"- One belief for all problems, {where} (mean, largest): {texts}."


def _part_sentences(planners: Sequence[Row], slower: Sequence[Row]) -> Iterator[str]:
    texts = {
        "memory-last": "Memory, looked at last and sharded step by step",
        "memory-repaired": "Memory, looked at last and repaired in the best way",
        "equal-stages": "Stages of equally many blocks instead of any",
    }
    for name, text in texts.items():
        parts = []
        for rows, where in ((planners, "without ZeRO"), (slower, "with ZeRO 0 to 3")):
            own = [row for row in rows if row.planner == name]
            shares = [row.excess for row in own if row.excess is not None]
            none = len(own) - len(shares)
            parts.append(
                f"{where} {amount(mean(shares))} in the mean, at most {amount(max(shares))}, "
                f"{shares.count(0)} of {len(shares)} tie{f', {none} without a plan' * (none > 0)}"
            )
        yield f"- {text}: {'; '.join(parts)}."


def _place(each: Any) -> str:
    model, cluster, devices, ratio = each[:4]
    links = f", 1:{ratio}" if ratio > 1 else ""
    return f"{model} on {devices:,} of {cluster}{links}"


# ---------------------------------------------------------------- figures


def artifact_figure(rows: Sequence[Multiple], path: Path) -> None:
    """Draw NEST's throughput over the best baseline's in every row of figure 5, three times."""
    figure, axes = new_figure(7.5, 4.0)
    places: dict[tuple[str, int], dict[str, Multiple]] = {}
    for row in rows:
        if row.figure == "figure 5":
            places.setdefault((row.model, row.devices), {})[row.method] = row
    for column, marker in zip(COLUMNS, ("o", "x", "s"), strict=True):
        x, y = [], []
        for place, methods in enumerate(places.values()):
            own = getattr(methods["NEST"], column)
            others = [getattr(methods[name], column) for name in ARTIFACT_BASELINES]
            best = max((float(value) for value in others if value), default=None)
            if own and best:
                x.append(place)
                y.append(float(own) / best)
        axes.scatter(x, y, marker=marker, s=22, label=f"as {column}")
    axes.axhline(1, color="black", linewidth=0.8)
    labels = [f"{model} {devices}" for model, devices in places]
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
    axes.set_ylabel("NEST's throughput over the best baseline's")
    axes.legend(frameon=False)
    save_figure(figure, path)


def planners_figure(rows: Sequence[Row], path: Path) -> None:
    """Draw by how much each planner's plans are slower, an instance a mark."""
    figure, axes = new_figure(7.5, 4.5)
    names = (*BASELINES, *ABLATIONS)
    for number, cluster in enumerate(CLUSTERS):
        x, y = [], []
        for place, name in enumerate(names):
            own = [row for row in rows if row.planner == name and row.cluster == cluster]
            for row in own:
                if row.excess is not None:
                    x.append(100 * row.excess)
                    y.append(place + 0.22 * (number - 1))
        axes.scatter(x, y, s=9, alpha=0.7, label=cluster)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=-0.1)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("batch time over the optimum's, % (linear up to 1%)")
    axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def ablations_figure(rows: Sequence[Row], path: Path) -> None:
    """Draw what each ablation costs in the mean, over the ratio of the outer links."""
    figure, axes = new_figure(8.0, 4.0)
    for name, marker in zip(ABLATIONS, "osv^xD*", strict=True):
        means = []
        for ratio in ratios(rows):
            shares = [
                row.excess
                for row in rows
                if row.planner == name and row.ratio == ratio and row.excess is not None
            ]
            means.append(100 * mean(shares))
        axes.plot(ratios(rows), means, marker=marker, markersize=5, label=name)
    _ratio_axes(axes, ratios(rows))
    axes.set_ylabel("batch time over the optimum's,\ngeometric mean, %")
    save_figure(figure, path)


def agnostic_figure(rows: Sequence[Agnostic], path: Path) -> None:
    """Draw what the best plan without levels costs: a model a colour, a cluster a line style."""
    figure, axes = new_figure(8.0, 4.0)
    styles = dict(zip(CLUSTERS, ("-", "--", ":"), strict=True))
    colours = {model: f"C{place}" for place, model in enumerate(MODELS)}
    found = {(each.model, each.cluster, each.ratio): each for each in rows}
    for model in MODELS:
        for cluster in CLUSTERS:
            shares = [100 * found[model, cluster, ratio].excess for ratio in ratios(rows)]
            label = model if cluster == CLUSTERS[0] else None
            axes.plot(
                ratios(rows), shares, styles[cluster], color=colours[model], marker=".", label=label
            )
    for cluster, style in styles.items():
        axes.plot([], [], style, color="black", label=cluster)
    _ratio_axes(axes, ratios(rows))
    axes.set_ylabel("batch time of the best topology-agnostic\nplan over the optimum's, %")
    save_figure(figure, path)


def _ratio_axes(axes: Any, found: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(found, [f"1:{ratio}" for ratio in found])
    axes.set_xlabel("bandwidth outside the node, as a share of the cluster's")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=-0.1, top=2 * axes.get_ylim()[1])
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


# ---------------------------------------------------------------- files


def read_rows(path: Path, kind: Callable[..., Any]) -> list[Any]:
    """Return the rows of a CSV file that `save_rows` wrote, as what they were."""
    whole = {"devices", "ratio", "microbatch"}
    shares = {"excess", "placed_excess"}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            kind(
                **{
                    name: int(value) if name in whole else float(value) if name in shares else value
                    for name, value in row.items()
                }
            )
            for row in csv.DictReader(file)
        ]


def with_blocks(page: str, blocks: dict[str, Iterable[str]]) -> str:
    """Return a page with the text between `<!-- NAME -->` and `<!-- end of NAME -->` replaced.

    Raises
    ------
    ValueError
        If the page has not one such place for a block.
    """
    for name, lines in blocks.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end of {name} -->)", re.DOTALL)
        text = "\n".join(lines).strip()
        page, count = pattern.subn(lambda match, text=text: f"{match[1]}\n{text}\n{match[2]}", page)
        if count != 1:
            raise ValueError(f"the page has {count} places for the block {name!r}, 1 is needed")
    return page
