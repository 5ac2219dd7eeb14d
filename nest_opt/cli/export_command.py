"""`nest-opt export`: write the integer program of one cell as an LP or MPS file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from nest_opt.cli.group import ChoiceGroup, json_option
from nest_opt.cli.problem_source import check_source, problem_options, read_source
from nest_opt.cli.registering import register_option
from nest_opt.cli.request_options import Asked

if TYPE_CHECKING:
    from nest_opt.milp.build import Formulation

_SUMMARIES: dict[Literal["lp", "mps"], str] = {
    "lp": "Write the integer program of one cell as a CPLEX LP file.",
    "mps": "Write the integer program of one cell as an MPS file.",
}


class _FormatGroup(ChoiceGroup):
    noun = "format"


@click.group(
    "export",
    cls=_FormatGroup,
    invoke_without_command=True,
    subcommand_metavar="FORMAT [PROBLEM] [OPTIONS]",
)
@click.pass_context
def export_command(ctx: click.Context) -> None:
    """Write the integer program of one cell, for another solver or for reading."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _command(file_format: Literal["lp", "mps"], summary: str) -> click.Command:
    """Return the command that writes one format."""

    @click.command(file_format, help=summary)
    @problem_options
    @click.option(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        type=click.Path(path_type=Path),
        help="Write the program here.",
    )
    @click.option(
        "--cell",
        metavar="KEY=VALUE[,KEY=VALUE]",
        help="The cell, by keys of --fix, as in dp=2,pp=4; among several, and without it, the one "
        "of the least closed-form bound.",
    )
    @register_option
    @json_option
    def run(
        problem_path: Path | None, asked: Asked, output: Path, cell: str | None, as_json: bool
    ) -> int:
        formulation = _write(file_format, problem_path, asked, output, cell)
        if as_json:
            from nest_opt.cli.json_output import print_json

            print_json(_json(file_format, output, formulation))
        else:
            _print(output, formulation)
        return 0

    return run


def _write(
    file_format: Literal["lp", "mps"],
    problem_path: Path | None,
    asked: Asked,
    output: Path,
    cell: str | None,
) -> "Formulation":
    from tempfile import TemporaryDirectory

    from nest_opt.cli.fix import fix, parse_fixes
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.milp.export import export, first_cell
    from nest_opt.plan.evaluate import Costs

    wanted = parse_fixes(cell.split(",") if cell is not None else (), "--cell")
    check_source(problem_path, asked)
    check_output(output, problem_path or asked.model_path)
    costs = Costs(fix(read_source(problem_path, asked).problem, wanted, "--cell"))
    chosen = first_cell(costs)
    # Pyomo tells the format by itself only from some names, and leaves half a file on failure.
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"program.{file_format}"
        formulation = export(costs, chosen, path, file_format)
        write_text(output, path.read_text(encoding="utf-8"))
    return formulation


def _cell(formulation: "Formulation") -> dict[str, Any]:
    cell = formulation.coefficients.cell
    device_map = cell.device_map
    return {
        "microbatch": cell.microbatch,
        **cell.configuration._asdict(),
        "dp": device_map.replicas,
        "pp": device_map.stages,
        "order": device_map.order,
        "pitch": device_map.pitch,
    }


def _json(file_format: str, output: Path, formulation: "Formulation") -> dict[str, Any]:
    return {
        "status": "exported",
        "format": file_format,
        "output": str(output),
        "name": formulation.model.name,
        "cell": _cell(formulation),
        "time_unit_ps": str(formulation.units.time_ps),
        "size_unit_bytes": formulation.units.size_bytes,
        "variables": formulation.model.nvariables(),
        "rows": formulation.model.nconstraints(),
    }


def _print(output: Path, formulation: "Formulation") -> None:
    from nest_opt.cli.console import print_report
    from nest_opt.cli.stage_table import facts

    cell, units = _cell(formulation), formulation.units
    sp = "on" if cell["sp"] else "off"
    print_report(
        f"wrote {output}: program {formulation.model.name}",
        facts(
            {
                "cell": f"microbatch {cell['microbatch']}, tp {cell['tp']}, cp {cell['cp']}, "
                f"ep {cell['ep']}, sp {sp}, dp {cell['dp']}, pp {cell['pp']}",
                "placement": f"rank order {cell['order']}, pitch {cell['pitch']}",
                "size": f"{formulation.model.nvariables():,} variables, "
                f"{formulation.model.nconstraints():,} rows",
                "units": f"times in {units.time_ps:,} ps, sizes in {units.size_bytes:,} bytes",
            }
        ),
    )


for _format, _summary in _SUMMARIES.items():
    export_command.add_command(_command(_format, _summary))
