"""Which problems there are certificates for."""

from nest_opt.problem import Problem


def uncertifiable(problem: Problem) -> str | None:
    """Return the field that leaves a problem without certificates, and what it says; None if none.

    The checker rebuilds the cells from the problem and values them by the cost
    table: what it does not know it cannot vouch for.
    """
    job, space, network = problem.job, problem.search, problem.cluster.network
    if network.type != "hierarchical":
        return f"cluster.network.type: found {network.type!r}, certificates are of levels alone"
    if job.transfer == "sender-once":
        return "job.transfer: found 'sender-once', certificates are of 'relay' alone"
    if job.cost_model == "artifact":
        return "job.cost_model: found 'artifact', certificates are of 'default' alone"
    if space.per_stage:
        found = ", ".join(space.per_stage)
        return f"search.per_stage: found {found}, certificates are of one configuration alone"
    return None
