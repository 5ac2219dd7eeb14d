"""Random small problems on which the faces of a user's constraint must agree."""

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, get_args

from nest_opt.api import SolveResult, solve_pipeline
from nest_opt.certify.brute_force import brute_force
from nest_opt.errors import ConsistencyError, InstanceError, SolverError
from nest_opt.problem import Problem
from nest_opt.problem.validation import build
from nest_opt.registry import Parameters, has_program_rows, is_registered, registered_parameters
from nest_opt.shrink import shrink

Face = Literal["search", "program"]


@dataclass(frozen=True)
class Disagreement:
    """A problem on which a face of a constraint differs from brute force.

    Attributes
    ----------
    face
        `search` (the rule, or the bound without one) or `program` (the rows).
    problem
        The problem.
    told
        What each found: values in ps, None for no plan.
    original
        The problem that this one was shrunk from; None if it was not shrunk.
    """

    face: Face
    problem: Problem
    told: str
    original: Problem | None = None

    def __str__(self) -> str:
        return f"{self.problem.name}: {self.told}"


@dataclass(frozen=True)
class CrosscheckResult:
    """What a cross-check saw.

    Attributes
    ----------
    problems, feasible
        Problems compared, and those with a legal plan.
    binding
        Problems whose best plan is another, or gone, by the constraint. Where
        there are none, agreement says nothing.
    relaxed
        Problems that the search, without a rule, left with a bound alone.
    disagreements
        Where a face differs from brute force, the problem of the fewest layers
        and devices first. Of each face the first is shrunk: no layer, device,
        degree or constraint fewer, and no plainer number, still disagrees.
    """

    problems: int
    feasible: int
    binding: int
    relaxed: int
    disagreements: tuple[Disagreement, ...]


def crosscheck(
    name: str,
    parameters: Parameters | None = None,
    count: int = 200,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> CrosscheckResult:
    """Compare search, brute force and program (if it has rows) under a registered constraint.

    Parameters
    ----------
    name
        The name that the constraint was registered with.
    parameters
        Called with (source of randomness, problem), returns the parameters of
        the constraint for that problem. Make them bind about half of the time.
        By default those that the constraint was registered with.
    count, seed
        How many problems, and from which seed on.
    progress
        Called with (problems compared, problems).

    Raises
    ------
    InstanceError
        If the name is not registered, or parameters are missing or refused.
    """
    if not is_registered(name):
        raise InstanceError(
            f"crosscheck: found the name {name!r}, a registered one is needed: call register first"
        )
    parameters = parameters or registered_parameters(name)
    if parameters is None:
        raise InstanceError(
            f"crosscheck: found no parameters for {name!r}, a function that draws some is needed: "
            "pass it here, or as register(..., parameters=...)"
        )
    feasible = binding = relaxed = 0
    found: list[Disagreement] = []
    for number in range(seed, seed + count):
        if progress:
            progress(number - seed, count)
        rng = random.Random(number)
        free = build(Problem, _random_data(rng, number), f"seed {number}")
        entry = {"type": "user", "name": name, "parameters": dict(parameters(rng, free))}
        problem = free.model_copy(update={"constraints": (entry,)})
        best = brute_force(problem)
        feasible += best.value_ps is not None
        binding += best.placement != brute_force(free).placement
        status, differences = _compared(problem, best.value_ps)
        relaxed += status == "relaxed"
        found += [Disagreement(face, problem, told) for face, told in differences.items()]
    return CrosscheckResult(count, feasible, binding, relaxed, tuple(_shrunk(found)))


def _shrunk(found: list[Disagreement]) -> list[Disagreement]:
    """Return disagreements, the smallest first; the first of each face shrunk."""
    found = sorted(found, key=_size)
    for face in get_args(Face):
        place = next((place for place, each in enumerate(found) if each.face == face), None)
        if place is not None:
            found[place] = _smallest(found[place])
    return sorted(found, key=_size)


def _size(disagreement: Disagreement) -> tuple[int, int, bool]:
    problem = disagreement.problem
    not_shrunk = disagreement.original is None
    return len(problem.model.ids), problem.cluster.device_count, not_shrunk


def _smallest(disagreement: Disagreement) -> Disagreement:
    """Shrink a problem while the same face disagrees."""
    face, original = disagreement.face, disagreement.problem

    def told(problem: Problem) -> str | None:
        return _compared(problem, brute_force(problem).value_ps)[1].get(face)

    def holds(problem: Problem) -> bool:
        try:
            return told(problem) is not None
        except InstanceError:
            raise
        except Exception:  # Faces may fail in any way on what they were not written for.
            return False

    problem = shrink(original, holds)
    return Disagreement(face, problem, told(problem) or disagreement.told, original)


def _compared(problem: Problem, value_ps: int | None) -> tuple[str | None, dict[Face, str]]:
    """Return the search's status, and by face how it differs from brute force."""
    differences: dict[Face, str] = {}
    status = None
    try:
        result = solve_pipeline(problem)
        status = result.status
        told = _search_difference(result, value_ps)
    except ConsistencyError as error:
        # A rule that lets through what the checker refuses.
        told = str(error)
    if told:
        differences["search"] = told
    if has_program_rows(problem):
        # Only those who use the program wait for its libraries.
        from nest_opt.milp.exact import exact

        try:
            exactly = exact(problem).value_ps
            if exactly != value_ps:
                differences["program"] = f"brute force {value_ps}, program {exactly}"
        except SolverError as error:
            # Rows that let through what the checker refuses.
            differences["program"] = str(error)
    return status, differences


def _search_difference(result: SolveResult, value_ps: int | None) -> str | None:
    """Return how the search differs from brute force, None if it does not."""
    if result.status == "relaxed":
        # The best plan without the constraint is a bound, and no more.
        if value_ps is not None and (result.bound_ps is None or result.bound_ps > value_ps):
            return f"brute force {value_ps}, bound of the relaxed search {result.bound_ps}"
        return None
    searched = None if result.evaluation is None else result.evaluation.value_ps
    return None if searched == value_ps else f"brute force {value_ps}, search {searched}"


def _random_data(rng: random.Random, number: int) -> dict[str, Any]:
    """Return a random problem; by its number it asks for more, often for several things at once.

    Every third one shards states, every fourth offers `selective`, every fifth
    asks for schedules of one chunk (rows know no others), every fourth ties parameters
    and every seventh allows trees. They are drawn last and by themselves, so that the
    other problems stay as they are.
    """
    data, more = _plain_data(rng), random.Random(f"more {number}")
    data["name"] = f"crosscheck {number}"
    if number % 3 == 1:
        data["search"] = {**data["search"], "zero": more.choice(([1], [2], [3], [0, 3]))}
    if number % 4 == 2:
        for kind in data["model"]["layer_types"].values():
            for profile in kind["profiles"]:
                _add_selective(more, profile)
    if number % 6 == 4:
        data["search"]["zero_instances"] = [1, 2]
    if number % 5 == 4:
        _add_schedules(more, data)
    if number % 4 == 3:
        _tie(data["model"])
    if number % 7 == 5:
        data["cluster"]["network"]["algorithms"] = ["ring", "tree"]
    return data


def _add_schedules(rng: random.Random, data: dict[str, Any]) -> None:
    """Ask for schedules, and let a part of the backward pass make gradients of weights."""
    names = rng.choice((["zb-h1"], ["gpipe"], ["1f1b", "zb-h1"], ["1f1b", "gpipe", "zb-h1"]))
    data["search"] = {**data["search"], "schedule": names}
    for kind in data["model"]["layer_types"].values():
        for profile in kind["profiles"]:
            whole = int(profile["backward_input_s"].removesuffix("e-12"))
            weight = rng.randint(0, whole)
            profile["backward_weight_s"] = f"{weight}e-12"
            profile["backward_input_s"] = f"{whole - weight}e-12"


def _tie(model: dict[str, Any]) -> None:
    """Give the last layer a type of its own, which shares what it can with the first layer."""
    first, last = model["layers"][0], model["layers"][-1]
    tied = deepcopy(model["layer_types"][last["type"]])
    shared = model["layer_types"][first["type"]]["profiles"]
    for profile, other in zip(tied["profiles"], shared, strict=True):
        profile["tied_parameters"] = min(profile["dense_parameters"], other["dense_parameters"])
    model["layer_types"]["tied"] = tied
    last["type"] = "tied"


def _add_selective(rng: random.Random, profile: dict[str, Any]) -> None:
    """Let a profile repeat a part of its forward pass, and keep a part of its stash."""
    modes = profile["recompute"]
    stash = modes["none"]["stash_bytes"]
    kept = rng.randint(0, stash)
    forward = int(profile["forward_s"].removesuffix("e-12"))
    modes["selective"] = {
        "stash_bytes": kept,
        "work_bytes": stash - kept,
        "repeated_forward_s": f"{rng.randint(0, forward)}e-12",
    }


def _plain_data(rng: random.Random) -> dict[str, Any]:
    """Return a problem of 2 to 6 layers and 2 to 6 devices, in small whole numbers of ps."""
    sizes = rng.choice(((2, 1), (2, 2), (3, 1), (2, 3), (3, 2)))
    layers = rng.randint(2, 6)
    return {
        "model": {
            "layer_types": {f"type-{place}": _layer_type(rng) for place in range(2)},
            "layers": [
                {"id": f"layer-{place}", "type": f"type-{rng.randrange(2)}"}
                for place in range(layers)
            ],
        },
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": rng.choice((4_000, 8_000, 10**6))}},
            "devices": [{"kind": "device", "count": sizes[0] * sizes[1]}],
            "network": {
                "type": "hierarchical",
                "levels": [
                    {
                        "name": f"level-{place}",
                        "size": size,
                        "bandwidth_bytes_per_s": 10**12 // rng.choice((1, 2, 5)),
                        "latency_s": f"{place}e-12",
                    }
                    for place, size in enumerate(sizes)
                ],
            },
        },
        "job": {
            "global_batch": 12,
            "bytes_per_parameter": {"weights": 2, "gradients": 2, "optimizer": 12},
            "objective": rng.choice(("fill-drain", "nest", "bottleneck")),
        },
        # Left alone, a free search on few devices mostly replicates one stage.
        "search": rng.choice(({}, {"dp": [1]}, {"dp": [1]}, {"dp": [2]}, {"pp": [2]})),
    }


def _layer_type(rng: random.Random) -> dict[str, Any]:
    parameters, stash = rng.randint(0, 200), rng.randint(0, 400)
    profiles = [
        {
            "microbatch": 1,
            "tp": tp,
            "forward_s": f"{rng.randint(50, 400) // tp}e-12",
            "backward_input_s": f"{rng.randint(50, 400) // tp}e-12",
            "backward_weight_s": "0",
            "dense_parameters": parameters // tp,
            "recompute": {
                "none": {"stash_bytes": stash},
                "full": {"stash_bytes": 0, "work_bytes": stash},
            },
        }
        for tp in (1, 2)
    ]
    return {"output_bytes": {"1": rng.randint(0, 300)}, "profiles": profiles}
