"""What `solve` does: one search, and those that its options ask for besides."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nest_opt import api
from nest_opt.api import BoundResult, GraphSolveResult, Progress, SolveResult, solve_graph
from nest_opt.cli.certificate_output import require_certifiable
from nest_opt.cli.narrowing import Narrowing
from nest_opt.cli.problem_source import Derivation
from nest_opt.cli.request_options import Asked
from nest_opt.cli.smallest import NothingFits, Smallest
from nest_opt.cli.what_if import Question, WhatIf, answer
from nest_opt.errors import InstanceError
from nest_opt.memory_front import FrontResult, front
from nest_opt.models.request import DerivedProblem
from nest_opt.problem import Problem, files


@dataclass(frozen=True)
class Wanted:
    """What is asked for besides the best plan.

    Attributes
    ----------
    questions
        Those of `--what-if`.
    top
        How many plans are to be ranked, None for no ranking.
    front_points
        How many points of the memory-time front to find, None for no front.
    certify
        Whether a certificate of the optimum is wanted.
    rank_by
        What plans are ranked by, None for what the network asks for.
    """

    questions: Sequence[Question] = ()
    top: int | None = None
    front_points: int | None = None
    certify: bool = False
    rank_by: api.RankBy | None = None


@dataclass(frozen=True)
class Solved:
    """The search, the answers to `--what-if`, and what is known of a derived problem.

    `smallest` is there if it was asked for, or if nothing fits on the devices
    asked for; `certified`, the bound with its certificate, if that was asked for and
    the search came to its end.
    """

    result: SolveResult
    answers: tuple[WhatIf, ...] = ()
    derived: DerivedProblem | None = None
    smallest: Smallest | NothingFits | None = None
    front: FrontResult | None = None
    certified: BoundResult | None = None


def solve_file(
    path: Path, narrow: Narrowing, wanted: Wanted, progress: Progress
) -> Solved | GraphSolveResult:
    """Solve the problem of a file."""
    problem = files.read_problem(path)
    if problem.is_placement_graph:
        _refuse_graph(wanted)
        return solve_graph(narrow(problem), progress)
    result, along = _search(narrow(problem), wanted, progress)
    answers = _answers(problem, narrow, wanted.questions, result, progress)
    certified = _certified(result, wanted, progress)
    return Solved(result, answers, front=along, certified=certified)


def _refuse_graph(wanted: Wanted) -> None:
    """Refuse what a placement graph has no answer to."""
    if wanted.questions:
        raise InstanceError(
            f"--what-if: found {wanted.questions[0].text!r} about a placement graph, whose search "
            "space has no dimensions to fix: leave the option out"
        )
    for option, value in (
        ("--top", wanted.top),
        ("--front", wanted.front_points),
        ("--rank-by", wanted.rank_by),
    ):
        if value is not None:
            raise InstanceError(
                f"{option}: found a placement graph, whose search finds 1 split: leave the "
                "option out"
            )
    if wanted.certify:
        raise InstanceError(
            "--certify: found a placement graph, which has no certificates: leave the option out"
        )


def _certified(result: SolveResult, wanted: Wanted, progress: Progress) -> BoundResult | None:
    """Return the proof that a search's answer is the best, None if none is wanted or it is not."""
    if not wanted.certify or result.cut_short:
        return None
    require_certifiable(result.problem, "--certify")
    return api.bound_pipeline(result.problem, progress=progress, start=result)


def _search(
    problem: Problem, wanted: Wanted, progress: Progress
) -> tuple[SolveResult, FrontResult | None]:
    """Return the search, and the front that it is the first point of if that is wanted."""
    if wanted.certify:
        require_certifiable(problem, "--certify")
    if wanted.front_points is not None:
        found = front(problem, progress, most=wanted.front_points)
        return found.first, found
    top = 1 if wanted.top is None else wanted.top
    by_links = api.ranks_by(problem, wanted.rank_by) == "links"
    search = api.solve_on_links if by_links else api.solve_pipeline
    return search(problem, progress, top=top), None


def solve_request(asked: Asked, narrow: Narrowing, wanted: Wanted, progress: Progress) -> Solved:
    """Solve a derived problem, with profiles for a fixed cp that --cp does not name."""
    if asked.context_parallel_degrees is None:
        asked = replace(asked, context_parallel_degrees=narrow.fixes.get("cp"))
    request = asked.request()
    derivation = Derivation(request, narrow)
    found: Smallest | NothingFits | None = None
    along: FrontResult | None = None
    if asked.smallest:
        found = derivation.smallest(progress)
        result = found.result
        derived = derivation.on(result.problem.cluster.device_count)
    else:
        derived = derivation.on(request.devices)
        result, along = _search(narrow(derived.problem), wanted, progress)
        more = result.diagnosis is not None and result.diagnosis.devices is not None
        if more and not result.cut_short:
            found = _smallest_if_not_interrupted(derivation, progress)
    answers = _answers(derived.problem, narrow, wanted.questions, result, progress)
    return Solved(result, answers, derived, found, along, _certified(result, wanted, progress))


def _smallest_if_not_interrupted(
    derivation: Derivation, progress: Progress
) -> Smallest | NothingFits | None:
    try:
        return derivation.smallest(progress)
    except KeyboardInterrupt:
        return None


def _answers(
    problem: Problem,
    narrow: Narrowing,
    questions: Sequence[Question],
    result: SolveResult,
    progress: Progress,
) -> tuple[WhatIf, ...]:
    if result.cut_short:
        return ()
    return answer(problem, narrow, questions, progress)
