"""The optimizer step: what a batch takes besides its microbatches and their synchronisation.

No plan of a cell is faster for it than another that has the same degrees and ZeRO level, and
across cells it is a percent or two: `solve` leaves it out, a prediction adds it.
"""

from fractions import Fraction

from nest_opt.plan.evaluate import Evaluation
from nest_opt.prediction.build import BuiltRun, configuration

PS_PER_S = 10**12


def step_ps(built: BuiltRun, evaluation: Evaluation) -> int:
    """Return the time of the optimizer step of the slowest stage, in picoseconds.

    Bound by memory: a rank reads the gradients and reads and writes the
    optimizer states of its shard, and writes its weights. To that comes the
    accelerator's fixed time of a batch (loading data, norms, logging).
    """
    accelerator = built.derived.accelerator
    moved = max(_moved_bytes(built, stage.layers) for stage in evaluation.stages)
    bandwidth = Fraction(accelerator.memory_bandwidth_bytes_per_s.value)
    seconds = moved / (bandwidth * Fraction(accelerator.memory_efficiency.value))
    seconds += Fraction(accelerator.batch_s.value)
    return int((2 * seconds * PS_PER_S + 1) // 2)


def _moved_bytes(built: BuiltRun, layers: tuple[int, ...]) -> Fraction:
    run, k, problem = built.run, configuration(built.run), built.problem
    profiles = [problem.model.types[layer].by_key[run.microbatch, k] for layer in layers]
    convention = problem.job.bytes_per_parameter
    each = Fraction(convention.weights + convention.gradients + 2 * convention.optimizer)
    copies = k.cp * built.degrees.data
    sharded = run.zero > 0
    dense = sum(profile.dense_parameters for profile in profiles)
    experts = sum(profile.expert_parameters for profile in profiles)
    held = Fraction(dense, copies if sharded else 1)
    held += Fraction(experts, copies // k.ep if sharded else 1)
    return each * held * run.zero_instances if sharded else each * held
