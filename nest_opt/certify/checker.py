"""Check a certificate: that no plan of a family has an objective below a value.

    python checker.py CERTIFICATE [PROBLEM]

This one module trusts nobody: it needs the standard library alone, and works in integers and
fractions. From the problem it rebuilds every group of plans (microbatch b, configuration k, degree
d, ZeRO level, schedule, stages S) and, in the aligned family, every device map of a group. From the
cost table it rebuilds what an interval of layers costs as a stage. Each entry of the evidence says
by which proof a box of groups has nothing below the claim, and the proof is done again here. A
group that no entry covers is a refusal. `docs/certificates.md` has the format and why each proof is
sound; numbers in brackets are equations of `docs/formulation.md`.
"""

import gzip
import hashlib
import json
import sys
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from itertools import accumulate, combinations, pairwise, product
from math import gcd, isqrt
from typing import Any, NamedTuple

# A file is not trusted: so many bytes, digits of a number, groups, and steps of all proofs.
MOST_BYTES, MOST_DIGITS, MOST_GROUPS, MOST_STEPS = 2**26, 40, 2 * 10**6, 2 * 10**9
ENDLESS = 2**200
MODES = ("none", "selective", "full")
CLASSES = ("dense", "expert")
FAMILIES = ("aligned", "free")
Levels = tuple[int, ...]
# Devices from stage to stage, from replica to replica, and of a block.
Steps = tuple[int, int, int]


class RefusedError(Exception):
    """The certificate does not prove its claim."""


class Verdict(NamedTuple):
    """What a certificate proves: no plan of `family` is below `least_ps`; None: there is none."""

    family: str
    least_ps: int | None
    objective: str
    problem_name: str
    problem_sha256: str
    table_sha256: str
    groups: int
    proofs: dict[str, int]


class Group(NamedTuple):
    """Plans that share b, k (by `pair`, their place in the table), ZeRO, schedule, d and S."""

    pair: int
    schedule: int
    zero: int
    replicas: int
    stages: int


def need(fact: bool, what: str) -> None:
    """Refuse the certificate unless a fact holds."""
    if not fact:
        raise RefusedError(what)


# Reading


def read(path: str) -> Any:
    """Return the JSON of a file, which may be compressed by gzip."""
    with open(path, "rb") as plain:
        raw = plain.read(MOST_BYTES + 1)
    if raw[:2] == b"\x1f\x8b":
        with gzip.open(path) as packed:
            raw = packed.read(MOST_BYTES + 1)
    need(len(raw) <= MOST_BYTES, f"found more than {MOST_BYTES} bytes")
    return json.loads(raw, parse_int=_integer, parse_constant=_integer, object_pairs_hook=_object)


def _integer(text: str) -> int:
    need(len(text) <= MOST_DIGITS, f"found a number of {len(text)} characters")
    return int(text)


def _object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    need(len(dict(items)) == len(items), "found a key twice in one object")
    return dict(items)


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical text of JSON data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# The space of groups and device maps


class Space:
    """Every group of a problem, and every device map of a group, rebuilt from the problem."""

    def __init__(self, problem: Any, table: Any, family: str) -> None:
        self.family, job, self.search = family, problem["job"], problem.get("search", {})
        for name, known in (("transfer", "relay"), ("cost_model", "default")):
            need(job.get(name, known) == known, f"job.{name}: this checker knows {known} alone")
        need(not self.search.get("per_stage"), "search.per_stage: this checker knows none")
        need(self.search.get("layer_order", "listed") == "listed", "search.layer_order: not listed")
        self.batch, self.pad = job["global_batch"], job.get("pad", False)
        self.objective = job.get("objective", "fill-drain")
        need(self.objective in ("fill-drain", "nest", "bottleneck"), "job.objective: unknown")
        network = problem["cluster"]["network"]
        need(network["type"] == "hierarchical", "cluster.network: not hierarchical")
        self.sizes = list(accumulate((level["size"] for level in network["levels"]), int.__mul__))
        need(self.sizes[0] >= 1 and len(self.sizes) <= 6, "cluster.network: levels")
        self.proper, self.period = self.sizes[:-1], ([1, *self.sizes])[-2]
        self.devices = sum(group["count"] for group in problem["cluster"]["devices"])
        need(0 < self.devices <= min(self.sizes[-1], 2**20), "cluster.devices: wrong number")
        self._read_layers(problem["model"])
        self.rules = Rules(problem, self)
        self.pairs = [(p["microbatch"], tuple(p["configuration"])) for p in table["pairs"]]
        found = self._pairs(problem["model"], network["levels"][0]["size"])
        need(sorted(self.pairs) == sorted(found), "table.pairs: not those of the problem")
        self.modes = [self._modes(*pair) for pair in self.pairs]
        zeros = table.get("zero", [0])
        self.zeros = [
            (z["dense"], z["expert"], z.get("instances", 1)) if isinstance(z, dict) else (z, z, 1)
            for z in zeros
        ]
        need(sorted(self.zeros) == sorted(self._zeros()), "table.zero: not the problem's levels")
        names = self.search.get("schedule", ["1f1b"])
        self.schedules = [
            (name, chunks)
            for name in ("1f1b", "gpipe", "interleaved", "zb-h1")
            if name in names
            for chunks in (
                sorted(self.search.get("chunks", [2, 4, 8])) if name == "interleaved" else [1]
            )
        ]
        self.replicas = [self._replicas(*pair) for pair in self.pairs]
        for pair, degrees in zip(table["pairs"], self.replicas, strict=True):
            known = [d for d in pair["replicas"] if self.rules.allows(dp=d)]
            # The table may list a degree that a constraint forbids, but must have every legal one.
            need(set(degrees) <= set(known), "table.pairs: a legal number of replicas is missing")

    def _read_layers(self, model: Any) -> None:
        kinds: list[str] = []
        self.index: dict[str, int] = {}
        for entry in model["layers"]:
            times = entry.get("repeat", 1)
            need(1 <= times <= 2000 and len(kinds) + times <= 2000, "model.layers: too many")
            for number in range(times):
                self.index[entry["id"] + (f".{number}" if times > 1 else "")] = len(kinds)
                kinds.append(entry["type"])
        used = list(dict.fromkeys(kinds))
        self.rows = [used.index(kind) for kind in kinds]
        self.layers = len(kinds)
        self.profiles = [
            {
                (
                    p["microbatch"],
                    (p.get("tp", 1), p.get("cp", 1), p.get("ep", 1), p.get("sp", False)),
                ): p
                for p in model["layer_types"][kind]["profiles"]
            }
            for kind in used
        ]
        self.has_experts = any(
            p.get("expert_parameters", 0) for kind in self.profiles for p in kind.values()
        )

    def _pairs(self, model: Any, innermost: int) -> list[Any]:
        """Return the (b, k) that the search space has and all layers are profiled for."""
        heads, experts, search = (
            model.get("attention_heads"),
            model.get("experts") or 1,
            self.search,
        )
        powers = [2**e for e in range(innermost.bit_length()) if not heads or heads % 2**e == 0]
        asked = (
            search.get("microbatch") or [1, 2, 4, 8],
            search.get("tp") or powers,
            search.get("cp", [1]),
            search.get("ep") or [e for e in range(1, experts + 1) if experts % e == 0],
            search.get("sp", [False]),
        )
        common = set(self.profiles[0]).intersection(*self.profiles)
        return [
            (b, k)
            for b, k in common
            if all(value in values for value, values in zip((b, *k), asked, strict=True))
        ]

    def _modes(self, b: int, k: Any) -> list[str]:
        asked = self.search.get("recompute", MODES)
        profiles = [kind[b, k]["recompute"] for kind in self.profiles]
        return [mode for mode in MODES if mode in asked and all(mode in p for p in profiles)]

    def _zeros(self) -> set[tuple[int, int, int]]:
        experts = (self.search.get("zero_expert") if self.has_experts else None) or None
        return {
            (z, e, h if z or e else 1)
            for z in self.search.get("zero", [0])
            for e in (experts or [z])
            for h in self.search.get("zero_instances", [1])
        }

    def _replicas(self, b: int, k: Any) -> list[int]:
        """Return the legal d, rising: (5)."""
        tp, cp, ep, _ = k
        most = self.devices // (tp * cp * ep)
        if not self.rules.allows(microbatch=b, tp=tp, cp=cp, ep=ep):
            return []
        small = range(1, isqrt(self.batch) + 1)
        every = {d for s in small if self.batch % s == 0 for d in (s, self.batch // s)}
        degrees = self.search.get("dp") or (range(1, most + 1) if self.pad else every)
        return sorted(
            d
            for d in degrees
            if d <= most
            and (self.pad or self.batch % (b * ep * d) == 0)
            and self.rules.allows(dp=d)
            and any(d % h == 0 for *_, h in self.zeros)
        )

    def rounds(self, pair: int, replicas: int) -> int:
        """Return m: (5)."""
        b, (_, _, ep, _) = self.pairs[pair]
        return -(-self.batch // (b * ep * replicas))

    def stage_counts(self, pair: int, schedule: int, replicas: int) -> list[int]:
        """Return the S of a pair, d and schedule that are to be covered.

        Beside 1F1B, GPipe has the same values with more memory, and so has ZB-H1 where it fills
        nothing: what is true of 1F1B is true of them.
        """
        (name, chunks), rounds = self.schedules[schedule], self.rounds(pair, replicas)
        if name == "gpipe" and ("1f1b", 1) in self.schedules:
            return []
        beside = name == "zb-h1" and ("1f1b", 1) in self.schedules
        if beside and self.objective == "bottleneck":
            return []
        most = min(self.layers // chunks, self.devices // (self.block(pair) * replicas))
        asked = self.search.get("pp")
        return [
            s
            for s in range(1 + (beside or chunks > 1), most + 1)
            if (not asked or s in asked)
            and self.rules.allows(pp=s)
            and all(stage < s and -stage <= s for _, stage in self.rules.pins)
            and not (name == "interleaved" and rounds % s)
            and not (name == "zb-h1" and rounds < s)
        ]

    def block(self, pair: int) -> int:
        """Return a, the devices of one stage of one replica."""
        tp, cp, ep, _ = self.pairs[pair][1]
        return int(tp * cp * ep)

    def maps(self, group: Group) -> dict[tuple[str, int], Steps]:
        """Return the steps (from stage to stage, from replica to replica, extent) of all maps (7)."""
        a, d, s = self.block(group.pair), group.replicas, group.stages
        found: dict[tuple[str, int], Steps] = {}
        kinds = self.search.get("pitch", ["tight", "level", "spread"])
        for order in self.search.get("order", ["pp-inner", "dp-inner"]):
            inner, outer = (s, d) if order == "pp-inner" else (d, s)
            unit = inner * a
            pitches = {unit} if "tight" in kinds else set()
            if "level" in kinds:
                pitches |= {-(-unit // size) * size for size in self.sizes}
            if "spread" in kinds:
                pitches.add(self.devices // outer)
            for pitch in pitches:
                if pitch >= unit and (outer - 1) * pitch + unit <= self.devices:
                    steps = (a, pitch) if order == "pp-inner" else (pitch, a)
                    found[order, pitch] = (*steps, a)
        return {key: steps for key, steps in found.items() if self.rules.allows_map(*steps, d, s)}

    def same(self, group: Group, steps: Steps) -> tuple[int, int]:
        """Return what tells device maps of a group apart: steps that are taken."""
        hop, step, _ = steps
        return (hop if group.stages > 1 else 0, step if group.replicas > 1 else 0)

    # Levels (1), of sets of devices from their first and last one

    def level(self, first: int, last: int) -> int:
        """Return the level of devices first, ..., last."""
        return sum(first // size != last // size for size in self.proper)

    def level_of(self, span: int) -> int:
        """Return the least level of a set whose last device is `span` behind its first."""
        return sum(span >= size for size in self.proper)

    def least(self, group: Group) -> tuple[Levels, Levels, int, int]:
        """Return levels that no plan is below: of (tp, cp, ep, hop), of copies, and of both ends.

        In the aligned family blocks are at least a devices apart; else sets are told by their
        number of devices alone. The last one is that of a hop from the last stage to the first.
        """
        tp, cp, ep, _ = self.pairs[group.pair][1]
        a, d, s, (zd, ze, h) = tp * cp * ep, group.replicas, group.stages, self.zeros[group.zero]
        dense, expert = (d // h if z else d for z in (zd, ze))
        spans = (tp - 1, cp - 1, ep - 1, 1)
        copies = (cp * ep * dense - 1, cp * expert - 1, h - 1, h - 1)
        ends = 1
        if self.family == "aligned":
            spans = (tp - 1, tp * (cp - 1), tp * cp * (ep - 1), a)
            inside = ((cp * ep * dense - 1) * tp, (expert - 1) * a + (cp - 1) * tp)
            copies = (*inside, (d - dense) * a, (d - expert) * a)
            ends = (s - 1) * a
        of = self.level_of
        return tuple(map(of, spans)), tuple(map(of, copies)), of(ends), of(ends)

    def block_levels(self, k: Any, start: int) -> Levels:
        """Return the worst tp, cp and ep levels of a block.

        Groups of n ranks with a stride come in runs of stride * n devices, and some group of a run
        leaves a group of the network exactly if the run does.
        """
        tp, cp, ep, _ = k
        runs = ((tp, tp), (cp, tp * cp), (ep, tp * cp * ep))
        return tuple(
            max(self.level(start + r, start + r + run - 1) for r in range(0, tp * cp * ep, run))
            if degree > 1
            else 0
            for degree, run in runs
        )

    def stage_levels(self, group: Group, steps: Steps, goes_round: bool) -> list[Any]:
        """Return, stage by stage, what replicas see: levels of tp, cp, ep, hop in and hop out.

        -1 is no hop. Some rank's hop leaves a group exactly if the two blocks are not in it
        together. Replicas a whole number of largest proper groups apart see the same.
        """
        hop, step, a = steps
        k, s = self.pairs[group.pair][1], group.stages
        replicas = min(group.replicas, self.period // gcd(step, self.period))
        inside = cache(lambda residue: self.block_levels(k, residue))

        def hop_level(start: int, distance: int) -> int:
            return self.level(start, start + distance + a - 1)

        found: list[Any] = []
        for i in range(s):
            seen = set()
            for r in range(replicas):
                x, first = r * step + i * hop, r * step
                ends = hop_level(first, (s - 1) * hop) if goes_round else -1
                before = hop_level(x - hop, hop) if i else ends
                after = hop_level(x, hop) if i < s - 1 else ends
                seen.add((*inside(x % self.period), before, after))
            found.append(frozenset(seen))
        return found

    def copy_levels(self, group: Group, steps: Steps, stage: int) -> frozenset[Levels]:
        """Return the levels of (dense, expert) copies inside a run and between runs, rank by rank."""
        (hop, step, _), (tp, cp, ep, _) = steps, self.pairs[group.pair][1]
        d, (zd, ze, h) = group.replicas, self.zeros[group.zero]

        @cache
        def of(first: int, runs: int, width: int) -> tuple[int, int]:
            # `width` copies of a replica, tp devices apart; sets repeat with the period.
            length, reach = d // runs, (width - 1) * tp
            starts = {first + r * length * step for r in range(runs)} if runs > 1 else {first}
            starts = {x % self.period for x in starts}
            inside = max(self.level(x, x + (length - 1) * step + reach) for x in starts)
            if runs == 1:
                return inside, 0
            places = {
                (first + r * step + w * tp) % self.period
                for r in range(min(length, self.period))
                for w in range(width)
            }
            return inside, max(self.level(x, x + (runs - 1) * length * step) for x in places)

        seen = set()
        for t, e in product(range(tp), range(ep)):
            x = stage * hop + t
            dense = of(x, h if zd else 1, cp * ep)
            expert = of(x + tp * cp * e, h if ze else 1, cp)
            seen.add((dense[0], expert[0], dense[1], expert[1]))
        return frozenset(seen)

    def end_level(self, group: Group, steps: Steps) -> int:
        """Return the level of the worst pair of equal ranks of first and last block."""
        hop, step, a = steps
        replicas = min(group.replicas, self.period // gcd(step, self.period))
        reach = (group.stages - 1) * hop + a - 1
        return max(self.level(r * step, r * step + reach) for r in range(replicas))


class Rules:
    """The problem's constraints: (20) to (22) and (35) to (40). Those of a user are left out."""

    def __init__(self, problem: Any, space: Space) -> None:
        self.cuts: set[int] = set()
        self.apart: set[tuple[int, int]] = set()
        self.together: list[list[int]] = []
        self.pins: list[tuple[list[int], int]] = []
        self.limits: list[Any] = []
        self.tp_level = self.hop_level = len(space.sizes)
        self.crowds: list[Callable[..., bool]] = []
        levels = problem["cluster"]["network"]["levels"]
        names = [level["name"] for level in levels]
        for rule in problem.get("constraints", []):
            kind = rule["type"]
            places = sorted(space.index[name] for name in rule.get("layers", []))
            if kind == "colocation":
                self.together.append(places)
            elif kind == "anti-colocation":
                self.apart |= set(combinations(places, 2))
            elif kind == "pinned-layers":
                self.pins.append((places, rule["stage"]))
            elif kind == "forbidden-boundary":
                self.cuts.add(space.index[rule["after"]] + 1)
            elif kind == "hop-latency":
                limit = Fraction(str(rule["limit_s"]))
                within = sum(Fraction(str(level["latency_s"])) <= limit for level in levels)
                self.hop_level = min(self.hop_level, within - 1)
            elif kind == "degree-limit":
                self.limits.append(rule)
            elif kind == "tp-inside-node":
                self.tp_level = min(self.tp_level, names.index(rule["level"]))
            elif kind in ("failure-domains", "power"):
                size = space.sizes[names.index(rule["level"])]
                most = rule.get("at_most", 1)
                if kind == "power":
                    of = problem["cluster"]["device_kinds"][
                        problem["cluster"]["devices"][0]["kind"]
                    ]
                    most = Fraction(str(rule["limit_w"])) // Fraction(str(of["watts"]))
                self.crowds.append(_crowd(kind == "power", size, most))
            else:
                need(kind == "user", f"constraints: this checker knows no {kind}")
        between = (range(places[0] + 1, places[-1] + 1) for places in self.together)
        # Where a stage of one interval may not end, if another follows.
        self.interval_cuts = self.cuts.union(*between) - {space.layers}

    def allows(self, **degrees: int) -> bool:
        """Whether the limits of degrees allow some of them."""
        for limit in self.limits:
            value = degrees.get(limit["degree"])
            if value is not None and (
                value < limit.get("at_least", value)
                or value > limit.get("at_most", value)
                or value % limit.get("multiple_of", 1)
                or limit.get("divides", value) % value
            ):
                return False
        return True

    def allows_map(self, hop: int, step: int, a: int, replicas: int, stages: int) -> bool:
        """Whether no group of the network holds too many replicas or devices of a map."""
        starts = ((r, r * step + i * hop) for r in range(replicas) for i in range(stages))
        blocks = [(r, x, x + a) for r, x in starts] if self.crowds else []
        return all(few(blocks) for few in self.crowds)


def _crowd(by_device: bool, size: int, most: Any) -> Callable[..., bool]:
    """Return the test that no group of a size holds more than so many devices, or replicas."""

    def few(blocks: Sequence[tuple[int, int, int]]) -> bool:
        held = {
            (x // size, x if by_device else r) for r, low, high in blocks for x in range(low, high)
        }
        return all(number <= most for number in Counter(group for group, _ in held).values())

    return few


# What stages cost


class Table:
    """The cost table: `docs/cost_table.md` names its fields."""

    def __init__(self, table: Any, space: Space) -> None:
        need(table.get("format") == "nest-opt-cost-table", "table.format: another one")
        need(table.get("version") == 1, "table.version: this checker knows 1 alone")
        _amounts(table)
        self.pairs, self.rows = table["pairs"], table["layer_rows"]
        need(self.rows == space.rows, "table.layer_rows: not the rows of the problem's layers")
        need(table["levels"] == len(space.sizes), "table.levels: not those of the problem")
        self.free = table["usable_bytes"] - table["reserve_bytes"]
        self.layers = len(self.rows)
        self.common, self.count = Counter(self.rows).most_common(1)[0]
        self.sync: dict[Any, tuple[int, list[int]]] = {}
        for entry in table["sync"]:
            what = entry.get("operation", "all-reduce"), entry.get("shares", 1)
            key = (*entry["configuration"], entry["class"], entry["copies"], *what, entry["level"])
            self.sync[key] = entry["fixed_ps"], entry["row_ps"]
        self.shards = {
            (*e["configuration"], e["class"], e["copies"], e["zero"]): e
            for e in table.get("shards", [])
        }
        self.tied = table.get("tied") or {"row": None, "exchange": []}
        self.exchange = {
            (e["tp"], e["share"], e["level"]): e["exchange_ps"] for e in self.tied["exchange"]
        }
        for number, pair in enumerate(self.pairs):
            need(set(pair["stash_bytes"]) == set(space.modes[number]), "table.pairs: other modes")
        self._refuse_falling()

    def _refuse_falling(self) -> None:
        """Refuse times that an outer level lowers: bounds take the least level for the best."""
        by_level: list[list[list[int]]] = []
        for pair in self.pairs:
            times = (pair["forward_collective_ps"], pair["backward_collective_ps"])
            by_level += [pair["hop_ps"], *(rows for kinds in times for rows in kinds.values())]
            need(
                all(map(int.__le__, pair["repeated_forward_ps"], pair["forward_ps"])),
                "table.pairs: more of a forward pass is repeated than there is",
            )
        for *key, level in self.sync:
            if level:
                pair_of = (self.sync[(*key, at)] for at in (level - 1, level))
                by_level.append([[fixed, *row] for fixed, row in pair_of])
        for tp, share, level in self.exchange:
            if level:
                by_level.append([[self.exchange[tp, share, at]] for at in (level - 1, level)])
        for rows in by_level:
            for lower, upper in pairwise(rows):
                need(
                    len(lower) == len(upper) and all(map(int.__le__, lower, upper)),
                    "table: a time falls with the level",
                )

    def prefix(self, row: Sequence[int]) -> list[int]:
        """Return running sums over the layers of what each row has."""
        return [0, *accumulate(row[r] for r in self.rows)]


def _amounts(value: Any) -> None:
    """Refuse numbers of a table that are not whole, or not from 0 to 2^60."""
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            _amounts(item)
        else:
            fine = isinstance(item, bool | str) or (isinstance(item, int) and 0 <= item < 2**60)
            need(fine, f"table: found {item!r:.40}, a whole number below 2^60 is needed")


class Costs:
    """Costs of intervals of layers under one pair, ZeRO level, d and m."""

    def __init__(self, space: Space, table: Table, group: Group) -> None:
        self.space, self.table = space, table
        self.costs, (_, self.k) = table.pairs[group.pair], space.pairs[group.pair]
        self.modes = space.modes[group.pair]
        _, cp, ep, _ = self.k
        zd, ze, self.runs = space.zeros[group.zero]
        self.rounds = space.rounds(group.pair, group.replicas)
        self.zero = dict(zip(CLASSES, (zd, ze), strict=True))
        copies = dict(zip(CLASSES, (cp * ep * group.replicas, cp * group.replicas), strict=True))
        self.inside = {c: copies[c] // (self.runs if z else 1) for c, z in self.zero.items()}
        states, whole = self.costs["states_bytes"], [0] * len(self.costs["states_bytes"])
        if zd or ze:
            parts = [table.shards[(*self.k, c, self.inside[c], self.zero[c])] for c in CLASSES]
            states = _added([part["states_bytes"] for part in parts])
            whole = _added([part["work_bytes"] for part in parts])
        self.state_row = states
        self.work_rows = [_added([self.costs["work_bytes"][mode], whole]) for mode in self.modes]
        self.states = table.prefix(states)
        self.works = [[row[r] for r in table.rows] for row in self.work_rows]
        self.stash_rows = [self.costs["stash_bytes"][mode] for mode in self.modes]
        self.stashes = [table.prefix(row) for row in self.stash_rows]
        self.gradients = table.prefix(self.costs["weight_gradient_ps"])
        self.backward = table.prefix(self.costs["backward_ps"])
        self.has_rounds = any(self._round_calls(c) for c in CLASSES)
        self.times = cache(self._times)
        self.round = cache(self._round)
        self.sync = cache(self._sync)

    def time_rows(self, levels: Levels) -> list[list[int]]:
        """Return each row's time under each mode, hops and calls over copies aside: (8), (9)."""
        used = [
            (kind, levels[place])
            for place, kind in enumerate(("tp", "cp", "ep"))
            if self.k[place] > 1
        ]
        costs = self.costs
        forward = _added(
            [costs["forward_ps"], *(costs["forward_collective_ps"][kind][at] for kind, at in used)]
        )
        backward = [costs["backward_collective_ps"][kind][at] for kind, at in used]
        none = _added([forward, costs["backward_ps"], *backward])
        repeats = {"none": [0] * len(none), "selective": costs["repeated_forward_ps"]}
        return [_added([none, repeats.get(mode, forward)]) for mode in self.modes]

    def _times(self, levels: Levels) -> list[list[int]]:
        return [self.table.prefix(row) for row in self.time_rows(levels)]

    def _round_calls(self, name: str) -> list[str]:
        """Return the calls of a class in every round: (60)."""
        if self.inside[name] == 1 or self.zero[name] < 2:
            return []
        if self.zero[name] == 3:
            return ["all-gather", "all-gather", "reduce-scatter"]
        return ["reduce-scatter"] if self.rounds > 1 else []

    def _step_calls(self, name: str) -> list[str]:
        """Return the calls of a class inside a run once a batch: (15)."""
        zero = self.zero[name]
        if self.inside[name] == 1 or zero == 3:
            return []
        if zero == 0:
            return ["all-reduce"]
        return ["all-gather"] if zero == 2 and self.rounds > 1 else ["reduce-scatter", "all-gather"]

    def _call(self, name: str, what: str, level: int) -> tuple[int, list[int]]:
        return self.table.sync[(*self.k, name, self.inside[name], what, 1, level)]

    def round_row(self, levels: Levels) -> list[int]:
        """Return what each row's calls over copies take in a round: (60)."""
        total = [0] * len(self.state_row)
        for place, name in enumerate(CLASSES):
            for what in self._round_calls(name):
                fixed, row = self._call(name, what, levels[place])
                held = self.costs["parameters"][name]
                total = [
                    t + (fixed + y if n else 0) for t, y, n in zip(total, row, held, strict=True)
                ]
        return total

    def _round(self, levels: Levels) -> list[int]:
        return self.table.prefix(self.round_row(levels))

    def _sync(self, levels: Levels) -> list[tuple[list[int], int, list[int], int]]:
        """Return, for each class: who holds it, A_c, the sums of y, and what y counts twice."""
        found = []
        for place, name in enumerate(CLASSES):
            calls = [self._call(name, what, levels[place]) for what in self._step_calls(name)]
            if self.zero[name] and self.runs > 1:
                key = (*self.k, name, self.runs, "all-reduce", self.inside[name], levels[place + 2])
                calls.append(self.table.sync[key])
            if calls:
                row = _added([row for _, row in calls])
                held = self.table.prefix([min(n, 1) for n in self.costs["parameters"][name]])
                fixed = sum(fixed for fixed, _ in calls)
                found.append((held, fixed, self.table.prefix(row), self._twice(row)))
        return found

    def _twice(self, row: Sequence[int]) -> int:
        """Return what tied parameters add to a row's sum over all layers, which has them once."""
        own = self.table.tied["row"]
        return 0 if own is None else row[self.table.rows[-1]] - row[own]

    def sync_ps(self, low: int, high: int, copies: frozenset[Levels]) -> int:
        """Return Y of a stage of one interval without (66): (15), (63)."""
        return self.sync_of([(low, high)], copies)

    def sync_of(self, own: Sequence[tuple[int, int]], copies: frozenset[Levels]) -> int:
        """Return the same of a stage of several intervals."""
        most, once = 0, own == [(0, self.table.layers)]
        for levels in copies:
            total = 0
            for held, fixed, y, twice in self.sync(levels):
                if any([held[high] > held[low] for low, high in own]):
                    total += fixed + sum([y[high] - y[low] for low, high in own]) - twice * once
            most = max(most, total)
        return most

    def exchange_ps(self, stages: int, level: int) -> int:
        """Return E of (66)."""
        if stages == 1 or self.table.tied["row"] is None:
            return 0
        share = self.inside["dense"] if self.zero["dense"] >= 2 else 1
        return self.table.exchange[self.k[0], share, level]

    def held_bytes(self, low: int, high: int) -> int:
        """Return the states of a stage of one interval: (12), tied parameters once (65)."""
        every = (low, high) == (0, self.table.layers)
        return self.states[high] - self.states[low] - (self._twice(self.state_row) if every else 0)

    def mode(self, states: int, flight: int, stash: Sequence[int], works: Sequence[int]) -> int:
        """Return the first mode in which a stage fits, whose F is least: (14). -1 if none."""
        for mode, (each, work) in enumerate(zip(stash, works, strict=True)):
            if states + flight * each + work <= self.table.free:
                return mode
        return -1

    def layer_row(self, mode: int, inside: Levels, copies: Levels) -> list[int]:
        """Return the time of each row in a round, hops aside."""
        return _added([self.time_rows(inside)[mode], self.round_row(copies)])

    def least_hop(self, level: int) -> int:
        """Return the least time of a hop between two layers."""
        return min(self.costs["hop_ps"][level][1 : self.table.layers], default=0)


def _added(rows: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


class Weights(NamedTuple):
    """An objective is (sum of fills * total + max load) / chunks, rounded up, + max Z: (17), (18)."""

    total: int
    rounds: int
    fills: int
    sync: bool
    chunks: int
    hidden: int

    @property
    def of_time(self) -> int:
        """The least number of times that a load counts F."""
        return self.rounds + (min(self.fills, 0) if self.hidden else self.fills)

    def stage(self, time: int, gradients: int) -> tuple[int, int]:
        """Return load and fill (69) of a stage, the latter as often as the objective counts it."""
        fill = max(0, time - self.hidden * gradients)
        return self.rounds * time + self.fills * fill, self.total * fill


def weights(objective: str, stages: int, rounds: int, schedule: tuple[str, int]) -> Weights:
    """Return the weights of (17) to (19)."""
    (name, chunks), hidden = schedule, 2 if schedule[0] == "zb-h1" else 0
    total, fills, sync = {
        "fill-drain": (1, -1, True), "nest": (0, stages - 1, True), "bottleneck": (0, 0, False)
    }[objective]  # fmt: skip
    return Weights(total, chunks * rounds, fills, sync, chunks, hidden)


def in_flight(schedule: tuple[str, int], stage: int, stages: int, rounds: int) -> int:
    """Return the stashes that a stage holds: (13)."""
    name, v = schedule
    if name == "gpipe":
        return rounds
    if name == "interleaved":
        return min(2 * (stages - 1 - stage) + (v - 1) * stages + 1, rounds * v)
    return min(stages - stage if name == "1f1b" else stages, rounds)


# The proofs

# What decides the costs of a stage: levels of groups and hops, stashes in flight, layers that it
# must hold, levels of copies, and E of (66).
Stage = tuple[frozenset[Levels], int, tuple[int, ...], frozenset[Levels], int]
# The stages that start at a layer: (last layer + 1, load, fill, Z); and these by first layer.
Row = list[tuple[int, int, int, int]]
Rows = dict[int, Row]


class Proofs:
    """The proofs of one claim: each says whether no plan of a group is below L."""

    def __init__(self, space: Space, table: Table, least: int) -> None:
        self.space, self.table, self.least, self.steps = space, table, least, MOST_STEPS
        self.costs, self.row = lru_cache(512)(self._costs), lru_cache(2**16)(self._row)

    def _costs(self, pair: int, zero: int, replicas: int) -> Costs:
        return Costs(self.space, self.table, Group(pair, 0, zero, replicas, 1))

    def of(self, group: Group) -> tuple[Costs, Weights]:
        """Return the costs of a group's stages, and the weights of its objective."""
        costs = self.costs(group.pair, group.zero, group.replicas)
        schedule = self.space.schedules[group.schedule]
        return costs, weights(self.space.objective, group.stages, costs.rounds, schedule)

    def spend(self, steps: int) -> None:
        """Count the steps of all proofs together, and refuse what would never end."""
        self.steps -= steps
        need(self.steps > 0, f"the proofs take more than {MOST_STEPS} steps")

    # Closed forms

    def sum(self, group: Group) -> bool:
        """Whether all layers, hops and the first layer's sync take too long, memory aside."""
        total, largest = self.least_times(group)
        return self.is_above(group, total, largest)

    def least_times(self, group: Group) -> tuple[int, int]:
        """Return the least sum of F, and the least F of the largest layer."""
        costs, weigh = self.of(group)
        (*inside, hop), copies, _, _ = self.space.least(group)
        row = costs.layer_row(0, tuple(inside), copies)
        hops = 2 * (group.stages * weigh.chunks - 1) * costs.least_hop(hop)
        return sum(row[r] for r in self.table.rows) + hops, max(row[r] for r in self.table.rows)

    def least_fills(self, group: Group, total: int) -> int:
        """Return the least sum of fills, as often as the objective counts it, from that of F."""
        costs, weigh = self.of(group)
        return weigh.total * max(0, total - weigh.hidden * costs.gradients[-1])

    def fills(self, group: Group) -> int:
        """Return the same, memory aside."""
        return self.least_fills(group, self.least_times(group)[0])

    def least_sync(self, group: Group) -> int:
        """Return the least max Z: the first stage has the first layer, and hides nothing."""
        costs, weigh = self.of(group)
        _, copies, ends, _ = self.space.least(group)
        high = 1 if group.stages > 1 else self.table.layers
        sync = costs.sync_ps(0, high, frozenset({copies}))
        return sync + costs.exchange_ps(group.stages, ends) if weigh.sync else 0

    def is_above(self, group: Group, total: int, largest: int) -> bool:
        """Whether the objective is at least L, since sum and max F are at least these.

        The largest load is at least an even share of all loads. Under ZB-H1 a load m F - f is
        (m - 1) F + min(F, 2 W), and such minima of a stage are at least those of its layers.
        """
        costs, weigh = self.of(group)
        fills = self.least_fills(group, total)
        loads = weigh.of_time * total
        if weigh.hidden and weigh.fills > 0:
            loads += weigh.fills * max(0, total - weigh.hidden * costs.gradients[-1])
        slowest = max(weigh.of_time * largest, -(-loads // group.stages))
        return -(-(fills + slowest) // weigh.chunks) + self.least_sync(group) >= self.least

    def room(self, group: Group) -> bool:
        """Whether stages lack memory or time for the layers of the most frequent type."""
        costs, weigh = self.of(group)
        table, s, v, row = self.table, group.stages, weigh.chunks, self.table.common
        (*inside, hop), copies, _, _ = self.space.least(group)
        modes = range(len(costs.modes))
        times = [costs.layer_row(mode, tuple(inside), copies)[row] for mode in modes]
        hops, most = [], []
        for i in range(s):
            hops.append((2 * v - (i == 0) - (i == s - 1)) * costs.least_hop(hop))
            flight = in_flight(self.space.schedules[group.schedule], i, s, costs.rounds)
            most.append([])
            for mode, works in enumerate(costs.work_rows):
                each = v * costs.state_row[row] + flight * costs.stash_rows[mode][row]
                free = v * max(0, table.free - works[row])
                most[-1].append(min(table.count, free // each) if each else table.count)
        if sum(map(max, most)) < table.count:
            return True
        total, largest = self.least_times(group)
        # A layer that has no room under the first mode is under another, and repeats something.
        over = max(0, table.count - sum(fits[0] for fits in most))
        total += over * (times[1] - times[0]) if len(times) > 1 else 0
        if self.is_above(group, total, largest):
            return True
        left = v * (self.least - 1 - self.least_sync(group)) - self.least_fills(group, total)
        if left < 0 or not weigh.of_time:
            return left < 0
        taken = 0
        for fits, away in zip(most, hops, strict=True):
            time = max(0, left // weigh.of_time - away)
            taken += max(min(f, time // t) if t else f for f, t in zip(fits, times, strict=True))
        return taken < table.count

    # Dynamic programs over intervals of layers

    def stages(self, group: Group, steps: Steps | None) -> list[Stage] | None:
        """Return what stages see: on one device map, or at best. None if a level is forbidden."""
        space, s, (costs, _) = self.space, group.stages, self.of(group)
        schedule = space.schedules[group.schedule]
        if steps is None:
            (*inside, hop), least, ends, around = space.least(group)
            around = around if schedule[1] > 1 else -1
            seen = [
                frozenset({(*inside, hop if i else around, hop if i < s - 1 else around)})
                for i in range(s)
            ]
            copies = [frozenset({least})] * s
        else:
            seen = space.stage_levels(group, steps, schedule[1] > 1)
            copies = [space.copy_levels(group, steps, i) for i in range(s)]
            ends = space.end_level(group, steps)
        rules, every = space.rules, [levels for stage in seen for levels in stage]
        if any(tp > rules.tp_level or max(hops) > rules.hop_level for tp, _, _, *hops in every):
            return None
        held: list[set[int]] = [set() for _ in range(s)]
        for places, stage in rules.pins:
            held[stage % s].update(places)
        extra = costs.exchange_ps(s, ends)
        return [
            (
                seen[i],
                in_flight(schedule, i, s, costs.rounds),
                tuple(sorted(held[i])),
                copies[i],
                extra if i in (0, s - 1) else 0,
            )
            for i in range(s)
        ]

    def thresholds(self, group: Group, steps: Steps | None, sync_ps: Sequence[int]) -> bool:
        """Whether an exact dynamic program finds nothing below L, max Z slab by slab.

        In the slab below < max Z <= x the rest of the objective must be at least L - below - 1 =: C.
        With loads of at most T it is at least the least sum s of fills; so only loads of at most
        C - 1 - s are of use, and T falls until no plan is left.
        """
        stages = self.stages(group, steps)
        need(all(map(int.__gt__, sync_ps, [*sync_ps[1:], -1])), "sync_ps: not falling, or below 0")
        fills = self.fills(group)
        if stages is None or fills >= self.least:
            return True
        chain = self.chain(group, stages, self.least - 1 - fills)
        for most, below in zip([ENDLESS, *sync_ps], [*sync_ps, -1], strict=True):
            aim = self.least - 1 - below
            load = aim - 1 - fills
            while load >= 0:
                least = self.least_sum(chain, load, most)
                if aim - 1 - least >= load:
                    return False
                load = aim - 1 - least
        return True

    def chain(self, group: Group, stages: Sequence[Stage], most_load: int) -> list[Rows]:
        """Return the intervals that each stage may be, if the layers before it are shared out."""
        n, (_, weigh) = self.table.layers, self.of(group)
        most = most_load // weigh.of_time if weigh.of_time else ENDLESS
        of, found, starts = (group.pair, group.zero, group.replicas), [], {0}
        for left, stage in zip(range(len(stages) - 1, -1, -1), stages, strict=True):
            rows = {low: self.row(of, weigh, stage, most, low) for low in starts}
            for low, row in rows.items():
                rows[low] = [to for to in row if (to[0] <= n - left if left else to[0] == n)]
            starts = {high for row in rows.values() for high, *_ in row}
            found.append(rows)
        return found

    def _row(
        self, of: tuple[int, int, int], weigh: Weights, stage: Stage, most: int, low: int
    ) -> Row:
        """Return the intervals from a layer on that fit as a stage, F being at most `most`."""
        levels, flight, held, copies, extra = stage
        costs, rules, n = self.costs(*of), self.space.rules, self.table.layers
        hop_ps, found, works, done = costs.costs["hop_ps"], [], [0] * len(costs.modes), low
        if held and low > held[0]:
            return []
        limit = min((second for first, second in rules.apart if first >= low), default=n)
        hides = self.space.objective == "fill-drain" and not weigh.hidden
        hidden = costs.backward[low] if hides else 0
        base = [
            (costs.times(at[:3]), hop_ps[at[3]][low] if at[3] >= 0 else 0, at[4]) for at in levels
        ]
        rounds = [costs.round(of) for of in copies] if costs.has_rounds else []
        (first, *_), away, _ = base[0]
        for high in range(max(low, *held) + 1 if held else low + 1, limit + 1):
            if first[high] - first[low] + away > most:
                break
            if high in rules.interval_cuts:
                continue
            works = [max(work, *of[done:high]) for work, of in zip(works, costs.works, strict=True)]
            self.spend(high - done + 1)
            done = high
            stash = [of[high] - of[low] for of in costs.stashes]
            mode = costs.mode(costs.held_bytes(low, high), flight, stash, works)
            if mode < 0:
                if low:
                    break
                continue
            time = max(
                [
                    of[mode][high] - of[mode][low] + away + (hop_ps[at][high] if at >= 0 else 0)
                    for of, away, at in base
                ]
            )
            time += max([of[high] - of[low] for of in rounds], default=0)
            if time <= most:
                load, fill = weigh.stage(time, costs.gradients[high] - costs.gradients[low])
                sync = costs.sync_of([(low, high)], copies) + extra if weigh.sync else 0
                found.append((high, load, fill, max(0, sync - hidden)))
        return found

    def least_sum(self, chain: Sequence[Rows], most_load: int, most_sync: int) -> int:
        """Return the least sum of fills with loads and Z up to these; `ENDLESS` if there is none."""
        after = {self.table.layers: 0}
        for rows in reversed(chain):
            self.spend(sum(map(len, rows.values())) + len(rows))
            after = {
                low: min(
                    [
                        fill + after[high]
                        for high, load, fill, sync in row
                        if load <= most_load and sync <= most_sync
                    ],
                    default=ENDLESS,
                )
                for low, row in rows.items()
            }
        return min(after[0], ENDLESS)

    # Interleaved schedules

    def chunks(self, group: Group, steps: Steps | None) -> bool:
        """Whether every way to cut into equal chunks (70) is at least L."""
        stages, (_, weigh) = self.stages(group, steps), self.of(group)
        if stages is None:
            return True
        n, inner = self.table.layers, group.stages * weigh.chunks - 2
        for size in range(1, n):
            for first in range(1, n - inner * size):
                edges = [0, *range(first, first + inner * size + 1, size), n]
                self.spend(len(edges))
                if self._keeps_rules(edges, group.stages):
                    value = self._value(group, stages, edges)
                    if value is not None and value < self.least:
                        return False
        return True

    def _keeps_rules(self, edges: Sequence[int], stages: int) -> bool:
        rules = self.space.rules

        def stage_of(place: int) -> int:
            return (bisect_right(edges, place) - 1) % stages

        return (
            rules.cuts.isdisjoint(edges[1:-1])
            and all(len({stage_of(p) for p in places}) == 1 for places in rules.together)
            and all(stage_of(p) != stage_of(q) for p, q in rules.apart)
            and all(stage_of(p) == s % stages for places, s in rules.pins for p in places)
        )

    def _value(self, group: Group, stages: Sequence[Stage], edges: Sequence[int]) -> int | None:
        """Return the objective of one way to cut, None if it does not fit."""
        (costs, weigh), s = self.of(group), group.stages
        hop_ps, fills, loads, syncs = costs.costs["hop_ps"], 0, 0, 0
        for i, (levels, flight, _, copies, extra) in enumerate(stages):
            own = [(edges[c], edges[c + 1]) for c in range(i, len(edges) - 1, s)]
            works = [max(max(of[low:high]) for low, high in own) for of in costs.works]
            stash = [max(of[high] - of[low] for low, high in own) for of in costs.stashes]
            states = sum(costs.states[high] - costs.states[low] for low, high in own)
            mode = costs.mode(states, flight, stash, works)
            if mode < 0:
                return None
            time = max(
                sum(
                    costs.times(at[:3])[mode][high]
                    - costs.times(at[:3])[mode][low]
                    + (hop_ps[at[3]][low] if low else 0)
                    + (hop_ps[at[4]][high] if high < edges[-1] else 0)
                    for low, high in own
                )
                for at in levels
            )
            if costs.has_rounds:
                time += max(
                    sum(costs.round(of)[h] - costs.round(of)[l] for l, h in own) for of in copies
                )
            load, fill = weigh.stage(time, 0)
            fills, loads = fills + fill, max(loads, load)
            if weigh.sync:
                sync = costs.sync_of(own, copies) + extra
                hidden = costs.backward[own[0][0]] if self.space.objective == "fill-drain" else 0
                syncs = max(syncs, sync - hidden)
        return -(-(fills + loads) // weigh.chunks) + syncs


# The certificate


def check(data: Any, problem: Any = None) -> Verdict:
    """Return what a certificate proves; `problem` is the data of the file that it should be about.

    Raises
    ------
    RefusedError
        If it proves nothing, or is about another problem.
    """
    try:
        return _check(data, problem)
    except (
        ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError
    ) as error:  # fmt: skip
        raise RefusedError(f"malformed: {type(error).__name__}: {error}"[:200]) from None


def _check(data: Any, problem: Any) -> Verdict:
    need(isinstance(data, dict) and data.get("format") == "nest-opt-certificate", "no certificate")
    need(data["version"] == 1, "version: this checker knows 1 alone")
    fields = "format version claim problem problem_sha256 table table_sha256 evidence"
    need(set(data) == set(fields.split()), "fields: some are missing, or unknown")
    for name in ("problem", "table"):
        need(digest(data[name]) == data[name + "_sha256"], f"{name}_sha256: not that of the {name}")
    if problem is not None:
        need(digest(problem) == data["problem_sha256"], "the certificate is about another problem")
    claim = data["claim"]
    need(set(claim) == {"family", "least_ps"} and claim["family"] in FAMILIES, "claim: unknown")
    least = None if claim["least_ps"] is None else _integer(claim["least_ps"])
    need(least is None or 0 <= least < ENDLESS, "claim.least_ps: out of range")
    space = Space(data["problem"], data["table"], claim["family"])
    proofs = Proofs(space, Table(data["table"], space), ENDLESS if least is None else least)
    left, used = Coverage(space), Counter[str]()
    for number, entry in enumerate(data["evidence"]):
        for group in left.inside(entry["box"]):
            maps = left.maps(group, entry.get("maps"))
            need(
                all(_settles(proofs, group, entry, steps) for steps in maps),
                f"evidence[{number}]: {entry['proof']} does not settle {group}",
            )
            used[entry["proof"]] += left.settle(group, maps)
    first = left.first()
    need(first is None, f"no evidence for {first}, of {len(left.groups)} groups in all")
    names = space.objective, str(data["problem"]["name"])
    hashes = data["problem_sha256"], data["table_sha256"]
    return Verdict(claim["family"], least, *names, *hashes, len(left.groups), dict(used))


def _settles(proofs: Proofs, group: Group, entry: Any, steps: Steps | None) -> bool:
    """Whether an entry's proof holds for a group, on one device map or on all at once."""
    proof, many = entry["proof"], proofs.space.schedules[group.schedule][1] > 1
    if proof in ("sum", "room"):
        return proofs.sum(group) if proof == "sum" else proofs.room(group)
    if proof == "thresholds" and not many:
        return proofs.thresholds(group, steps, entry["sync_ps"])
    need(proof == "chunks" and many, f"found a proof {proof!r:.40}")
    return proofs.chunks(group, steps)


class Coverage:
    """Which groups are settled, and which device maps of those that are not."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.counts = cache(space.stage_counts)
        self.groups: dict[Group, set[Any] | None] = {}
        for pair, degrees in enumerate(space.replicas):
            for schedule, zero, d in product(
                range(len(space.schedules)), range(len(space.zeros)), degrees
            ):
                if d % space.zeros[zero][2] == 0:
                    for s in self.counts(pair, schedule, d):
                        self.groups[Group(pair, schedule, zero, d, s)] = None
                need(len(self.groups) <= MOST_GROUPS, f"more than {MOST_GROUPS} groups")

    def inside(self, box: Any) -> Iterator[Group]:
        """Yield the groups of a box that are not settled yet."""
        fields = {"pair", "schedule", "zero", "replicas", "stages"}
        need(set(box) == fields, "evidence: a box has " + ", ".join(sorted(fields)))
        pair, schedule = box["pair"], box["schedule"]
        (z0, z1), (d0, d1), (s0, s1) = box["zero"], box["replicas"], box["stages"]
        need(min(pair, schedule, z0) >= 0 and z1 < len(self.space.zeros), "evidence: a box outside")
        for d in self.space.replicas[pair]:
            if d0 <= d <= d1:
                for s in self.counts(pair, schedule, d):
                    if s0 <= s <= s1:
                        for zero in range(z0, z1 + 1):
                            group = Group(pair, schedule, zero, d, s)
                            if group in self.groups and self.groups[group] != set():
                                yield group

    def maps(self, group: Group, names: Any) -> Sequence[Steps | None]:
        """Return the device maps that an entry is about: [None] is all of them at once."""
        if names is None:
            return [None]
        need(self.space.family == "aligned", "evidence: the free family has no device maps")
        every = self.space.maps(group)
        return [every[order, pitch] for order, pitch in names]

    def settle(self, group: Group, maps: Sequence[Steps | None]) -> bool:
        """Take device maps as settled; return whether the group is, with these."""
        left: set[Any] = set()
        if None not in maps:
            known = self.groups[group]
            left = (
                {self.space.same(group, m) for m in self.space.maps(group).values()}
                if known is None
                else known
            )
            left -= {self.space.same(group, steps) for steps in maps}
        self.groups[group] = left
        return not left

    def first(self) -> Group | None:
        """Return a group that is not settled, None if all are."""
        return next((group for group, left in self.groups.items() if left != set()), None)


def main(arguments: Sequence[str]) -> int:
    """Check a file and print what it proves; return 0, or 2 if it is refused."""
    if len(arguments) not in (1, 2):
        print("usage: python checker.py CERTIFICATE [PROBLEM]", file=sys.stderr)
        return 2
    try:
        verdict = check(*map(read, arguments))
    except (RefusedError, OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2
    what = "there is no plan" if verdict.least_ps is None else (
        f"no plan has a {verdict.objective} time below {verdict.least_ps} ps"
    )  # fmt: skip
    print(f"proved: in the {verdict.family} family of {verdict.problem_name!r}, {what}")
    print(f"problem {verdict.problem_sha256}, cost table {verdict.table_sha256}")
    print(f"{verdict.groups} groups of plans: {verdict.proofs}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
