"""Check a certificate: that no plan of a family has an objective below a value.

    python checker.py CERTIFICATE [PROBLEM]

This one module trusts nobody: it needs the standard library alone, and works in integers and
fractions. From the problem it rebuilds every group of plans (microbatch b, configuration k, degree
d, ZeRO level, schedule, stages S) and, in the aligned family, every device map of a group. From the
cost table it rebuilds what the layers between two cuts cost as a stage. Each entry of the evidence
says by which proof a box of groups has nothing below the claim, and the proof is done again here. A
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache, lru_cache
from importlib import import_module
from itertools import accumulate, pairwise, product
from math import gcd, isqrt, prod
from operator import gt, le
from typing import Any, NamedTuple

# A file is not trusted: so many bytes, characters of a number, groups, steps of all proofs (up to
# two microseconds each), and intervals of layers in memory; cuts, which 2,000 layers in a chain
# have.
MOST_BYTES, MOST_DIGITS, MOST_GROUPS, MOST_STEPS = 2**26, 40, 2 * 10**6, 10**9
MOST_INTERVALS, MOST_CUTS = 2**23, 2001
ENDLESS = 2**200
DOWN = Context(prec=30, rounding=ROUND_FLOOR)
FAMILIES = ("aligned", "free")
CLASSES = ("dense", "expert")
SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1")
# Fields, and what a problem means that leaves one out: others might mean what is not seen here.
CERTIFICATE = "format version claim problem problem_sha256 table table_sha256 evidence"
ENTRY = "proof box sync_ps maps level tree"
TABLE = "format version layer_rows levels usable_bytes reserve_bytes pairs sync zero shards tied "
TABLE += "rates"
NETWORK = "type algorithms collectives levels"
PROBLEM = "format version name note model cluster job search constraints"
JOB: dict[str, Any] = {
    "global_batch": 0, "sequence_length": 0, "bytes_per_parameter": 0, "objective": "fill-drain",
    "transfer": "relay", "split": "contiguous", "pad": False, "cost_model": "default",
}  # fmt: skip
SEARCH: dict[str, Any] = {
    "microbatch": None, "tp": None, "cp": [1], "ep": None, "sp": [False], "dp": None, "pp": None,
    "zero": [0], "zero_expert": None, "zero_instances": [1], "chunks": [2, 4, 8],
    "schedule": ["1f1b"], "recompute": ["none", "selective", "full"], "per_stage": [],
    "order": ["pp-inner", "dp-inner"], "pitch": ["tight", "level", "spread"],
    "layer_order": "listed",
}  # fmt: skip
RULES = {
    "colocation": "layers", "anti-colocation": "layers", "pinned-layers": "layers stage",
    "forbidden-boundary": "after", "hop-latency": "limit_s", "tp-inside-node": "level",
    "degree-limit": "degree at_least at_most multiple_of divides", "power": "level limit_w",
    "failure-domains": "level at_most", "user": "name parameters",
}  # fmt: skip

Levels = tuple[int, ...]
# Devices from stage to stage, from replica to replica, and of a block.
Steps = tuple[int, int, int]
# What decides the costs of a stage: levels of groups and hops, stashes in flight, layers that it
# must hold, levels of copies, and E of (66).
Stage = tuple[frozenset[Levels], int, frozenset[int], frozenset[Levels], int]
# Intervals of layers, by the cuts before and after them; those that start at a cut: (cut after
# it, load, fill, Z). Cuts have numbers: those of the listed order the layers before them.
Intervals = Sequence[tuple[int, int]]
Row = list[tuple[int, int, int, int]]
# Of the hop before a stage: far, or near from a torn block; else places that are taken of a node.
FAR, TORN = -2, -1


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


class Program(NamedTuple):
    """What each stage may be, by the state before it, and the states at both ends.

    A state begins with the first cut; of each there are (state after, load, fill, Z).
    """

    chain: Sequence[dict[Any, Any]]
    start: Any
    end: Any


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
    return json.loads(
        raw,
        parse_int=_integer,
        parse_float=_float,
        parse_constant=_integer,
        object_pairs_hook=unique,
    )


def _integer(text: str) -> int:
    need(len(text) <= MOST_DIGITS, f"found a number of {len(text)} characters")
    return int(text)


def _float(text: str) -> float:
    need(len(text) <= MOST_DIGITS, f"found a number of {len(text)} characters")
    return float(text)


def unique(items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a dictionary of items, none of which may stand in for another."""
    listed = list(items)
    need(len(dict(listed)) == len(listed), "found a key or an entry twice")
    return dict(listed)


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical text of JSON data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def known(data: Any, fields: Iterable[str], what: str) -> None:
    """Refuse an object with other fields than these, or an array with other values."""
    need(set(data) <= set(fields), f"{what}: found something that this checker does not know")


def exact(value: Any) -> Fraction:
    """Return a decimal; a huge exponent is short to write and endless to compute with."""
    text = str(value).lower()
    fine = len(text) <= MOST_DIGITS and len(text.partition("e")[2]) <= 4
    need(fine, f"found the number {text:.40}")
    return Fraction(text)


def whole(values: Iterable[Any], least: int = 1, most: int = 2**40) -> list[int]:
    """Return numbers that are whole and in a range."""
    listed = list(values)
    for value in listed:
        need(type(value) is int and least <= value <= most, f"found {value!r:.40} for a number")
    return listed


# The space of groups and device maps


class Space:
    """Every group of a problem, and every device map of a group, rebuilt from the problem."""

    def __init__(self, problem: Any, table: Any, family: str) -> None:
        self.family, self.steps = family, MOST_STEPS
        known(problem, PROBLEM.split(), "problem")
        model, cluster = problem["model"], problem["cluster"]
        self._read_search(JOB | problem["job"], SEARCH | problem.get("search", {}))
        need(cluster["network"]["type"] == "hierarchical", "cluster.network: not hierarchical")
        levels = cluster["network"]["levels"]
        sizes = whole((level["size"] for level in levels), 1, 2**20)
        need(1 <= len(sizes) <= 6, "cluster.network: levels")
        self.sizes = list(accumulate(sizes, int.__mul__))
        self.rates = self._rates(cluster["network"])
        need(table.get("rates", [[0]] * (len(sizes) - 1)) == self.rates, "table.rates: wrong ones")
        self.proper, self.period = self.sizes[:-1], ([1, *self.sizes])[-2]
        self.devices = sum(whole(group["count"] for group in cluster["devices"]))
        need(0 < self.devices <= min(self.sizes[-1], 2**20), "cluster.devices: wrong number")
        self._read_layers(model)
        self._read_cuts(model.get("edges"))
        self._read_rules(problem.get("constraints", []), levels, cluster)
        self.pairs = [(p["microbatch"], tuple(p["configuration"])) for p in table["pairs"]]
        found = self._pairs(model, sizes[0])
        need(sorted(self.pairs) == sorted(found), "table.pairs: not those of the problem")
        offered = [[kind[pair]["recompute"] for kind in self.profiles] for pair in self.pairs]
        modes = [mode for mode in SEARCH["recompute"] if mode in self.search["recompute"]]
        self.modes = [[mode for mode in modes if all(mode in p for p in of)] for of in offered]
        zeros = table.get("zero", [0])
        both = [z if isinstance(z, dict) else {"dense": z, "expert": z} for z in zeros]
        self.zeros = [(z["dense"], z["expert"], z.get("instances", 1)) for z in both]
        need(sorted(self.zeros) == sorted(self._zeros()), "table.zero: not the problem's levels")
        divisors = [s for s in range(1, isqrt(self.batch) + 1) if self.batch % s == 0]
        self._of_copies = lru_cache(2**16)(self._copies)
        self.divisors = {*divisors, *(self.batch // s for s in divisors)}
        self.replicas = [self._replicas(*pair) for pair in self.pairs]
        for pair, degrees in zip(table["pairs"], self.replicas, strict=True):
            # The table may list a degree that a constraint forbids, but must have every legal one.
            known(degrees, pair["replicas"], "table.pairs.replicas")

    def _read_search(self, job: dict[str, Any], search: dict[str, Any]) -> None:
        """Read the job and the dimensions of the search space."""
        known(job, JOB, "job")
        known(search, SEARCH, "search")
        for name in ("transfer", "split", "cost_model"):
            need(job[name] == JOB[name], f"job.{name}: this checker knows {JOB[name]} alone")
        need(not search["per_stage"], "search.per_stage: this checker knows none")
        known([search["layer_order"]], ["listed", "any"], "search.layer_order")
        self.listed = search["layer_order"] == "listed"
        needs_list = "interleaved" in search["schedule"]
        need(self.listed or not needs_list, "search.layer_order: any, with interleaved schedules")
        for name in ("recompute", "order", "pitch"):
            known(search[name], SEARCH[name], f"search.{name}")
        known([job["objective"]], ["fill-drain", "nest", "bottleneck"], "job.objective")
        known(search["schedule"], SCHEDULES, "search.schedule")
        for name in ("microbatch", "tp", "cp", "ep", "dp", "pp", "zero_instances"):
            whole(search[name] or [])
        whole([*search["zero"], *(search["zero_expert"] or [])], 0, 3)
        (self.batch,), self.pad = whole([job["global_batch"]]), job["pad"]
        need(isinstance(self.pad, bool), "job.pad: neither true nor false")
        self.objective, self.search = job["objective"], search
        chunks, self.schedules = sorted(whole(search["chunks"], 2)), []
        for name in (name for name in SCHEDULES if name in search["schedule"]):
            self.schedules += [(name, v) for v in (chunks if name == "interleaved" else [1])]

    def _read_layers(self, model: Any) -> None:
        """Read the layers, their rows (types in the order of first use), and who has profiles."""
        kinds: list[str] = []
        self.index: dict[str, int] = {}
        for entry in model["layers"]:
            (times,) = whole([entry.get("repeat", 1)], 1, 2000 - len(kinds))
            for number in range(times):
                self.index[entry["id"] + (f".{number}" if times > 1 else "")] = len(kinds)
                kinds.append(entry["type"])
        used = list(dict.fromkeys(kinds))
        self.layers, self.rows = len(kinds), [used.index(kind) for kind in kinds]
        need(len(self.index) == self.layers, "model.layers: found an id twice")
        self.profiles: list[dict[Any, Any]] = []
        for kind in used:
            profiles = []
            for p in model["layer_types"][kind]["profiles"]:
                k = (p.get("tp", 1), p.get("cp", 1), p.get("ep", 1), p.get("sp", False))
                profiles.append(((p["microbatch"], k), p))
            self.profiles.append(unique(profiles))

    def _read_cuts(self, edges: Any) -> None:
        """Read the cuts, sets of layers as bits: those of the listed order, or all downsets (67).

        They are sorted by size, and then by their layers. Each but the first is another one, its
        parent, with a layer more.
        """
        every, before = range(self.layers), [0] * self.layers
        if self.listed or edges is None:
            edges = [{"source": low, "target": high} for low, high in pairwise(self.index)]
        for edge in edges:
            known(edge, ["source", "target", "sizes"], "model.edges")
            source, target = (self.index[edge[name]] for name in ("source", "target"))
            need(source < target, "model.edges: found one to the same layer, or an earlier one")
            before[target] |= 1 << source
        self.downsets: list[int] = []
        self.parents: list[tuple[int, int]] = []
        level = {0: (0, 0)}
        while level:
            cuts = sorted(level, key=lambda cut: f"{cut:0{self.layers}b}"[::-1], reverse=True)
            places = enumerate(cuts, len(self.downsets))
            self.downsets += cuts
            self.parents += [level[cut] for cut in cuts]
            need(len(self.downsets) <= MOST_CUTS, f"search.layer_order: more than {MOST_CUTS} cuts")
            self.spend(len(cuts) * self.layers)
            level = {
                cut | 1 << layer: (place, layer)
                for place, cut in places
                for layer in every
                if not (cut >> layer & 1 or before[layer] & ~cut)
            }
        # The cuts after one layer, which may be the first.
        self.firsts = [place for place, cut in enumerate(self.downsets) if cut.bit_count() == 1]

    def inside(self, own: Intervals) -> int:
        """Return the layers of some intervals, as bits."""
        return sum([self.downsets[high] & ~self.downsets[low] for low, high in own])

    def _read_rules(self, rules: Any, levels: Any, cluster: Any) -> None:
        """Read constraints: (20) to (22), (35) to (40). Those of a user are left out."""
        of: dict[str, list[Any]] = {kind: [] for kind in RULES}
        names = [level["name"] for level in levels]
        for rule in rules:
            known(rule, ["type", *RULES[rule["type"]].split()], "constraints")
            places = frozenset(self.index[name] for name in rule.get("layers", []))
            level = names.index(rule["level"]) if "level" in rule else 0
            of[rule["type"]].append((rule, places, level))
        self.together = [places for _, places, _ in of["colocation"]]
        self.apart = [places for _, places, _ in of["anti-colocation"]]
        self.pins = [(places, rule["stage"]) for rule, places, _ in of["pinned-layers"]]
        after = {self.index[rule["after"]] + 1 for rule, *_ in of["forbidden-boundary"]}
        # Only in another order is the last layer in a stage that another follows.
        self.cuts = after - {self.layers} if self.listed else after
        self.limits = [rule for rule, *_ in of["degree-limit"]]
        self.tp_level = min([level for *_, level in of["tp-inside-node"]], default=len(levels))
        self.hop_level = len(levels)
        for rule, *_ in of["hop-latency"]:
            most = exact(rule["limit_s"])
            fast = [at for at, level in enumerate(levels) if exact(level["latency_s"]) <= most]
            self.hop_level = min(self.hop_level, max(fast, default=-1))
        # Whether devices count or replicas, and how many of them a group of a size may hold.
        sizes, kind = self.sizes, cluster["device_kinds"][cluster["devices"][0]["kind"]]
        few = [(False, sizes[at], rule.get("at_most", 1)) for rule, _, at in of["failure-domains"]]
        limits = [(sizes[level], exact(rule["limit_w"])) for rule, _, level in of["power"]]
        self.crowds = few + [(True, size, most // exact(kind["watts"])) for size, most in limits]

    def spend(self, steps: int) -> None:
        """Count the steps of all proofs together, and refuse what would never end."""
        self.steps -= steps
        need(self.steps > 0, f"the proofs take more than {MOST_STEPS} steps")

    def allows(self, **degrees: int) -> bool:
        """Whether the limits of degrees (37) allow some of them."""
        self.spend(len(self.limits))
        for limit in self.limits:
            value = degrees.get(limit["degree"])
            if value is not None:
                low, high = limit.get("at_least", value), limit.get("at_most", value)
                left = value % limit.get("multiple_of", 1) or limit.get("divides", value) % value
                if left or not low <= value <= high:
                    return False
        return True

    def _pairs(self, model: Any, innermost: int) -> list[Any]:
        """Return the (b, k) that the search space has and all layers are profiled for."""
        search, heads = self.search, model.get("attention_heads") or 0
        (experts,) = whole([model.get("experts") or 1], 1, 2**20)
        powers = [2**e for e in range(innermost.bit_length()) if heads % 2**e == 0]
        divisors = [e for e in range(1, experts + 1) if experts % e == 0]
        asked = [search["microbatch"] or [1, 2, 4, 8], search["tp"] or powers, search["cp"]]
        asked += [search["ep"] or divisors, search["sp"]]
        common = set(self.profiles[0]).intersection(*self.profiles)
        return [(b, k) for b, k in common if all(map(list.__contains__, asked, (b, *k)))]

    def _zeros(self) -> set[tuple[int, int, int]]:
        """Return the levels of dense and expert parameters, and h: (62)."""
        search, profiles = self.search, [p for kind in self.profiles for p in kind.values()]
        apart = any(p.get("expert_parameters", 0) for p in profiles) and search["zero_expert"]
        levels = [(z, e) for z in search["zero"] for e in apart or [z]]
        return {(z, e, h if z or e else 1) for z, e in levels for h in search["zero_instances"]}

    def _replicas(self, b: int, k: Any) -> list[int]:
        """Return the legal d, rising: (5)."""
        tp, cp, ep, _ = k
        every = range(1, self.devices + 1) if self.pad else self.divisors
        degrees = self.search["dp"] or every
        if not self.allows(microbatch=b, tp=tp, cp=cp, ep=ep):
            return []
        self.spend(len(degrees))
        fit = [d for d in degrees if d <= self.devices // (tp * cp * ep) and self.allows(dp=d)]
        even = [d for d in fit if self.pad or self.batch % (b * ep * d) == 0]
        return sorted(d for d in even if any(d % h == 0 for *_, h in self.zeros))

    def rounds(self, pair: int, replicas: int) -> int:
        """Return m: (5)."""
        b, (_, _, ep, _) = self.pairs[pair]
        return int(-(-self.batch // (b * ep * replicas)))

    def stage_counts(self, pair: int, schedule: int, replicas: int) -> list[int]:
        """Return the S of a pair, d and schedule that are to be covered: (70), (71).

        Beside 1F1B, GPipe has the same values with more memory, and so has ZB-H1 where it fills
        nothing: what is true of 1F1B is true of them.
        """
        (name, chunks), rounds = self.schedules[schedule], self.rounds(pair, replicas)
        beside = name in ("gpipe", "zb-h1") and ("1f1b", 1) in self.schedules
        if beside and (name == "gpipe" or self.objective == "bottleneck"):
            return []
        block = prod(self.pairs[pair][1][:3])
        most = min(self.layers // chunks, self.devices // (block * replicas))
        if name == "zb-h1":
            most = min(most, rounds)
        self.spend(most * (1 + len(self.pins)))
        counts = range(1 + (beside or chunks > 1), most + 1)
        asked = [s for s in counts if s in (self.search["pp"] or counts) and self.allows(pp=s)]
        even = [s for s in asked if name != "interleaved" or rounds % s == 0]
        return [s for s in even if all(-s <= stage < s for _, stage in self.pins)]

    def maps(self, group: Group) -> dict[tuple[str, int], Steps]:
        """Return the steps of the device maps (7) that keep (39) and (40), by order and pitch."""
        a, d, s = prod(self.pairs[group.pair][1][:3]), group.replicas, group.stages
        found: dict[tuple[str, int], Steps] = {}
        for order in self.search["order"]:
            inner, outer = (s * a, d) if order == "pp-inner" else (d * a, s)
            kinds = {"tight": [inner], "spread": [self.devices // outer]}
            kinds["level"] = [-(-inner // size) * size for size in self.sizes]
            for pitch in {pitch for kind in self.search["pitch"] for pitch in kinds[kind]}:
                steps = (a, pitch, a) if order == "pp-inner" else (pitch, a, a)
                fits = pitch >= inner and (outer - 1) * pitch + inner <= self.devices
                if fits and not self._is_crowded(steps, d, s):
                    found[order, pitch] = steps
        return found

    def keeps_rules(self, own: Intervals, held: frozenset[int]) -> bool:
        """Whether a stage keeps (20), (21), (35) and (36): it must hold the layers `held`."""
        self.spend(self.layers + len(self.together) + len(self.apart))
        inside, last = self.inside(own), len(self.downsets) - 1
        layers = {layer for layer in range(self.layers) if inside >> layer & 1}
        ends = {self.inside([(low, high)]).bit_length() for low, high in own if high < last}
        together = all(len(layers & places) in (0, len(places)) for places in self.together)
        apart = all(len(layers & places) <= 1 for places in self.apart)
        return together and apart and held <= layers and self.cuts.isdisjoint(ends)

    def same(self, group: Group, steps: Steps) -> tuple[int, int]:
        """Return what tells device maps of a group apart: steps that are taken."""
        hop, step, _ = steps
        return (hop if group.stages > 1 else 0, step if group.replicas > 1 else 0)

    def _is_crowded(self, steps: Steps, replicas: int, stages: int) -> bool:
        """Whether a group of the network has too many replicas (39), or devices (40), of a map."""
        hop, step, a = steps
        for by_device, size, most in self.crowds:
            self.spend(replicas * stages * a)
            blocks = [(r, r * step + i * hop) for r in range(replicas) for i in range(stages)]
            devices = ((r, x) for r, start in blocks for x in range(start, start + a))
            held = {(x // size, x if by_device else r) for r, x in devices}
            if max(Counter(group for group, _ in held).values()) > most:
                return True
        return False

    def _rates(self, network: Any) -> list[list[int]]:
        """Return, for each level above 0, the numbers of bandwidths by least counts: (77)."""
        known(network, NETWORK.split(), "cluster.network")
        model = network.get("collectives", "flat")
        known([model], ["flat", "ports"], "cluster.network.collectives")
        first, *rest = self._bandwidths(network["levels"])
        found: list[list[Fraction]] = []
        for size, bandwidth in zip(self.sizes, rest, strict=False):
            need(min(first, bandwidth) > 0, "cluster.network: a bandwidth is not above 0")
            most = min(size, -(-first // bandwidth)) if model == "ports" else 0
            need(most <= 1000, "cluster.network: more than 1000 bandwidths")
            found.append([min(first, count * bandwidth) for count in range(1, most + 1)])
        falling = sorted({first, *(rate for level in found for rate in level)}, reverse=True)
        return [[falling.index(rate) for rate in level] or [0] for level in found]

    def _bandwidths(self, levels: Any) -> list[Fraction]:
        """Return the bandwidths over their oversubscription, if any, to 30 digits, down."""
        peaks = [level["bandwidth_bytes_per_s"] for level in levels]
        ratios = [level.get("oversubscription", 1) for level in levels]
        need(min(map(exact, ratios)) >= 1, "cluster.network: an oversubscription below 1")
        if max(map(exact, ratios)) == 1:
            return list(map(exact, peaks))
        pairs = zip(map(exact, peaks), peaks, ratios, strict=True)
        return [Fraction(DOWN.divide(Decimal(str(w)), Decimal(str(x)))) for _, w, x in pairs]

    def spread(self, level: int, counts: Iterable[int]) -> int:
        """Return a level and the number of a bandwidth, (77), as one integer.

        Counts are of the levels below from 0 on, the least number of ranks in a group that has any.
        """
        pairs = zip(self.rates, counts, strict=False)
        rates = [rates[min(count, len(rates)) - 1] for rates, count in pairs]
        return level + len(self.sizes) * max(rates, default=0)

    def best(self, copies: int, level: int) -> int:
        """Return a spread that none of so many ranks beats, on a level or above.

        Below it they are in two groups at least, and in as many as hold them. The one with the
        fewest has no more than an equal share.
        """
        groups = [max(2, -(-copies // size)) for size in self.sizes[:level]]
        return self.spread(level, [max(1, copies // count) for count in groups])

    def worst(self, spreads: Iterable[int]) -> int:
        """Return the spread that several sets of ranks count as: the worst of both parts."""
        bandwidths, levels = zip(*(divmod(each, len(self.sizes)) for each in spreads), strict=True)
        return int(max(levels) + len(self.sizes) * max(bandwidths))

    def spread_of(self, devices: Sequence[int]) -> int:
        """Return the spread of devices that rise."""
        level, counts = self.level(devices[0], devices[-1]), list[int]()
        for size in self.sizes[:level] if any(map(any, self.rates)) else ():
            self.spend(len(devices))
            counts.append(min(Counter(device // size for device in devices).values()))
        return self.spread(level, counts)

    def level(self, first: int, last: int) -> int:
        """Return the level (1) of a set of devices from its first and last one."""
        return sum([first // size != last // size for size in self.proper])

    def least(self, group: Group) -> tuple[Levels, Levels, int]:
        """Return levels that no plan is below, with spreads of copies in the place of theirs."""
        inside, _, ends = self._least(group)
        return inside, self.far_copies(group, 0), ends

    def least_copies(self, group: Group) -> Levels:
        """Return levels of copies that no plan is below."""
        return self._least(group)[1]

    def far_copies(self, group: Group, level: int) -> Levels:
        """Return spreads of copies that no plan is below in which they are on a level or above."""
        _, cp, ep, _ = self.pairs[group.pair][1]
        d, (zd, ze, h), counts = group.replicas, self.zeros[group.zero], list[int]()
        for z, width in ((zd, cp * ep), (ze, cp)):
            counts += [width * (d // h), h] if z else [width * d, 1]
        levels = self._least(group)[1]
        return tuple(self.best(n, max(level, at)) for n, at in zip(counts, levels, strict=True))

    def _least(self, group: Group) -> tuple[Levels, Levels, int]:
        """Return levels that no plan is below: of (tp, cp, ep, hop), of copies, of both ends.

        Levels of copies are those of dense copies inside a run and between runs, and of expert
        ones; both ends are the first stage and the last. In the aligned family blocks are at
        least a devices apart; else sets are told by their number of devices alone.
        """
        tp, cp, ep, _ = self.pairs[group.pair][1]
        a, d, s, (zd, ze, h) = tp * cp * ep, group.replicas, group.stages, self.zeros[group.zero]
        dense, expert = (d // h if z else d for z in (zd, ze))
        reach = [tp - 1, cp - 1, ep - 1, 1, cp * ep * dense - 1, h - 1, cp * expert - 1, h - 1, 1]
        if self.family == "aligned":
            reach = [tp - 1, tp * (cp - 1), tp * cp * (ep - 1), a]
            reach += [(cp * ep * dense - 1) * tp, (d - dense) * a]
            reach += [(expert - 1) * a + (cp - 1) * tp, (d - expert) * a, (s - 1) * a]
        levels = tuple(self.level(0, last) for last in reach)
        return levels[:4], levels[4:8], levels[8]

    def on_map(self, group: Group, steps: Steps) -> tuple[list[Any], list[Any], int]:
        """Return the same of a device map: what stages see, of their copies, and of both ends.

        A stage sees levels of (tp, cp, ep, hop in, hop out), where hops into the first and out of
        the last stage go round. Groups of n ranks with a stride come in runs of stride * n
        devices, and some group of a run leaves a group of the network exactly if the run does;
        some rank's hop exactly if the two blocks are not in it together. Replicas a whole number
        of largest proper groups apart see the same.
        """
        (hop, step, a), (tp, cp, ep, _), s = steps, self.pairs[group.pair][1], group.stages

        @cache
        def inside(start: int) -> Levels:
            levels = []
            for degree, run in ((tp, tp), (cp, tp * cp), (ep, tp * cp * ep)):
                runs = range(start, start + a, run) if degree > 1 else ()
                levels.append(max([self.level(x, x + run - 1) for x in runs], default=0))
            return tuple(levels)

        seen: list[set[Levels]] = [set() for _ in range(s)]
        replicas = min(group.replicas, self.period // gcd(step, self.period))
        self.spend(replicas * s)
        for first in range(0, replicas * step, step):
            starts = range(first, first + s * hop, hop)
            ends = self.level(first, starts[-1] + a - 1)
            hops = [ends, *(self.level(x, x + hop + a - 1) for x in starts[:-1]), ends]
            for i, x in enumerate(starts):
                seen[i].add((*inside(x % self.period), hops[i], hops[i + 1]))
        copies = [self._copy_levels(group, steps, i) for i in range(s)]
        return list(map(frozenset, seen)), copies, max(at for *_, at, _ in seen[0])

    def _copy_levels(self, group: Group, steps: Steps, stage: int) -> frozenset[Levels]:
        """Return the spreads of a stage's copies, dense ones and expert ones, rank by rank."""
        (hop, step, _), (tp, cp, ep, _) = steps, self.pairs[group.pair][1]
        d, (zd, ze, h), seen = group.replicas, self.zeros[group.zero], set()
        for t, e in product(range(tp), range(ep)):
            first, levels = stage * hop + t, list[int]()
            for z, x, width in ((zd, first, cp * ep), (ze, first + tp * cp * e, cp)):
                levels += self._of_copies(x % self.period, step, d, d // h if z else d, width, tp)
            seen.add(tuple(levels))
        return frozenset(seen)

    def _copies(
        self, x: int, step: int, replicas: int, length: int, width: int, tp: int
    ) -> tuple[int, int]:
        """Return the spreads of copies inside the worst run, and of the worst equals between runs.

        A replica has `width` copies tp devices apart, a run `length` replicas. What starts a whole
        number of largest proper groups further on sees the same.
        """
        last, inner = replicas * step, [range(0, width * tp, tp)] * length
        of_run = [r * step + w for r, places in enumerate(inner) for w in places]
        self.spend(replicas * width)
        inside = {
            self.spread_of([y + z for z in of_run]) for y in range(x, x + last, length * step)
        }
        if length == replicas:
            return self.worst(inside), 0
        equals = range(0, last, length * step)
        between = {self.spread_of([x + y + z for z in equals]) for y in of_run}
        return self.worst(inside), self.worst(between)


# What stages cost


def added(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the sum of rows, column by column."""
    return [sum(column) for column in zip(*rows, strict=True)]


def over(own: Intervals, sums: Sequence[int]) -> int:
    """Return the sum over intervals of layers, from running sums."""
    return sum([sums[high] - sums[low] for low, high in own])


def amounts(value: Any) -> None:
    """Refuse numbers of a table that are not whole, or not from 0 to 2^60."""
    items = list(value.values() if isinstance(value, dict) else value)
    whole((item for item in items if not isinstance(item, bool | str | dict | list)), 0, 2**60 - 1)
    for item in items:
        if isinstance(item, dict | list):
            amounts(item)


class Table:
    """The cost table: `docs/cost_table.md` names its fields."""

    def __init__(self, table: Any, space: Space) -> None:
        known(table, TABLE.split(), "table")
        need(table["format"] == "nest-opt-cost-table", "table.format: another one")
        need(table["version"] == 1, "table.version: this checker knows 1 alone")
        amounts(table)
        self.pairs, self.rows, self.layers = table["pairs"], space.rows, space.layers
        self.space, self.last = space, len(space.downsets) - 1
        self.holders = [0] * (max(self.rows) + 1)
        for layer, row in enumerate(self.rows):
            self.holders[row] |= 1 << layer
        need(
            table["layer_rows"] == self.rows,
            "table.layer_rows: not the rows of the problem's layers",
        )
        need(table["levels"] == len(space.sizes), "table.levels: not those of the problem")
        self.free = table["usable_bytes"] - table["reserve_bytes"]
        self.common, self.count = Counter(self.rows).most_common(1)[0]
        sync, shards, exchange = [], [], []
        tied = table.get("tied", {"row": None, "exchange": []})
        for e in table["sync"]:
            need(e["level"] < len(space.sizes), "table.sync: a level that there is not")
            spread = e["level"] + len(space.sizes) * e.get("rate", 0)
            what = e.get("operation", "all-reduce"), e.get("shares", 1), spread
            key = (*e["configuration"], e["class"], e["copies"], *what)
            sync.append((key, [e["fixed_ps"], *e["row_ps"]]))
        for e in table.get("shards", []):
            shards.append(((*e["configuration"], e["class"], e["copies"], e["zero"]), e))
        for e in tied["exchange"]:
            exchange.append(((e["tp"], e["share"], e["level"]), [e["exchange_ps"]]))
        self.sync, self.shards, self.exchange = unique(sync), unique(shards), unique(exchange)
        self.tied: int | None = tied["row"]
        alone = self.rows.count(self.rows[-1]) == 1 < self.layers
        need(self.tied is None or space.listed, "table.tied: found some, in any order of layers")
        need(self.tied is None or alone, "table.tied: the last layer's row is another's too")
        for pair, modes in zip(self.pairs, space.modes, strict=True):
            need(set(pair["stash_bytes"]) == set(modes), "table.pairs: other modes")
            cuts = {len(row) for row in pair["hop_ps"]}
            need(cuts == {self.last + 1}, "table.pairs.hop_ps: not of the problem's cuts")
        self._refuse_falling()

    def _refuse_falling(self) -> None:
        """Refuse times that an outer level or a later mode lowers: bounds take the first ones."""
        rising: list[list[list[int]]] = []
        for pair in self.pairs:
            times = pair["forward_collective_ps"], pair["backward_collective_ps"]
            rising += [pair["hop_ps"], *(rows for kinds in times for rows in kinds.values())]
            rising.append([pair["repeated_forward_ps"], pair["forward_ps"]])
        for (*key, level), exchange in self.exchange.items():
            rising.append([self.exchange[*key, max(0, level - 1)], exchange])
        rising += self._of_calls()
        for lower, upper in (two for rows in rising for two in pairwise(rows)):
            fine = len(lower) == len(upper) and all(map(le, lower, upper))
            need(fine, "table: a time falls with the level, or more is repeated than there is")

    def _of_calls(self) -> Iterator[list[list[int]]]:
        """Yield what must not fall of calls over copies: fixed parts by level, others by bandwidth.

        Where all bandwidths have number 0, the level decides both.
        """
        levels, flat = len(self.space.sizes), not any(map(any, self.space.rates))
        found: dict[Any, tuple[dict[int, list[int]], dict[int, list[int]]]] = {}
        for (*key, spread), (fixed, *row) in self.sync.items():
            bandwidth, level = divmod(spread, levels)
            of_level, of_bandwidth = found.setdefault(tuple(key), ({}, {}))
            same = of_level.setdefault(level, [fixed]) == [fixed]
            same &= of_bandwidth.setdefault(level if flat else bandwidth, row) == row
            need(same, "table.sync: calls of one level, or one bandwidth, differ")
        for parts in found.values():
            for part in parts:
                yield [part[at] for at in sorted(part)]

    def prefix(self, row: Sequence[int]) -> list[int]:
        """Return, for each cut, the sum over the layers before it of what each row has."""
        sums = [0]
        for parent, layer in self.space.parents[1:]:
            sums.append(sums[parent] + row[self.rows[layer]])
        return sums

    def twice(self, own: Intervals, row: Sequence[int]) -> int:
        """Return what a sum over a stage with all layers has twice of tied parameters: (65)."""
        if self.tied is None or own[0] != (0, self.last):
            return 0
        return row[self.rows[-1]] - row[self.tied]


class Costs:
    """Costs of intervals of layers under one pair, ZeRO level, d and m."""

    def __init__(self, space: Space, table: Table, group: Group) -> None:
        self.table, self.costs = table, table.pairs[group.pair]
        (_, self.k), self.modes = space.pairs[group.pair], space.modes[group.pair]
        (_, cp, ep, _), d, (zd, ze, self.runs) = self.k, group.replicas, space.zeros[group.zero]
        self.rounds, costs = space.rounds(group.pair, d), self.costs
        # Each class with its level, its copies inside a run (62), and its calls over them.
        self.classes = []
        for name, zero, copies in zip(CLASSES, (zd, ze), (cp * ep * d, cp * d), strict=True):
            inside = copies // (self.runs if zero else 1)
            self.classes.append((name, zero, inside, *_calls(zero, inside, self.rounds)))
        self.has_rounds = any(each for *_, each, _ in self.classes)
        self.state_row, units = costs["states_bytes"], [0] * len(costs["states_bytes"])
        if zd or ze:
            parts = [table.shards[*self.k, name, inside, z] for name, z, inside, *_ in self.classes]
            self.state_row = added([part["states_bytes"] for part in parts])
            units = added([part["work_bytes"] for part in parts])
        self.work_rows = [added([costs["work_bytes"][mode], units]) for mode in self.modes]
        self.stash_rows = [costs["stash_bytes"][mode] for mode in self.modes]
        self.states = table.prefix(self.state_row)
        # Under each mode, the work of each row and the layers that have it, the largest first.
        works = (zip(row, table.holders, strict=False) for row in self.work_rows)
        self.works = [sorted(row, reverse=True) for row in works]
        self.stashes = list(map(table.prefix, self.stash_rows))
        self.gradients = table.prefix(costs["weight_gradient_ps"])
        self.backward = table.prefix(costs["backward_ps"])
        self.times = cache(lambda levels: list(map(table.prefix, self.time_rows(levels))))
        # Hops over each cut at each level; level -1, and the ends of the model, have none.
        self.hops = [[0, *row[1:-1], 0] for row in costs["hop_ps"]]
        self.hops.append([0] * (table.last + 1))
        self.sides = cache(
            lambda seen: [(self.times(x[:3]), self.hops[x[3]], self.hops[x[4]]) for x in seen]
        )
        self.round = cache(lambda levels: table.prefix(self.round_row(levels)))
        self.sync = cache(self._sync)
        # Times of rows under each mode, of a hop, and of layers, at the least levels.
        (*inside_levels, hop), self.least_copies, _ = space.least(group)
        self.least_hop = min(self.hops[hop][1:-1], default=0)
        around = self.round_row(self.least_copies)
        self.least_rows = [added([row, around]) for row in self.time_rows(tuple(inside_levels))]
        self.least_sums = table.prefix(self.least_rows[0])
        self.largest = max(self.least_rows[0][row] for row in table.rows)
        self.least_sync = cache(lambda high: self.sync_of([(0, high)], [self.least_copies]))

    def time_rows(self, levels: Levels) -> list[list[int]]:
        """Return each row's time under each mode, hops and calls over copies aside: (8), (9)."""
        degrees = zip(("tp", "cp", "ep"), self.k, levels, strict=False)
        used = [(kind, level) for kind, degree, level in degrees if degree > 1]
        parts = []
        for phase in ("forward", "backward"):
            calls = [self.costs[phase + "_collective_ps"][kind][level] for kind, level in used]
            parts.append(added([self.costs[phase + "_ps"], *calls]))
        repeats = {"none": [0] * len(parts[0]), "selective": self.costs["repeated_forward_ps"]}
        return [added([*parts, repeats.get(mode, parts[0])]) for mode in self.modes]

    def round_row(self, levels: Levels) -> list[int]:
        """Return what each row's calls over copies take in a round: (60)."""
        total = [0] * len(self.state_row)
        for (name, _, inside, calls, _), level in zip(self.classes, levels[::2], strict=True):
            for what in calls:
                fixed, *row = self.table.sync[*self.k, name, inside, what, 1, level]
                held = zip(row, self.costs["parameters"][name], strict=True)
                total = added([total, [fixed + y if n else 0 for y, n in held]])
        return total

    def _sync(self, levels: Levels) -> list[tuple[list[int], int, list[int], list[int]]]:
        """Return, for each class: running sums of who holds it, A_c, those of y, and y."""
        found, places = [], zip(self.classes, levels[::2], levels[1::2], strict=True)
        for (name, zero, inside, _, calls), level, between in places:
            keys = [(name, inside, what, 1, level) for what in calls]
            if zero and self.runs > 1:
                keys.append((name, self.runs, "all-reduce", inside, between))
            if keys:
                fixed, *row = added([self.table.sync[*self.k, *key] for key in keys])
                held = self.table.prefix([min(n, 1) for n in self.costs["parameters"][name]])
                sums = self.table.prefix(row)
                if held[-1]:
                    found.append((held, fixed, sums, row))
        return found

    def sync_of(self, own: Intervals, copies: Iterable[Levels]) -> int:
        """Return Y of a stage of some intervals without (66): (15), (63)."""
        most = 0
        for levels in copies:
            total = 0
            for held, fixed, y, row in self.sync(levels):
                if over(own, held):
                    total += fixed + over(own, y) - self.table.twice(own, row)
            most = max(most, total)
        return most

    def exchange_ps(self, stages: int, level: int) -> int:
        """Return E of (66)."""
        if stages == 1 or self.table.tied is None:
            return 0
        _, zero, inside, *_ = self.classes[0]
        return int(self.table.exchange[self.k[0], inside if zero >= 2 else 1, level][0])

    def mode(self, own: Intervals, flight: int) -> int | None:
        """Return the first mode in which a stage fits, which is the one of least F: (12), (14)."""
        left = self.table.free - over(own, self.states) + self.table.twice(own, self.state_row)
        inside = self.table.space.inside(own)
        for mode, (stash, works) in enumerate(zip(self.stashes, self.works, strict=True)):
            most = max([stash[high] - stash[low] for low, high in own])
            work = next(work for work, holders in works if holders & inside)
            if flight * most + work <= left:
                return mode
        return None

    def time(self, own: Intervals, mode: int, stage: Stage) -> int:
        """Return F of a stage: (11), (60)."""
        times: list[int] = [
            over(own, sums[mode]) + sum([left[low] + right[high] for low, high in own])
            for sums, left, right in self.sides(stage[0])
        ]
        rounds = [over(own, self.round(levels)) for levels in stage[3] if self.has_rounds]
        return max(times) + max(rounds, default=0)


def _calls(zero: int, copies: int, rounds: int) -> tuple[list[str], list[str]]:
    """Return the calls of a class inside a run, in every round (60) and once a batch (15)."""
    scatter, gather = ["reduce-scatter"], ["all-gather"]
    if copies == 1 or zero == 3:
        return (gather + gather + scatter if copies > 1 else []), []
    if zero == 2 and rounds > 1:
        return scatter, gather
    return [], (scatter + gather if zero else ["all-reduce"])


def in_flight(schedule: tuple[str, int], stage: int, stages: int, rounds: int) -> int:
    """Return the stashes that a stage holds: (13)."""
    name, v = schedule
    most = {"gpipe": rounds, "1f1b": stages - stage, "zb-h1": stages}
    most["interleaved"] = 2 * (stages - 1 - stage) + (v - 1) * stages + 1
    return min(most[name], rounds * v)


class Weights(NamedTuple):
    """An objective (17) to (19): (sum of fills * total + max load) / chunks, rounded up, + max Z.

    A load is rounds * F + fills * f, a fill f (69) is F less `hidden` times the time of gradients.
    """

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

    def fill(self, time: int, gradients: int) -> int:
        """Return the fill of a stage, or a least sum of fills from that of times."""
        return max(0, time - self.hidden * gradients)


def longest(most_load: int, weigh: Weights) -> int:
    """Return a time that F exceeds only with a load above a limit.

    It is rounded up to five bits, so that groups which differ in S alone share their intervals.
    """
    most = most_load // weigh.of_time if weigh.of_time else ENDLESS
    shift = max(0, most.bit_length() - 5)
    return ((most >> shift) + 1) << shift


# The proofs


class Proofs:
    """The proofs of one claim: each says whether no plan of a group is below L."""

    def __init__(self, space: Space, table: Table, least: int) -> None:
        self.space, self.table, self.least, self.spend = space, table, least, space.spend
        self.costs = lru_cache(512)(lambda b, z, d: Costs(space, table, Group(b, 0, z, d, 1)))
        self.starting, self.kept = lru_cache(2**12)(self._starting), 0
        self.ends = lru_cache(2**12)(self._ends)

    def of(self, group: Group) -> tuple[Costs, Weights]:
        """Return the costs of a group's stages, and the weights of its objective."""
        costs = self.costs(group.pair, group.zero, group.replicas)
        name, v = self.space.schedules[group.schedule]
        total, fills, sync = {
            "fill-drain": (1, -1, True), "nest": (0, group.stages - 1, True),
            "bottleneck": (0, 0, False),
        }[self.space.objective]  # fmt: skip
        return costs, Weights(total, v * costs.rounds, fills, sync, v, 2 * (name == "zb-h1"))

    def settles(self, group: Group, entry: Any, steps: Steps | None) -> bool:
        """Whether an entry's proof holds for a group, on one device map or on all at once."""
        proof, many = entry["proof"], self.space.schedules[group.schedule][1] > 1
        self.spend(500)
        if proof in ("sum", "room"):
            return self.sum(group) if proof == "sum" else self.room(group)
        if proof == "thresholds" and not many:
            return self.thresholds(group, steps, entry["sync_ps"])
        if proof == "runs" and not many:
            return self.runs(group, entry["level"], entry["sync_ps"])
        if proof == "dual" and not many:
            known_here = self.space.family == "free" and self.space.listed
            need(known_here, "evidence: duals are for the free family, in the listed order")
            return bool(_dual_checked().settles(self, group, entry["tree"]))
        need(proof == "chunks" and many, f"found a proof {proof!r:.40}")
        return self.chunks(group, steps)

    # Closed forms

    def _least_time(self, group: Group) -> int:
        """Return the least sum of F: layers under the first mode, and two hops each boundary."""
        costs, weigh = self.of(group)
        return costs.least_sums[-1] + 2 * (group.stages * weigh.chunks - 1) * costs.least_hop

    def fills(self, group: Group) -> int:
        """Return the least sum of fills, as often as the objective counts it, memory aside."""
        costs, weigh = self.of(group)
        return weigh.total * weigh.fill(self._least_time(group), costs.gradients[-1])

    def _least_sync(self, group: Group) -> int:
        """Return the least max Z: the first stage has a first layer, and hides nothing."""
        costs, weigh = self.of(group)
        if not weigh.sync:
            return 0
        ends = self.space.firsts if group.stages > 1 else [self.table.last]
        sync = min(map(costs.least_sync, ends))
        if self.table.tied is None:
            return sync
        return sync + costs.exchange_ps(group.stages, self.space.least(group)[2])

    def sum(self, group: Group, more: int = 0) -> bool:
        """Whether all layers, hops, `more` and the first layer's sync take too long, memory aside.

        The largest load is at least the largest layer's, and an even share of all loads.
        """
        costs, weigh = self.of(group)
        total = self._least_time(group) + more
        fill = weigh.fill(total, costs.gradients[-1])
        loads = weigh.rounds * total + weigh.fills * (fill if weigh.fills > 0 else total)
        slowest = max(weigh.of_time * costs.largest, -(-loads // group.stages))
        rest = -(-(weigh.total * fill + slowest) // weigh.chunks)
        return bool(rest + self._least_sync(group) >= self.least)

    def room(self, group: Group) -> bool:
        """Whether stages lack memory or time for the layers of the most frequent row."""
        costs, weigh = self.of(group)
        table, s, v, row = self.table, group.stages, weigh.chunks, self.table.common
        times = [rows[row] for rows in costs.least_rows]
        most: list[list[int]] = []
        for i in range(s):
            flight, fits = in_flight(self.space.schedules[group.schedule], i, s, costs.rounds), []
            for works, stashes in zip(costs.work_rows, costs.stash_rows, strict=True):
                each = v * costs.state_row[row] + flight * stashes[row]
                free = v * max(0, table.free - works[row])
                fits.append(min(table.count, free // each) if each else table.count)
            most.append(fits)
        # A layer that has no room under the first mode is under another, and repeats something.
        repeating = max(0, table.count - sum(fits[0] for fits in most))
        more = repeating * (times[1] - times[0]) if len(times) > 1 else 0
        if sum(map(max, most)) < table.count or self.sum(group, more):
            return True
        fill = weigh.total * weigh.fill(self._least_time(group) + more, costs.gradients[-1])
        left = v * (self.least - 1 - self._least_sync(group)) - fill
        if left < 0 or not weigh.of_time:
            return left < 0
        taken = 0
        for i, fits in enumerate(most):
            hops = (2 * v - (i == 0) - (i == s - 1)) * costs.least_hop
            time = max(0, left // weigh.of_time - hops)
            taken += max(min(f, time // t) if t else f for f, t in zip(fits, times, strict=True))
        return taken < table.count

    # Dynamic programs over intervals of layers

    def stages(self, group: Group, steps: Steps | None) -> list[Stage] | None:
        """Return what stages see: on one device map, or at best. None if a level is forbidden."""
        space, s, (costs, _) = self.space, group.stages, self.of(group)
        schedule = space.schedules[group.schedule]
        self.spend(s * (1 + len(space.pins)))
        if steps is None:
            (*inside, hop), least, ends = space.least(group)
            hops = [ends, *[hop] * (s - 1), ends]
            seen, copies = [{(*inside, *pair)} for pair in pairwise(hops)], [frozenset({least})] * s
        else:
            seen, copies, ends = space.on_map(group, steps)
        extra, found, goes_round = costs.exchange_ps(s, ends), [], schedule[1] > 1
        for i, every in enumerate(seen):
            left, right = i > 0 or goes_round, i < s - 1 or goes_round
            levels = frozenset((*k, x if left else -1, y if right else -1) for *k, x, y in every)
            if any(k[0] > space.tp_level or max(k[3:]) > space.hop_level for k in levels):
                return None
            held = frozenset(p for places, at in space.pins if at % s == i for p in places)
            flight = in_flight(schedule, i, s, costs.rounds)
            found.append((levels, flight, held, copies[i], extra if i in (0, s - 1) else 0))
        return found

    def stage(self, costs: Costs, weigh: Weights, stage: Stage, own: Intervals, time: int) -> Any:
        """Return load, fill as often as it counts, and Z of a stage of some intervals."""
        _, _, _, copies, extra = stage
        fill = weigh.fill(time, over(own, costs.gradients) if weigh.hidden else 0)
        sync = costs.sync_of(own, copies) + extra if weigh.sync else 0
        hides = self.space.objective == "fill-drain" and not weigh.hidden
        sync = max(0, sync - costs.backward[own[0][0]]) if hides else sync
        return weigh.rounds * time + weigh.fills * fill, weigh.total * fill, sync

    def chain(self, group: Group, stages: Sequence[Stage], most_load: int) -> list[Any]:
        """Return the intervals that each stage may be, if the layers before it are shared out."""
        (_, weigh), size = self.of(group), 0
        most = longest(most_load, weigh)
        of, found, lows = (group.pair, group.zero, group.replicas), [], {0}
        for left, stage in zip(range(len(stages) - 1, -1, -1), stages, strict=True):
            row = self.intervals(of, weigh, stage, most)
            ends = self.ends(of, most, left)
            rows = {low: [to for to in row(low) if to[0] in ends] for low in lows}
            lows = {high for to in rows.values() for high, *_ in to}
            found.append(rows)
            size += sum(map(len, rows.values()))
            need(size <= MOST_INTERVALS, f"more than {MOST_INTERVALS} intervals in one program")
        return found

    def intervals(
        self, of: tuple[int, int, int], weigh: Weights, stage: Stage, most: int
    ) -> Callable[[int], Row]:
        """Return the same as `_starting`, kept for the next that asks while memory allows."""
        if self.kept > MOST_INTERVALS:
            self.starting.cache_clear()
            self.kept = 0
        return self.starting(of, weigh, stage, most)

    def _ends(self, of: tuple[int, int, int], most: int, left: int) -> set[int]:
        """Return the cuts from which so many stages with F up to `most` may lead to the last one.

        In the listed order the fewest stages are found by making each as long as it can be.
        """
        n, least = self.table.last, self.costs(*of).least_sums
        self.spend(2 * n)
        fewest = [1] * n + [0]
        for low in range(n - 1, -1, -1) if self.space.listed else ():
            high = bisect_right(least, least[low] + most) - 1
            fewest[low] = 1 + fewest[high] if high > low else n + 1
        return {cut for cut in range(n + 1) if fewest[cut] <= left <= n - cut}

    def _starting(
        self, of: tuple[int, int, int], weigh: Weights, stage: Stage, most: int
    ) -> Callable[[int], Row]:
        """Return what lists the intervals from a layer on that are a stage with F up to `most`."""
        (_, flight, held, *_), costs, cuts = stage, self.costs(*of), self.space.downsets
        ruled = held or self.space.cuts or self.space.together or self.space.apart

        @cache
        def row(low: int) -> Row:
            found: Row = []
            least = costs.least_sums
            for high in range(low + 1, len(cuts)):
                if cuts[low] & ~cuts[high]:
                    continue
                own, slow = [(low, high)], least[high] - least[low] > most
                mode = None if slow else costs.mode(own, flight)
                if mode is None and self.space.listed and (slow or low):
                    break  # No longer one fits: tied parameters are there once from layer 0 alone.
                if mode is None or (ruled and not self.space.keeps_rules(own, held)):
                    continue
                time = costs.time(own, mode, stage)
                if time <= most:
                    found.append((high, *self.stage(costs, weigh, stage, own, time)))
            self.spend(16 * (high - low))
            self.kept += len(found)
            return found

        return row

    def thresholds(self, group: Group, steps: Steps | None, sync_ps: Sequence[int]) -> bool:
        """Whether an exact dynamic program over intervals of layers finds nothing below L."""
        stages, fills = self.stages(group, steps), self.fills(group)
        if stages is None or fills >= self.least:
            return True
        chain = self.chain(group, stages, self.least - 1 - fills)
        return self._slabs(group, Program(chain, 0, self.table.last), sync_ps)

    def _slabs(self, group: Group, program: Program, sync_ps: Sequence[int]) -> bool:
        """Whether a program finds nothing below L, max Z slab by slab.

        In the slab below < max Z <= x the rest of the objective must be at least C, L - below - 1.
        With loads of at most T it is at least the least sum s of fills; so only loads of at most
        C - 1 - s are of use, and T falls until no plan is left.
        """
        self.spend(len(sync_ps))
        falling = whole(sync_ps, 0, ENDLESS)
        need(all(map(gt, falling, falling[1:])), "sync_ps: not falling")
        fills = self.fills(group)
        for most, below in zip([ENDLESS, *sync_ps], [*sync_ps, -1], strict=True):
            aim = self.least - 1 - below
            load = aim - 1 - fills
            while load >= 0:
                least = self.least_sum(program, load, most)
                if aim - 1 - least >= load:
                    return False
                load = aim - 1 - least
        return True

    def least_sum(self, program: Program, most_load: int, most_sync: int) -> int:
        """Return the least sum of fills with loads and Z up to these; `ENDLESS` if none are."""
        after = {program.end: 0}
        for rows in reversed(program.chain):
            self.spend(4 + sum(map(len, rows.values())) + 16 * len(rows))
            before = {}
            for low, row in rows.items():
                sums = [
                    fill + after[high]
                    for high, load, fill, sync in row
                    if load <= most_load and sync <= most_sync
                ]
                before[low] = min(sums, default=ENDLESS)
            after = before
        return min(after[program.start], ENDLESS)

    def runs(self, group: Group, level: int, sync_ps: Sequence[int]) -> bool:
        """Whether no replica can have its stages near enough to be below L, in the free family.

        A node is a group of the network below `level`, and what is inside one is near. A block
        takes one place of its node, all of `together` if the stage's copies are near too; near
        hops join blocks of one node, or torn ones, which are in several: `docs/bounds.md`.
        """
        need(self.space.family == "free", "evidence: runs are for the free family")
        programs = self.run_programs(group, level)
        return all(self._slabs(group, program, sync_ps) for program in programs)

    def run_programs(self, group: Group, level: int) -> list[Program]:
        """Return programs, of which one has every plan of a group: by how its ends are near."""
        space, s, (costs, _) = self.space, group.stages, self.of(group)
        whole([level], 1, len(space.sizes) - 1)
        stages, ends = self.stages(group, None), space.least(group)[2]
        if stages is None or self.fills(group) >= self.least:
            return []
        room = space.sizes[level - 1] // prod(space.pairs[group.pair][1][:3])
        near, far = (costs.exchange_ps(s, at) for at in (ends, max(level, ends)))
        if far == near or s <= room:
            return [self._run_program(group, level, stages, FAR, near)]
        # Both ends far; or near, torn or in a node where the first run leaves so many places.
        joined = [TORN, *range(1, room)]
        found = [self._run_program(group, level, stages, at, near) for at in joined]
        return [self._run_program(group, level, stages, FAR, far), *found]

    def _run_program(
        self, group: Group, level: int, stages: Sequence[Stage], joined: int, exchange: int
    ) -> Program:
        """Return the stages that may follow each other, states being (first cut, places taken).

        The first stage has `joined` for a state, as if the last one were before it.
        """
        space, n, (_, weigh) = self.space, self.table.last, self.of(group)
        (*inside, hop), copies, _ = space.least(group)
        k, d, h = space.pairs[group.pair][1], group.replicas, space.zeros[group.zero][2]
        room, together = space.sizes[level - 1] // prod(k[:3]), d if h == 1 else min(h, d // h)
        apart = space.far_copies(group, level)
        # How a block lies: places that it takes, levels of its groups, and of its copies.
        lies = [(1, inside, apart)] * (together > 1) + [(together, inside, copies)]
        for kind in (kind for kind in range(3) if k[kind] > 1):
            torn = [max(level, at) if place == kind else at for place, at in enumerate(inside)]
            lies += [(0, torn, copies)] * (torn[0] <= space.tp_level)
        most = longest(self.least - 1 - self.fills(group), weigh)
        of, found, states, size = (group.pair, group.zero, group.replicas), [], {(0, joined)}, 0
        for i, (_, flight, held, *_) in enumerate(stages):
            left, rows = len(stages) - 1 - i, dict[Any, Any]()
            extra = exchange if i == 0 or not left else 0
            ends = self.ends(of, most, left)
            fitting: dict[Any, list[Any]] = {}
            for low, taken in states:
                rows[low, taken] = row = []
                into = -1 if i == 0 else max(level, hop) if taken == FAR else hop
                for lie, (places, own, copies) in enumerate(lies):
                    now = max(taken, 0) + places if places else TORN
                    if now > room or (taken != FAR and (taken == TORN) != (now == TORN)):
                        continue
                    outs = [(FAR, max(level, hop))] * (max(level, hop) <= space.hop_level)
                    outs += [(now, hop)] * (now < room)
                    if not left:
                        meets = joined == FAR or (now == TORN == joined) or 0 < now <= joined
                        outs = [(joined, -1)] * meets
                    for after, out in outs:
                        key = (low, lie, into, out, after)
                        if key not in fitting:
                            at = frozenset({(*own, into, out)})
                            stage = (at, flight, held, frozenset({copies}), extra)
                            starts = self.intervals(of, weigh, stage, most)(low)
                            fitting[key] = [
                                ((to[0], after), *to[1:]) for to in starts if to[0] in ends
                            ]
                        row += fitting[key]
                size += len(row)
                self.spend(len(row))
                need(size <= MOST_INTERVALS, f"more than {MOST_INTERVALS} intervals in one program")
            states = {to for row in rows.values() for to, *_ in row}
            found.append(rows)
        return Program(found, (0, joined), (n, joined))

    def chunks(self, group: Group, steps: Steps | None) -> bool:
        """Whether every way to cut into equal chunks (70) is at least L."""
        stages, n = self.stages(group, steps), self.table.layers
        if stages is None:
            return True
        inner = group.stages * self.of(group)[1].chunks - 2
        for size in range(1, n):
            for first in range(1, n - inner * size):
                edges = [0, *range(first, first + inner * size + 1, size), n]
                self.spend(n)
                if self._value(group, stages, edges) < self.least:
                    return False
        return True

    def _value(self, group: Group, stages: Sequence[Stage], edges: Sequence[int]) -> int:
        """Return the objective of one way to cut, `ENDLESS` if it does not fit or breaks a rule."""
        values: list[tuple[int, int, int]] = []
        costs, weigh = self.of(group)
        for i, stage in enumerate(stages):
            own = list(pairwise(edges))[i :: group.stages]
            mode = costs.mode(own, stage[1])
            if mode is None or not self.space.keeps_rules(own, stage[2]):
                return ENDLESS
            time = costs.time(own, mode, stage)
            values.append(self.stage(costs, weigh, stage, own, time))
        loads, fills, syncs = zip(*values, strict=True)
        return int(-(-(sum(fills) + max(loads)) // weigh.chunks) + max(syncs))


def _dual_checked() -> Any:
    """Return the module for linear programs, which with its own may be copied out as well."""
    try:
        return import_module(("nest_opt.certify." if __package__ else "") + "dual_checked")
    except ImportError:
        beside = "dual_checked.py and dual_rows.py are needed: copy them beside checker.py"
        raise RefusedError(f"evidence: found proofs by dual, for which {beside}") from None


# The certificate


class Coverage:
    """Which groups are settled, and which device maps of those that are not."""

    def __init__(self, space: Space) -> None:
        self.space, self.counts = space, cache(space.stage_counts)
        # None, or the maps that are left: none if the group is settled.
        self.groups: dict[Group, set[Any] | None] = {}
        places = product(range(len(space.schedules)), range(len(space.zeros)))
        for (pair, degrees), (schedule, zero) in product(enumerate(space.replicas), places):
            for d in degrees:
                counts = self.counts(pair, schedule, d) if d % space.zeros[zero][2] == 0 else []
                self.groups.update((Group(pair, schedule, zero, d, s), None) for s in counts)
                space.spend(len(counts) + 1)
                need(len(self.groups) <= MOST_GROUPS, f"more than {MOST_GROUPS} groups")

    def inside(self, box: Any) -> Iterator[Group]:
        """Yield the groups of a box that are not settled yet."""
        fields = ("pair", "schedule", "zero", "replicas", "stages")
        need(set(box) == set(fields), f"evidence: a box has {', '.join(fields)}")
        pair, schedule, (z0, z1), (d0, d1), (s0, s1) = (box[name] for name in fields)
        whole((pair, schedule, z0, z1), 0)
        need(z1 < len(self.space.zeros), "evidence: a box outside")
        self.space.spend(len(self.space.replicas[pair]))
        for d in self.space.replicas[pair]:
            for s in self.counts(pair, schedule, d) if d0 <= d <= d1 else ():
                self.space.spend(8)
                for zero in range(z0, z1 + 1) if s0 <= s <= s1 else ():
                    group = Group(pair, schedule, zero, d, s)
                    if self.groups.get(group, set()) != set():
                        yield group

    def maps(self, group: Group, names: Any) -> Sequence[Steps | None]:
        """Return the device maps that an entry is about: [None] is all of them at once."""
        if names is None:
            return [None]
        need(self.space.family == "aligned", "evidence: the free family has no device maps")
        every = self.space.maps(group)
        return list({(order, pitch): every[order, pitch] for order, pitch in names}.values())

    def settle(self, group: Group, maps: Sequence[Steps | None]) -> bool:
        """Take device maps as settled; return whether the group is, with these."""
        left: set[Any] = set()
        if None not in maps:
            known = self.groups[group]
            every = self.space.maps(group).values() if known is None else ()
            left = known or {self.space.same(group, steps) for steps in every}
        self.groups[group] = left - {self.space.same(group, steps) for steps in maps if steps}
        return not self.groups[group]

    def first(self) -> Group | None:
        """Return a group that is not settled, None if all are."""
        return next((group for group, left in self.groups.items() if left != set()), None)


def check(data: Any, problem: Any = None) -> Verdict:
    """Return what a certificate proves; `problem` is the data of the file that it should be about.

    Raises
    ------
    RefusedError
        If it proves nothing, or is about another problem.
    """
    try:
        return _check(data, problem)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(f"malformed: {type(error).__name__}: {error}"[:200]) from None


def _check(data: Any, problem: Any) -> Verdict:
    need(isinstance(data, dict) and data.get("format") == "nest-opt-certificate", "no certificate")
    need(whole([data["version"]]) == [1], "version: this checker knows 1 alone")
    need(set(data) == set(CERTIFICATE.split()), "fields: some are missing, or unknown")
    for name in ("problem", "table"):
        need(digest(data[name]) == data[name + "_sha256"], f"{name}_sha256: not that of the {name}")
    if problem is not None:
        # A file may write out what is left at its default; `nest-opt check` reads both alike.
        same = digest(problem) == data["problem_sha256"]
        need(same, "it is about another problem, or that file writes out fields at their default")
    claim = data["claim"]
    need(set(claim) == {"family", "least_ps"} and claim["family"] in FAMILIES, "claim: unknown")
    digits, least = claim["least_ps"], ENDLESS
    if digits is not None:
        need(digits.isascii() and digits.isdigit(), "claim.least_ps: not a text of digits")
        least = _integer(digits)
    space = Space(data["problem"], data["table"], claim["family"])
    proofs, left = Proofs(space, Table(data["table"], space), least), Coverage(space)
    used: Counter[str] = Counter()
    for number, entry in enumerate(data["evidence"]):
        known(entry, ENTRY.split(), f"evidence[{number}]")
        for group in left.inside(entry["box"]):
            maps = left.maps(group, entry.get("maps"))
            fine = all(proofs.settles(group, entry, steps) for steps in maps)
            need(fine, f"evidence[{number}]: {entry['proof']} does not settle {group}")
            used[entry["proof"]] += left.settle(group, maps)
    first = left.first()
    need(first is None, f"no evidence for {first}, of {len(left.groups)} groups in all")
    names, hashes = str(data["problem"]["name"]), (data["problem_sha256"], data["table_sha256"])
    shown = claim["family"], None if digits is None else least, space.objective
    return Verdict(*shown, names, *hashes, len(left.groups), dict(used))


def main(arguments: Sequence[str]) -> int:
    """Check a file and print what it proves; return 0, or 2 if it is refused."""
    if len(arguments) not in (1, 2):
        print("usage: python checker.py CERTIFICATE [PROBLEM]", file=sys.stderr)
        return 2
    try:
        verdict = check(*map(read, arguments))
    except (
        RefusedError,
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
        MemoryError,
        zlib.error,
    ) as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: nothing is proved", file=sys.stderr)
        return 130
    what = f"no plan has a {verdict.objective} time below {verdict.least_ps} ps"
    what = "there is no plan" if verdict.least_ps is None else what
    print(f"proved: in the {verdict.family} family of {verdict.problem_name!a}, {what}")
    print(f"problem {verdict.problem_sha256}, cost table {verdict.table_sha256}")
    print(f"{verdict.groups} groups of plans: {verdict.proofs}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
