"""`--what-if tp=4`: the best plan once something is fixed, beside the best of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nest_opt.cli.fix import parse_fixes

if TYPE_CHECKING:
    from nest_opt.api import Progress, SolveResult
    from nest_opt.cli.narrowing import Narrowing
    from nest_opt.problem import Problem

OPTION = "--what-if"


@dataclass(frozen=True)
class Question:
    """What is to be fixed: as it was written, and by dimension."""

    text: str
    fixes: dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class WhatIf:
    """The answer: a search, or why there can be none."""

    question: Question
    result: "SolveResult | None" = None
    error: str | None = None


def parse_questions(texts: Sequence[str]) -> tuple[Question, ...]:
    """Return what is to be fixed, for each `KEY=VALUE[,VALUE][+KEY=VALUE...]`.

    Raises
    ------
    click.UsageError
        If a key or value is not legal, or a key comes twice.
    """
    return tuple(Question(text, parse_fixes(text.split("+"), OPTION)) for text in texts)


def answer(
    problem: "Problem",
    narrow: "Narrowing",
    questions: Sequence[Question],
    progress: "Progress | None" = None,
) -> tuple[WhatIf, ...]:
    """Search a problem once for each question, until interrupted.

    Parameters
    ----------
    narrow
        What --fix and --runtime say; a question replaces a fix of the same dimension.
    """
    answers: list[WhatIf] = []
    for question in questions:
        answers.append(_answer(problem, narrow, question, progress))
        result = answers[-1].result
        if result is not None and result.cut_short:
            break
    return tuple(answers)


def _answer(
    problem: "Problem",
    narrow: "Narrowing",
    question: Question,
    progress: "Progress | None",
) -> WhatIf:
    from nest_opt import api
    from nest_opt.errors import InstanceError

    try:
        narrowed = narrow(problem, question.fixes, OPTION)
        return WhatIf(question, result=api.solve_pipeline(narrowed, progress))
    except InstanceError as error:
        return WhatIf(question, error=str(error))
