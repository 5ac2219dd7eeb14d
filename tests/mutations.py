"""Seeded random damage to valid files, as a user or a broken tool would do it."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

# Replacements for any value: other types, limits, and a step beyond them.
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    2,
    3,
    7,
    -1,
    0.5,
    1e-12,
    1e300,
    10**6,
    10**12,
    10**15,
    10**15 + 1,
    2**20,
    2**40,
    2**63,
    10**39,
    "",
    "1",
    "0.1",
    "1e-30",
    "none",
    "full",
    "a",
    "block.0",
    [],
    [1],
    [0],
    [1, 2, 3],
    ["full"],
    {},
    {"1": 1},
    {"none": {"stash_bytes": 5}},
)


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) of every value inside JSON data."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield data, key
        if isinstance(value, dict | list):
            yield from places(value)


def mutated(data: Any, chance: random.Random) -> Any:
    """Return a copy with one to three places replaced, removed, doubled, swapped or renamed."""
    damaged = copy.deepcopy(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        every = list(places(damaged))
        if every:
            _damage(*chance.choice(every), every, chance)
    return damaged


def _damage(container: Any, key: Any, every: list[tuple[Any, Any]], chance: random.Random) -> None:
    value = container[key]
    match chance.randrange(12):
        case 0:
            container[key] = chance.choice(VALUES)
        case 1:
            del container[key]
        case 2 if isinstance(container, list):
            container.insert(chance.randrange(len(container) + 1), copy.deepcopy(value))
        case 3 if isinstance(container, dict):
            container[chance.choice(("typo", "sp", "ep", "type", "cp"))] = container.pop(key)
        case 4:
            other, place = chance.choice(every)
            container[key] = copy.deepcopy(other[place])
        case _:
            container[key] = _similar(value, every, chance)


def _similar(value: Any, every: list[tuple[Any, Any]], chance: random.Random) -> Any:
    """Return another value of the same type, or a new array or object as it was."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice((0, 1, 2, 3, value - 1, value + 1, 2 * value, value // 2, 10**12))
    if isinstance(value, float):
        return chance.choice((0, 1e-9, value / 3, value * 10, 10**5))
    strings = [other[place] for other, place in every if isinstance(other[place], str)]
    return chance.choice(strings) if isinstance(value, str) else copy.deepcopy(value)


def mutated_text(text: str, chance: random.Random) -> str:
    """Return a text cut short, or with a few characters removed, replaced or doubled."""
    if chance.random() < 0.1:
        return text[: chance.randrange(len(text))]
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(text))
        middle = chance.choice(
            ("", chance.choice('{}[]",:0123456789eE+-.ntf\\ \x00é'), text[place] * 2)
        )
        text = text[:place] + middle + text[place + 1 :]
    return text


def compact(data: Any) -> str:
    """Return data as JSON text."""
    return json.dumps(data, separators=(",", ":"))
