"""One call that makes a constraint of a user's own known to checker, search and program."""

import inspect
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any

from nest_opt.dp.rules import RULES, Restriction
from nest_opt.errors import NestOptError
from nest_opt.plan.rules import CHECKERS, Checker
from nest_opt.plan.violation import Violation
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
        If the name is of another form, or a face takes other arguments. What
        a face returns is looked at when it is called, and refused likewise.
    """
    if not _NAME.fullmatch(name):
        raise NestOptError(
            f"register: found the name {name!r}, lower-case letters, digits and hyphens are "
            "needed, a letter first, at most 100 in all: choose another"
        )
    for face, function in (
        ("checker", checker), ("dp_rule", dp_rule), ("milp", milp), ("parameters", parameters)
    ):  # fmt: skip
        if function is not None:
            _require_arguments(name, face, function)
    rule = f"user:{name}"
    unregister(name)
    CHECKERS[rule] = _yielding_violations(name, checker)
    if dp_rule is not None:
        RULES[rule] = _returning(Restriction, f"dp_rule of {name!r}", dp_rule)
    if parameters is not None:
        _PARAMETERS[name] = _returning(Mapping, f"parameters of {name!r}", parameters)
    if milp is not None:
        # Only those who use the program wait for its libraries.
        from nest_opt.milp.constraints import FAMILIES

        FAMILIES[rule] = milp
        _WITH_ROWS.add(rule)


_ARGUMENTS = {
    "checker": ("constraint", "costs", "placement", "evaluation"),
    "dp_rule": ("constraint", "problem"),
    "milp": ("constraint", "model", "costs", "coefficients", "name"),
    "parameters": ("source of randomness", "problem"),
}


def _require_arguments(name: str, face: str, function: Callable[..., Any]) -> None:
    """Refuse a face that cannot be called with its arguments, before it is."""
    arguments = _ARGUMENTS[face]
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise NestOptError(
            f"register: found a {face} of {name!r} that does not take {len(arguments)} arguments "
            f"({error}), ({', '.join(arguments)}) are needed: correct the function"
        ) from error
    except ValueError:
        # Some built-in callables do not tell.
        return


_KINDS: dict[Any, str] = {
    Iterable: "an iterable of Violation",
    Restriction: "a Restriction",
    Mapping: "a Mapping",
}


def _returning(kind: Any, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a face that refuses what it should not return."""

    @wraps(function)
    def face(*arguments: Any) -> Any:
        found = function(*arguments)
        if not isinstance(found, kind):
            raise NestOptError(
                f"{what}: returned {found!r}, {_KINDS[kind]} is needed: correct the function"
            )
        return found

    return face


def _yielding_violations(name: str, checker: Checker) -> Checker:
    """Return a checker that refuses to yield anything else."""
    what = f"checker of {name!r}"

    @wraps(checker)
    def face(*arguments: Any) -> Iterator[Violation]:
        found: Iterable[Any] = _returning(Iterable, what, checker)(*arguments)
        for violation in found:
            if not isinstance(violation, Violation):
                raise NestOptError(
                    f"{what}: yielded {violation!r}, a Violation is needed: correct the function"
                )
            yield violation

    return face


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
