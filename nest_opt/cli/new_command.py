"""`nest-opt new`: a problem from a model, a cluster and a batch."""

from pathlib import Path

import click

from nest_opt.cli.group import json_option
from nest_opt.cli.narrowing import Narrowing, runtime_option
from nest_opt.cli.request_options import Asked, request_options


@click.command("new")
@request_options()
@click.option(
    "-o",
    "--output",
    metavar="PROBLEM",
    type=click.Path(path_type=Path),
    help="Write the problem here instead of on standard output.",
)
@runtime_option
@json_option
def new_command(asked: Asked, output: Path | None, runtime: str | None, as_json: bool) -> int:
    """Derive a problem from a model, a kind of cluster and a batch."""
    from nest_opt.cli.new_run import write_new_problem
    from nest_opt.cli.output_files import check_output

    if output:
        check_output(output, asked.model_path)
    narrow = Narrowing(runtime=runtime)
    return write_new_problem(asked, asked.request(), output, as_json, {"status": "derived"}, narrow)
