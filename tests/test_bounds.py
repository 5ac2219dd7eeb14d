"""Bounds and certificates, from Python and from the command line."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from certificates import certificate_of
from cli_running import run, run_json, write
from random_graphs import random_graph

from nest_opt import CertificateError, Problem, bound, check, exact, register, solve
from nest_opt.api import BoundResult, Family
from nest_opt.certify.certificate import file_content, read_certificate
from nest_opt.certify.scope import uncertifiable
from nest_opt.cli.fix import fix
from nest_opt.cli.progress import SearchProgress
from nest_opt.cli.units import exact_seconds_text, seconds_text
from nest_opt.problem.files import problem_digest, read_problem, to_json_data
from nest_opt.registry import unregister
from nest_opt.verbs.deadline import Deadline

TINY = Path(__file__).resolve().parent.parent / "instances" / "tiny"
# Its free family has a closed-form bound below the optimum.
HOPS = TINY / "hop-latency-limit.json"
OTHER = TINY / "colocation.json"
# One that has a plan.
GRAPH_SEED = 3
INFEASIBLE = TINY / "infeasible-layer.json"


@pytest.fixture
def value_ps() -> int:
    """Return the value of the best plan."""
    return int(run_json("solve", HOPS)["objective"]["value_ps"])


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    """Return the file of the best plan."""
    run("solve", HOPS, "-o", tmp_path / "plan.json")
    return tmp_path / "plan.json"


@pytest.fixture
def graph_path(tmp_path: Path) -> Path:
    """Return the file of a placement graph."""
    return write(tmp_path / "graph.json", to_json_data(random_graph(GRAPH_SEED)))


def stop(*_: object, **__: object) -> None:
    """Interrupt."""
    raise KeyboardInterrupt


def interrupt(_: SearchProgress, done: int, total: int, best_ps: int | None) -> None:
    """Interrupt a search that has a plan."""
    if best_ps is not None:
        raise KeyboardInterrupt


# Bounds


@pytest.mark.parametrize("path", [HOPS, INFEASIBLE, TINY / "dp-inner-wins.json"])
def test_bounds_are_what_the_searches_prove(path: Path) -> None:
    """Aligned it is the value of `solve`, free at most that of `exact`; None: there is no plan."""
    problem = read_problem(path)
    solved, programs = solve(problem), exact(problem, family="free")
    aligned, free = bound(problem), bound(problem, family="free")
    assert (aligned.bound_ps, aligned.voucher) == (solved.bound_ps, "DP")
    assert free.voucher == "DP"
    if programs.evaluation is None:
        assert free.bound_ps is None
    else:
        assert free.bound_ps is not None
        assert free.bound_ps <= programs.evaluation.value_ps
    assert aligned.complete
    assert free.complete
    assert aligned.gap == solved.gap
    # Of a bound without a certificate the result says why, if one was asked for.
    assert (aligned.uncertified, free.uncertified) == (None, None)
    for found in (aligned, free):
        assert found.certificate
        proved = check(found.certificate, problem, recompute_costs=True)
        assert (proved.least_ps, proved.family) == (found.bound_ps, found.family)
        assert (proved.groups, proved.proofs) == (found.groups, found.proofs)


def test_bound_prints_what_decides(value_ps: int) -> None:
    """Bound, best plan, gap, family, voucher, proofs and evidence are in the report."""
    found = run("bound", HOPS, width=200)
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert lines[0] == (
        "bound: no plan of the aligned family takes less than "
        f"{seconds_text(value_ps)} per batch (objective fill-drain)"
    )
    for words in (
        f"bound      {exact_seconds_text(value_ps)}",
        f"best plan  {exact_seconds_text(value_ps)}",
        "gap        0%",
        "family     aligned: ",
        "proof by   the dynamic program",
        " thresholds       2  no stages keep below",
        "evidence   a certificate of 7 groups of cells, ",
    ):
        assert any(line.startswith(words) for line in lines), words


def test_bound_json_is_the_contract(value_ps: int) -> None:
    """The fields hold exact strings, the gap and the voucher; `--fix` and `--family` count."""
    data = run_json("bound", HOPS)
    assert (data["status"], data["family"], data["voucher"]) == ("complete", "aligned", "DP")
    assert data["bound_ps"] == data["objective"]["value_ps"] == str(value_ps)
    assert (data["gap"], data["groups"], data["uncertified"]) == (0, 7, None)
    assert data["proofs"] == {"sum": 5, "thresholds": 2}
    assert data["certificate"]["written"] is None
    narrow = run_json("bound", HOPS, "--fix", "dp=1")
    assert int(narrow["bound_ps"]) > value_ps
    wide = run_json("bound", HOPS, "--family", "free", "--gap", "0.99")
    assert (wide["family"], wide["voucher"]) == ("free", "DP")
    assert int(wide["bound_ps"]) < value_ps
    assert wide["gap"] == pytest.approx(1 - int(wide["bound_ps"]) / value_ps, rel=1e-12)


def test_no_plan_is_a_bound_with_exit_code_1() -> None:
    """Where the family is empty, the report and the JSON say so, and the exit code is 1."""
    found, data = run("bound", INFEASIBLE), run_json("bound", INFEASIBLE)
    assert found.exit_code == 1
    assert found.stdout.startswith("infeasible: there is no plan: no plan of the aligned family")
    assert (data["status"], data["bound_ps"], data["gap"]) == ("infeasible", None, None)


def test_bound_of_a_placement_graph_is_that_of_exact(graph_path: Path) -> None:
    """Its split is the family, `exact` vouches, and there is no certificate, which is said."""
    expected, data = run_json("exact", graph_path), run_json("bound", graph_path)
    assert data["family"] == expected["family"]
    assert data["bound_ps"] == expected["bound_ps"]
    assert data["voucher"] == {"dynamic program": "DP"}.get(
        expected["bound_vouched_by"], expected["bound_vouched_by"]
    )
    assert "job.transfer: found 'sender-once'" in data["uncertified"]
    assert "no certificate (job.transfer" in run("bound", graph_path, width=200).stdout


def test_an_interrupted_bound_is_the_best_so_far(
    value_ps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C leaves a bound that holds, marked as such; before the search there is none."""
    monkeypatch.setattr(SearchProgress, "__call__", interrupt)
    data, text = run_json("bound", HOPS), run("bound", HOPS, width=200)
    assert data["status"] == "incomplete"
    assert int(data["bound_ps"]) <= value_ps <= int(data["objective"]["value_ps"])
    assert text.exit_code == 0
    assert text.stdout.startswith("bound so far: ")
    assert "cut short: the best bound so far" in text.stdout
    monkeypatch.setattr("nest_opt.problem.files.read_problem", stop)
    assert run("bound", HOPS).stdout == "interrupted: no bound yet\n"
    nothing = run("bound", HOPS, "--json")
    assert nothing.exit_code == 1
    assert set(json.loads(nothing.stdout)) == set(data)
    assert json.loads(nothing.stdout)["status"] == "interrupted"


def test_a_time_limit_ends_a_bound(value_ps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of time, the best bound so far is told."""
    monkeypatch.setattr("nest_opt.verbs.deadline.STEPS_AT_LEAST", 1)
    data = run_json("bound", HOPS, "--time-limit", "0")
    assert data["status"] == "incomplete"
    assert int(data["bound_ps"]) <= value_ps


def test_ctrl_c_while_programs_run_ends_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is searched after it: the bound of relaxations is told, cut short, unproved."""
    monkeypatch.setattr("nest_opt.milp.exact.exact", stop)
    monkeypatch.setattr("nest_opt.verbs.pipeline.bound.make_certificate", None)
    monkeypatch.setattr("nest_opt.verbs.pipeline.bound.bound_by_programs", None)
    found = bound(read_problem(HOPS), family="free", splits=3)
    assert (found.complete, found.uncertified) == (False, "the search was cut short")


def test_a_time_limit_ends_linear_programs() -> None:
    """Steps that may be long have no first ones that are free; each split is one."""
    first, long = (Deadline(None, lambda: 0.0, are_long=long) for long in (False, True))
    first(0, 1, None)
    with pytest.raises(KeyboardInterrupt):
        long(0, 1, None)
    assert (first.passed, long.passed) == (False, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--family", "loose"], "'loose'"),
        (["--gap", "1"], "gap: found 1"),
        (["--gap", "x"], "a number such as 1.25 is needed"),
        (["--splits", "3"], "--splits: found with the aligned family"),
        (["--family", "free", "--splits", "10001"], "found 10001, 0 to 10,000 are allowed"),
        (["--family", "free", "--splits", "x"], "a whole number of at most 20 characters"),
        (["--fix", "dp=7"], "search.dp: found [7]"),
        (["-o", "nowhere/c.json"], "no directory nowhere"),
        (["-o", "."], "found a directory, a file is needed"),
        (["-o", HOPS], "is the input file itself"),
        (["-o", "c.json", "--fix", "per_stage=tp"], "search.per_stage: found tp"),
    ],
)
def test_bound_refuses(
    arguments: list[object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong options, outputs, and problems without certificates exit with 2; nothing is written."""
    monkeypatch.chdir(tmp_path)
    found = run("bound", HOPS, *arguments)
    assert (found.exit_code, found.stdout) == (2, "")
    assert message in found.stderr
    assert list(tmp_path.iterdir()) == []


# Certificates that are written


def test_certificates_are_written_plain_or_compressed(tmp_path: Path, value_ps: int) -> None:
    """`-o` writes canonical JSON, compressed under `.gz`; the report counts groups and bytes."""
    plain, packed = tmp_path / "c.json", tmp_path / "c.json.gz"
    text = run("bound", HOPS, "-o", plain, width=200).stdout
    data = run_json("bound", HOPS, "-o", packed)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert read_certificate(packed) == read_certificate(plain)
    assert read_certificate(plain).data["claim"] == {
        "family": "aligned",
        "least_ps": str(value_ps),
    }
    size = len(plain.read_bytes())
    assert data["certificate"] == {"bytes": size, "written": str(packed)}
    assert f"a certificate of 7 groups of cells, {size:,} bytes" in text
    assert f"written    {plain}" in text
    again = packed.read_bytes()
    run("bound", HOPS, "-o", packed)
    assert packed.read_bytes() == again


def test_solve_certifies_its_optimum(tmp_path: Path, value_ps: int) -> None:
    """`--certify` writes the certificate of the plan's value, and says so; of no plan as well."""
    path = tmp_path / "c.json"
    found = run("solve", HOPS, "--certify", path, width=200)
    assert found.exit_code == 0
    claim = f"the aligned family has no plan below {exact_seconds_text(value_ps)}"
    assert f"certified  {claim}: a certificate of 7 groups" in found.stdout
    assert read_certificate(path).data["claim"]["least_ps"] == str(value_ps)
    data = run_json("solve", HOPS, "--certify", path)
    assert data["certified"]["certificate"]["written"] == str(path)
    assert "certified" not in run_json("solve", HOPS)
    none = run("solve", INFEASIBLE, "--certify", path, width=200)
    assert none.exit_code == 1
    assert "certified  the aligned family has no legal plan" in none.stdout
    assert read_certificate(path).data["claim"]["least_ps"] is None


def test_a_certificate_that_is_not_made_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the certificate that was asked for the exit code is 1, and no file is there."""

    def uncertified(**_: Any) -> BoundResult:
        return BoundResult("aligned", 1, 1, "DP", None, True, 0, {}, "too large")

    monkeypatch.setattr("nest_opt.api.bound_pipeline", lambda _, **named: uncertified(**named))
    path = tmp_path / "c.json"
    for arguments in (("bound", HOPS, "-o", path), ("solve", HOPS, "--certify", path)):
        found = run(*arguments, width=200)
        assert found.exit_code == 1
        assert "no certificate (too large): the bound is a claim of the package's" in found.stdout
        assert not path.exists()
    monkeypatch.setattr(SearchProgress, "__call__", interrupt)
    found = run("solve", HOPS, "--certify", path, width=200)
    assert found.exit_code == 1
    assert "certified  nothing: interrupted before the proof began" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--certify", "nowhere/c.json"], "no directory nowhere"),
        (["--certify", HOPS], "is the input file itself"),
        (["--certify", "x.json", "-o", "./x.json"], "which --output names as well"),
        (["--certify", "c.json", "--fix", "per_stage=tp"], "--certify: search.per_stage"),
    ],
)
def test_solve_refuses_to_certify(
    arguments: list[object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad paths and problems without certificates exit with 2 before the search."""
    monkeypatch.chdir(tmp_path)
    found = run("solve", HOPS, *arguments)
    assert (found.exit_code, found.stdout) == (2, "")
    assert message in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_placement_graphs_have_no_certificates(graph_path: Path) -> None:
    """Every option that asks for one is refused with 2."""
    plan = graph_path.with_name("graph-plan.json")
    assert run("solve", graph_path, "-o", plan).exit_code == 0
    for arguments, message in (
        (("bound", graph_path, "-o", plan), "job.transfer: found 'sender-once'"),
        (("solve", graph_path, "--certify", plan), "--certify: found a placement graph"),
        (("verify", plan, "--certificate", plan), "found a placement graph's plan"),
    ):
        found = run(*arguments)
        assert found.exit_code == 2
        assert message in found.stderr


def test_a_search_for_proofs_that_is_cut_short_leaves_the_bound(
    value_ps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while proofs are looked for: the bound stands, complete, without a certificate."""
    monkeypatch.setattr("nest_opt.verbs.pipeline.bound.make_certificate", stop)
    data = run_json("bound", HOPS)
    assert (data["status"], data["bound_ps"]) == ("complete", str(value_ps))
    assert (data["certificate"], data["groups"]) == (None, 0)
    assert data["uncertified"] == "the search for proofs was cut short"


def test_constraints_of_a_user_leave_no_certificate() -> None:
    """The checker leaves them out, so the search's bound may be above what it can prove."""
    entry = {"type": "user", "name": "test-bounds", "parameters": {}}
    register("test-bounds", lambda *_: [])
    try:
        problem = read_problem(HOPS).model_copy(update={"constraints": (entry,)})
        found = bound(problem)
    finally:
        unregister("test-bounds")
    assert found.certificate is None
    assert found.uncertified == ("constraints[0]: found a user's own, which the checker leaves out")


def test_no_certificates_of_what_the_checker_does_not_know() -> None:
    """Each such field is named; a problem with none of them has certificates."""
    problem = read_problem(HOPS)
    job = problem.job.model_copy(update={"cost_model": "artifact"})
    assert uncertifiable(problem) is None
    told = uncertifiable(problem.model_copy(update={"job": job}))
    assert told == "job.cost_model: found 'artifact', certificates are of 'default' alone"


# Certificates that are checked


def claimed(path: Path, least_ps: int | None, source: Path = HOPS, **fields: Any) -> Path:
    """Write a certificate and return its path."""
    certificate = certificate_of(read_problem(source), least_ps, **fields)
    path.write_bytes(file_content(certificate, path))
    return path


def test_check_says_what_is_proved(tmp_path: Path) -> None:
    """One sentence has the claim; problem, costs and proofs follow, in JSON as well."""
    problem = read_problem(HOPS)
    path = claimed(tmp_path / "c.json.gz", 1_234_567_000_000)
    found = run("check", path, HOPS, "--recompute-costs", width=300)
    assert found.exit_code == 0
    assert found.stdout.splitlines()[0] == (
        f"proved: no legal plan of the aligned family for problem {problem.name!r} takes less than "
        "1.234567000000 s (1,234,567,000,000 ps) per batch by the objective fill-drain"
    )
    digest, costs = problem_digest(problem), read_certificate(path).data["table_sha256"]
    for words in (
        f"{digest}\n",
        f"{costs}\n",
        "rebuilt from the problem: the same",
        "covers all 7 groups of cells",
        "sum         7  the least times",
    ):
        assert words in found.stdout
    assert "taken from the certificate" in run("check", path, width=100).stdout
    data = run_json("check", path)
    assert data["least_ps"] == "1234567000000"
    assert (data["groups"], data["proofs"]) == (7, {"sum": 7})
    assert (data["problem"], data["problem_sha256"]) == (problem.name, digest)
    assert (data["table_sha256"], data["recomputed"]) == (costs, False)
    none = claimed(tmp_path / "none.json", None, INFEASIBLE)
    assert (
        "the aligned family has no legal plan for problem" in run("check", none, width=200).stdout
    )
    assert run_json("check", none)["least_ps"] is None


def test_check_from_python() -> None:
    """What was made can be checked in memory, against a problem, and is refused in words."""
    problem = read_problem(HOPS)
    found = check(certificate_of(problem, 5), problem, recompute_costs=True)
    assert (found.family, found.least_ps, found.recomputed) == ("aligned", 5, True)
    with pytest.raises(CertificateError, match="certificate: refused: no evidence for Group"):
        check(certificate_of(problem, 5, evidence=[]))


def test_check_refuses(tmp_path: Path) -> None:
    """A wrong claim, another problem, other costs and problems beyond proofs exit with 2."""
    good = claimed(tmp_path / "good.json", 5)
    wish = claimed(tmp_path / "wish.json", 22_002_303_000_000)
    costs = claimed(tmp_path / "costs.json", 5, table_sha256="0" * 64)
    broken = claimed(tmp_path / "broken.json", 5, problem={"name": "nothing"})
    altered = claimed(tmp_path / "altered.json", 5, problem_sha256="0" * 64)
    staged = fix(read_problem(HOPS), {"per_stage": ("tp",)})
    beyond = claimed(tmp_path / "beyond.json", 5, problem=to_json_data(staged))
    for arguments, message in (
        ((wish,), "refused: evidence[0]: sum does not settle Group("),
        ((good, OTHER), "found a certificate about problem"),
        ((good, tmp_path / "missing.json"), "cannot be read (No such file or directory)"),
        ((good, good), "found"),
        ((costs, "--recompute-costs"), "found a cost table of SHA-256 0000"),
        ((costs,), "refused: "),
        ((altered,), "refused: "),
        ((broken,), "problem: "),
        ((beyond,), "search.per_stage: found tp"),
    ):
        found, as_json = run("check", *arguments), run("check", *arguments, "--json")
        assert (found.exit_code, found.stdout) == (2, ""), arguments
        assert found.stderr.startswith("error: ")
        assert message in found.stderr
        assert json.loads(as_json.stdout)["status"] == "error"


def _nothing(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    packed = gzip.compress(path.read_bytes())
    path.write_bytes(packed[: len(packed) // 2])


def _flip(path: Path) -> None:
    packed = bytearray(gzip.compress(path.read_bytes()))
    packed[-6] ^= 0xFF
    path.write_bytes(packed)


def _garbage(path: Path) -> None:
    path.write_bytes(b"\x1f\x8b" + bytes(range(200)))


def _put(content: str) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.write_text(content)

    return put


def _latin(path: Path) -> None:
    path.write_bytes(b'{"format": "\xe9"}')


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _copy(source: Path) -> Callable[[Path], None]:
    return _put(source.read_text())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_nothing, "cannot be read (No such file or directory)"),
        (_folder, "cannot be read (Is a directory)"),
        (_cut, "found damaged gzip data"),
        (_flip, "found damaged gzip data"),
        (_garbage, "found damaged gzip data"),
        (_put(""), "JSON, or gzip of it, is needed"),
        (_put("{"), "JSON, or gzip of it, is needed"),
        (_put("[" * 100_000), "recursion"),
        (_latin, "can't decode byte 0xe9"),
        (_put("[1]"), "found JSON that is no object"),
        (_put("{}"), "found a file of format nothing, a certificate"),
        (_put('{"format": ["x"]}'), "found a file of format ['x']"),
        (_put('{"x": NaN}'), "'NaN'"),
        (_put('{"x": ' + "9" * 5000 + "}"), "found a number of 5000 characters"),
        (_put('{"format": "x", "format": "y"}'), "found a key or an entry twice"),
        (_put('{"format": "nest-opt-certificate"}'), "found version nothing, 1 is needed"),
        (_put('{"format": "nest-opt-certificate", "version": true}'), "found version True"),
        (_put('{"format": "nest-opt-certificate", "version": 1}'), "found a JSON"),
        (_copy(HOPS), "found a problem of format 'nest-opt-problem'"),
    ],
)
def test_files_that_are_no_certificates(
    damage: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    """Whatever the file holds, the exit code is 2, with one line of reason."""
    path = claimed(tmp_path / "c.json", 5)
    damage(path)
    found = run("check", path)
    assert (found.exit_code, found.stdout) == (2, "")
    assert message in found.stderr
    assert found.stderr.count("\n") == 1


def test_files_too_large_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More bytes than are allowed are refused, packed or not."""
    monkeypatch.setattr("nest_opt.certify.checker.MOST_BYTES", 1000)
    for path in (tmp_path / "c.json", tmp_path / "c.json.gz"):
        claimed(path, 5)
        assert "found more than 1000 bytes" in run("check", path).stderr


# Bounds of a plan


def test_verify_holds_a_plan_against_both_families(plan_path: Path, value_ps: int) -> None:
    """A legal plan has its gap to a bound of each family; `--no-bounds` leaves them out."""
    aligned, free = run_json("verify", plan_path)["bounds"]
    assert (aligned["family"], aligned["voucher"], aligned["plan_gap"]) == ("aligned", "DP", 0)
    assert (free["family"], free["voucher"]) == ("free", "DP")
    assert free["plan_gap"] == pytest.approx(1 - int(free["bound_ps"]) / value_ps, rel=1e-12)
    text = run("verify", plan_path).stdout
    assert text.startswith(run("verify", plan_path, "--no-bounds").stdout)
    rows = [line.split("  ") for line in text.splitlines()[-3:]]
    assert rows[0][0] == "family"
    assert [row[0] for row in rows[1:]] == ["aligned", "free"]
    assert text.splitlines()[-2].endswith("0%  the dynamic program")
    assert "bounds" not in run_json("verify", plan_path, "--no-bounds")


def test_verify_takes_the_bounds_of_an_exact_search(plan_path: Path) -> None:
    """With `--exact` the bounds are its own, `--no-bounds` or not."""
    for more in ((), ("--no-bounds",)):
        data = run_json("verify", plan_path, "--exact", *more)
        for bounds, name in zip(data["bounds"], ("exact", "exact_free"), strict=True):
            assert bounds["bound_ps"] == data[name]["bound_ps"]
            assert bounds["voucher"] == data[name]["bound_vouched_by"]


def test_verify_takes_the_bounds_of_certificates(
    plan_path: Path, tmp_path: Path, value_ps: int
) -> None:
    """A checked certificate replaces the bound of its family, the strongest of several."""
    weak = claimed(tmp_path / "weak.json", 7)
    strong = claimed(tmp_path / "strong.json", value_ps // 4)
    free = claimed(tmp_path / "free.json", value_ps // 8, family="free")
    given = [f"--certificate={path}" for path in (weak, strong, free)]
    data = run_json("verify", plan_path, *given)["bounds"]
    assert [bounds["certificate"] for bounds in data] == [str(strong), str(free)]
    assert [bounds["plan_gap"] for bounds in data] == pytest.approx([0.75, 0.875])
    alone = run_json("verify", plan_path, given[0], "--no-bounds")["bounds"]
    assert [bounds["bound_ps"] for bounds in alone] == ["7"]
    assert f"{weak}, checked" in run("verify", plan_path, given[0], width=300).stdout


def test_verify_refuses_certificates(
    plan_path: Path, tmp_path: Path, value_ps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One about another problem exits with 2; a member of the family below a claim is a defect."""
    other = claimed(tmp_path / "other.json", 5, OTHER)
    found = run("verify", plan_path, "--certificate", other)
    assert (found.exit_code, found.stdout) == (2, "")
    assert "found a certificate about problem" in found.stderr
    weak = check(certificate_of(read_problem(HOPS), 5))
    for least_ps in (value_ps + 1, None):
        wrong = replace(weak, least_ps=least_ps)
        monkeypatch.setattr("nest_opt.api.check", lambda *_, wrong=wrong: wrong)
        found = run("verify", plan_path, "--certificate", other)
        assert found.exit_code == 3
        assert "of whose plans a bound says that none" in found.stderr


def test_bounds_are_of_legal_plans_alone(plan_path: Path) -> None:
    """A plan with violations has no gap: the text says so, and the JSON has null."""
    data = json.loads(plan_path.read_text())
    data["problem"]["cluster"]["device_kinds"] = {
        kind: {**entry, "memory_bytes": 10**9}
        for kind, entry in data["problem"]["cluster"]["device_kinds"].items()
    }
    write(plan_path, data)
    found = run("verify", plan_path)
    assert found.exit_code == 1
    assert "not searched: the plan is not legal" in found.stdout
    assert run_json("verify", plan_path)["bounds"] is None


def test_a_plan_whose_problem_cannot_be_searched_is_verified(plan_path: Path) -> None:
    """Where the search space is refused, the plan is legal and the bounds say what is wrong."""
    data = json.loads(plan_path.read_text())
    data["problem"].setdefault("search", {})["pp"] = [99]
    write(plan_path, data)
    found = run_json("verify", plan_path)
    assert found["status"] == "legal"
    for bounds in found["bounds"]:
        assert "search.pp: found [99]" in bounds["missing"]
        assert (bounds["bound_ps"], bounds["plan_gap"]) == (None, None)
    assert run("verify", plan_path).exit_code == 0


def test_bounds_that_take_long_are_left_out(
    plan_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a search that is cut short a bound above 0 counts, marked; else there is none."""

    def cut_short(_: Problem, *, family: Family, **__: Any) -> BoundResult:
        return BoundResult(family, 5 * (family == "aligned"), None, "DP", None, False, 0)

    monkeypatch.setattr("nest_opt.api.bound_pipeline", cut_short)
    aligned, free = run_json("verify", plan_path)["bounds"]
    assert (aligned["bound_ps"], aligned["complete"], aligned["missing"]) == ("5", False, None)
    assert (free["bound_ps"], free["missing"]) == (None, "nothing found in 5 s")
    assert "cut short: the best bound so far" in run("verify", plan_path, width=200).stdout


def test_a_placement_graph_has_the_bound_of_its_split(graph_path: Path) -> None:
    """Its plan is held against the split that the problem asks for, at once or by `--exact`."""
    plan = graph_path.with_name("graph-plan.json")
    assert run("solve", graph_path, "-o", plan).exit_code == 0
    (found,) = run_json("verify", plan)["bounds"]
    assert (found["family"], found["plan_gap"]) == ("contiguous", 0)
    assert "bounds" not in run_json("verify", plan, "--no-bounds")
    data = run_json("verify", plan, "--exact")
    assert data["bounds"][0]["bound_ps"] == data["exact"]["bound_ps"]
    assert "contiguous" in run("verify", plan).stdout.splitlines()[-1]
