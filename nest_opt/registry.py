"""One call that makes a constraint of a user's own known to checker, search and program."""

import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from nest_opt.dp.rules import RULES, Restriction
from nest_opt.errors import NestOptError
from nest_opt.plan.rules import CHECKERS, Checker
from nest_opt.problem import Problem, rule_of

# Called with (source of randomness, problem), returns parameters to try on that problem.
Parameters = Callable[[random.Random, Problem], Mapping[str, Any]]

_WITH_ROWS: set[str] = set()
_PARAMETERS: dict[str, Parameters] = {}
_NAME = re.compile(r"[a-z][a-z0-9-]{0,99}")


def register(
    name: str,
    checker: Checker,
    dp_rule: Callable[[Any, Problem], Restriction] | None = None,
    milp: Callable[..., None] | None = None,
    parameters: Parameters | None = None,
) -> None:
    """Register the faces of the constraints `{"type": "user", "name": name}`.

    Parameters
    ----------
    name
        Lower-case letters, digits and hyphens, a letter first. A name that is
        registered already gets the new faces.
    checker
        Called with (constraint, costs, placement, evaluation), yields a
        `Violation` with rule `user:NAME` for each fault. It decides what is legal.
    dp_rule
        Called with (constraint, problem), returns a `Restriction` that takes
        away what the checker refuses, no more and no less. Without it the
        search leaves the constraint out, and says so.
    milp
        Called with (constraint, model, costs, coefficients, name), adds rows
        to the program of a cell. Without it `exact` refuses the problem.
    parameters
        Called with (source of randomness, problem), returns the parameters to
        try on that problem in a cross-check.

    Raises
    ------
    NestOptError
        If the name is of another form.
    """
    if not _NAME.fullmatch(name):
        raise NestOptError(
            f"register: found the name {name!r}, lower-case letters, digits and hyphens are "
            "needed, a letter first, at most 100 in all: choose another"
        )
    rule = f"user:{name}"
    unregister(name)
    CHECKERS[rule] = checker
    if dp_rule is not None:
        RULES[rule] = dp_rule
    if parameters is not None:
        _PARAMETERS[name] = parameters
    if milp is not None:
        # Only those who use the program wait for its libraries.
        from nest_opt.milp.constraints import FAMILIES

        FAMILIES[rule] = milp
        _WITH_ROWS.add(rule)


def unregister(name: str) -> None:
    """Forget the faces of a name; nothing happens if it has none."""
    rule = f"user:{name}"
    CHECKERS.pop(rule, None)
    RULES.pop(rule, None)
    _PARAMETERS.pop(name, None)
    if rule in _WITH_ROWS:
        from nest_opt.milp.constraints import FAMILIES

        del FAMILIES[rule]
        _WITH_ROWS.remove(rule)


def is_registered(name: str) -> bool:
    """Whether a name has faces."""
    return f"user:{name}" in CHECKERS


def registered() -> dict[str, Checker]:
    """Return the checker of every name."""
    return {
        rule.removeprefix("user:"): checker
        for rule, checker in CHECKERS.items()
        if rule.startswith("user:")
    }


def registered_parameters(name: str) -> Parameters | None:
    """Return what draws the parameters of a name in a cross-check, None if nothing does."""
    return _PARAMETERS.get(name)


def has_program_rows(problem: Problem) -> bool:
    """Whether every user's constraint of a problem was registered with rows of the program."""
    rules = {rule_of(constraint) for constraint in problem.constraints}
    return all(rule in _WITH_ROWS for rule in rules if rule.startswith("user:"))
