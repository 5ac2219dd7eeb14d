"""`nest-opt export`: the integer program of one cell as an LP or MPS file, the ranks of a plan."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from nest_opt.cli.exact_command import family_option
from nest_opt.cli.export_ranks_command import export_ranks_command
from nest_opt.cli.group import FormatGroup, json_option
from nest_opt.cli.problem_source import check_source, problem_options, read_source
from nest_opt.cli.registering import register_option
from nest_opt.cli.request_options import Asked

if TYPE_CHECKING:
    from nest_opt.milp.build import Formulation
    from nest_opt.milp.graph.build import GraphFormulation
    from nest_opt.milp.result import FamilyName
    from nest_opt.problem import Problem

_SUMMARIES: dict[Literal["lp", "mps"], str] = {
    "lp": "Write the integer program of one cell as a CPLEX LP file.",
    "mps": "Write the integer program of one cell as an MPS file.",
}


@click.group(
    "export",
    cls=FormatGroup,
    invoke_without_command=True,
    subcommand_metavar="FORMAT [PROBLEM|PLAN] [OPTIONS]",
)
@click.pass_context
def export_command(ctx: click.Context) -> None:
    """Write what others read: one cell's integer program, or where a plan's ranks run."""
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
    @family_option
    @register_option
    @json_option
    def run(
        problem_path: Path | None,
        asked: Asked,
        output: Path,
        cell: str | None,
        family: "FamilyName",
        as_json: bool,
    ) -> int:
        program = _write(file_format, problem_path, asked, output, cell, family)
        if as_json:
            from nest_opt.cli.json_output import print_json

            print_json(_json(file_format, output, program))
        else:
            _print(output, program)
        return 0

    return run


@dataclass(frozen=True)
class _Program:
    """A program, and its cell in JSON and in words."""

    formulation: "Formulation | GraphFormulation"
    cell: dict[str, Any]
    facts: dict[str, str]


def _write(
    file_format: Literal["lp", "mps"],
    problem_path: Path | None,
    asked: Asked,
    output: Path,
    cell: str | None,
    family: "FamilyName",
) -> _Program:
    from tempfile import TemporaryDirectory

    from nest_opt.cli.fix import fix, parse_fixes
    from nest_opt.cli.output_files import check_output, write_text

    wanted = parse_fixes(cell.split(",") if cell is not None else (), "--cell")
    check_source(problem_path, asked)
    check_output(output, problem_path or asked.model_path)
    problem = fix(read_source(problem_path, asked).problem, wanted, "--cell")
    # Pyomo tells the format by itself only from some names, and leaves half a file on failure.
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"program.{file_format}"
        if problem.is_placement_graph:
            program = _export_graph(problem, path, file_format)
        else:
            program = _export(problem, path, file_format, family)
        write_text(output, path.read_text(encoding="utf-8"))
    return program


def _export(
    problem: "Problem", path: Path, file_format: Literal["lp", "mps"], family: "FamilyName"
) -> _Program:
    from nest_opt.milp.export import export, first_cell
    from nest_opt.plan.evaluate import Costs

    costs = Costs(problem)
    formulation = export(costs, first_cell(costs, family), path, file_format)
    data = _cell(formulation)
    tp = "by stage" if data["tp"] is None else data["tp"]
    sp = {None: "by stage", True: "on", False: "off"}[data["sp"]]
    words = {
        "cell": f"microbatch {data['microbatch']}, tp {tp}, cp {data['cp']}, "
        f"ep {data['ep']}, sp {sp}, dp {data['dp']}, pp {data['pp']}"
        + (f", zero {formulation.coefficients.cell.zero}" if data["zero"] else "")
        + _schedule_words(data),
        "placement": f"rank order {data['order']}, pitch {data['pitch']}"
        if family == "aligned"
        else "any devices",
    }
    return _Program(formulation, data, words)


def _schedule_words(data: dict[str, Any]) -> str:
    """Return the schedule in words; nothing if it is 1F1B."""
    from nest_opt.problem.schedule import ONE_F_ONE_B, Schedule

    schedule = Schedule(data["schedule"], data["chunks"])
    return f", schedule {schedule}" if schedule != ONE_F_ONE_B else ""


def _cell(formulation: "Formulation") -> dict[str, Any]:
    from nest_opt.milp.cells import PathCell
    from nest_opt.plan.placement import Cell
    from nest_opt.problem import Configuration
    from nest_opt.problem.zero import zero_json

    cell = formulation.coefficients.cell
    order: str | None = None
    pitch: int | None = None
    if isinstance(cell, Cell):
        device_map = cell.device_map
        choices: tuple[Configuration, ...] = (cell.configuration,)
        order, pitch = device_map.order, device_map.pitch
        replicas, stages = device_map.replicas, device_map.stages
    else:
        choices, replicas, stages = cell.choices, cell.replicas, cell.stages
        if isinstance(cell, PathCell):
            order, pitch = cell.order, cell.pitch
    return {
        "microbatch": cell.microbatch,
        # What the stages of the program choose is open.
        **{
            name: values[0] if len(set(values)) == 1 else None
            for name, values in zip(Configuration._fields, zip(*choices, strict=True), strict=True)
        },
        "dp": replicas,
        "zero": zero_json(cell.zero),
        "pp": stages,
        "schedule": cell.schedule.name,
        "chunks": cell.schedule.chunks,
        "order": order,
        "pitch": pitch,
    }


def _export_graph(problem: "Problem", path: Path, file_format: Literal["lp", "mps"]) -> _Program:
    from nest_opt.cli.console import printable
    from nest_opt.cost.graph_build import build_graph_table
    from nest_opt.milp.graph.export import export_graph

    formulation = export_graph(build_graph_table(problem), path, file_format)
    cell, names = formulation.cell, list(problem.cluster.devices_by_kind)
    kinds = [names[kind] for kind in cell.kinds]
    return _Program(
        formulation,
        {"split": problem.job.split, "kinds": kinds},
        {"cell": f"{problem.job.split}, kinds {printable(', '.join(kinds))}"},
    )


def _json(file_format: str, output: Path, program: _Program) -> dict[str, Any]:
    formulation = program.formulation
    return {
        "status": "exported",
        "format": file_format,
        "output": str(output),
        "name": formulation.model.name,
        "cell": program.cell,
        "time_unit_ps": str(formulation.units.time_ps),
        "size_unit_bytes": formulation.units.size_bytes,
        "variables": formulation.model.nvariables(),
        "rows": formulation.model.nconstraints(),
    }


def _print(output: Path, program: _Program) -> None:
    from nest_opt.cli.console import print_report
    from nest_opt.cli.stage_table import facts

    model, units = program.formulation.model, program.formulation.units
    print_report(
        f"wrote {output}: program {model.name}",
        facts(
            {
                **program.facts,
                "size": f"{model.nvariables():,} variables, {model.nconstraints():,} rows",
                "units": f"times in {units.time_ps:,} ps, sizes in {units.size_bytes:,} bytes",
            }
        ),
    )


for _format, _summary in _SUMMARIES.items():
    export_command.add_command(_command(_format, _summary))
export_command.add_command(export_ranks_command)
