"""What a run takes: time, rates and memory, by the cost model that `solve` minimises."""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Literal

from nest_opt.cost.units import PS_PER_S
from nest_opt.errors import PlanError
from nest_opt.models.operations import recomputed_flops, training_flops
from nest_opt.models.spec import LinearSpec
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, Evaluation
from nest_opt.plan.evaluate import evaluate as evaluate_placement
from nest_opt.plan.plan import Plan, plan_from_placement
from nest_opt.prediction.build import BuiltRun, build_run, recompute_mode
from nest_opt.prediction.run import RunConfiguration
from nest_opt.prediction.step import step_ps
from nest_opt.simulate.plan import MOST_OPERATIONS, simulate_plan
from nest_opt.simulate.simulator import Hops, Simulation

# What PyTorch's allocator holds beyond what is allocated, as a share of it: the room
# above the nominal size that the catalogue leaves for it (`usable_share` of
# `nest_opt.models.hardware`, 6% on V100, A100 and H100).
FRAGMENTATION = Fraction(6, 100)

Reading = Literal["allocated", "reserved", "device"]
READINGS: dict[Reading, str] = {
    "allocated": "allocated",
    "reserved": "reserved by the allocator",
    "device": "on the device",
}

Mask = Literal["causal", "full"]
MASKS: tuple[Mask, ...] = ("causal", "full")


@dataclass(frozen=True)
class FlopRate:
    """FLOP/s of a device, by a convention of counting.

    Attributes
    ----------
    attention
        Whether causal attention counts half of the square of scores, or all.
    recomputation
        Whether what is computed again counts.
    flops
        Of one batch.
    flops_per_s
        Of each device.
    utilisation
        Share of the peak: MFU, or HFU where recomputation counts. None where no
        peak is known.
    """

    attention: Mask
    recomputation: bool
    flops: int
    flops_per_s: float
    utilisation: float | None


@dataclass(frozen=True)
class StageMemory:
    """Memory of the devices of one stage.

    Attributes
    ----------
    terms_bytes
        Bytes of each term.
    usable_bytes
        What may be filled.
    """

    terms_bytes: dict[str, int]
    usable_bytes: int

    @property
    def used_bytes(self) -> int:
        """Sum of the terms."""
        return sum(self.terms_bytes.values())

    def reading_bytes(self, reading: Reading) -> int:
        """Return what a tool shows of a device's memory: see `READINGS`."""
        reserve = self.terms_bytes["reserve"]
        allocated = self.used_bytes - reserve
        if reading == "allocated":
            return allocated
        reserved = ceil(allocated * (1 + FRAGMENTATION))
        return reserved if reading == "reserved" else reserved + reserve

    @property
    def fits(self) -> bool:
        """Whether the stage's devices have room for it."""
        return self.used_bytes <= self.usable_bytes


@dataclass(frozen=True)
class Prediction:
    """What a run takes.

    Attributes
    ----------
    built
        The run as a problem and a plan.
    evaluation
        Its value by the objective's closed form, and its stages term by term.
    simulation
        The run event by event; None where it was not asked for, or has more
        than `MOST_OPERATIONS` operations.
    """

    built: BuiltRun
    evaluation: Evaluation
    simulation: Simulation | None

    @property
    def run(self) -> RunConfiguration:
        """What was asked for."""
        return self.built.run

    @property
    def formula_ps(self) -> int:
        """Iteration time by the closed form `fill-drain`, in picoseconds."""
        return self.evaluation.value_ps

    @property
    def iteration_ps(self) -> int:
        """Iteration time in picoseconds: the schedule and the optimizer step after it."""
        return self.schedule_ps + self.step_ps

    @property
    def schedule_ps(self) -> int:
        """Time of the schedule in picoseconds: simulated, or by the closed form without."""
        found = self.simulation.iteration_ps if self.simulation else self.formula_ps
        return found - self.hidden_sync_ps

    @property
    def hidden_sync_ps(self) -> int:
        """What of the exposed synchronisation the stages' own last backward passes hide."""
        if not self.run.overlap_gradients:
            return 0
        stages = self.evaluation.stages
        left = max(
            max(0, stage.exposed_sync_ps - stage.time_terms_ps["backward"]) for stage in stages
        )
        return max(stage.exposed_sync_ps for stage in stages) - left

    @cached_property
    def step_ps(self) -> int:
        """Time of the optimizer step: see `nest_opt.prediction.step`."""
        return step_ps(self.built, self.evaluation)

    @property
    def iteration_s(self) -> float:
        """Iteration time in seconds."""
        return self.iteration_ps / PS_PER_S

    @property
    def tokens_per_batch(self) -> int:
        """Tokens of a global batch."""
        return self.run.global_batch * self.built.derived.training.sequence_length

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of the whole run."""
        return self.tokens_per_batch / self.iteration_s

    @property
    def tokens_per_s_device(self) -> float:
        """Tokens a second of one device."""
        return self.tokens_per_s / self.run.devices

    @property
    def busy_ps(self) -> int:
        """Time of a batch that the busiest stage works.

        Without a simulation m times its time of a microbatch, hops included;
        in one where hops keep no stage busy it is less.
        """
        if self.simulation:
            return max(self.simulation.busy_ps)
        return self.evaluation.rounds * max(stage.time_ps for stage in self.evaluation.stages)

    @property
    def exposed_sync_ps(self) -> int:
        """What of the iteration is left after all computation: gradient synchronisation."""
        if self.simulation:
            return self.simulation.iteration_ps - self.simulation.compute_ps
        return max(stage.exposed_sync_ps for stage in self.evaluation.stages)

    @property
    def sync_ps(self) -> int:
        """Longest gradient synchronisation of a stage once a batch, hidden or not."""
        return max(stage.sync_ps for stage in self.evaluation.stages)

    @property
    def bubble_share(self) -> float:
        """Share of the iteration in which the busiest stage waits before synchronisation."""
        idle = self.schedule_ps - self.exposed_sync_ps - self.busy_ps
        return idle / self.iteration_ps

    @cached_property
    def rates(self) -> tuple[FlopRate, ...]:
        """FLOP/s by every convention that makes a difference; model FLOPs, causal mask first."""
        spec = self.built.derived.spec
        masked = not isinstance(spec, LinearSpec) and spec.causal
        again = self._counts_recomputation
        return tuple(
            self.rate(mask, counted)
            for mask in (MASKS if masked else ("full",))
            for counted in ((False, True) if again else (False,))
        )

    @property
    def _counts_recomputation(self) -> bool:
        """Whether there is a convention of counting what is recomputed."""
        mode = recompute_mode(self.run)
        core = self.built.derived.training.memory.selective == "core"
        return mode == "full" or (mode == "selective" and core)

    def rate(self, attention: Mask = "causal", recomputation: bool = False) -> FlopRate:
        """Return the FLOP/s by a convention; see `FlopRate`."""
        derived, run = self.built.derived, self.run
        spec, length = derived.spec, derived.training.sequence_length
        if not isinstance(spec, LinearSpec) and attention == "full":
            spec = replace(spec, causal=False)
        each = training_flops(spec, length)
        if recomputation:
            each += recomputed_flops(spec, length, recompute_mode(run))
        per_s = each * run.global_batch / (self.iteration_s * run.devices)
        peak = self.built.problem.cluster.device_kind.peak_flops
        return FlopRate(
            attention,
            recomputation,
            each * run.global_batch,
            per_s,
            None if peak is None else per_s / float(peak),
        )

    @cached_property
    def memory(self) -> tuple[StageMemory, ...]:
        """Memory of each stage, term by term."""
        return tuple(
            StageMemory(stage.memory_terms_bytes, stage.usable_bytes)
            for stage in self.evaluation.stages
        )

    @property
    def peak_bytes(self) -> int:
        """Memory used on the devices of the fullest stage, the reserve included."""
        return max(stage.used_bytes for stage in self.memory)

    def reading_bytes(self, reading: Reading) -> int:
        """Return what a tool shows of the fullest stage's devices: see `READINGS`."""
        return max(stage.reading_bytes(reading) for stage in self.memory)

    @property
    def fits(self) -> bool:
        """Whether every stage fits in memory."""
        return all(stage.fits for stage in self.memory)

    def plan(self) -> Plan:
        """Return the run as a plan file, which `nest-opt verify` takes."""
        evaluation = self.evaluation
        return plan_from_placement(
            self.built.problem, self.built.placement, evaluation.objective, evaluation.value_ps
        )


def predict(run: RunConfiguration, *, simulate: bool = True, hops: Hops = "blocking") -> Prediction:
    """Predict what a run takes; one that does not fit in memory is predicted all the same.

    Parameters
    ----------
    run
        What a launcher is told.
    simulate
        Whether the iteration time is that of the schedule run event by event,
        if it has at most `MOST_OPERATIONS` operations, rather than the closed
        form's.
    hops
        As of `nest_opt.simulate.simulate`.

    Raises
    ------
    InstanceError
        If a name is unknown, a number out of range, or two contradict each other.
    PlanError
        If the run breaks a rule other than memory.
    """
    return predict_built(build_run(run), simulate=simulate, hops=hops)


def predict_built(built: BuiltRun, *, simulate: bool = True, hops: Hops = "blocking") -> Prediction:
    """Predict what a run takes that was built already: see `predict`."""
    costs = Costs(built.problem)
    evaluation = evaluate_placement(costs, built.placement)
    broken = [
        violation
        for violation in check(costs, built.placement, evaluation)
        if violation.rule != "memory"
    ]
    if broken:
        raise PlanError("; ".join(map(str, broken)))
    simulation = None
    if simulate and _operations(evaluation) <= MOST_OPERATIONS:
        simulation = simulate_plan(costs, built.placement, evaluation, hops=hops)
    return Prediction(built, evaluation, simulation)


def _operations(evaluation: Evaluation) -> int:
    """Return the operations of a schedule, as `simulate_plan` counts them."""
    schedule = evaluation.schedule
    kinds = 3 if schedule.name == "zb-h1" else 2
    return kinds * schedule.chunks * len(evaluation.stages) * evaluation.rounds
