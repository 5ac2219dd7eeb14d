"""Foreign formats that `nest-opt import` reads.

To add one: write its reader in `nest_opt.models` (anything that becomes an
entity with a file format of its own), and enter it in `FORMATS`, with the
options that only this format has.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from nest_opt.problem.base import Frozen


@dataclass(frozen=True)
class ImportFormat:
    """A foreign format.

    Attributes
    ----------
    name
        As in `nest-opt import NAME FILE`.
    summary
        One sentence for the help.
    read
        Called with the path, and each option of `options` by its name.
    options
        Options of this format alone.
    """

    name: str
    summary: str
    read: Callable[..., "Frozen"]
    options: tuple[click.Option, ...] = ()


def _read_nest_artifact(path: Path, microbatch: int) -> "Frozen":
    from nest_opt.models.nest_artifact import read_nest_artifact

    return read_nest_artifact(path, microbatch)


def _read_dnn_partitioning(path: Path, split: Literal["contiguous", "any"]) -> "Frozen":
    from nest_opt.models.dnn_partitioning import read_dnn_partitioning

    return read_dnn_partitioning(path, split)


FORMATS = {
    entry.name: entry
    for entry in (
        ImportFormat(
            "nest-artifact",
            "An input of the NEST paper's own solver, with the cost model `artifact`.",
            _read_nest_artifact,
            (
                click.Option(
                    ["--microbatch"],
                    type=click.IntRange(1, 2**20),
                    default=1,
                    show_default=True,
                    metavar="N",
                    help="Sequences in a microbatch, which the file does not say. Scales the "
                    "global batch, never the batch time.",
                ),
            ),
        ),
        ImportFormat(
            "dnn-partitioning",
            "A device-placement input of Tarnawski et al. 2020, as a placement graph.",
            _read_dnn_partitioning,
            (
                click.Option(
                    ["--split"],
                    type=click.Choice(("contiguous", "any")),
                    default="contiguous",
                    show_default=True,
                    help="Whether stages follow a topological order of the forward nodes.",
                ),
            ),
        ),
    )
}
