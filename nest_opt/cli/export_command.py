"""`nest-opt export`: write the integer program of one cell as an LP or MPS file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from nest_opt.cli.group import ChoiceGroup, json_option

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
    subcommand_metavar="FORMAT PROBLEM [OPTIONS]",
)
@click.pass_context
def export_command(ctx: click.Context) -> None:
    """Write the integer program of one cell, for another solver or for reading."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _command(file_format: Literal["lp", "mps"], summary: str) -> click.Command:
    """Return the command that writes one format."""

    @click.command(file_format, help=summary)
    @click.argument("problem_path", metavar="PROBLEM", type=click.Path(path_type=Path))
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
    @json_option
    def run(problem_path: Path, output: Path, cell: str | None, as_json: bool) -> int:
        formulation = _write(file_format, problem_path, output, cell)
        if as_json:
            from nest_opt.cli.json_output import print_json

            print_json(_json(file_format, output, formulation))
        else:
            _print(output, formulation)
        return 0

    return run


def _write(
    file_format: Literal["lp", "mps"], problem_path: Path, output: Path, cell: str | None
) -> "Formulation":
    from tempfile import TemporaryDirectory

    from nest_opt.cli.fix import fix, parse_fixes
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.milp.export import export, first_cell
    from nest_opt.plan.evaluate import Costs
    from nest_opt.problem.files import read_problem

    wanted = parse_fixes(cell.split(",") if cell is not None else (), "--cell")
    check_output(output, problem_path)
    costs = Costs(fix(read_problem(problem_path), wanted, "--cell"))
    chosen = first_cell(costs)
    # Pyomo tells the format by itself only from some names, and leaves half a file on failure.
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"program.{file_format}"
        formulation = export(costs, chosen, path, file_format)
        write_text(output, path.read_text(encoding="utf-8"))
    return formulation


def _cell(formulation: "Formulation") -> dict[str, Any]:
    from nest_opt.milp.cells import PathCell
    from nest_opt.plan.placement import Cell
    from nest_opt.problem import Configuration

    cell = formulation.coefficients.cell
    if isinstance(cell, Cell):
        device_map = cell.device_map
        choices: tuple[Configuration, ...] = (cell.configuration,)
        order, pitch = str(device_map.order), device_map.pitch
        replicas, stages = device_map.replicas, device_map.stages
    else:
        assert isinstance(cell, PathCell)
        choices, order, pitch = cell.choices, cell.order, cell.pitch
        replicas, stages = cell.replicas, cell.stages
    return {
        "microbatch": cell.microbatch,
        # What the stages of the program choose is open.
        **{
            name: values[0] if len(set(values)) == 1 else None
            for name, values in zip(Configuration._fields, zip(*choices, strict=True), strict=True)
        },
        "dp": replicas,
        "pp": stages,
        "order": order,
        "pitch": pitch,
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
    tp = "by stage" if cell["tp"] is None else cell["tp"]
    sp = {None: "by stage", True: "on", False: "off"}[cell["sp"]]
    print_report(
        f"wrote {output}: program {formulation.model.name}",
        facts(
            {
                "cell": f"microbatch {cell['microbatch']}, tp {tp}, cp {cell['cp']}, "
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
