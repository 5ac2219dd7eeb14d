"""`nest-opt show`: a plan as a table and a picture of its devices."""

from pathlib import Path

import click

from nest_opt.cli.group import EXIT_NO, json_option
from nest_opt.cli.registering import register_option


@click.command("show")
@click.argument("plan_path", metavar="PLAN", type=click.Path(path_type=Path))
@register_option
@json_option
def show_command(plan_path: Path, as_json: bool) -> int:
    """Show a plan file as a table of stages and a picture of the devices."""
    from nest_opt import api
    from nest_opt.plan.files import read_plan

    result = api.verify(read_plan(plan_path))
    if as_json:
        from nest_opt.cli.json_output import print_json, show_json

        print_json(show_json(result))
    else:
        from nest_opt.cli.console import make_console, print_report
        from nest_opt.cli.show_report import show_report

        print_report(*show_report(result, make_console().width))
    return EXIT_NO if result.violations else 0
