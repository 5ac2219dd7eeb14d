"""`nest-opt bound`: how good any plan can be, and a file that proves it."""

from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest_opt.cli.exact_command import family_option
from nest_opt.cli.group import EXIT_NO, json_option
from nest_opt.cli.narrowing import Narrowing, runtime_option
from nest_opt.cli.number_types import factor, whole
from nest_opt.cli.problem_source import check_source, problem_options, read_source
from nest_opt.cli.registering import register_option
from nest_opt.cli.request_options import Asked

if TYPE_CHECKING:
    from nest_opt.api import BoundResult
    from nest_opt.cli.problem_source import Source
    from nest_opt.problem import Problem

MOST_SPLITS = 10_000


@click.command("bound")
@problem_options
@family_option
@click.option(
    "--gap",
    metavar="G",
    type=factor,
    default="0",
    help="A bound within this share of the best plan's value of it is good enough; 0 unless given.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    metavar="S",
    type=factor,
    help="Stop after so many seconds, with the best bound so far.",
)
@click.option(
    "--fix",
    "fixes",
    metavar="KEY=VALUE[,VALUE]",
    multiple=True,
    help="Bound plans with only these values of a dimension, as `solve` does. Repeatable.",
)
@click.option(
    "--splits",
    metavar="N",
    type=whole,
    default="0",
    help="Free family: find the best plan by integer programs, and where nothing else proves a "
    "group, split a linear program up to so often, at most 10,000 times. For some dozens of "
    "devices; 0 unless given.",
)
@runtime_option
@click.option(
    "-o",
    "--output",
    metavar="CERTIFICATE",
    type=click.Path(path_type=Path),
    help="Write the certificate here, compressed if the name ends in .gz.",
)
@register_option
@json_option
def bound_command(
    problem_path: Path | None,
    asked: Asked,
    family: str,
    gap: Fraction,
    time_limit_s: Fraction | None,
    fixes: tuple[str, ...],
    splits: int,
    runtime: str | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Bound all plans of a family from below, and prove it by a certificate.

    The problem is a file, or derived from --model, --cluster, --devices and
    --global-batch. Of a placement graph the family is the problem's split, and
    there is no certificate. Ctrl-C ends the search and prints the best bound
    so far.
    """
    check_source(problem_path, asked)
    _check_splits(splits, family)
    limit_s = None if time_limit_s is None else float(time_limit_s)
    found: _Found | None = None
    # Interrupted before the search began, there is nothing to show.
    with suppress(KeyboardInterrupt):
        found = _search(
            problem_path, asked, family, float(gap), limit_s, fixes, splits, runtime, output
        )
    if found is None:
        _print_nothing(as_json)
        return EXIT_NO
    _print(found, output, as_json)
    return 0 if found.result.bound_ps is not None and found.is_written else EXIT_NO


def _check_splits(splits: int, family: str) -> None:
    if not 0 <= splits <= MOST_SPLITS:
        raise click.UsageError(
            f"--splits: found {splits}, 0 to {MOST_SPLITS:,} are allowed: change it"
        )
    if splits and family != "free":
        raise click.UsageError(
            f"--splits: found with the {family} family, it is for the free one: add --family free, "
            "or leave it out"
        )


@dataclass(frozen=True)
class _Found:
    """A bound, the problem and where that is from, and whether what was asked for is written."""

    problem: "Problem"
    source: "Source"
    result: "BoundResult"
    is_written: bool


def _search(
    problem_path: Path | None,
    asked: Asked,
    family: str,
    gap: float,
    time_limit_s: float | None,
    fixes: tuple[str, ...],
    splits: int,
    runtime: str | None,
    output: Path | None,
) -> _Found:
    from nest_opt import api
    from nest_opt.cli.certificate_output import require_certifiable, written
    from nest_opt.cli.fix import parse_fixes
    from nest_opt.cli.output_files import check_output
    from nest_opt.cli.progress import SearchProgress

    narrow = Narrowing(parse_fixes(fixes), runtime)
    if output:
        check_output(output, problem_path or asked.model_path)
    source = read_source(problem_path, asked)
    problem = narrow(source.problem)
    if output:
        require_certifiable(problem, "--output")
    with SearchProgress() as progress:
        result = api.bound(
            problem,
            family="free" if family == "free" else "aligned",
            gap=gap,
            time_limit_s=time_limit_s,
            progress=progress,
            splits=splits,
        )
    return _Found(problem, source, result, output is None or written(result, output))


def _print_nothing(as_json: bool) -> None:
    if as_json:
        from nest_opt.cli.json_bound import no_bound_json
        from nest_opt.cli.json_output import print_json

        print_json(no_bound_json())
    else:
        click.echo("interrupted: no bound yet")


def _print(found: _Found, output: Path | None, as_json: bool) -> None:
    derived = found.source.derived
    if as_json:
        from nest_opt.cli.json_bound import bound_json
        from nest_opt.cli.json_derived import derived_json
        from nest_opt.cli.json_output import print_json

        data = bound_json(found.problem, found.result, output)
        if derived:
            data["derived_from"] = derived_json(derived)
        print_json(data)
    else:
        from nest_opt.cli.bound_report import bound_report
        from nest_opt.cli.console import print_report
        from nest_opt.cli.problem_summary import derived_facts

        about = derived_facts(derived) if derived else {}
        print_report(*bound_report(found.problem, found.result, output, about))
