"""`nest-opt predict`: what a run takes whose every degree is given."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest_opt.cli.group import json_option
from nest_opt.cli.predict_options import check_given, run_options, with_options

if TYPE_CHECKING:
    from nest_opt.prediction.run import RunConfiguration


@click.command("predict")
@click.argument("run_path", metavar="[RUN]", required=False, type=click.Path(path_type=Path))
@run_options
@click.option(
    "--megatron",
    "script",
    metavar="SCRIPT",
    type=click.Path(path_type=Path),
    help="Take what Megatron-LM arguments in this text say; RUN and options go before.",
)
@click.option(
    "--formula",
    is_flag=True,
    help="Give the closed form's iteration time instead of running the schedule event by event.",
)
@click.option(
    "-o",
    "--output",
    metavar="PLAN",
    type=click.Path(path_type=Path),
    help="Also write the run as a plan file.",
)
@json_option
def predict_command(
    run_path: Path | None,
    fields: dict[str, Any],
    script: Path | None,
    formula: bool,
    output: Path | None,
    as_json: bool,
) -> int:
    """Predict time, rates and memory of a run as launchers state it.

    RUN is a JSON file with the fields of the options; an option goes before its
    field. A run that does not fit in memory is predicted all the same, and said so.
    """
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.prediction.predict import predict
    from nest_opt.problem.files import to_json_text

    if output:
        check_output(output, run_path)
        check_output(output, script)
    prediction = predict(_run(run_path, script, fields), simulate=not formula)
    if output:
        write_text(output, to_json_text(prediction.plan()))
    if as_json:
        from nest_opt.cli.json_output import print_json
        from nest_opt.cli.predict_report import prediction_json

        print_json(prediction_json(prediction))
        return 0
    from nest_opt.cli.console import print_report
    from nest_opt.cli.predict_report import prediction_report

    print_report(*prediction_report(prediction))
    return 0


def _run(path: Path | None, script: Path | None, fields: dict[str, Any]) -> "RunConfiguration":
    from nest_opt.prediction.file import read_run_data, run_of
    from nest_opt.prediction.megatron import megatron_fields
    from nest_opt.problem.validation import read_text

    data: dict[str, Any] = {}
    if script is not None:
        data = megatron_fields(read_text(script, "keep the launch command alone"))
    if path is not None:
        data |= read_run_data(path)
    data = with_options(data, fields)
    if path is None:
        check_given(data)
    return run_of(data, "the run" if path is None else str(path))
