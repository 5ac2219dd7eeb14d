"""The NEST paper's evaluation, scored again: every table and figure of docs/paper.md.

    python benchmarks/paper.py --data DATA            write them
    python benchmarks/paper.py --data DATA --check    compare them with what is committed
    python benchmarks/paper.py --draw                 tables and figures of the committed CSV files

DATA holds the artifact's inputs and its recorded runs, `results.csv`; without
the option it is the folder `nest` of $NEST_OPT_DATA. Three parts: the artifact's
comparison under its own cost model; every planner on the paper instances under
the default one, each optimum certified; and ablations, with slower links outside
the node. Exits with 1 if a score is not the recorded one, a planner's plan is
better than the optimum, a certificate does not prove the optimum, or (`--check`)
a file differs. The same bytes in every run; progress is on stderr.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click
import paper_render as render
from paper_instances import instances
from paper_rescore import Multiple, all_scores, multiples, report
from paper_rescore import tables as artifact_tables
from paper_study import DEVICES, RATIOS, Row, measure_all, tasks
from plotting import save_rows

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "paper.md"
FIGURES = DOCS / "figures"


class Results(NamedTuple):
    """What is measured, and the lines of the artifact's tables.

    Attributes
    ----------
    artifact_lines
        None where the artifact's inputs were not read: the page keeps what it has.
    """

    artifact: list[Multiple]
    planners: list[Row]
    ablations: list[Row]
    artifact_lines: list[str] | None


def log(text: str) -> None:
    """Tell how far the work is."""
    click.echo(text, err=True)


def measured(data: Path, processes: int, sizes: set[int], ratios: set[int]) -> Results:
    """Score, solve and compare everything, or what is of these sizes and ratios."""
    stale = [path.name for path, text in instances() if not _is(path, text.encode())]
    if stale:
        sys.exit(
            f"instances/paper: {len(stale)} files differ from what the cost model derives "
            f"({stale[0]} ...): run python benchmarks/paper_instances.py --write"
        )
    scores, runs = all_scores(data)
    lines, is_met = report(scores, runs)
    for line in lines:
        log(line)
    if not is_met:
        sys.exit("a score is not the recorded one (above)")
    asked = [
        task
        for task in tasks()
        if (task.ratio in ratios if task.sharded else task.devices in sizes)
    ]
    rows = measure_all(asked, processes, log)
    return Results(
        list(multiples(scores)),
        [row for row in rows if row.zero == "0"],
        [row for row in rows if row.zero != "0"],
        list(artifact_tables(scores)),
    )


def committed() -> Results:
    """Read what the committed CSV files have."""
    return Results(
        render.read_rows(FIGURES / "paper_artifact.csv", Multiple),
        render.read_rows(FIGURES / "paper_planners.csv", Row),
        render.read_rows(FIGURES / "paper_ablations.csv", Row),
        None,
    )


def page_text(results: Results, page: str) -> str:
    """Return the page with its blocks made anew."""
    blocks = {
        "answer": render.answer(results.planners, results.ablations),
        "planners": render.planner_table(results.planners),
        "instances": render.instance_tables(results.planners),
        "agnostic": render.agnostic_table(results.ablations),
        "ablations": render.ablation_table(results.ablations),
    }
    if results.artifact_lines is not None:
        blocks["artifact"] = iter(results.artifact_lines)
    return render.with_blocks(page, blocks)


def write_all(results: Results, folder: Path) -> None:
    """Write the page, the figures and the CSV files beside them into a folder like docs."""
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    agnostic = render.best_agnostic(results.ablations)
    render.artifact_figure(results.artifact, figures / "paper_artifact.svg")
    render.planners_figure(results.planners, figures / "paper_planners.svg")
    render.ablations_figure(results.ablations, figures / "paper_ablations.svg")
    render.agnostic_figure(agnostic, figures / "paper_agnostic.svg")
    save_rows(figures / "paper_artifact.csv", Multiple._fields, results.artifact)
    save_rows(figures / "paper_planners.csv", Row._fields, results.planners)
    save_rows(figures / "paper_ablations.csv", Row._fields, results.ablations)
    save_rows(figures / "paper_agnostic.csv", render.Agnostic._fields, agnostic)
    text = page_text(results, PAGE.read_text(encoding="utf-8"))
    (folder / PAGE.name).write_text(text, encoding="utf-8")


def differing(made: Path) -> list[str]:
    """Return the files under a folder like docs that are not, byte for byte, the committed ones."""
    files = sorted(path for path in made.rglob("*") if path.is_file())
    names = [path.relative_to(made) for path in files]
    return [str(name) for name in names if not _is(DOCS / name, (made / name).read_bytes())]


def _is(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _data_folder(data: Path | None) -> Path:
    if data is None and "NEST_OPT_DATA" in os.environ:
        data = Path(os.environ["NEST_OPT_DATA"]) / "nest"
    if data is None or not (data / "results.csv").is_file():
        raise click.UsageError(
            f"--data: found {data}, a folder with results.csv and inputs/ of the artifact is "
            "needed: name it, or set NEST_OPT_DATA to the folder that has it as nest"
        )
    return data


@click.command()
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="As above.")
@click.option("--check", is_flag=True, help="Write nothing; compare with what is committed.")
@click.option("--draw", is_flag=True, help="Measure nothing; draw what the CSV files have.")
@click.option("--devices", type=int, multiple=True, help="Paper instances of so many alone.")
@click.option("--ratio", type=int, multiple=True, help="Outer links slower by these alone.")
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True)
def main(
    data: Path | None,
    check: bool,
    draw: bool,
    devices: tuple[int, ...],
    ratio: tuple[int, ...],
    processes: int,
) -> None:
    """Regenerate the page, its figures and their CSV files."""
    start = time.perf_counter()
    try:
        if draw:
            results = committed()
        else:
            chosen = set(devices or DEVICES), set(ratio or RATIOS)
            results = measured(_data_folder(data), processes, *chosen)
    except RuntimeError as error:
        sys.exit(str(error))
    if check:
        with tempfile.TemporaryDirectory() as folder:
            write_all(results, Path(folder))
            different = differing(Path(folder))
    else:
        write_all(results, DOCS)
        different = []
    log(f"{time.perf_counter() - start:.0f} s")
    if different:
        sys.exit(f"{len(different)} files of docs differ: {', '.join(different)}")


if __name__ == "__main__":
    main()
