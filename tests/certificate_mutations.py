"""Seeded mutations of certificates, and whether what the checker accepts of them is true.

Nothing here knows a proof or a field of the format but the two digests: mutations walk the
JSON. A mutant is `stale` if the digests of what was altered are left as they were, and made
`anew` if they are those of its own problem and table, as of somebody who means to deceive.
The claim of a mutant that is accepted has to be true of the mutant's own problem and table.
"""

import json
import random
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import cycle
from types import FrameType
from typing import Any

from agreement import REFUSALS
from whole_space import whole_space_data

from nest_opt import InstanceError, Problem
from nest_opt.certify import checker
from nest_opt.certify.maker import Made, make_certificate
from nest_opt.cost.build import legal_replicas
from nest_opt.cost.table import CostTable
from nest_opt.cost.table_file import table_from_json
from nest_opt.dp.search import search
from nest_opt.dp.sources import cell_source
from nest_opt.errors import ConsistencyError
from nest_opt.plan.evaluate import Costs
from nest_opt.problem.validation import build

Path = tuple[str | int, ...]
Change = tuple[str, Callable[[Any, Any], None]]

HUGE = (2**40, 2**53 + 1, 2**60 - 1, 2**60, 2**63, 2**64, 10**18 + 1, 10**39)
TEXTS = ("", "x", "1", "-1", "1_0", " 1", "1e9", "1e-30", "NaN", "None", "\ud800", "١")
NESTED: tuple[Any, ...] = ([], {}, [[]], [None], {"": None})
# More than there are of one value.
WAYS = 60
DIGESTED = ("problem", "table")


@dataclass(frozen=True)
class Sample:
    """A certificate, and the optimum of what it is about: no larger claim is true.

    Beside the free family it is that of the aligned one, which is no less.
    """

    name: str
    data: Any
    optimum_ps: int | None


@dataclass(frozen=True)
class Mutant:
    """A certificate with something altered: how, and where."""

    kind: str
    path: Path
    data: Any


@dataclass(frozen=True)
class Judged:
    """What became of a mutant.

    Attributes
    ----------
    outcome
        `refused`, `valid`, `unread` (accepted, but the package reads no problem or table out of
        it, so that it is about nothing that could be searched; the claim is true of the problem
        and table that it was made of), or `finding`.
    why
        The class of the message; what is wrong.
    """

    outcome: str
    why: str


# Certificates


def certificate(seed: int, family: str) -> Sample | None:
    """Return a certificate of the largest value of a seed's problem; None if there is none."""
    try:
        costs = Costs(build(Problem, whole_space_data(seed), f"seed {seed}"))
        optimum = best_value(costs)
        made = largest(costs, family, optimum)
    except (checker.RefusedError, InstanceError):
        return None
    if made is None:
        return None
    return Sample(f"{family}-{seed}", json.loads(json.dumps(made.data)), optimum)


def best_value(costs: Costs) -> int | None:
    """Return the aligned family's optimum under the table that the costs have.

    Raises
    ------
    InstanceError
        If the problem is refused for another reason than that no degrees are legal.
    """
    try:
        return search(cell_source(costs)).value_ps
    except InstanceError as error:
        if str(error).startswith(REFUSALS):
            return None
        raise


def largest(costs: Costs, family: str, optimum: int | None) -> Made | None:
    """Return the certificate of the largest value that can be proved; None: not even 0.

    In the aligned family that is the optimum, which bounds the free one from above.
    """
    found = provable(costs, family, optimum)
    if found is not None or family == "aligned":
        return found
    low, high = 0, 2**62 if optimum is None else optimum
    found = provable(costs, family, low)
    while found is not None and high - low > 1:
        middle = (low + high) // 2
        made = provable(costs, family, middle)
        low, high, found = (low, middle, found) if made is None else (middle, high, made)
    return found


def provable(costs: Costs, family: str, least_ps: int | None) -> Made | None:
    """Return a certificate of a value, None if the maker has no proof of it."""
    try:
        return make_certificate(costs, family, least_ps)
    except ConsistencyError:
        return None


# Mutations


def places(data: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every value inside JSON data."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def at(data: Any, path: Path) -> Any:
    """Return the value of a path."""
    for key in path:
        data = data[key]
    return data


def altered(data: Any, path: Path, change: Callable[[Any, Any], None]) -> Any:
    """Return data with its container of a path changed; all else is shared."""
    copy = dict(data) if isinstance(data, dict) else list(data)
    if len(path) == 1:
        change(copy, path[0])
    else:
        copy[path[0]] = altered(copy[path[0]], path[1:], change)
    return copy


def with_digests(data: Any) -> Any:
    """Return a certificate with the digests of its own problem and table."""
    own = {f"{name}_sha256": checker.digest(data[name]) for name in DIGESTED if name in data}
    return {**data, **own}


def changes(
    container: Any, key: Any, pools: dict[Any, list[Any]], rng: random.Random
) -> list[Change]:
    """Return every way to alter one value."""

    def to(value: Any) -> Callable[[Any, Any], None]:
        return lambda own, at: own.__setitem__(at, value)

    value = container[key]
    found: list[Change] = [
        ("removed", lambda own, at: own.__delitem__(at)),
        ("null", to(None)),
        ("bool", to(rng.random() < 0.5)),
        ("text", to(str(value) if rng.random() < 0.5 else rng.choice(TEXTS))),
        ("nested", to(rng.choice(([value], {"value": value}, [value, value], *NESTED)))),
    ]
    others = [other for other in pools.get(_sort(key, value), ()) if other != value]
    if others:
        found.append(("another of its sort", to(rng.choice(others))))
    if isinstance(container, dict):
        found.append(("renamed", lambda own, at: own.__setitem__(f"{at}_", own.pop(at))))
        found.append(("doubled", lambda own, at: own.__setitem__(f"{at}_", own[at])))
    else:
        found.append(("doubled", lambda own, at: own.insert(at, own[at])))
    if len(container) > 1:
        other = rng.choice([k for k in _keys(container) if k != key])
        found.append(("exchanged", lambda own, at: _exchange(own, at, other)))
    if isinstance(value, dict | list):
        found.append(("emptied", to(type(value)())))
        if len(value) > 1:
            found.append(("shuffled", to(_shuffled(value, rng))))
    elif isinstance(value, str):
        found.append(("character", to(_with_other_character(value, rng))))
    elif isinstance(value, int | float):
        number = [
            ("float", float(value) if rng.random() < 0.5 else value + 0.5),
            ("negative", -1 - value),
            ("huge", rng.choice(HUGE)),
            ("zero", 0),
            ("more", value + 1),
            ("less", value - 1),
            ("twice", 2 * value),
        ]
        found += [(kind, to(new)) for kind, new in number]
    return found


def _sort(key: Any, value: Any) -> tuple[Any, type]:
    """Return what a value's sort is told by: in arrays, by its type alone."""
    return (None if isinstance(key, int) else key), type(value)


def _keys(container: Any) -> list[Any]:
    return list(container) if isinstance(container, dict) else list(range(len(container)))


def _exchange(own: Any, key: Any, other: Any) -> None:
    own[key], own[other] = own[other], own[key]


def _shuffled(value: Any, rng: random.Random) -> Any:
    """Return an array in another order, or an object whose values stand at other keys."""
    items = list(value.values()) if isinstance(value, dict) else list(value)
    rng.shuffle(items)
    return dict(zip(value, items, strict=True)) if isinstance(value, dict) else items


def _with_other_character(value: str, rng: random.Random) -> str:
    if not value:
        return "0"
    place = rng.randrange(len(value))
    return value[:place] + rng.choice("0123456789abcdef-_ .") + value[place + 1 :]


def pools_of(data: Any) -> dict[Any, list[Any]]:
    """Return the values of each sort that a certificate has."""
    found: dict[Any, list[Any]] = {}
    for path in places(data):
        value = at(data, path)
        found.setdefault(_sort(path[-1], value), []).append(value)
    return found


def mutants(sample: Sample, seed: int) -> Iterator[Mutant]:
    """Yield mutants with every single value altered once, in ways that take turns.

    Of problem and table both stale and anew; of evidence also with a claim of one more.
    """
    rng = random.Random(f"{sample.name} {seed}")
    data, pools, turns = sample.data, pools_of(sample.data), cycle(range(WAYS))
    paths = list(places(data))
    rng.shuffle(paths)
    for path in paths:
        container = at(data, path[:-1])
        ways = changes(container, path[-1], pools, rng)
        first = next(turns)
        for turn in range(len(ways)):
            kind, change = ways[(first + turn) % len(ways)]
            mutant = altered(data, path, change)
            # As text: True is 1 to Python.
            if text_of(at(mutant, path[:-1])) != text_of(container):
                break
        if path[0] in DIGESTED:
            yield Mutant(f"stale: {kind}", path, mutant)
            if path[0] in mutant:
                yield Mutant(f"anew: {kind}", path, with_digests(mutant))
        else:
            yield Mutant(f"claim, evidence: {kind}", path, mutant)
            if path[0] == "evidence" and sample.optimum_ps is not None:
                yield Mutant(f"evidence, one more claimed: {kind}", path, one_more(mutant))


def text_of(data: Any) -> str:
    """Return JSON data as text, the order of keys included."""
    return json.dumps(data)


def one_more(data: Any) -> Any:
    """Return a certificate that claims one more."""
    claim = data["claim"]
    return {**data, "claim": {**claim, "least_ps": str(int(claim["least_ps"]) + 1)}}


def several(sample: Sample, others: Sequence[Sample], rng: random.Random) -> Mutant:
    """Return a mutant with two to four values altered, or with a part of another certificate."""
    data, kind = sample.data, "anew: several at once"
    if rng.random() < 0.2:
        kind, name = "anew: part of another", rng.choice(("problem", "table", "evidence", "claim"))
        return Mutant(kind, (name,), with_digests({**data, name: rng.choice(others).data[name]}))
    for _ in range(rng.randint(2, 4)):
        paths = list(places(data))
        # Half of them in the short parts.
        short = [path for path in paths if path[0] in ("evidence", "claim")]
        path = rng.choice(short if short and rng.random() < 0.5 else paths)
        ways = changes(at(data, path[:-1]), path[-1], pools_of(sample.data), rng)
        data = altered(data, path, rng.choice(ways)[1])
    return Mutant(kind, (), with_digests(data))


# Judgement


class HangError(BaseException):
    """The checker took far too long; no code that catches exceptions catches this one."""


@contextmanager
def watchdog(seconds: float) -> Iterator[None]:
    """Raise HangError in what takes longer."""

    def bark(_signal: int, _frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, bark)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def judge(sample: Sample, mutant: Mutant, seconds: float = 120) -> Judged:
    """Return what the checker makes of a mutant, and whether that is right."""
    try:
        with watchdog(seconds):
            verdict = checker.check(mutant.data)
    except checker.RefusedError as error:
        return Judged("refused", message_class(str(error)))
    except HangError:
        return Judged("finding", f"runs for more than {seconds} s")
    except BaseException as error:  # Whatever it is, it should not have come out.
        return Judged("finding", f"crash: {type(error).__name__}: {error}")
    found, truth = Judged("valid", "at most the same optimum"), sample.optimum_ps
    digests = [f"{name}_sha256" for name in DIGESTED]
    if any(getattr(verdict, name) != sample.data[name] for name in digests):
        try:
            truth = _optimum(*(text_of(mutant.data[name]) for name in DIGESTED))
            found = Judged("valid", "at most its own optimum")
        except InstanceError as error:
            found = Judged("unread", message_class(str(error)))
    if truth is not None and (verdict.least_ps is None or verdict.least_ps > truth):
        why = f"false: {verdict.least_ps} is proved, {truth} is the optimum; {found.outcome}"
        return Judged("finding", why)
    return found


@lru_cache(4096)
def _optimum(problem_text: str, table_text: str) -> int | None:
    """Return the optimum of a problem under a cost table that need not be its own.

    Raises
    ------
    InstanceError
        If the package does not read one of them.
    """
    try:
        problem = build(Problem, json.loads(problem_text), "problem")
        graph = Costs(problem).graph
        cuts = None if graph is None else len(graph.cuts)
        table = table_from_json(json.loads(table_text), cuts)
        return best_value(costs_with(problem, table))
    except InstanceError as error:
        if str(error).startswith(REFUSALS):
            return None
        raise


def costs_with(problem: Problem, table: CostTable) -> Costs:
    """Return the costs of a problem with a given table in the place of its own.

    A table may list more d than the problem has.
    """
    costs = Costs(problem)
    legal = replace(table, replicas=legal_replicas(problem))
    costs.__dict__.update(table=legal, search_table=legal)
    return costs


def message_class(message: str) -> str:
    """Return a message without its numbers and names."""
    if message.startswith("evidence["):
        proof = message.split(": ", 1)[1]
        return f"evidence[...]: {proof.split('Group')[0].strip()}"
    short = re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "...", message)
    return ": ".join(re.split(r": ", short)[:2])[:70]
