"""Dependencies point one way, and heavy libraries stay where they belong."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "nest_opt"

# Each room may import from itself and from the rooms before it in its list.
ALLOWED = {
    "errors": set(),
    "problem": {"errors"},
    "network": {"errors", "problem"},
    "cost": {"errors", "problem", "network"},
    "plan": {"errors", "problem", "network", "cost"},
    "placing": {"errors", "problem", "network", "cost", "plan", "dp"},
    "simulate": {"errors", "problem", "plan"},
    "models": {"errors", "problem", "network"},
    "dp": {"errors", "problem", "network", "cost", "plan"},
    "certify": {"errors", "problem", "network", "cost", "plan", "solver"},
    "planners": {"errors", "problem", "network", "cost", "plan", "dp"},
    "solver": {"errors"},
    "milp": {"errors", "problem", "network", "cost", "plan", "solver"},
    "registry": {"errors", "problem", "plan", "dp", "milp"},
    "conflicts": {"errors", "problem", "plan", "dp", "milp"},
    "verbs": {
        *("errors", "problem", "network", "cost", "plan", "dp"),
        *("placing", "certify", "milp", "conflicts"),
    },
    "api": {"errors", "problem", "plan", "certify", "milp", "verbs"},
    "memory_front": {"errors", "problem", "plan", "dp", "verbs"},
    "improvement": {"errors", "problem", "plan", "dp", "verbs"},
    "comparison": {"errors", "problem", "plan", "planners", "verbs", "improvement"},
    "prediction": {"errors", "problem", "cost", "plan", "simulate", "models"},
    "shrink": {"errors", "problem"},
    "agreement": {"errors", "problem", "certify", "milp", "api", "registry", "shrink"},
    "cli": {
        *("errors", "problem", "network", "cost", "plan", "simulate", "models"),
        *("api", "memory_front", "dp", "certify", "milp", "conflicts"),
        *("registry", "agreement", "improvement", "planners", "comparison", "prediction"),
    },
}


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the full name of everything that a file imports, and of what it imports it from."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(path: Path) -> str:
    """Return the top-level room of a file of the package."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


FILES = sorted(path for path in PACKAGE.rglob("*.py") if room(path) != "__init__")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_dependencies_point_one_way(path: Path) -> None:
    """A module imports only from its own room and those it may know."""
    allowed = ALLOWED[room(path)] | {room(path)}
    rooms = {name.split(".")[1] for name in imported_modules(path) if name.startswith("nest_opt.")}
    assert rooms & set(ALLOWED) <= allowed


@pytest.mark.parametrize(("kind", "other"), [("pipeline", "graph"), ("graph", "pipeline")])
def test_verbs_of_one_kind_know_nothing_of_the_other(kind: str, other: str) -> None:
    """Both kinds have the same verbs; they share what stands beside them and meet in `api`."""
    verbs = PACKAGE / "verbs"
    for path in (verbs / kind).glob("*.py"):
        assert not any(
            name.startswith(f"nest_opt.verbs.{other}") for name in imported_modules(path)
        )
    for verb in ("solve", "exact", "bound", "verify"):
        assert (verbs / kind / f"{verb}.py").is_file()
    for path in verbs.glob("*.py"):
        names = {name for name in imported_modules(path) if name.startswith("nest_opt.verbs.")}
        assert not {name.split(".")[2] for name in names} & {kind, other}


def test_the_simulator_knows_no_closed_form() -> None:
    """Only the bridge to plans imports more than errors: the simulator is a check of `cost`."""
    for path in (PACKAGE / "simulate").glob("*.py"):
        names = {name for name in imported_modules(path) if name.startswith("nest_opt.")}
        own = {name for name in names if name.startswith(("nest_opt.simulate", "nest_opt.errors"))}
        assert names == own or path.name == "plan.py"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_terminal_libraries_stay_in_the_command_line(path: Path) -> None:
    """Click and rich are imported in the command line only."""
    names = {name.split(".")[0] for name in imported_modules(path)}
    assert room(path) == "cli" or not names & {"click", "rich"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modelling_and_solver_libraries_stay_in_their_rooms(path: Path) -> None:
    """Pyomo is imported in `milp` and `solver` only, highspy in `solver`, networkx in `network`."""
    names = {name.split(".")[0] for name in imported_modules(path)}
    assert room(path) in {"milp", "solver"} or "pyomo" not in names
    assert room(path) == "solver" or "highspy" not in names
    assert room(path) == "network" or "networkx" not in names


def test_the_program_starts_without_pyomo() -> None:
    """Importing the package, its command line and networks loads no Pyomo, HiGHS or networkx."""
    code = (
        "import sys, nest_opt, nest_opt.cli, nest_opt.milp.exact, nest_opt.network.cuts; "
        "print({'pyomo', 'highspy', 'networkx'} & {name.split('.')[0] for name in sys.modules})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_solving_needs_no_pyomo() -> None:
    """Neither the help nor `nest-opt solve` loads Pyomo or HiGHS; `nest-opt exact` does."""
    problem = PACKAGE.parent / "instances" / "tiny" / "colocation.json"
    code = (
        "import sys; from nest_opt.cli import command_line\n"
        "try: command_line(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "loaded = {'pyomo', 'highspy'} & {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded), file=sys.stderr)"
    )
    for arguments, loaded in (
        (["--help"], "[]"),
        (["solve", str(problem)], "[]"),
        (["exact", str(problem)], "['highspy', 'pyomo']"),
    ):
        command = [sys.executable, "-c", code, *arguments]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        assert found.stderr.strip() == loaded


def test_every_room_is_known() -> None:
    """The table above names the rooms that exist, and no other."""
    assert {room(path) for path in FILES} == set(ALLOWED)
