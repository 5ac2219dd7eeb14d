"""Lists of names in brackets, as Slurm writes them: `rack[1-2]n[01-04],login`."""

import re
from itertools import product

from nest_opt.network.graph import MAX_VERTICES
from nest_opt.network.imports.text import cut, refusal

MAX_BRACKETS = 4
MAX_DIGITS = 9

_PIECE = re.compile(r"([^\[\],\s]*)(?:\[([^\[\]\s]*)\])?")
_RANGE = re.compile(rf"([0-9]{{1,{MAX_DIGITS}}})(?:-([0-9]{{1,{MAX_DIGITS}}}))?")


def host_list(text: str, name: str, line: int) -> list[str]:
    """Return the names of a list, in its order; leading zeros are kept.

    Raises
    ------
    InstanceError
        If a bracket does not close or holds no ranges, a range falls, or there
        are more names than a network may have.
    """
    found: list[str] = []
    for item in _items(text, name, line):
        pieces = [match for match in _PIECE.finditer(item) if match.group()]
        if "".join(match.group() for match in pieces) != item or not pieces:
            raise refusal(
                name,
                line,
                f"found {cut(item)}, a name with ranges in brackets is needed (tux[0-3,8]): "
                "close the brackets, and nest none",
            )
        brackets = sum(match.group(2) is not None for match in pieces)
        if brackets > MAX_BRACKETS:
            raise refusal(
                name,
                line,
                f"found {brackets} brackets in {cut(item)}, at most {MAX_BRACKETS} are "
                "allowed: write names out",
            )
        choices = []
        count = 1
        for match in pieces:
            choices.append([match.group(1)])
            if match.group(2) is not None:
                choices.append(_numbers(match.group(2), name, line))
                count *= len(choices[-1])
            _check_count(count + len(found), name, line)
        found += ["".join(parts) for parts in product(*choices)]
    return found


def _items(text: str, name: str, line: int) -> list[str]:
    """Split at the commas outside brackets."""
    items, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            items.append(text[start:place])
            start = place + 1
    items.append(text[start:])
    if not all(items):
        raise refusal(name, line, f"found an empty name in {cut(text)}: remove the comma")
    return items


def _numbers(text: str, name: str, line: int) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise refusal(
                name,
                line,
                f"found {cut(part)} in brackets, a number or a range of at most {MAX_DIGITS} "
                "digits is needed (0-3): correct it",
            )
        low, high = match.group(1), match.group(2) or match.group(1)
        if int(high) < int(low):
            raise refusal(name, line, f"found the range {part}, which falls: turn it round")
        _check_count(int(high) - int(low) + 1 + len(found), name, line)
        found += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return found


def _check_count(count: int, name: str, line: int) -> None:
    if count > MAX_VERTICES:
        raise refusal(
            name,
            line,
            f"found {count:,} names, at most {MAX_VERTICES:,} are allowed: correct the ranges",
        )
