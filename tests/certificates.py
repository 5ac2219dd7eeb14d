"""Weak certificates: claims that one proof of the checker settles for all groups at once."""

from typing import Any

from nest_opt import Problem
from nest_opt.api import Certificate
from nest_opt.cost.table_file import table_digest, table_to_json
from nest_opt.plan.evaluate import Costs
from nest_opt.problem.files import problem_digest, to_json_data


def certificate_of(
    of: Problem, least_ps: int | None, family: str = "aligned", **fields: Any
) -> Certificate:
    """Return a certificate of a problem; `fields` replace its own.

    The sum of all layers' times is far above a few picoseconds, and where no
    stage fits, no threshold is needed to see that there is no plan.
    """
    table = Costs(of).table
    proof = {"proof": "thresholds", "sync_ps": []} if least_ps is None else {"proof": "sum"}
    box = {"zero": [0, len(table.zero) - 1], "replicas": [1, 10**6], "stages": [1, 10**6]}
    return Certificate(
        {
            "format": "nest-opt-certificate",
            "version": 1,
            "claim": {"family": family, "least_ps": None if least_ps is None else str(least_ps)},
            "problem": to_json_data(of),
            "problem_sha256": problem_digest(of),
            "table": table_to_json(table),
            "table_sha256": table_digest(table),
            "evidence": [
                {**proof, "box": {"pair": pair, "schedule": schedule, **box}}
                for pair in range(len(table.pairs))
                for schedule in range(len(of.search.schedules))
            ],
            **fields,
        }
    )
