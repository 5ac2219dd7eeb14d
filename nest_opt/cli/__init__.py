"""The command line `nest-opt`.

A module per command; each imports the engine only when it runs, so that help
and usage errors come at once. A command returns its exit code: 0 a plan, or a
legal one; 1 infeasible, or violations found; 2 the input is wrong; 3 parts of
the package contradict each other, which is a defect.
"""

import sys
from io import TextIOWrapper

import click

from nest_opt.cli.bound_command import bound_command
from nest_opt.cli.check_command import check_command
from nest_opt.cli.compare_command import compare_command
from nest_opt.cli.crosscheck_command import crosscheck_command
from nest_opt.cli.exact_command import exact_command
from nest_opt.cli.export_command import export_command
from nest_opt.cli.fit_command import fit_command
from nest_opt.cli.group import CommandLine
from nest_opt.cli.import_command import import_command
from nest_opt.cli.improve_command import improve_command
from nest_opt.cli.list_command import list_command
from nest_opt.cli.new_command import new_command
from nest_opt.cli.predict_command import predict_command
from nest_opt.cli.show_command import show_command
from nest_opt.cli.solve_command import solve_command
from nest_opt.cli.verify_command import verify_command

__all__ = ["command_line", "main"]


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from nest_opt import __version__

        click.echo(f"nest-opt {__version__}")
        ctx.exit()


@click.group("nest-opt", cls=CommandLine, invoke_without_command=True)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
@click.pass_context
def command_line(ctx: click.Context) -> None:
    """Find the best way to train a model on a cluster, and check it.

    Exit codes: 0 a plan, or a legal plan; 1 infeasible, or violations found;
    2 the input is wrong; 3 a defect of nest-opt.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _command in (
    new_command,
    solve_command,
    exact_command,
    bound_command,
    verify_command,
    check_command,
    predict_command,
    fit_command,
    improve_command,
    compare_command,
    show_command,
    import_command,
    export_command,
    list_command,
    crosscheck_command,
):
    command_line.add_command(_command)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        # A layer's name must not stop a terminal that cannot show it.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    command_line(prog_name="nest-opt")
