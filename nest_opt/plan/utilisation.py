"""What share of the devices' peak a plan's batch time amounts to."""

from nest_opt.cost.units import PS_PER_S
from nest_opt.problem import Problem


def model_utilisation(problem: Problem, batch_ps: int, devices: int) -> float | None:
    """Return model FLOPs over what some devices could compute at their peak in a batch time.

    Model FLOPs utilisation in the sense of PaLM (arXiv:2204.02311, appendix
    B): recomputation does not count. None where the problem states no FLOPs
    or no peak.

    Parameters
    ----------
    batch_ps
        Time of one batch in picoseconds.
    devices
        Devices to compare with: those that the plan uses, or all.
    """
    flops, peak = problem.model.flops_per_sequence, problem.cluster.device_kind.peak_flops
    if flops is None or peak is None or batch_ps == 0:
        return None
    return flops * problem.job.global_batch * PS_PER_S / (float(peak) * devices * batch_ps)
