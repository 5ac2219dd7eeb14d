"""Building the cost table of a problem: exact rationals, each rounded once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, product
from math import isqrt

from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.cost.sharding import Call, Sharding, calls_of, fits_replicas
from nest_opt.cost.states import state_bytes, whole_bytes
from nest_opt.cost.table import (
    CLASSES,
    OPERATIONS,
    CostTable,
    PairCosts,
    ParameterClass,
    Row,
    ShardCosts,
    ShardKey,
    SyncCosts,
    SyncKey,
    TiedCosts,
    TiedKey,
    refuse_overflow,
)
from nest_opt.cost.units import to_bytes, to_bytes_each, to_ps, to_ps_each
from nest_opt.errors import InstanceError
from nest_opt.network import Network, build_network
from nest_opt.network.spread import every_spread
from nest_opt.problem import Configuration, Problem, Profile
from nest_opt.problem.job import Job
from nest_opt.problem.profile import GROUPS, Group, Recompute


def build_cost_table(problem: Problem, network: Network | None = None) -> CostTable:
    """Compute the cost table of a problem, on the cluster's network unless another is given.

    Raises
    ------
    InstanceError
        If no pair of the search space has profiles, no data-parallel degree
        is legal, or a total leaves the range of the search. If the problem is
        a placement graph, which has a table of its own.
    """
    if problem.is_placement_graph:
        raise InstanceError(
            f"job.transfer: found {problem.job.transfer!r} (a placement graph), 'relay' is needed "
            "to search runs of layers on blocks of devices: use `nest-opt exact`"
        )
    network = network or build_network(problem.cluster)
    device = problem.cluster.device_kind
    pairs = {
        (microbatch, configuration): _pair_costs(problem, network, microbatch, configuration)
        for microbatch, configuration in problem.candidates
    }
    replicas = legal_replicas(problem)
    table = CostTable(
        layer_rows=_layer_rows(problem),
        level_count=network.level_count,
        usable_bytes=device.usable_bytes,
        reserve_bytes=device.reserve_bytes,
        replicas=replicas,
        pairs=pairs,
        sync=_sync_costs(problem, network, replicas),
        zero=problem.zeros,
        shards=_shard_costs(problem, replicas),
        tied=_tied_costs(problem, network, replicas),
        rates=None if network.spreads.is_flat else network.spreads.rates,
    )
    refuse_overflow(table)
    return table


def with_replicas(
    problem: Problem,
    table: CostTable,
    replicas: Mapping[tuple[int, Configuration], tuple[int, ...]],
) -> CostTable:
    """Return a table with the memory of other degrees; their syncs are not in it."""
    return replace(table, replicas=replicas, shards=_shard_costs(problem, replicas))


def legal_replicas(problem: Problem) -> dict[tuple[int, Configuration], tuple[int, ...]]:
    """Return the legal data-parallel degrees of every pair of the search space.

    A degree is legal if b * ep * d divides G (or the job pads), the devices
    suffice for one stage of each replica, and some number of runs of replicas
    divides it.
    """
    devices = problem.cluster.device_count
    legal = {}
    asked = sorted(problem.search.dp or _possible_replicas(problem.job, devices))
    for microbatch, configuration in problem.candidates:
        most = devices // configuration.block_size
        legal[microbatch, configuration] = tuple(
            degree
            for degree in asked
            if degree <= most
            and rounds_per_batch(problem.job, microbatch, configuration.ep, degree) is not None
        )
    if not any(legal.values()):
        raise InstanceError(_no_legal_degree(problem))
    in_runs = {
        pair: tuple(d for d in degrees if any(fits_replicas(zero, d) for zero in problem.zeros))
        for pair, degrees in legal.items()
    }
    if not any(in_runs.values()):
        known = ", ".join(map(str, sorted({d for degrees in legal.values() for d in degrees})[:12]))
        raise InstanceError(
            f"search.zero_instances: found {list(problem.search.zero_instances)}, a divisor of one "
            f"of the legal dp ({known}) is needed: choose another, or allow other dp"
        )
    return in_runs


def _possible_replicas(job: Job, most: int) -> Iterable[int]:
    """Return every d up to a number that may divide the batch: its divisors, or all if it pads."""
    if job.pad:
        return range(1, most + 1)
    batch = job.global_batch
    small = [d for d in range(1, min(most, isqrt(batch)) + 1) if batch % d == 0]
    return {d for low in small for d in (low, batch // low) if d <= most}


def _no_legal_degree(problem: Problem) -> str:
    devices, batch = problem.cluster.device_count, problem.job.global_batch
    if all(configuration.block_size > devices for _, configuration in problem.candidates):
        smallest = min(configuration.block_size for _, configuration in problem.candidates)
        return (
            f"search: the smallest block (tp * cp * ep) has {smallest} devices, the cluster has "
            f"{devices}: add devices or allow smaller degrees"
        )
    largest = max(devices // configuration.block_size for _, configuration in problem.candidates)
    if problem.search.dp and min(problem.search.dp) > largest:
        return (
            f"search.dp: found {list(problem.search.dp)}, at most {largest} replicas fit on "
            f"{devices} devices: add devices, or allow a smaller dp"
        )
    smallest_block: dict[tuple[int, int], int] = {}
    for microbatch, configuration in problem.candidates:
        key = (microbatch, configuration.ep)
        block = configuration.block_size
        smallest_block[key] = min(block, smallest_block.get(key, block))
    choices = []
    for (microbatch, ep), block in smallest_block.items():
        legal = [d for d in range(1, devices // block + 1) if batch % (microbatch * ep * d) == 0]
        if legal:
            some = ", ".join(map(str, legal[:12])) + (", ..." if len(legal) > 12 else "")
            choices.append(f"microbatch={microbatch} ep={ep}: dp {some}")
    asked = "any dp" if problem.search.dp is None else f"dp {list(problem.search.dp)}"
    named = "; ".join(choices) or "none on these devices"
    return (
        f"job.global_batch: found {batch}, which microbatch * ep * dp does not divide for {asked}; "
        f"legal choices: {named}; choose one of these, change the global batch, or set job.pad"
    )


def _layer_rows(problem: Problem) -> Row:
    names = list({entry.type: None for entry in problem.model.layers})
    rows = {name: row for row, name in enumerate(names)}
    return tuple(rows[entry.type] for entry in problem.model.layers for _ in range(entry.repeat))


def _row_profiles(problem: Problem, pair: tuple[int, Configuration]) -> list[Profile]:
    """Return the profile of every row: one a type, and the last layer's without tied parameters."""
    profiles = [kind.by_key[pair] for kind in problem.model.used_types]
    if problem.model.has_tied:
        last = problem.model.types[-1].by_key[pair]
        own = last.dense_parameters - last.tied_parameters
        profiles.append(last.model_copy(update={"dense_parameters": own, "tied_parameters": 0}))
    return profiles


def _pair_costs(
    problem: Problem, network: Network, microbatch: int, configuration: Configuration
) -> PairCosts:
    profiles = _row_profiles(problem, (microbatch, configuration))
    per_parameter = state_bytes(problem.job.bytes_per_parameter, zero_level=0, copies=1)
    modes: list[Recompute] = [
        mode
        for mode in problem.search.recompute
        if all(mode in profile.recompute for profile in profiles)
    ]
    if not modes:
        raise InstanceError(
            f"search.recompute: found {list(problem.search.recompute)}, but not every layer type "
            f"has such a mode for microbatch={microbatch} {configuration}: add footprints or modes"
        )

    def collectives(phase: str) -> dict[Group, tuple[Row, ...]]:
        return {
            group: tuple(
                tuple(
                    _collective_ps(network, profile, configuration, group, phase, level)
                    for profile in profiles
                )
                for level in range(network.level_count)
            )
            for group in GROUPS
        }

    return PairCosts(
        forward_ps=tuple(to_ps(Fraction(p.forward_s)) for p in profiles),
        backward_ps=tuple(
            to_ps(Fraction(p.backward_input_s)) + to_ps(Fraction(p.backward_weight_s))
            for p in profiles
        ),
        weight_gradient_ps=tuple(to_ps(Fraction(p.backward_weight_s)) for p in profiles),
        repeated_forward_ps=tuple(
            to_ps(Fraction(p.recompute["selective"].repeated_forward_s or 0))
            if "selective" in modes
            else 0
            for p in profiles
        ),
        forward_collective_ps=collectives("forward"),
        backward_collective_ps=collectives("backward"),
        parameters={
            "dense": tuple(p.dense_parameters for p in profiles),
            "expert": tuple(p.expert_parameters for p in profiles),
        },
        states_bytes=tuple(
            to_bytes(p.dense_parameters * per_parameter)
            + to_bytes(p.expert_parameters * per_parameter)
            for p in profiles
        ),
        stash_bytes={
            mode: tuple(p.recompute[mode].stash_bytes for p in profiles) for mode in modes
        },
        work_bytes={mode: tuple(p.recompute[mode].work_bytes for p in profiles) for mode in modes},
        hop_ps=hop_times(network, configuration, cut_bytes(problem, microbatch, configuration.tp)),
    )


def _collective_ps(
    network: Network,
    profile: Profile,
    configuration: Configuration,
    group: Group,
    phase: str,
    level: int,
) -> int:
    """Return the time of a profile's collectives of one group kind and phase.

    Of each call what the profile hides is taken off and the rest is rounded
    by itself; a group of one rank costs nothing.
    """
    ranks = configuration.degree(group)
    if ranks == 1:
        return 0
    total = 0
    for collective in profile.collectives:
        if collective.group == group and collective.phase == phase:
            size, operation = Fraction(collective.bytes), collective.operation
            spread = network.spreads.single_port(level)
            algorithm = network.fastest_algorithm(operation, ranks, spread, size)
            fixed, per_byte = network.collective_s(operation, ranks, spread, algorithm)
            exposed = fixed + per_byte * size - Fraction(collective.hidden_s)
            total += collective.count * to_ps(max(Fraction(0), exposed))
    return total


def cut_bytes(problem: Problem, microbatch: int, tp: int) -> tuple[int, ...]:
    """Return the bytes that cross each cut of the listed order, n + 1 of them.

    A tensor is relayed: it crosses every cut between its producer and its
    last consumer, once however many consume it.
    """
    change = [0] * (len(problem.model.ids) + 1)
    for producer, consumers, size in problem.model.tensors(microbatch, tp):
        change[producer + 1] += size
        change[max(consumers) + 1] -= size
    return tuple(accumulate(change))


def hop_times(
    network: Network, configuration: Configuration, sizes: Sequence[int]
) -> tuple[Row, ...]:
    """Return, per level, the time of a hop of each size; a rank moves its share of the bytes."""
    shares = configuration.cp * (configuration.tp if configuration.sp else 1)
    found = []
    for level in range(network.level_count):
        # Repeated layers have equal boundaries.
        times = {size: to_ps(network.hop_s(Fraction(size, shares), level)) for size in set(sizes)}
        found.append(tuple(times[size] for size in sizes))
    return tuple(found)


def _sync_costs(
    problem: Problem,
    network: Network,
    replicas: Mapping[tuple[int, Configuration], tuple[int, ...]],
) -> dict[SyncKey, SyncCosts]:
    """Return the collectives over copies of every class, number of copies and spread.

    The algorithm is the one that is fastest for the largest layer on the
    outermost level, in the best spread there: the same for all layers, so that
    a stage's sync stays a sum over them, and for all spreads, so that none is
    faster than a better one.
    """
    spreads, top = network.spreads, network.level_count - 1
    sizes_of = problem.job.bytes_per_parameter
    costs: dict[SyncKey, SyncCosts] = {}
    for (microbatch, configuration), degrees in replicas.items():
        profiles = _row_profiles(problem, (microbatch, configuration))
        for parameter_class in CLASSES:
            for operation, ranks, shares in _calls(
                problem, configuration, parameter_class, degrees
            ):
                worst = spreads.single_port(top)
                key = SyncKey(configuration, parameter_class, ranks, worst, operation, shares)
                if key in costs:
                    continue
                part = sizes_of.weights if operation == "all-gather" else sizes_of.gradients
                size = Fraction(part) / shares
                counts = [_parameters(profile, parameter_class) for profile in profiles]
                algorithm = network.fastest_algorithm(
                    operation, ranks, spreads.best(ranks, top), size * max(counts)
                )
                for spread in every_spread(spreads.rates, ranks):
                    fixed, per_byte = network.collective_s(operation, ranks, spread, algorithm)
                    costs[replace(key, spread=spread)] = SyncCosts(
                        to_ps(fixed), to_ps_each(per_byte * size, counts)
                    )
    return costs


def _calls(
    problem: Problem,
    configuration: Configuration,
    parameter_class: ParameterClass,
    degrees: Iterable[int],
) -> list[Call]:
    """Return every collective over copies of a class, each once, by operation."""
    found = {
        call: None
        for degree in degrees
        for zero in problem.zeros
        if fits_replicas(zero, degree)
        for call in calls_of(configuration, parameter_class, zero, degree)
    }
    return sorted(found, key=lambda call: OPERATIONS.index(call.operation))


def _parameters(profile: Profile, parameter_class: ParameterClass) -> int:
    return profile.dense_parameters if parameter_class == "dense" else profile.expert_parameters


def _shard_costs(
    problem: Problem, replicas: Mapping[tuple[int, Configuration], tuple[int, ...]]
) -> dict[ShardKey, ShardCosts]:
    """Return the memory of every class, number of copies and ZeRO level where one is above 0.

    Where copies share out gradients or weights, those of the layer at work
    are whole for as long: no other layer's are gathered beforehand (Zhao et
    al. 2023, arXiv:2304.11277: memory is the sum of the shards and the
    largest unit unsharded).
    """
    convention = problem.job.bytes_per_parameter
    costs: dict[ShardKey, ShardCosts] = {}
    for pair, degrees in replicas.items():
        profiles = _row_profiles(problem, pair)
        for name, zero, degree in product(CLASSES, filter(None, problem.zeros), degrees):
            if not fits_replicas(zero, degree):
                continue
            level, ranks = zero.level(name), Sharding(zero, degree, 1).inside(pair[1], name)
            key = ShardKey(pair[1], name, ranks, level)
            if key in costs:
                continue
            state = state_bytes(convention, level, ranks)
            whole = whole_bytes(convention, level, ranks)
            counts = [_parameters(profile, name) for profile in profiles]
            costs[key] = ShardCosts(to_bytes_each(state, counts), to_bytes_each(whole, counts))
    return costs


def _tied_costs(
    problem: Problem,
    network: Network,
    replicas: Mapping[tuple[int, Configuration], tuple[int, ...]],
) -> TiedCosts | None:
    """Return the row of the last layer less its tied parameters, and their exchanges: (66).

    Where copies share out gradients, a rank has its share of the tied ones
    alone, and so has the equal rank at the other end.
    """
    if not problem.model.has_tied:
        return None
    gradients = Fraction(problem.job.bytes_per_parameter.gradients)
    exchange: dict[TiedKey, int] = {}
    for pair, degrees in replicas.items():
        tied = problem.model.types[-1].by_key[pair].tied_parameters
        shares = {
            Sharding(zero, degree, 1).tied_share(pair[1])
            for zero, degree in product(problem.zeros, degrees)
            if fits_replicas(zero, degree)
        }
        for share, level in product(sorted(shares), range(network.level_count)):
            if TiedKey(pair[1].tp, share, level) in exchange:
                continue
            size = gradients * tied / share
            spread = network.spreads.single_port(level)
            algorithm = network.fastest_algorithm("all-reduce", 2, spread, size)
            fixed, per_byte = network.collective_s("all-reduce", 2, spread, algorithm)
            exchange[TiedKey(pair[1].tp, share, level)] = to_ps(fixed + per_byte * size)
    return TiedCosts(len(problem.model.used_types), exchange)
