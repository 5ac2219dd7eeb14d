"""`nest-opt verify`: evaluate, check and explain a plan."""

from pathlib import Path

import click

from nest_opt.cli.group import EXIT_NO, json_option


@click.command("verify")
@click.argument("plan_path", metavar="PLAN", type=click.Path(path_type=Path))
@json_option
def verify_command(plan_path: Path, as_json: bool) -> int:
    """Evaluate and check a plan file, and explain its cost and memory term by term."""
    from nest_opt import api
    from nest_opt.plan.files import read_plan

    result = api.verify(read_plan(plan_path))
    if as_json:
        from nest_opt.cli.json_output import print_json, verify_json

        print_json(verify_json(result))
    else:
        from nest_opt.cli.console import print_report
        from nest_opt.cli.verify_report import verify_report

        print_report(*verify_report(result))
    return EXIT_NO if result.violations else 0
