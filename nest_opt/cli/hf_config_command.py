"""`nest-opt import hf-config`: a model's config.json as a summary, or as a problem."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest_opt.cli.group import json_option
from nest_opt.cli.request_options import Asked, request_options

if TYPE_CHECKING:
    from nest_opt.models.spec import TransformerSpec


@click.command("hf-config")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@request_options("model")
@click.option(
    "-o",
    "--output",
    metavar="PROBLEM",
    type=click.Path(path_type=Path),
    help="Write the problem here instead of on standard output.",
)
@json_option
def hf_config_command(path: Path, asked: Asked, output: Path | None, as_json: bool) -> int:
    """Read a Hugging Face config.json.

    With --cluster, --devices and --global-batch it becomes a problem, as by
    `nest-opt new`; without them the model is described.
    """
    from nest_opt.cli.new_run import write_new_problem
    from nest_opt.cli.output_files import check_output
    from nest_opt.models.hf_config import read_hf_config

    if output:
        if not asked.given:
            raise click.UsageError(
                f"-o: found {output} without a cluster, --cluster, --devices and --global-batch "
                "are needed for a problem: add them, or leave out -o"
            )
        check_output(output, path)
    spec = read_hf_config(path)
    head = {"status": "imported", "format": "hf-config"}
    if asked.given:
        return write_new_problem(asked, asked.request(spec), output, as_json, head)
    _describe(spec, as_json, head)
    return 0


def _describe(spec: "TransformerSpec", as_json: bool, head: dict[str, str]) -> None:
    from nest_opt.cli.console import print_report
    from nest_opt.cli.json_derived import model_json
    from nest_opt.cli.json_output import print_json
    from nest_opt.cli.problem_summary import model_facts
    from nest_opt.cli.stage_table import facts

    if as_json:
        print_json({**head, "output": None, "model": model_json(spec), "problem": None})
    else:
        length = f"{spec.sequence_length:,} tokens at most"
        print_report(facts({**model_facts(spec), "sequence": length}))
