"""Seeded networks of pairs for tiny problems, all numbers small integers."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from free_instances import free_data

from nest_opt.network.flows import Flow
from nest_opt.plan.pairwise import WITHOUT_LEVELS


@dataclass(frozen=True)
class Matrix:
    """A `PairNetwork` that is two tables: latency in seconds, and bytes/s, by (source, target)."""

    latency_s: dict[tuple[int, int], Fraction]
    rate: dict[tuple[int, int], Fraction]
    device_count: int

    def transfer_s(self, source: int, target: int, size_bytes: Fraction | int) -> Fraction:
        """Return latency plus bytes over rate."""
        if source == target:
            return Fraction(0)
        return self.latency_s[source, target] + Fraction(size_bytes) / self.rate[source, target]

    def concurrent_s(self, flows: Iterable[Flow]) -> Fraction:
        """Return the slowest flow's time: nothing is shared."""
        return max(self.transfer_s(flow.source, flow.target, flow.size_bytes) for flow in flows)


def random_matrix(seed: int, devices: int) -> Matrix:
    """Return a network of few latencies and rates, at random between any two devices.

    In every other one more latency never comes with more bandwidth.
    """
    rng = random.Random(f"pairs {seed}")
    ps = Fraction(1, 10**12)
    kinds = [(0, 10**12), (5, 5 * 10**11), (20, 10**11)]
    latency, rate = {}, {}
    for u in range(devices):
        for v in range(u):
            terms = rng.choice(kinds)
            if seed % 2:
                terms = rng.choice(kinds)[0], rng.choice(kinds)[1]
            for ends in ((u, v), (v, u)):
                latency[ends], rate[ends] = terms[0] * ps, Fraction(terms[1])
    return Matrix(latency, rate, devices)


def pair_data(seed: int) -> dict[str, Any]:
    """Return a problem as JSON data, without what is about levels."""
    data = free_data(seed)
    kept = [c for c in data.pop("constraints", []) if c["type"] in WITHOUT_LEVELS]
    if kept:
        data["constraints"] = kept
    return data
