"""`nest-opt check`: check a certificate, whoever made it."""

from pathlib import Path

import click

from nest_opt.cli.group import json_option


@click.command("check")
@click.argument("certificate_path", metavar="CERTIFICATE", type=click.Path(path_type=Path))
@click.argument(
    "problem_path", metavar="[PROBLEM]", required=False, type=click.Path(path_type=Path)
)
@click.option(
    "--recompute-costs",
    is_flag=True,
    help="Also rebuild the cost table from the problem that the certificate has, and compare.",
)
@json_option
def check_command(
    certificate_path: Path, problem_path: Path | None, recompute_costs: bool, as_json: bool
) -> int:
    """Check a certificate, and say what it proves.

    With PROBLEM, that it is about this problem. A certificate that does not
    prove its claim is refused with exit code 2.
    """
    from nest_opt import api
    from nest_opt.problem.files import read_problem

    problem = None if problem_path is None else read_problem(problem_path)
    result = api.check(certificate_path, problem, recompute_costs=recompute_costs)
    if as_json:
        from nest_opt.cli.json_bound import check_json
        from nest_opt.cli.json_output import print_json

        print_json(check_json(result))
    else:
        from nest_opt.cli.check_report import check_report
        from nest_opt.cli.console import print_report

        print_report(*check_report(result))
    return 0
