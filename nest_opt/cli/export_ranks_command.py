"""`nest-opt export ranks`: which rank of a plan runs where, as launchers read it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest_opt.cli.group import json_option
from nest_opt.cli.registering import register_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nest_opt.plan.rank_map import RankMap

# A longer table is no longer for people.
SHOWN_RANKS = 64
FORMATS = ("table", "json", "hostfile", "slurm", "rankfile", "visible-devices")


@click.command("ranks")
@click.argument("plan_path", metavar="PLAN", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="What to print or write: a table for people; all of it as JSON; a hostfile of DeepSpeed "
    "or MPI; a file for SLURM_HOSTFILE and srun --distribution=arbitrary; an Open MPI rankfile; "
    "or each host's devices for CUDA_VISIBLE_DEVICES.",
)
@click.option(
    "--order",
    metavar="NAME",
    default="megatron",
    show_default=True,
    help="The order of ranks: megatron, megatron-tp-pp-dp, deepspeed or torchtitan, which refuse "
    "what the runtime cannot form; or tp, cp, ep, dp and pp, the fastest first, as in "
    "tp-cp-ep-pp-dp.",
)
@click.option(
    "--hosts",
    metavar="FILE|LIST",
    help="Hosts in the order of device numbers: a file with one a line, or a list such as "
    "node[001-016].  [default: host-0, host-1, ...]",
)
@click.option(
    "--devices-per-host",
    metavar="N",
    type=int,
    help="Devices of each host.  [default: the size of the innermost network level]",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the file here instead of on standard output.",
)
@register_option
@json_option
def export_ranks_command(
    plan_path: Path,
    file_format: str,
    order: str,
    hosts: str | None,
    devices_per_host: int | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Write which rank of a plan runs on which device, for a launcher."""
    from nest_opt.cli.console import print_report
    from nest_opt.cli.json_output import print_json
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.plan.files import read_plan
    from nest_opt.plan.rank_files import RANK_FILES
    from nest_opt.plan.rank_map import rank_map

    if output is not None:
        if file_format == "table":
            raise click.UsageError(
                f"-o: found {output} with the format table, a format of files is needed "
                f"({', '.join(FORMATS[1:])}): add --format"
            )
        check_output(output, plan_path)
    found = rank_map(read_plan(plan_path), order, _hosts(hosts), devices_per_host)
    text = RANK_FILES[file_format](found) if file_format != "table" else None
    if output is not None and text is not None:
        write_text(output, text)
    if as_json:
        print_json(
            {
                "status": "exported",
                "format": file_format,
                "output": None if output is None else str(output),
                "rank_map": found.model_dump(mode="json"),
            }
        )
    elif text is None:
        print_report(*_report(found))
    elif output is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"wrote {output}: {_size(found)}")
    return 0


def _hosts(given: str | None) -> tuple[str, ...] | None:
    """Return the hosts of a file, or of a list: a bracket or a comma tells one."""
    from nest_opt.network.imports.text import read_text
    from nest_opt.plan.hosts import parse_hosts

    if given is None:
        return None
    path = Path(given)
    if not path.exists() and any(mark in given for mark in "[,"):
        return parse_hosts(given, "--hosts")
    return parse_hosts(read_text(path), given)


def _size(found: "RankMap") -> str:
    from nest_opt.cli.units import count_text

    return (
        f"{count_text(len(found.ranks), 'rank')} on {count_text(len(found.hosts), 'host')}, "
        f"order {found.order}"
    )


def _report(found: "RankMap") -> "list[RenderableType]":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("rank", "replica", "stage", "tp", "cp", "ep", "device", "host", "local"):
        table.add_column(name, justify="left" if name == "host" else "right", overflow="fold")
    for rank in found.ranks[:SHOWN_RANKS]:
        places = (rank.rank, rank.replica, rank.stage, rank.tp, rank.cp, rank.ep, rank.device)
        table.add_row(*map(str, places), rank.host, str(rank.local_device))
    parts: list[RenderableType] = [Text(_size(found)), Text(), table]
    hidden = len(found.ranks) - SHOWN_RANKS
    if hidden > 0:
        parts.append(Text(f"and {hidden:,} more ranks: --format json has all of them"))
    return parts
