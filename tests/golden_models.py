"""One small problem whose program has rows of every family; its LP file by family.

    python tests/golden_models.py

writes `tests/golden/*.lp` anew. Read the difference before you keep it: the
files are what `docs/formulation.md` says, line by line.
"""

import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyomo.environ as pyo

from nest_opt import Problem
from nest_opt.milp.build import FAMILIES, FREE_FAMILIES, Formulation, build
from nest_opt.milp.cells import FreeCell, PathCell, ProgramCell
from nest_opt.milp.coefficients import CellCoefficients, CoefficientSource
from nest_opt.milp.constraints import FAMILIES as CONSTRAINT_FAMILIES
from nest_opt.milp.constraints import FREE_FAMILIES as FREE_CONSTRAINT_FAMILIES
from nest_opt.milp.graph.build import GraphFormulation
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Cell, DeviceMap
from nest_opt.problem import Configuration, Zero
from nest_opt.problem.schedule import Schedule
from nest_opt.problem.validation import build as build_problem

GOLDEN = Path(__file__).resolve().parent / "golden"

CONSTRAINTS: dict[str, dict[str, Any]] = {
    "colocation": {"type": "colocation", "layers": ["second", "third"]},
    "anti-colocation": {"type": "anti-colocation", "layers": ["third", "fourth"]},
    "pinned-layers": {"type": "pinned-layers", "layers": ["third"], "stage": -1},
    "forbidden-boundary": {"type": "forbidden-boundary", "after": "first"},
    "hop-latency": {"type": "hop-latency", "limit_s": "1e-12"},
    "degree-limit": {"type": "degree-limit", "degree": "pp", "at_most": 2},
    "tp-inside-node": {"type": "tp-inside-node", "level": "node"},
    "failure-domains": {"type": "failure-domains", "level": "rack"},
    "power": {"type": "power", "level": "node", "limit_w": 199},
}
OBJECTIVES = ("fill-drain", "nest", "bottleneck")


# A constraint, or the name of one of those above.
Constrained = str | dict[str, Any] | None


def golden_data(objective: str = "fill-drain", constraint: Constrained = None) -> dict[str, Any]:
    """Return the problem: four layers, six devices in three nodes, all numbers small."""

    def layer_type(seed: int, experts: int) -> dict[str, Any]:
        return {
            "output_bytes": {"1": 10 * seed},
            "profiles": [
                {
                    "microbatch": 1,
                    "tp": 1,
                    "forward_s": f"{100 + seed}e-12",
                    "backward_input_s": f"{110 + seed}e-12",
                    "backward_weight_s": f"{90 + seed}e-12",
                    "dense_parameters": 10 + seed,
                    "expert_parameters": experts,
                    "recompute": {
                        "none": {"stash_bytes": 40 + seed, "work_bytes": 5},
                        "full": {"stash_bytes": seed, "work_bytes": 45},
                    },
                }
            ],
        }

    names = ("first", "second", "third", "fourth")
    return {
        "name": "golden",
        "model": {
            "layer_types": {
                name: layer_type(seed, experts)
                for name, seed, experts in zip(names, (1, 2, 3, 4), (0, 7, 0, 0), strict=True)
            },
            "layers": [{"id": name, "type": name} for name in names],
        },
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": 800, "reserve_bytes": 10, "watts": 100}},
            "devices": [{"kind": "device", "count": 6}],
            "network": {
                "type": "hierarchical",
                "levels": [
                    {
                        "name": "node",
                        "size": 2,
                        "bandwidth_bytes_per_s": 10**12,
                        "latency_s": "1e-12",
                    },
                    {
                        "name": "rack",
                        "size": 3,
                        "bandwidth_bytes_per_s": 5 * 10**11,
                        "latency_s": "3e-12",
                    },
                ],
            },
        },
        "job": {
            "global_batch": 6,
            "bytes_per_parameter": {"weights": 2, "gradients": 2, "optimizer": 12},
            "objective": objective,
        },
        "search": {"microbatch": [1], "tp": [1], "dp": [2], "pp": [3]},
        "constraints": [_constraint(constraint)] if constraint else [],
    }


def golden_choice_data(
    objective: str = "fill-drain", constraint: Constrained = None
) -> dict[str, Any]:
    """Return the same with tp of 1 or 2 by stage, two stages, and calls that take time."""
    data = golden_data(objective, constraint)
    for kind in data["model"]["layer_types"].values():
        (narrow,) = kind["profiles"]
        call = {"group": "tp", "operation": "all-reduce", "bytes": 20, "count": 1}
        calls = [{**call, "phase": phase} for phase in ("forward", "backward")]
        half = {"dense_parameters": narrow["dense_parameters"] // 2,
                "expert_parameters": narrow["expert_parameters"] // 2}  # fmt: skip
        kind["profiles"].append({**narrow, "tp": 2, "forward_s": "70e-12", "collectives": calls,
                                 **half})  # fmt: skip
    data["search"] = {"microbatch": [1], "tp": [1, 2], "dp": [2], "pp": [2], "per_stage": ["tp"]}
    return data


def golden_any_data(objective: str, constraint: Constrained) -> dict[str, Any]:
    """Return the same as two chains of two layers each, in any order."""
    data = golden_data(objective, constraint)
    ends = [("first", "third"), ("second", "fourth")]
    data["model"]["edges"] = [{"source": source, "target": target} for source, target in ends]
    data["search"]["layer_order"] = "any"
    return data


def tie(data: dict[str, Any]) -> dict[str, Any]:
    """Return the same with parameters of the fourth layer that are the first one's."""
    for profile in data["model"]["layer_types"]["fourth"]["profiles"]:
        profile["tied_parameters"] = 8 // profile["tp"]
    return data


def _constraint(constraint: str | dict[str, Any]) -> dict[str, Any]:
    return CONSTRAINTS[constraint] if isinstance(constraint, str) else constraint


# Two replicas one after the other would keep hops inside nodes; these do not.
CELL = Cell(1, Configuration(1, 1, 1, False), 3, DeviceMap(1, 2, 3, "dp-inner", 2))
CHOICES = Configuration(1, 1, 1, False), Configuration(2, 1, 1, False)
# Rounds as many as stages, as these schedules need.
ZERO_BUBBLE_CELL = replace(CELL, schedule=Schedule("zb-h1"))
INTERLEAVED_CELL = Cell(
    1, Configuration(1, 1, 1, False), 2, DeviceMap(1, 2, 2, "dp-inner", 2),
    schedule=Schedule("interleaved", 2),
)  # fmt: skip
FREE_CELL = FreeCell(1, CHOICES, 3, 2, 2)
FREE_ZERO_BUBBLE_CELL = replace(FREE_CELL, schedule=Schedule("zb-h1"))
# One configuration, as ZeRO levels ask for: weights of a class gathered in rounds, and two runs.
FREE_ZERO_CELL = FreeCell(1, CHOICES[:1], 3, 2, 2, zero=Zero(3, 1))
FREE_RUNS_CELL = FreeCell(1, CHOICES[:1], 2, 4, 1, zero=Zero(2, 1, 2))
PATH_CELL = PathCell(1, CHOICES, 3, 2, 2, "pp-inner", 3, (2, 3))


def golden_coefficients(
    objective: str = "fill-drain",
    constraint: Constrained = None,
    cell: ProgramCell = CELL,
    tied: bool = False,
    any_order: bool = False,
) -> tuple[Costs, CellCoefficients]:
    """Return the problem's costs and the cell's coefficients."""
    make = golden_data if isinstance(cell, Cell) or cell.zero else golden_choice_data
    if any_order:
        make = golden_any_data
    data = make(objective, constraint)
    if isinstance(cell, FreeCell) and cell.zero:
        data["search"].update(
            dp=[cell.replicas], pp=[cell.stages],
            zero=[cell.zero.dense], zero_expert=[cell.zero.expert],
            zero_instances=[cell.zero.instances],
        )  # fmt: skip
        data["job"]["global_batch"] = cell.rounds * cell.replicas
    if isinstance(cell, Cell):
        data["search"]["schedule"] = [cell.schedule.name]
    if cell.schedule.is_interleaved:
        # Four chunks of six layers: the two in the middle have one each, or two each.
        data["search"].update(pp=[2], chunks=[2])
        data["job"]["global_batch"] = 4
        data["model"]["layers"] += [{"id": name, "type": "fourth"} for name in ("fifth", "sixth")]
        data["cluster"]["device_kinds"]["device"]["memory_bytes"] = 1400
    costs = Costs(build_problem(Problem, tie(data) if tied else data, "golden"))
    return costs, CoefficientSource(costs).of(cell)


@dataclass(frozen=True)
class GoldenFile:
    """The objective, constraint, family of rows and cell that a file shows.

    And whether with ties, and in any order of layers.
    """

    objective: str
    constraint: str | None
    family: str
    cell: ProgramCell = CELL
    tied: bool = False
    any_order: bool = False


def golden_files() -> dict[str, GoldenFile]:
    """Return what each file shows."""
    files = {
        family: GoldenFile("fill-drain", None, family)
        for family in FAMILIES
        if family != "objective"
    }
    files |= {
        f"objective_{name.replace('-', '_')}": GoldenFile(name, None, "objective")
        for name in OBJECTIVES
    }
    # The cell has tp = 1, so that every tp group is inside a node: no row.
    files |= {
        name.replace("-", "_"): GoldenFile("fill-drain", name, "constraints")
        for name in CONSTRAINT_FAMILIES
        if name != "tp-inside-node"
    }
    files |= {
        f"free_{family}": GoldenFile("fill-drain", None, family, FREE_CELL)
        for family in (*FREE_FAMILIES, "options", "memory", "hops")
        if (family not in FAMILIES or family in ("options", "memory", "hops"))
        and family != "exchange"
    }
    files |= {
        f"free_{name.replace('-', '_')}": GoldenFile("fill-drain", name, "constraints", FREE_CELL)
        for name in FREE_CONSTRAINT_FAMILIES
        # Of two stages at most two are allowed anyway.
        if name not in CONSTRAINT_FAMILIES
        or FREE_CONSTRAINT_FAMILIES[name] is not CONSTRAINT_FAMILIES[name]
    }
    files |= {
        f"any_{family}": GoldenFile("fill-drain", None, family, any_order=True)
        for family in ("assignment", "hops")
    }
    files |= {
        f"any_{name.replace('-', '_')}": GoldenFile(
            "fill-drain", name, "constraints", any_order=True
        )
        # What is about layers, and one of those that leave a cell without plans.
        for name in ("colocation", "forbidden-boundary", "anti-colocation", "degree-limit")
    }
    files["path"] = GoldenFile("fill-drain", None, "path", PATH_CELL)
    # Rows that tied parameters change, or add.
    files |= {
        f"tied_{name}": GoldenFile("fill-drain", None, family, cell, True)
        for name, family, cell in (
            ("sync", "sync", CELL),
            ("free_exchange", "exchange", FREE_CELL),
            ("free_counting", "counting", FREE_CELL),
            ("free_level_sync", "level_sync", FREE_CELL),
            ("free_near", "near", FREE_CELL),
            ("path", "path", PATH_CELL),
        )
    }
    files |= {
        f"{name}_{family}": GoldenFile("fill-drain", None, family, cell)
        for name, cell, families in (
            ("zero_free", FREE_ZERO_CELL, ("memory", "level_load", "level_sync")),
            ("runs_free", FREE_RUNS_CELL, ("levels", "level_sync", "counting", "near", "symmetry")),
        )
        for family in families
    }
    files["fill"] = GoldenFile("fill-drain", None, "fill", ZERO_BUBBLE_CELL)
    files["fill_nest"] = GoldenFile("nest", None, "fill", ZERO_BUBBLE_CELL)
    files["objective_zb_h1"] = GoldenFile("fill-drain", None, "objective", ZERO_BUBBLE_CELL)
    files["free_slowest_zb_h1"] = GoldenFile("nest", None, "slowest", FREE_ZERO_BUBBLE_CELL)
    files |= {
        name: GoldenFile("fill-drain", None, name, INTERLEAVED_CELL)
        for name in ("equal_chunks", "stash")
    }
    files |= {
        f"interleaved_{name.replace('-', '_')}": GoldenFile(
            "fill-drain",
            name if name in CONSTRAINTS else None,
            "constraints" if name in CONSTRAINTS else name,
            INTERLEAVED_CELL,
        )
        for name in (
            "assignment", "memory", "hops", "stage_load", "sync", "exposed_sync", "objective",
            "colocation", "anti-colocation", "pinned-layers", "hop-latency",
        )
    }  # fmt: skip
    return files


def family_lp(shown: GoldenFile) -> str:
    """Return the LP file of the rows of one family, with the objective where that is the family."""
    formulation = build(
        *golden_coefficients(
            shown.objective, shown.constraint, shown.cell, shown.tied, shown.any_order
        )
    )
    keep_only(formulation, shown.family)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "family.lp"
        formulation.model.write(str(path), io_options={"symbolic_solver_labels": True})
        return path.read_text()


def keep_only(formulation: Formulation | GraphFormulation, family: str) -> None:
    """Deactivate the rows of all other families."""
    model = formulation.model
    for name, components in formulation.rows.items():
        for component in components:
            if name != family:
                model.component(component).deactivate()
    if family != "objective":
        model.objective.deactivate()
        model.nothing = pyo.Objective(expr=0)


def main() -> int:
    """Write all files."""
    for name, what in golden_files().items():
        (GOLDEN / f"{name}.lp").write_text(family_lp(what))
    return 0


if __name__ == "__main__":
    sys.exit(main())
