"""`nest-opt import`: turn a foreign file into a problem file."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest_opt.cli.group import FormatGroup, json_option
from nest_opt.cli.hf_config_command import hf_config_command
from nest_opt.cli.import_formats import FORMATS, ImportFormat
from nest_opt.cli.import_nccl_command import import_nccl_command
from nest_opt.cli.import_network_command import import_network_command

if TYPE_CHECKING:
    from nest_opt.problem.base import Frozen


@click.group(
    "import",
    cls=FormatGroup,
    invoke_without_command=True,
    subcommand_metavar="FORMAT FILE [OPTIONS]",
)
@click.pass_context
def import_command(ctx: click.Context) -> None:
    """Turn a foreign file into a problem file."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _command(entry: ImportFormat) -> click.Command:
    """Return the command that imports one format."""

    @click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
    @click.option(
        "-o",
        "--output",
        metavar="PROBLEM",
        type=click.Path(path_type=Path),
        help="Write the problem here instead of on standard output.",
    )
    @json_option
    def run(path: Path, output: Path | None, as_json: bool, **options: Any) -> int:
        return _import(entry, path, output, as_json, options)

    run.__doc__ = entry.summary
    make: Callable[[Callable[..., int]], click.Command] = click.command(entry.name)
    command = make(run)
    command.params[1:1] = entry.options
    return command


def _import(
    entry: ImportFormat,
    path: Path,
    output: Path | None,
    as_json: bool,
    options: dict[str, Any],
) -> int:
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.problem.files import to_json_text

    if output:
        check_output(output, path)
    entity = entry.read(path, **options)
    text = to_json_text(entity)
    if output:
        write_text(output, text)
    if as_json:
        from nest_opt.cli.json_output import import_json, print_json

        print_json(import_json(entry.name, output, text))
    elif output:
        click.echo(f"wrote {output}: {_described(entity)}")
    else:
        click.echo(text, nl=False)
    return 0


def _described(entity: "Frozen") -> str:
    """Return what was imported, in a few words."""
    from nest_opt.cli.problem_summary import problem_text
    from nest_opt.problem import Problem

    return problem_text(entity) if isinstance(entity, Problem) else type(entity).__name__


for _entry in FORMATS.values():
    import_command.add_command(_command(_entry))
import_command.add_command(hf_config_command)
import_command.add_command(import_network_command)
import_command.add_command(import_nccl_command)
