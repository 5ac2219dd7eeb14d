"""`nest-opt show`: a plan as a table and a picture of its devices."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest_opt.cli.group import EXIT_NO, json_option
from nest_opt.cli.registering import register_option

if TYPE_CHECKING:
    from nest_opt.api import GraphVerifyResult, VerifyResult


@click.command("show")
@click.argument("plan_path", metavar="PLAN", type=click.Path(path_type=Path))
@register_option
@json_option
def show_command(plan_path: Path, as_json: bool) -> int:
    """Show a plan file as a table of stages and a picture of the devices."""
    from nest_opt import api
    from nest_opt.api import GraphVerifyResult
    from nest_opt.plan.files import read_plan

    result = api.verify(read_plan(plan_path))
    if isinstance(result, GraphVerifyResult):
        _show_graph(result, as_json)
    else:
        _show(result, as_json)
    return EXIT_NO if result.violations else 0


def _show(result: "VerifyResult", as_json: bool) -> None:
    from nest_opt.cli.console import make_console, print_report
    from nest_opt.cli.json_output import print_json, show_json
    from nest_opt.cli.show_report import show_report

    if as_json:
        print_json(show_json(result))
    else:
        print_report(*show_report(result, make_console().width))


def _show_graph(result: "GraphVerifyResult", as_json: bool) -> None:
    from nest_opt.cli.console import print_report
    from nest_opt.cli.graph_report import graph_show_report
    from nest_opt.cli.json_graph import graph_show_json
    from nest_opt.cli.json_output import print_json

    if as_json:
        print_json(graph_show_json(result))
    else:
        print_report(*graph_show_report(result))
