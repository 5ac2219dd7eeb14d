"""The JSON objects of `--what-if`. `docs/cli.md` describes every field."""

from collections.abc import Sequence

from nest_opt.api import SolveResult
from nest_opt.cli.explain import failure
from nest_opt.cli.json_output import Object, degrees_json, diagnosis_json, value_json
from nest_opt.cli.what_if import WhatIf
from nest_opt.cli.what_if_report import change, fullest_stage


def what_if_json(best: SolveResult, answers: Sequence[WhatIf]) -> list[Object]:
    """Return one object for each answer."""
    return [_answer(best, answer) for answer in answers]


def _answer(best: SolveResult, answer: WhatIf) -> Object:
    result = answer.result
    plan = result.plan if result else None
    evaluation = result.evaluation if result else None
    data: Object = {
        "what_if": answer.question.text,
        "fix": {name: list(values) for name, values in answer.question.fixes.items()},
        "status": result.status if result else "refused",
        **value_json((result or best).problem, plan, evaluation),
        "change": change(result, best.evaluation) if result else None,
        "degrees": plan and degrees_json(plan),
        "fullest_stage": None,
        "error": answer.error,
        "diagnosis": None,
    }
    if evaluation:
        number, stage = fullest_stage(evaluation)
        data["fullest_stage"] = {
            "stage": number,
            "memory_bytes": stage.memory_bytes,
            "usable_bytes": stage.usable_bytes,
            "free_bytes": stage.usable_bytes - stage.memory_bytes,
        }
    if result and result.status == "infeasible":
        data["diagnosis"] = diagnosis_json(failure(result))
    return data
