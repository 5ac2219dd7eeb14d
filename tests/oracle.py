"""A second reading of the cost model, to compare the package with.

Written from the text of the formulation alone, in exact rationals, over plain
JSON-like data; it shares no code with the package and is as slow as it is
plain. Devices are looked at one by one: nothing is derived from residues,
levels are found from each device's coordinates, and every maximum is taken
over the times themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import Any

Data = Mapping[str, Any]
Rank = tuple[int, int, int]


@dataclass(frozen=True)
class OracleStage:
    """F, Y and X in picoseconds and the terms of memory of one stage."""

    time_ps: int
    sync_ps: int
    exposed_ps: int
    memory: dict[str, int]


@dataclass(frozen=True)
class OracleResult:
    """All stages, the objective's value, and the bytes that each device may fill."""

    stages: tuple[OracleStage, ...]
    value_ps: int
    usable_bytes: int


def exact(number: Any) -> Fraction:
    """Return a JSON number or decimal string as a rational; a float by its shortest form."""
    return Fraction(str(number))


def ps(seconds: Fraction) -> int:
    """Round to picoseconds, half up."""
    return floor(seconds * 10**12 + Fraction(1, 2))


class Wires:
    """The hierarchical network, level 0 innermost."""

    def __init__(self, levels: Sequence[Data], has_tree: bool, has_ports: bool) -> None:
        self.sizes = [level["size"] for level in levels]
        self.latency = [exact(level["latency_s"]) for level in levels]
        self.bandwidth = [exact(level["bandwidth_bytes_per_s"]) for level in levels]
        self.has_tree, self.has_ports = has_tree, has_ports

    def coordinates(self, device: int) -> list[int]:
        """Return a device's place in its group of each level."""
        places = []
        for size in self.sizes:
            places.append(device % size)
            device //= size
        return places

    def level(self, devices: Sequence[int]) -> int:
        """Return the smallest level whose group holds all the devices."""
        places = [self.coordinates(device) for device in devices]
        level = 0
        for number in range(len(self.sizes)):
            if len({place[number] for place in places}) > 1:
                level = number
        return level

    def effective(self, level: int) -> Fraction:
        """Return the bandwidth left after passing levels 0 to `level`."""
        return min(self.bandwidth[: level + 1])

    def hop(self, size: Fraction, devices: Sequence[int]) -> Fraction:
        """Return the seconds of a point-to-point transfer."""
        level = self.level(devices)
        return self.latency[level] + size / self.effective(level)

    def ways(
        self, operation: str, ranks: int, level: int, bandwidth: Fraction | None = None
    ) -> list[tuple[Fraction, Fraction]]:
        """Return a collective's (latency part, seconds per byte), over a ring and over trees."""
        bandwidth = bandwidth or self.effective(level)
        if ranks == 1:
            return [(Fraction(0), Fraction(0))]
        k = 2 * (ranks - 1) if operation == "all-reduce" else ranks - 1
        found = [(k * self.latency[level], Fraction(k, ranks) / bandwidth)]
        if self.has_tree and operation == "all-reduce":
            depth = 0
            while 2**depth < ranks:
                depth += 1
            found.append((2 * depth * self.latency[level], 2 / bandwidth))
        return found

    def shared(self, devices: Sequence[int]) -> Fraction:
        """Return the bandwidth of a rank, those of its group on one side of a link sharing it."""
        level = self.level(devices)
        if not self.has_ports:
            return self.effective(level)
        places = [tuple(self.coordinates(device)) for device in devices]
        found = [self.bandwidth[0]]
        for outer in range(1, level + 1):
            houses = [place[outer:] for place in places]
            found.append(min(map(houses.count, houses)) * self.bandwidth[outer])
        return min(found)

    def at_best(self, ranks: int) -> Fraction:
        """Return the same of ranks that are everywhere, as many in each group as there can be."""
        if not self.has_ports:
            return self.effective(len(self.sizes) - 1)
        found, room = [self.bandwidth[0]], 1
        for inner, outer in zip(self.sizes, self.bandwidth[1:], strict=False):
            room *= inner
            groups = max(2, ceil(Fraction(ranks, room)))
            found.append(max(1, ranks // groups) * outer)
        return min(found)

    def call(self, operation: str, devices: Sequence[int], size: Fraction) -> Fraction:
        """Return the seconds of one call, in the faster way for its bytes."""
        ways = self.ways(operation, len(devices), self.level(devices))
        return min(latency + per_byte * size for latency, per_byte in ways)

    def sum_of_layers(
        self, operation: str, devices: Sequence[int], largest: Fraction
    ) -> tuple[Fraction, Fraction]:
        """Return a collective's terms, in the way that the largest layer takes over all devices."""
        everywhere = self.ways(
            operation, len(devices), len(self.sizes) - 1, self.at_best(len(devices))
        )
        totals = [latency + per_byte * largest for latency, per_byte in everywhere]
        ways = self.ways(operation, len(devices), self.level(devices), self.shared(devices))
        return ways[totals.index(min(totals))]


class Oracle:
    """One problem with one placement.

    Parameters
    ----------
    problem
        The problem file's data.
    placement
        microbatch, tp, cp, ep, sp, dp, zero, schedule, chunks, order, pitch, ends,
        recompute; tp and sp are lists of one value for each stage where these differ;
        zero is a level, or the levels dense and expert with instances; order `listed`
        comes with devices[stage][replica][rank].
    """

    def __init__(self, problem: Data, placement: Data) -> None:
        self.problem, self.placement = problem, placement
        self.b = placement["microbatch"]
        self.cp, self.ep, self.d = placement["cp"], placement["ep"], placement["dp"]
        self.zero, self.instances = self._sharded(placement.get("zero", 0))
        self.ends = list(placement["ends"])
        self.schedule = placement.get("schedule", "1f1b")
        self.v = placement.get("chunks", 1)
        self.stages = len(self.ends) // self.v
        self.tp = self._by_stage("tp")
        self.sp = self._by_stage("sp")
        self.block = [tp * self.cp * self.ep for tp in self.tp]
        network = problem["cluster"]["network"]
        self.wires = Wires(
            network["levels"],
            "tree" in network.get("algorithms", ()),
            network.get("collectives", "flat") == "ports",
        )
        self.layers = [
            (name, entry["type"])
            for entry in problem["model"]["layers"]
            for name in layer_names(entry)
        ]
        self.bytes_per_parameter = {
            part: exact(size) for part, size in problem["job"]["bytes_per_parameter"].items()
        }
        self.m = self._rounds()

    @staticmethod
    def _sharded(zero: Any) -> tuple[dict[str, int], int]:
        """Return the ZeRO level of each class, and the groups that each have all states."""
        if isinstance(zero, int):
            return {"dense": zero, "expert": zero}, 1
        return {name: zero[name] for name in ("dense", "expert")}, zero.get("instances", 1)

    def _by_stage(self, degree: str) -> list[Any]:
        """Return a degree of each stage."""
        value = self.placement[degree]
        return list(value) if isinstance(value, list) else [value] * self.stages

    def stage_of(self, layer: int) -> int:
        """Return the stage that a layer is in."""
        chunk = next(chunk for chunk, end in enumerate(self.ends) if layer < end)
        return chunk % self.stages

    def profile(self, layer: int) -> Data:
        """Return a layer's profile in the configuration of its stage."""
        return self.profile_in(self.stage_of(layer), layer)

    def profile_in(self, stage: int, layer: int) -> Data:
        """Return a layer's profile in the configuration of any stage."""
        kind = self.layers[layer][1]
        wanted = (self.b, self.tp[stage], self.cp, self.ep, self.sp[stage])
        for profile in self.problem["model"]["layer_types"][kind]["profiles"]:
            degrees = [profile.get(degree, 1) for degree in ("tp", "cp", "ep")]
            if (profile["microbatch"], *degrees, profile.get("sp", False)) == wanted:
                found: Data = profile
                return found
        raise LookupError(f"no profile of {kind} for {wanted}")

    def _rounds(self) -> int:
        job = self.problem["job"]
        rounds = Fraction(job["global_batch"], self.b * self.ep * self.d)
        if rounds.denominator != 1 and not job.get("pad", False):
            raise ValueError(f"{rounds} rounds")
        return ceil(rounds)

    # Devices

    def device(self, replica: int, stage: int, rank: Rank) -> int:
        """Return the device of a rank (t, c, e)."""
        t, c, e = rank
        inside = t + self.tp[stage] * c + self.tp[stage] * self.cp * e
        if self.placement["order"] == "listed":
            return int(self.placement["devices"][stage][replica][inside])
        pitch = self.placement["pitch"]
        if self.placement["order"] == "pp-inner":
            return int(replica * pitch + sum(self.block[:stage]) + inside)
        return int(stage * pitch + replica * self.block[stage] + inside)

    def ranks(self, stage: int) -> Iterator[Rank]:
        """Yield the ranks of a block."""
        for e in range(self.ep):
            for c in range(self.cp):
                for t in range(self.tp[stage]):
                    yield t, c, e

    def meetings(self, stage: int, other: int) -> Iterator[tuple[Rank, Rank]]:
        """Yield the ranks of two neighbours that hold common parts of the tensors between them.

        With unlike sp every tp rank has something for every other; else rank t of
        tp has the part from t / tp to (t + 1) / tp.
        """
        for t, c, e in self.ranks(stage):
            for u in range(self.tp[other]):
                low = max(Fraction(t, self.tp[stage]), Fraction(u, self.tp[other]))
                high = min(Fraction(t + 1, self.tp[stage]), Fraction(u + 1, self.tp[other]))
                if low < high or self.sp[stage] != self.sp[other]:
                    yield (t, c, e), (u, c, e)

    def groups(self, replica: int, stage: int, kind: str) -> list[list[int]]:
        """Return the devices of every tp, cp or ep group of a block."""
        axis = ("tp", "cp", "ep").index(kind)
        members: dict[tuple[int, ...], list[int]] = {}
        for rank in self.ranks(stage):
            others = rank[:axis] + rank[axis + 1 :]
            members.setdefault(others, []).append(self.device(replica, stage, rank))
        return list(members.values())

    # Time

    def forward_of(self, replica: int, stage: int, layer: int) -> int:
        """Return a layer's forward time with its collectives."""
        compute = ps(exact(self.profile(layer)["forward_s"]))
        return compute + self._collectives(replica, stage, layer, "forward")

    def backward_of(self, replica: int, stage: int, layer: int) -> int:
        """Return a layer's backward time with its collectives."""
        return self.plain_backward(layer) + self._collectives(replica, stage, layer, "backward")

    def plain_backward(self, layer: int) -> int:
        """Return a layer's backward compute time, each part rounded by itself."""
        profile = self.profile(layer)
        return ps(exact(profile["backward_input_s"])) + ps(exact(profile["backward_weight_s"]))

    def _collectives(self, replica: int, stage: int, layer: int, phase: str) -> int:
        total = 0
        for collective in self.profile(layer).get("collectives", ()):
            if collective["phase"] != phase:
                continue
            calls = []
            for devices in self.groups(replica, stage, collective["group"]):
                size = exact(collective["bytes"])
                seconds = self.wires.call(collective["operation"], devices, size)
                calls.append(ps(max(Fraction(0), seconds - exact(collective.get("hidden_s", 0)))))
            total += max(calls) * collective.get("count", 1)
        return total

    def boundary_bytes(self, cut: int, tp: int) -> int:
        """Return the bytes over the cut before layer `cut`: each tensor once, relayed."""
        place = {name: number for number, (name, _) in enumerate(self.layers)}
        model = self.problem["model"]
        edges = model.get("edges")
        if edges is None:
            names = list(place)
            edges = [{"source": u, "target": v} for u, v in pairwise(names)]
        crossing = [e for e in edges if place[e["source"]] < cut <= place[e["target"]]]
        producers = {place[e["source"]] for e in crossing if e.get("sizes") is None}
        total = 0
        for producer in producers:
            total += model["layer_types"][self.layers[producer][1]]["output_bytes"][str(self.b)]
        for edge in crossing:
            if edge.get("sizes") is not None:
                total += next(
                    size["bytes"]
                    for size in edge["sizes"]
                    if size["microbatch"] == self.b and size.get("tp") in (None, tp)
                )
        return total

    def hop(self, replica: int, stage: int, other: int, cut: int) -> int:
        """Return the time of the worst rank's transfer between two stages."""
        tp, sp = self.tp[stage], self.sp[stage]
        share = Fraction(self.boundary_bytes(cut, tp), self.cp * (tp if sp else 1))
        return max(
            ps(
                self.wires.hop(
                    share, [self.device(replica, stage, rank), self.device(replica, other, there)]
                )
            )
            for rank, there in self.meetings(stage, other)
        )

    def stage_time(self, stage: int) -> int:
        """Return F: the worst replica's time."""
        mode = self.placement["recompute"][stage]
        repeats = 2 if mode == "full" else 1
        times = []
        for replica in range(self.d):
            total = 0
            for layer in self.layers_of(stage):
                total += repeats * self.forward_of(replica, stage, layer)
                total += self.backward_of(replica, stage, layer)
                if mode == "selective":
                    footprint = self.profile(layer)["recompute"][mode]
                    total += ps(exact(footprint["repeated_forward_s"]))
            for low, high in self.intervals(stage):
                # Before the first chunk and after the last one there is nothing to pass on.
                if low > 0:
                    total += self.hop(replica, stage, (stage - 1) % self.stages, low)
                if high < len(self.layers):
                    total += self.hop(replica, stage, (stage + 1) % self.stages, high)
            times.append(total)
        return max(times) + max(self._copies_per_round(stage, rank) for rank in self.ranks(stage))

    def intervals(self, stage: int) -> list[tuple[int, int]]:
        """Return the first layer and one past the last of each of a stage's chunks."""
        numbers = [chunk * self.stages + stage for chunk in range(self.v)]
        return [(self.ends[c - 1] if c else 0, self.ends[c]) for c in numbers]

    def layers_of(self, stage: int) -> list[int]:
        """Return a stage's layers."""
        return [layer for low, high in self.intervals(stage) for layer in range(low, high)]

    # Gradient synchronisation

    def sync(self, stage: int) -> int:
        """Return Y: the worst rank's all-reduces of both parameter classes."""
        copies = max(
            self._class_sync(stage, rank, "dense") + self._class_sync(stage, rank, "expert")
            for rank in self.ranks(stage)
        )
        return copies + self._exchange(stage)

    def _exchange(self, stage: int) -> int:
        """Return what an end of the pipeline pays for parameters that both ends hold."""
        last = self.stages - 1
        tied = self._tied()
        if not tied or last == 0 or stage not in (0, last):
            return 0
        size = self.bytes_per_parameter["gradients"] * Fraction(tied)
        if self.zero["dense"] >= 2:
            size /= self._shares("dense")
        times = []
        for replica in range(self.d):
            for rank in self.ranks(0):
                pair = [self.device(replica, end, rank) for end in (0, last)]
                times.append(ps(self.wires.call("all-reduce", pair, size)))
        return max(times)

    def _tied(self) -> int:
        """Return the parameters of the last layer that are the first one's."""
        return int(self.profile(len(self.layers) - 1).get("tied_parameters", 0))

    def _class_sync(self, stage: int, rank: Rank, name: str) -> int:
        counts = self._once(stage, name)
        if not any(counts):
            return 0
        total = 0
        for operation, part, share, groups in self._once_a_batch(stage, rank, name):
            size = self.bytes_per_parameter[part] * share
            largest = size * max(
                self.profile_in(stage, layer).get(f"{name}_parameters", 0)
                for layer in range(len(self.layers))
            )
            latencies, bytes_times = [], []
            for group in groups:
                latency, per_byte = self.wires.sum_of_layers(operation, group, largest)
                latencies.append(ps(latency))
                bytes_times.append(sum(ps(per_byte * size * count) for count in counts))
            total += max(latencies) + max(bytes_times)
        return total

    def _once_a_batch(
        self, stage: int, rank: Rank, name: str
    ) -> list[tuple[str, str, Fraction, list[list[int]]]]:
        """Return the collectives over copies after a batch: of what, which share, and where."""
        zero = self.zero[name]
        if zero == 0:
            everywhere = self._copies(stage, rank, name, range(self.d))
            return [("all-reduce", "gradients", Fraction(1), [everywhere])]
        runs = [self._copies(stage, rank, name, run) for run in self._runs()]
        calls = []
        if zero == 1 or (zero == 2 and self.m == 1):
            calls.append(("reduce-scatter", "gradients", Fraction(1), runs))
        equals = [list(devices) for devices in zip(*runs, strict=True)]
        calls.append(("all-reduce", "gradients", Fraction(1, len(runs[0])), equals))
        if zero < 3:
            calls.append(("all-gather", "weights", Fraction(1), runs))
        return calls

    def _runs(self) -> list[range]:
        """Return the replicas of each group that shares out one set of states."""
        size = self.d // self.instances
        return [range(first, first + size) for first in range(0, self.d, size)]

    def _counts(self, stage: int, name: str) -> list[int]:
        """Return each layer's parameters of a class."""
        profiles = map(self.profile, self.layers_of(stage))
        return [profile.get(f"{name}_parameters", 0) for profile in profiles]

    def _once(self, stage: int, name: str) -> list[int]:
        """Return the same without what the first layer of the stage has already."""
        counts = self._counts(stage, name)
        if self.stages == 1 and name == "dense":
            counts[-1] -= self._tied()
        return counts

    def _copies(self, stage: int, rank: Rank, name: str, replicas: range) -> list[int]:
        """Return the devices of some replicas that hold what a rank holds of a class."""
        return [
            self.device(replica, stage, other)
            for replica in replicas
            for other in self.ranks(stage)
            if other[0] == rank[0] and (name == "dense" or other[2] == rank[2])
        ]

    def _copies_per_round(self, stage: int, rank: Rank) -> int:
        """Return the collectives over copies that every microbatch waits for, layer by layer."""
        total = 0
        for name, zero in self.zero.items():
            calls = []
            if zero == 3:
                calls += [("all-gather", "weights"), ("all-gather", "weights")]
            if zero == 3 or (zero == 2 and self.m > 1):
                calls += [("reduce-scatter", "gradients")]
            latencies, bytes_times = [0], [0]
            for run in self._runs():
                group, fixed, time = self._copies(stage, rank, name, run), 0, 0
                for count in self._counts(stage, name):
                    for operation, part in calls:
                        if count:
                            # No all-reduce: there is but the ring.
                            ((latency, per_byte),) = self.wires.ways(
                                operation,
                                len(group),
                                self.wires.level(group),
                                self.wires.shared(group),
                            )
                            size = self.bytes_per_parameter[part] * count
                            fixed += ps(latency)
                            time += ps(per_byte * size)
                latencies.append(fixed)
                bytes_times.append(time)
            total += max(latencies) + max(bytes_times)
        return total

    # Memory

    def memory(self, stage: int) -> dict[str, int]:
        """Return the terms of a device's memory."""
        inside = [self.profile(layer) for layer in self.layers_of(stage)]
        mode = self.placement["recompute"][stage]
        footprints = [p["recompute"][mode] for p in inside]
        stashes = [
            sum(self.profile(layer)["recompute"][mode]["stash_bytes"] for layer in range(*chunk))
            for chunk in self.intervals(stage)
        ]
        return {
            "states": sum(
                ceil(count * self._held(name))
                for name in ("dense", "expert")
                for count in self._once(stage, name)
            ),
            "stash": self.in_flight(stage) * max(stashes),
            "work": max(
                footprint.get("work_bytes", 0)
                + sum(
                    ceil(profile.get(f"{name}_parameters", 0) * self._whole(name))
                    for name in ("dense", "expert")
                )
                for profile, footprint in zip(inside, footprints, strict=True)
            ),
            "reserve": self.device_kind.get("reserve_bytes", 0),
        }

    def in_flight(self, stage: int) -> int:
        """Return the microbatches (of each one chunk) whose stash is held at once."""
        if self.schedule == "interleaved":
            warm_up = 2 * (self.stages - 1 - stage) + (self.v - 1) * self.stages
            return min(warm_up + 1, self.m * self.v)
        most = {"1f1b": self.stages - stage, "zb-h1": self.stages, "gpipe": self.m}
        return min(most[self.schedule], self.m)

    def _shares(self, name: str) -> int:
        """Return the ranks that share out one set of a class's states."""
        return self.d * self.cp * (self.ep if name == "dense" else 1) // self.instances

    def _held(self, name: str) -> Fraction:
        """Return bytes per parameter: what z shares out is one share of so many."""
        first_shared = {"optimizer": 1, "gradients": 2, "weights": 3}
        return sum(
            (
                size / (self._shares(name) if self.zero[name] >= first_shared[part] else 1)
                for part, size in self.bytes_per_parameter.items()
            ),
            Fraction(0),
        )

    def _whole(self, name: str) -> Fraction:
        """Return bytes per parameter of the layer at work that are there in whole beside."""
        if self._shares(name) == 1:
            return Fraction(0)
        parts = {0: (), 1: (), 2: ("gradients",), 3: ("gradients", "weights")}[self.zero[name]]
        return sum((self.bytes_per_parameter[part] for part in parts), Fraction(0))

    @property
    def device_kind(self) -> Data:
        """The kind of all devices."""
        cluster = self.problem["cluster"]
        kind: Data = cluster["device_kinds"][cluster["devices"][0]["kind"]]
        return kind

    # Objective

    def result(self) -> OracleResult:
        """Return everything."""
        stages = []
        for stage in range(self.stages):
            (low, _), *_ = self.intervals(stage)
            sync = self.sync(stage)
            drained = sum(self.plain_backward(layer) for layer in range(low))
            if self.schedule == "zb-h1":
                drained = 0
            exposed = max(0, sync - drained)
            stages.append(OracleStage(self.stage_time(stage), sync, exposed, self.memory(stage)))
        kind = self.device_kind
        usable = floor(kind["memory_bytes"] * exact(kind.get("usable_share", 1)))
        return OracleResult(tuple(stages), self._value(stages), usable)

    def fill(self, stage: int, time_ps: int) -> Fraction:
        """Return what a microbatch costs in a stage while the pipeline fills and drains."""
        if self.schedule == "interleaved":
            return Fraction(time_ps, self.v)
        if self.schedule == "zb-h1":
            weights = sum(
                ps(exact(self.profile(layer)["backward_weight_s"]))
                for layer in self.layers_of(stage)
            )
            return Fraction(max(0, time_ps - 2 * weights))
        return Fraction(time_ps)

    def _value(self, stages: Sequence[OracleStage]) -> int:
        times = [stage.time_ps for stage in stages]
        fills = [self.fill(stage, time) for stage, time in enumerate(times)]
        objective = self.problem["job"].get("objective", "fill-drain")
        if objective == "fill-drain":
            through = [
                self.m * times[k] + sum(fill for i, fill in enumerate(fills) if i != k)
                for k in range(self.stages)
            ]
            return ceil(max(through)) + max(stage.exposed_ps for stage in stages)
        if objective == "nest":
            through = [
                self.m * time + (self.stages - 1) * fill
                for time, fill in zip(times, fills, strict=True)
            ]
            return ceil(max(through)) + max(s.sync_ps for s in stages)
        assert objective == "bottleneck"
        return self.m * max(times)


def layer_names(entry: Data) -> list[str]:
    """Return the identifiers of an entry's layers."""
    repeat = entry.get("repeat", 1)
    return [entry["id"]] if repeat == 1 else [f"{entry['id']}.{i}" for i in range(repeat)]
