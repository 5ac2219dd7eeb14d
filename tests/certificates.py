"""Certificates without evidence, and a checker that takes their claims on trust.

What surrounds the checker is tested by them: files, digests, reports. Proofs are
tested elsewhere.
"""

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from nest_opt import Problem
from nest_opt.api import Certificate
from nest_opt.cost.table_file import table_digest, table_to_json
from nest_opt.plan.evaluate import Costs
from nest_opt.problem.files import problem_digest, to_json_data


def certificate_of(
    of: Problem, least_ps: int | None, family: str = "aligned", **fields: Any
) -> Certificate:
    """Return a certificate of a problem with a claim and no evidence; `fields` replace others."""
    table = Costs(of).table
    return Certificate(
        {
            "format": "nest-opt-certificate",
            "version": 1,
            "claim": {
                "family": family,
                "least_ps": None if least_ps is None else str(least_ps),
            },
            "problem": to_json_data(of),
            "problem_sha256": problem_digest(of),
            "table": table_to_json(table),
            "table_sha256": table_digest(table),
            "evidence": [],
            **fields,
        }
    )


class RefusedError(Exception):
    """What a checker raises."""


def _trusting(data: Mapping[str, Any], problem: Mapping[str, Any] | None) -> SimpleNamespace:
    if data["evidence"]:
        raise RefusedError("entry 0: found proof 'wish', which is none")
    least = data["claim"]["least_ps"]
    return SimpleNamespace(
        family=data["claim"]["family"],
        least_ps=None if least is None else int(least),
        groups=1234,
        proofs={"sum": 1200, "thresholds": 34},
    )


@pytest.fixture
def trusting_checker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a checker that asks for no evidence in the checker's place."""
    checker = SimpleNamespace(check=_trusting, Refused=RefusedError)
    monkeypatch.setitem(sys.modules, "nest_opt.certify.checker", checker)
