"""Writing the program of a placement graph as an LP or MPS file, with its page's names."""

from pathlib import Path

from nest_opt.cost.graph_table import GraphTable
from nest_opt.errors import ModelError
from nest_opt.milp.export import Format, write_model
from nest_opt.milp.graph.build import GraphFormulation, build
from nest_opt.milp.graph.cells import GraphCell, cells
from nest_opt.milp.graph.parts import parts


def first_graph_cell(table: GraphTable) -> GraphCell:
    """Return the first cell in which every part has a stage, without a cutoff.

    Raises
    ------
    ModelError
        If there is none.
    """
    of_layers = parts(table)
    for kinds in cells(of_layers):
        cell = GraphCell(of_layers, kinds)
        if all(
            any(cell.supports(part, stage) for stage in window)
            for part, window in enumerate(cell.windows)
        ):
            return cell
    raise ModelError(
        "no program to export: found no order of the kinds of devices in which each layer has a "
        "device that supports and holds it, one is needed: add devices or profiles"
    )


def export_graph(table: GraphTable, path: Path, file_format: Format) -> GraphFormulation:
    """Write the program of a placement graph: that of its first cell.

    Raises
    ------
    ModelError
        If there is no program, or the file cannot be written.
    """
    formulation = build(first_graph_cell(table))
    write_model(formulation.model, path, file_format)
    return formulation
