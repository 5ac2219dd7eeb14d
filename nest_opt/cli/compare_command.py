"""`nest-opt compare`: what other planners find, and how far it is from the best."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest_opt.cli.group import EXIT_NO, json_option
from nest_opt.cli.narrowing import Narrowing, runtime_option
from nest_opt.cli.number_types import whole
from nest_opt.cli.problem_source import problem_options
from nest_opt.cli.registering import register_option
from nest_opt.cli.request_options import Asked

if TYPE_CHECKING:
    from nest_opt.comparison import Comparison

# Those of nest_opt.planners, which help must not wait for.
PLANNER_NAMES = ("manual", "mcmc", "phaze", "alpa", "random")
ABLATION_NAMES = (
    "no-network",
    "inner-bandwidth",
    "mean-bandwidth",
    "outer-bandwidth",
    "memory-last",
    "memory-repaired",
    "equal-stages",
)


@click.command("compare")
@problem_options
@click.option(
    "--planners",
    "names",
    metavar="NAME[,NAME]",
    help=f"These planners alone, of {', '.join(PLANNER_NAMES)}; or ablations of the search: "
    f"{', '.join(ABLATION_NAMES)}.",
)
@click.option(
    "--seed", type=whole, default="0", metavar="N", help="Seed of mcmc and random; 0 unless given."
)
@click.option(
    "--budget",
    type=whole,
    metavar="N",
    help="Placements that mcmc and random try; 2,000 and 1,000 unless given.",
)
@click.option(
    "--diff",
    "pair",
    metavar="NAME,NAME",
    help="Also say what differs between the plans of two of them, or of one and solve.",
)
@click.option(
    "--fix",
    "fixes",
    metavar="KEY=VALUE[,VALUE]",
    multiple=True,
    help="Let all of them use these values of a dimension alone, as of solve. Repeatable.",
)
@runtime_option
@register_option
@json_option
def compare_command(
    problem_path: Path | None,
    asked: Asked,
    names: str | None,
    seed: int,
    budget: int | None,
    pair: str | None,
    fixes: tuple[str, ...],
    runtime: str | None,
    as_json: bool,
) -> int:
    """Hold the plans of other planners against the best one.

    The problem is a file, or derived from --model, --cluster, --devices and
    --global-batch. Ctrl-C prints what was found so far.
    """
    from nest_opt.cli.fix import parse_fixes
    from nest_opt.cli.problem_source import check_source

    check_source(problem_path, asked)
    chosen = None if names is None else [name.strip() for name in names.split(",")]
    two = _pair(pair, chosen or PLANNER_NAMES) if pair else None
    found = _compare(
        problem_path, asked, Narrowing(parse_fixes(fixes), runtime), chosen, seed, budget
    )
    between = found.diff(*two) if two else None
    if as_json:
        from nest_opt.cli.json_compare import comparison_json
        from nest_opt.cli.json_output import print_json

        print_json(comparison_json(found, between, asked_for=pair is not None))
    else:
        from nest_opt.cli.compare_report import comparison_report
        from nest_opt.cli.console import print_report

        print_report(*comparison_report(found, between, pair))
    return 0 if any(row.plan for row in found.rows) else EXIT_NO


def _pair(text: str, chosen: Sequence[str]) -> tuple[str, str]:
    """Return the two names of --diff."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or names[0] == names[1]:
        raise click.UsageError(
            f"--diff: found {text!r}, two different names are needed, as in --diff manual,solve: "
            "correct it"
        )
    for name in names:
        if name not in ("solve", *chosen):
            raise click.UsageError(
                f"--diff: found {name!r}, one of solve, {', '.join(chosen)} is needed: correct "
                "it, or add it to --planners"
            )
    return names[0], names[1]


def _compare(
    path: Path | None,
    asked: Asked,
    narrow: Narrowing,
    chosen: Sequence[str] | None,
    seed: int,
    budget: int | None,
) -> "Comparison":
    from nest_opt.cli.problem_source import read_source
    from nest_opt.cli.progress import ComparisonProgress
    from nest_opt.comparison import compare

    problem = narrow(read_source(path, asked).problem)
    with ComparisonProgress(len(chosen or PLANNER_NAMES)) as progress:
        return compare(
            problem,
            chosen,
            seed=seed,
            budget=budget,
            progress=progress,
            watch=progress.planner,
        )
