"""`--fix tp=8`: narrow dimensions of a problem's search space from the command line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from nest_opt.problem.profile import RECOMPUTE_MODES
from nest_opt.problem.schedule import SCHEDULES

if TYPE_CHECKING:
    from nest_opt.problem import Problem

_MAX_CHARACTERS = 12
_FLAGS = {"true": True, "on": True, "false": False, "off": False}


def _whole(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= _MAX_CHARACTERS and int(text) > 0:
        return int(text)
    return None


def _chunks(text: str) -> int | None:
    number = _whole(text)
    return None if number == 1 else number


def _zero_level(text: str) -> int | None:
    return int(text) if text in ("0", "1", "2", "3") else None


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
    "recompute": _Dimension(_one_of(*RECOMPUTE_MODES), ", ".join(RECOMPUTE_MODES)),
    "order": _Dimension(_one_of("pp-inner", "dp-inner"), "pp-inner, dp-inner"),
    "pitch": _Dimension(_one_of("tight", "level", "spread"), "tight, level, spread"),
    "schedule": _Dimension(_one_of(*SCHEDULES), ", ".join(SCHEDULES)),
    "chunks": _Dimension(_chunks, "whole numbers from 2"),
    "zero": _Dimension(_zero_level, "0, 1, 2, 3"),
    "zero_expert": _Dimension(_zero_level, "0, 1, 2, 3"),
    "zero_instances": _DEGREE,
    "per_stage": _Dimension(_one_of("tp", "sp"), "tp, sp"),
    "layer_order": _Dimension(_one_of("listed", "any"), "listed, any"),
}
ALIASES = {"b": "microbatch"}
# What has one value, not several to choose among.
SINGLE = {"layer_order"}
_PROFILE_KEYS = ("microbatch", "tp", "cp", "ep", "sp")


def parse_fixes(texts: Sequence[str], option: str = "--fix") -> dict[str, tuple[Any, ...]]:
    """Return the values asked for, by dimension; `option` is what errors name.

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
                f"{option}: found {found}, KEY=VALUE is needed with one of the keys "
                f"{', '.join(DIMENSIONS)} (b for microbatch): correct it, as in {option} tp=8"
            )
        if name in fixes:
            remedy = f"give its values together, as in {option} {name}=A,B"
            if option == "--cell":
                remedy = "keep one of its values"
            raise click.UsageError(f"{option}: found {name} 2 times, 1 is allowed: {remedy}")
        fixes[name] = tuple(_value(name, value.strip(), option) for value in values.split(","))
        if name in SINGLE and len(fixes[name]) > 1:
            raise click.UsageError(
                f"{option} {name}: found {len(fixes[name])} values, 1 is allowed: name one of "
                f"{DIMENSIONS[name].legal}"
            )
    return fixes


def check_pitch(fixes: dict[str, tuple[Any, ...]]) -> None:
    """Refuse a fixed pitch under which more devices than the plan's own may be needed.

    Raises
    ------
    click.UsageError
        If `pitch` is fixed without `tight` and `spread`.
    """
    pitches = fixes.get("pitch", ("tight",))
    if not {"tight", "spread"} & set(pitches):
        raise click.UsageError(
            f"--smallest: found --fix pitch={','.join(pitches)} beside it, tight or spread is "
            "needed among the pitches: the smallest number of devices has no gaps; add one of them"
        )


def _value(name: str, text: str, option: str) -> Any:
    value = DIMENSIONS[name].parse(text)
    if value is None:
        raise click.UsageError(
            f"{option} {name}: found {text!r}, legal values are {DIMENSIONS[name].legal}: "
            "correct it"
        )
    return value


def fix(problem: "Problem", fixes: dict[str, tuple[Any, ...]], option: str = "--fix") -> "Problem":
    """Return the problem with dimensions of its search space replaced.

    Of the other dimensions, values that have no profile together with these
    are left out: with tp = 1 there is no sequence parallelism to search.

    Raises
    ------
    InstanceError
        If a value is out of range or repeated, or has no profile whatever the
        other dimensions.
    """
    from nest_opt.problem import Problem, SearchSpace
    from nest_opt.problem.validation import build

    if not fixes:
        return problem
    values = {name: given[0] if name in SINGLE else given for name, given in fixes.items()}
    build(SearchSpace, values, option)
    _check_profiled(problem, fixes, option)
    # Only what is set: a dimension left open means something else than its default.
    search = {name: getattr(problem.search, name) for name in problem.search.model_fields_set}
    search = {**search, **values}
    for name, left in _profiled(problem, search).items():
        if name not in fixes:
            search[name] = left
    parts = {name: getattr(problem, name) for name in problem.model_fields_set}
    return build(Problem, {**parts, "search": build(SearchSpace, search, option)}, option)


def _check_profiled(problem: "Problem", fixes: dict[str, tuple[Any, ...]], option: str) -> None:
    from nest_opt.errors import InstanceError

    rows = _profile_rows(problem)
    for name in _PROFILE_KEYS:
        known = sorted({row[name] for row in rows})
        for value in fixes.get(name, ()):
            if value not in known:
                raise InstanceError(
                    f"{option}: {name}={_written(value)} has no profile, profiled in all layers "
                    f"are {', '.join(map(_written, known)) or 'none'}: choose one of these, or add "
                    "profiles"
                )


def _written(value: Any) -> str:
    return str(value).lower()


def _profile_rows(problem: "Problem") -> list[dict[str, Any]]:
    """Return what all layers have profiles for, by dimension."""
    keys = set.intersection(*(set(kind.by_key) for kind in problem.model.used_types))
    return [{"microbatch": microbatch, **k._asdict()} for microbatch, k in keys]


def _profiled(problem: "Problem", search: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return those values of the dimensions searched for which all layers have profiles.

    Nothing, if there are none with all of them: then all values stay, and
    reading the search space says what is missing.
    """
    rows = _profile_rows(problem)
    asked = {name: search[name] for name in _PROFILE_KEYS if search.get(name) is not None}
    found = [row for row in rows if all(row[name] in asked[name] for name in asked)]
    if not found:
        return {}
    return {
        name: tuple(value for value in values if any(row[name] == value for row in found))
        for name, values in asked.items()
    }
