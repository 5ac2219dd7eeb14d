"""Where the problem of a command comes from: a file, or options that name model and cluster."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest_opt.cli.request_options import Asked, request_options

if TYPE_CHECKING:
    from nest_opt.api import Progress
    from nest_opt.cli.smallest import NothingFits, Smallest
    from nest_opt.models.request import DerivedProblem, Request
    from nest_opt.problem import Problem


def check_source(path: Path | None, asked: Asked) -> None:
    """Refuse both a file and options, or neither.

    Raises
    ------
    click.UsageError
        In these cases.
    """
    if path is not None and asked.given:
        raise click.UsageError(
            f"found a problem file and {', '.join(asked.given)}, one of the two is allowed: leave "
            "out the file, or these options"
        )
    if path is None and not asked.given:
        raise click.UsageError(
            "Missing argument 'PROBLEM': give a problem file, or in its place --model, --cluster, "
            "--devices and --global-batch"
        )


def problem_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command an optional problem file, and the options in its place but --smallest."""
    argument = click.argument(
        "problem_path", metavar="[PROBLEM]", required=False, type=click.Path(path_type=Path)
    )
    return argument(request_options("smallest")(function))


@dataclass(frozen=True)
class Source:
    """A problem, and what it was derived from if it is not a file's."""

    problem: "Problem"
    derived: "DerivedProblem | None" = None


def read_source(path: Path | None, asked: Asked) -> Source:
    """Read the problem of a file, or derive the one that options ask for.

    Raises
    ------
    click.UsageError
        If options are missing.
    InstanceError
        If the file is no problem, or none can be derived.
    """
    from nest_opt.models.request import derive_problem
    from nest_opt.problem.files import read_problem

    if path is not None:
        return Source(read_problem(path))
    derived = derive_problem(asked.request())
    return Source(derived.problem, derived)


@dataclass(frozen=True)
class Derivation:
    """A request, from which a problem is derived for one or another number of devices.

    `change` is done to each problem, as by --fix.
    """

    request: "Request"
    change: "Callable[[Problem], Problem]" = lambda problem: problem

    def on(self, devices: int) -> "DerivedProblem":
        """Return the derived problem on a number of devices, before the change."""
        from nest_opt.models.request import derive_problem

        return derive_problem(replace(self.request, devices=devices))

    def smallest(self, progress: "Progress | None") -> "Smallest | NothingFits":
        """Find the smallest number of devices on which a plan exists."""
        from nest_opt.cli.smallest import find_smallest
        from nest_opt.models.clusters import find_cluster

        return find_smallest(
            lambda devices: self.change(self.on(devices).problem),
            find_cluster(self.request.cluster),
            progress,
        )
