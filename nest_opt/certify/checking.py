"""Check a certificate with what the package knows besides: problem, and cost table.

The verdict is the checker's alone. Around it stand what a stranger asks next:
is this the problem that I have, and does the cost table follow from it?
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nest_opt.certify.certificate import Certificate, read_certificate
from nest_opt.certify.checker import RefusedError, Verdict, check
from nest_opt.certify.scope import uncertifiable
from nest_opt.cost.table_file import table_digest, table_from_json
from nest_opt.errors import CertificateError, InstanceError
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Problem
from nest_opt.problem.files import problem_digest, to_json_data
from nest_opt.problem.validation import build


@dataclass(frozen=True)
class CheckResult:
    """What a certificate proves.

    Attributes
    ----------
    family
        The family of plans that it speaks of.
    least_ps
        No plan of the family has a lower objective; None: there is no plan.
    objective
        The objective's name.
    problem_name, problem_sha256
        The problem that it embeds.
    table_sha256
        The cost table that it embeds, and that all numbers are taken from.
    groups, proofs
        Groups of cells that the evidence covers, and how many by each proof.
    recomputed
        Whether the cost table was rebuilt from the problem, and is the same.
    wall_s
        Seconds.
    """

    family: str
    least_ps: int | None
    objective: str
    problem_name: str
    problem_sha256: str
    table_sha256: str
    groups: int
    proofs: Mapping[str, int]
    recomputed: bool
    wall_s: float


def check_certificate(
    certificate: Path | Certificate,
    problem: Problem | None = None,
    recompute_costs: bool = False,
) -> CheckResult:
    """Check a certificate, of a file or in memory.

    Parameters
    ----------
    certificate
        The file, compressed or not, or what was made.
    problem
        The problem that it has to be about; any if it is None.
    recompute_costs
        Whether to rebuild the cost table from the embedded problem by this
        package, and to compare.

    Raises
    ------
    CertificateError
        If the file is no certificate, is about another problem, has costs that
        are not the problem's, or does not prove its claim.
    """
    begin = time.perf_counter()
    if isinstance(certificate, Path):
        data, name = read_certificate(certificate).data, str(certificate)
    else:
        data, name = certificate.data, "certificate"
    embedded = build(Problem, data.get("problem"), f"{name}: problem", CertificateError)
    outside = uncertifiable(embedded)
    if outside is not None:
        raise CertificateError(f"{name}: problem: {outside}: it proves nothing of this problem")
    if problem is not None:
        _refuse_other(embedded, problem, name)
    _refuse_table(embedded, data.get("table"), name)
    # The checker comes last: it takes the longest.
    if recompute_costs:
        _refuse_costs(embedded, str(data.get("table_sha256")), name)
    verdict = _verdict(data, problem, name)
    return CheckResult(
        family=verdict.family,
        least_ps=verdict.least_ps,
        objective=verdict.objective,
        problem_name=verdict.problem_name,
        problem_sha256=verdict.problem_sha256,
        table_sha256=verdict.table_sha256,
        groups=verdict.groups,
        proofs=dict(verdict.proofs),
        recomputed=recompute_costs,
        wall_s=time.perf_counter() - begin,
    )


def _verdict(data: Mapping[str, Any], problem: Problem | None, name: str) -> Verdict:
    """Return the verdict of the checker, which knows JSON and nothing of this package."""
    try:
        return check(data, None if problem is None else to_json_data(problem))
    except RefusedError as refusal:
        raise CertificateError(f"{name}: refused: {refusal}") from refusal


def _refuse_other(embedded: Problem, problem: Problem, name: str) -> None:
    found, needed = problem_digest(embedded), problem_digest(problem)
    if found != needed:
        raise CertificateError(
            f"{name}: found a certificate about problem {embedded.name!r} (SHA-256 {found}), one "
            f"about {problem.name!r} ({needed}) is needed: give the problem that it was made for; "
            "values that were fixed for it, as by --fix, are a part of that"
        )


def _refuse_table(embedded: Problem, table: Any, name: str) -> None:
    """Refuse a cost table that is malformed, also in what no proof looks at.

    One in any order has other cuts than a table's file.
    """
    if embedded.search.layer_order == "listed":
        try:
            table_from_json(table)
        except InstanceError as error:
            raise CertificateError(f"{name}: {error}") from error


def _refuse_costs(embedded: Problem, table_sha256: str, name: str) -> None:
    """Refuse a cost table that this package does not make of the problem."""
    rebuilt = table_digest(Costs(embedded).search_table)
    if rebuilt != table_sha256:
        raise CertificateError(
            f"{name}: found a cost table of SHA-256 {table_sha256}, the problem's has {rebuilt}: "
            "its claim is about other costs; make the certificate anew"
        )
