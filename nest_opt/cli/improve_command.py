"""`nest-opt improve`: what to change first of a configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest_opt.cli.group import EXIT_NO, json_option
from nest_opt.cli.narrowing import Narrowing, runtime_option
from nest_opt.cli.problem_source import problem_options
from nest_opt.cli.registering import register_option
from nest_opt.cli.request_options import Asked

if TYPE_CHECKING:
    from nest_opt.improvement import Improvement
    from nest_opt.models.request import DerivedProblem
    from nest_opt.plan.plan import Plan
    from nest_opt.problem import Problem

OPTION = "--from"


@dataclass(frozen=True)
class Improved:
    """What was found, and what the problem was derived from if it is not a file's."""

    improvement: "Improvement"
    derived: "DerivedProblem | None" = None


@click.command("improve")
@problem_options
@click.option(
    OPTION,
    "stated",
    metavar="KEY=VALUE[,KEY=VALUE]",
    help="The configuration, by keys of --fix, as in tp=8,pp=16,dp=8,microbatch=1; what it leaves "
    "out takes the best values. Without it, PROBLEM is a plan.",
)
@click.option(
    "--fix",
    "fixes",
    metavar="KEY=VALUE[,VALUE]",
    multiple=True,
    help="Change to these values of a dimension alone, as of solve. Repeatable.",
)
@runtime_option
@register_option
@json_option
def improve_command(
    problem_path: Path | None,
    asked: Asked,
    stated: str | None,
    fixes: tuple[str, ...],
    runtime: str | None,
    as_json: bool,
) -> int:
    """Say what to change first of a configuration, what then, and how far the optimum is.

    The configuration is that of a plan file, or stated by --from for a problem,
    which is a file or derived from --model, --cluster, --devices and
    --global-batch. Ctrl-C ends the search and prints what was found so far.
    """
    from nest_opt.cli.problem_source import check_source

    check_source(problem_path, asked)
    try:
        improved = _improve(problem_path, asked, stated, fixes, runtime)
    except KeyboardInterrupt:
        # Before the configuration has a value there is nothing to show.
        improved = None
    if as_json:
        from nest_opt.cli.json_improve import improvement_json
        from nest_opt.cli.json_output import print_json

        print_json(improvement_json(improved.improvement if improved else None))
    elif improved is None:
        click.echo("interrupted: the configuration has no value yet")
    else:
        from nest_opt.cli.console import print_report
        from nest_opt.cli.improve_report import improvement_report

        print_report(*improvement_report(improved.improvement, improved.derived))
    return 0 if improved and _has_plan(improved.improvement) else EXIT_NO


def _has_plan(found: "Improvement") -> bool:
    optimum = found.optimum.plan if found.optimum else None
    return optimum is not None or found.given.configuration.plan is not None


def _improve(
    path: Path | None,
    asked: Asked,
    stated: str | None,
    fixes: tuple[str, ...],
    runtime: str | None,
) -> Improved:
    from nest_opt.cli.fix import parse_fixes
    from nest_opt.cli.progress import SearchProgress
    from nest_opt.improvement import improve

    narrow = Narrowing(parse_fixes(fixes), runtime)
    if stated is None:
        subject: Problem | Plan = _narrowed_plan(path, narrow)
        values, derived = None, None
    else:
        values = _values(stated)
        subject, derived = _problem(path, asked, narrow, values)
    with SearchProgress() as progress:
        return Improved(improve(subject, values, progress), derived)


def _values(text: str) -> dict[str, Any]:
    """Return the values stated, by dimension: one of each."""
    from nest_opt.cli.fix import ALIASES, parse_fixes

    texts = text.split(",")
    keys = [each.partition("=")[0].strip() for each in texts]
    names = [ALIASES.get(key, key) for key in keys]
    for name in names:
        if names.count(name) > 1:
            raise click.UsageError(
                f"{OPTION}: found {name} {names.count(name)} times, 1 is allowed: a configuration "
                "has one value of each; leave the others out"
            )
    return {name: values[0] for name, values in parse_fixes(texts, OPTION).items()}


def _narrowed_plan(path: Path | None, narrow: Narrowing) -> "Plan":
    """Read the plan of a file, with what is left of its problem's search space."""
    from nest_opt.errors import InstanceError
    from nest_opt.plan.files import read_plan
    from nest_opt.plan.graph_plan import GraphPlan
    from nest_opt.problem.validation import read_json

    data = None if path is None else read_json(path)
    if path is None or (isinstance(data, dict) and data.get("format") == "nest-opt-problem"):
        raise click.UsageError(
            f"{OPTION}: found a problem without a configuration, one is needed: state it, as in "
            f"{OPTION} tp=8,pp=4,dp=2, or give a plan file"
        )
    plan = read_plan(path)
    if isinstance(plan, GraphPlan):
        raise InstanceError(
            f"{path}: found a placement graph's plan, a pipeline's is needed: use `nest-opt "
            "verify --exact` for this one"
        )
    return plan.model_copy(update={"problem": narrow(plan.problem)})


def _problem(
    path: Path | None, asked: Asked, narrow: Narrowing, values: Mapping[str, Any]
) -> "tuple[Problem, DerivedProblem | None]":
    """Read or derive the problem, with profiles of what is stated where they are derived."""
    from nest_opt.cli.problem_source import read_source
    from nest_opt.problem.problem import DEFAULT_MICROBATCHES

    if path is None:
        if asked.context_parallel_degrees is None:
            degrees = narrow.fixes.get("cp", (1, values.get("cp", 1)))
            asked = replace(asked, context_parallel_degrees=tuple(sorted(set(degrees))))
        size = values.get("microbatch", 1)
        if asked.microbatches is None and size not in DEFAULT_MICROBATCHES:
            asked = replace(asked, microbatches=(*DEFAULT_MICROBATCHES, size))
    source = read_source(path, asked)
    return narrow(source.problem), source.derived
