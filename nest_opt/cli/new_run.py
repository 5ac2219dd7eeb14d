"""What `new`, and an import of a model, do: derive a problem, write it, and say what it is."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from nest_opt.cli.console import print_report
from nest_opt.cli.explain import failure
from nest_opt.cli.group import EXIT_NO
from nest_opt.cli.json_derived import derived_json, smallest_json
from nest_opt.cli.json_output import diagnosis_json, print_json
from nest_opt.cli.output_files import write_text
from nest_opt.cli.problem_source import Derivation
from nest_opt.cli.problem_summary import derived_facts, problem_text
from nest_opt.cli.progress import SearchProgress
from nest_opt.cli.request_options import Asked
from nest_opt.cli.smallest import NothingFits, Smallest
from nest_opt.cli.smallest_report import fewest_text, smallest_facts
from nest_opt.cli.solve_report import solve_report
from nest_opt.cli.stage_table import facts
from nest_opt.models.request import DerivedProblem, Request
from nest_opt.problem import Problem
from nest_opt.problem.files import to_json_data, to_json_text


def write_new_problem(
    asked: Asked,
    request: Request,
    output: Path | None,
    as_json: bool,
    head: Mapping[str, Any],
    narrow: Callable[[Problem], Problem] = lambda problem: problem,
) -> int:
    """Derive a problem and write it; return the exit code.

    Parameters
    ----------
    output
        Where to; standard output if None.
    head
        The first fields of the JSON object.
    narrow
        What becomes of the problem before it is written.
    """
    derivation = Derivation(request, narrow)
    found: Smallest | NothingFits | None = None
    if asked.smallest:
        with SearchProgress() as progress:
            found = derivation.smallest(progress)
    derived = derivation.on(request.devices if found is None else found.devices)
    if isinstance(found, NothingFits):
        return _refuse(derived, found, as_json)
    problem = narrow(derived.problem)
    text = to_json_text(problem)
    if output:
        write_text(output, text)
    if as_json:
        print_json(
            {
                **head,
                "output": None if output is None else str(output),
                **_about_json(derived, found),
                "problem": to_json_data(problem),
            }
        )
        return 0
    if output is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"wrote {output}: {problem_text(problem)}")
    rows = smallest_facts(derived.template, found) if found else {}
    # Standard output belongs to the problem unless that has a file of its own.
    print_report(facts({**rows, **derived_facts(derived)}), stderr=output is None)
    return 0


def _about_json(derived: DerivedProblem, found: Smallest | NothingFits | None) -> dict[str, Any]:
    data: dict[str, Any] = {"derived_from": derived_json(derived)}
    if found:
        data["smallest"] = smallest_json(derived.template, found)
    return data


def _refuse(derived: DerivedProblem, found: NothingFits, as_json: bool) -> int:
    """Say why nothing fits on however many devices."""
    result = found.result
    if as_json:
        print_json(
            {
                "status": "infeasible",
                "output": None,
                **_about_json(derived, found),
                "problem": None,
                "diagnosis": diagnosis_json(failure(result)),
            }
        )
    else:
        fewest = fewest_text(derived.template, found)
        print_report(*solve_report(result, about=derived_facts(derived), fewest=fewest))
    return EXIT_NO
