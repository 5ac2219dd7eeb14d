"""`--fix tp=8`: narrow dimensions of a problem's search space from the command line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from nest_opt.problem import Problem

_MAX_CHARACTERS = 12
_FLAGS = {"true": True, "on": True, "false": False, "off": False}


def _whole(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= _MAX_CHARACTERS and int(text) > 0:
        return int(text)
    return None


def _one_of(*names: str) -> Callable[[str], str | None]:
    return lambda text: text if text in names else None


@dataclass(frozen=True)
class _Dimension:
    """How the values of one dimension read, and what they may be."""

    parse: Callable[[str], Any]
    legal: str


_DEGREE = _Dimension(_whole, "whole numbers from 1")

# The names of problem.search; `b` is short for `microbatch`.
DIMENSIONS: dict[str, _Dimension] = {
    "microbatch": _DEGREE,
    "tp": _DEGREE,
    "cp": _DEGREE,
    "ep": _DEGREE,
    "sp": _Dimension(_FLAGS.get, "true, false"),
    "dp": _DEGREE,
    "pp": _DEGREE,
    "recompute": _Dimension(_one_of("none", "full"), "none, full"),
    "order": _Dimension(_one_of("pp-inner", "dp-inner"), "pp-inner, dp-inner"),
    "pitch": _Dimension(_one_of("tight", "level", "spread"), "tight, level, spread"),
}
ALIASES = {"b": "microbatch"}


def parse_fixes(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values asked for, by dimension.

    Raises
    ------
    click.UsageError
        If a key or value is not legal, or a key comes twice.
    """
    fixes: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        name = ALIASES.get(key.strip(), key.strip())
        if not equals or name not in DIMENSIONS:
            found = f"key {key.strip()!r}" if equals else f"{text!r} without a '='"
            raise click.UsageError(
                f"--fix: found {found}, KEY=VALUE is needed with one of the keys "
                f"{', '.join(DIMENSIONS)} (b for microbatch): correct it, as in --fix tp=8"
            )
        if name in fixes:
            raise click.UsageError(
                f"--fix: found {name} 2 times, 1 is allowed: "
                f"give its values together, as in --fix {name}=A,B"
            )
        fixes[name] = tuple(_value(name, value.strip()) for value in values.split(","))
    return fixes


def _value(name: str, text: str) -> Any:
    value = DIMENSIONS[name].parse(text)
    if value is None:
        raise click.UsageError(
            f"--fix {name}: found {text!r}, legal values are {DIMENSIONS[name].legal}: correct it"
        )
    return value


def fix(problem: "Problem", fixes: dict[str, tuple[Any, ...]]) -> "Problem":
    """Return the problem with dimensions of its search space replaced.

    Raises
    ------
    InstanceError
        If a value is out of range or repeated.
    """
    from nest_opt.problem import Problem, SearchSpace
    from nest_opt.problem.validation import build

    if not fixes:
        return problem
    # Only what is set: a dimension left open means something else than its default.
    search = {name: getattr(problem.search, name) for name in problem.search.model_fields_set}
    parts = {name: getattr(problem, name) for name in problem.model_fields_set}
    return build(
        Problem, {**parts, "search": build(SearchSpace, {**search, **fixes}, "--fix")}, "--fix"
    )
