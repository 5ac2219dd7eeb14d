"""Constraints of one's own on the command line: `--register` and `crosscheck`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_page import lay_out
from cli_running import run, run_json, write
from samples import problem_data

from nest_opt.certify.brute_force import brute_force
from nest_opt.problem.files import read_problem
from nest_opt.registry import registered, unregister

PROBLEM, REGISTER = "four_layers.json", "short_stages.py"


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Leave no registration behind."""
    yield
    for name in registered():
        unregister(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files of docs/cli.md."""
    lay_out(tmp_path)
    return tmp_path


def wrong(folder: Path) -> Path:
    """Return a file whose rule is off by one."""
    text = (folder / REGISTER).read_text()
    assert "+ most) for" in text
    path = folder / "wrong.py"
    path.write_text(text.replace("+ most) for", "+ most - 1) for"))
    return path


def test_a_registered_constraint_is_solved_with(folder: Path) -> None:
    """Without the option the problem is refused, with it the best plan is that of brute force."""
    refused = run("solve", folder / PROBLEM)
    assert refused.exit_code == 2
    assert "found 'short-stages', a registered one is needed (none)" in refused.stderr
    solved = run_json("solve", folder / PROBLEM, "--register", folder / REGISTER)
    best = brute_force(read_problem(folder / PROBLEM)).value_ps
    assert (solved["status"], solved["relaxed_constraints"]) == ("optimal", [])
    assert solved["objective"]["value_ps"] == str(best)


def test_every_command_that_reads_constraints_has_the_option(folder: Path) -> None:
    """Verify, show, exact and export know the constraint too; exact and export want its rows."""
    option = ("--register", folder / REGISTER)
    plan = folder / "plan.json"
    assert run("solve", folder / PROBLEM, "-o", plan, *option).exit_code == 0
    for command in ("verify", "show"):
        unregister("short-stages")
        assert run(command, plan).exit_code == 2
        assert run(command, plan, *option).exit_code == 0
    for command in (("exact",), ("export", "lp", "-o", folder / "out.lp")):
        unregister("short-stages")
        told = run(*command, folder / PROBLEM, *option)
        assert told.exit_code == 2
        assert "rows" in told.stderr


def test_neighbours_can_be_imported_and_main_does_not_run(folder: Path) -> None:
    """A file may share code with the files beside it; what it does by itself is left alone."""
    (folder / "beside_short_stages.py").write_text("NAME = 'short-stages'\n")
    text = (folder / REGISTER).read_text().replace('register("short-stages"', "register(NAME")
    path = folder / "sharing.py"
    end = "\nif __name__ == '__main__':\n    raise SystemExit(9)\n"
    path.write_text(f"from beside_short_stages import NAME\n{text}{end}")
    assert run("solve", folder / PROBLEM, "--register", path).exit_code == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("x = 1\ny = (\n", "own.py, line 2: found no Python ('(' was never closed)"),
        ("\x00", "own.py, line 1: found no Python"),
        ("import json\n", "own.py: found no call of nest_opt.register, 1 at least is needed"),
        ("\n\nraise ValueError('of mine')\n", "own.py, line 3: raised ValueError: of mine"),
        ("import sys\nsys.exit(0)\n", "own.py, line 2: raised SystemExit: 0"),
        ("import json\njson.loads('{')\n", "own.py, line 2: raised JSONDecodeError"),
        (
            "import nest_opt\n\nnest_opt.register('Two Words', print)\n",
            "own.py, line 3: register: found the name 'Two Words'",
        ),
    ],
)
@pytest.mark.parametrize("command", ["solve", "crosscheck"])
def test_files_that_cannot_be_used(
    tmp_path: Path, command: str, text: str | None, told: str
) -> None:
    """What is wrong with a file is told with its line, with exit code 2 and no traceback."""
    path = tmp_path / "own.py"
    if text is not None:
        path.write_text(text)
    problem = write(tmp_path / "problem.json", problem_data())
    arguments = ("solve", problem, "--register", path) if command == "solve" else (command, path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stderr.count("\n") == 1
    assert json.loads(run(*arguments, "--json").stdout)["status"] == "error"


@pytest.mark.parametrize(
    ("call", "command"),
    [
        ("if layers > most:", "solve"),
        ("range(len(problem.model.ids) - most)", "solve"),
        ("rng.randint(1, len(problem.model.ids))", "crosscheck"),
    ],
)
def test_errors_of_faces_name_their_line(folder: Path, call: str, command: str) -> None:
    """A checker, rule or parameters that raise an error when used are told of like the file."""
    text = (folder / REGISTER).read_text()
    line = 1 + text[: text.index(call)].count("\n")
    path = folder / "failing.py"
    path.write_text(
        text.replace(call, call.replace("layers", "(1 // 0)").replace("len", "(1 // 0)"))
    )
    arguments: list[object] = ["crosscheck", path]
    if command == "solve":
        arguments = ["solve", folder / PROBLEM, "--register", path]
    result = run(*arguments)
    assert result.exit_code == 2
    assert f"failing.py, line {line}: raised ZeroDivisionError" in result.stderr


def test_errors_elsewhere_are_not_the_files(folder: Path) -> None:
    """The package's own errors stay what they are, with the option and without."""
    result = run("solve", folder / "none.json", "--register", folder / REGISTER)
    assert result.exit_code == 2
    assert "none.json" in result.stderr
    assert "correct the file" not in result.stderr


def test_the_crosscheck_agrees(folder: Path) -> None:
    """Faces that agree give exit code 0, and the counts of the cross-check."""
    data = run_json("crosscheck", folder / REGISTER, "--instances", 30, "--seed", 5)
    assert data["status"] == "agreement"
    (found,) = data["constraints"]
    assert (found["name"], found["problems"], found["disagreements"]) == ("short-stages", 30, [])
    assert found["binding"] >= 5


def test_the_crosscheck_disagrees(folder: Path) -> None:
    """A wrong rule gives exit code 1; the problem written is shrunk, and shows the mistake."""
    path, output = wrong(folder), folder / "found.json"
    result = run("crosscheck", path, "--instances", 20, "-o", output)
    assert result.exit_code == 1
    assert "the rule for the search" in result.stdout
    assert "2 layers on 2 devices (shrunk)" in result.stdout
    problem = read_problem(output)
    assert len(problem.model.ids) == 2
    best = brute_force(problem).value_ps
    solved = run_json("solve", output, "--register", path)
    assert solved["objective"]["value_ps"] != (None if best is None else str(best))
    data = run_json("crosscheck", path, "--instances", 20)
    assert data["status"] == "disagreement"
    first, *_ = data["constraints"][0]["disagreements"]
    assert (first["face"], first["shrunk"]) == ("search", True)


def test_the_crosscheck_needs_parameters(folder: Path) -> None:
    """A constraint without parameters to try, and a number of problems below 1, are refused."""
    text = (folder / REGISTER).read_text().replace(", parameters=parameters", "")
    path = folder / "bare.py"
    path.write_text(text)
    result = run("crosscheck", path)
    assert result.exit_code == 2
    assert "found no parameters for 'short-stages'" in result.stderr
    assert run("crosscheck", folder / REGISTER, "--instances", 0).exit_code == 2


def test_a_constraint_that_never_binds_is_told(folder: Path) -> None:
    """Agreement on problems that the constraint makes no difference to is said to mean nothing."""
    text = (folder / REGISTER).read_text().replace("rng.randint(1, len(problem.model.ids))", "99")
    path = folder / "idle.py"
    path.write_text(text)
    assert "agreement says nothing" in run("crosscheck", path, "--instances", 3, width=200).stdout
