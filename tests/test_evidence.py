"""The run folder: what is written comes back, what is damaged is refused, what was cut off is left out."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from every_record import RECORDS
from hypothesis import given
from hypothesis import strategies as st

from cudagraph_gate.errors import EvidenceError, UsageError
from cudagraph_gate.evidence import Run, RunInfo, create_run, missing, newest_run, open_run
from cudagraph_gate.model import (
    Decision,
    Diagnosis,
    Distribution,
    Fingerprint,
    Launches,
    NotMeasured,
    ProfileTimes,
    Value,
    Verdict,
)
from cudagraph_gate.records import Record

NOON = datetime(2026, 5, 1, 12, 0, 0, 7_000, tzinfo=UTC)
NONE = NotMeasured(reason="not measured here")


def made(root: Path, workload: str = "mlp.py", *, after_ms: int = 0) -> Run:
    moment = NOON + timedelta(milliseconds=after_ms)
    return create_run(workload, "module", "simulated", root=root, now=lambda: moment)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return made(tmp_path)


DISTRIBUTION = Distribution(count=3, p50=2, p95=3, p99=3, minimum=1, maximum=3)
FINGERPRINT = Fingerprint(
    simulated=True,
    digest="ab",
    identity={"cpu_count": 4, "shapes": ("b1", "b8"), "git_dirty": False, "power": 1.5},
    conditions={},
    missing={"gpu": "simulated device"},
)
PROFILE = ProfileTimes(
    shape="b1",
    shape_value="(1, 128)",
    cold_ns=5,
    latency=DISTRIBUTION,
    cpu_ns=2,
    recorded_latency=DISTRIBUTION,
    copy_in_ns=1,
    input_bytes={"x": 256},
    iterations=3,
)
DIAGNOSIS = Diagnosis(
    source="simulated",
    level="full",
    simulated=True,
    resolution_ns=1,
    problems=("one",),
    devices=(),
    launches=Launches(submissions=2, graph_launches=0, submission_gap=NONE, tklqt_ns=7),
    ranges=(),
    requests=NONE,
    prediction=NONE,
    conclusion="idle",
)
VERDICT = Verdict(
    verdict=Decision.INCONCLUSIVE,
    rehearsal=Decision.GO,
    recorded_verdict=None,
    stale=(),
    reasons=("simulated",),
    conditions=(),
    gates=(),
    workload="mlp.py",
    run="r",
    fingerprint=FINGERPRINT,
    policy={"minimum_gain": 0.05},
)
ARTEFACTS: list[tuple[Value, str, Callable[[Run], Any]]] = [
    (FINGERPRINT, "fingerprint.json", Run.fingerprint),
    (PROFILE, "profile.json", Run.profile),
    (DIAGNOSIS, "diagnosis.json", Run.diagnosis),
    (VERDICT, "verdict.json", Run.verdict),
]
artefacts = pytest.mark.parametrize(
    ("artefact", "name", "read"), ARTEFACTS, ids=[name for _, name, _ in ARTEFACTS]
)

# --- artefacts ------------------------------------------------------------------------------------


def test_a_new_run_says_what_it_is_about(run: Run, tmp_path: Path) -> None:
    assert run.name == "20260501T120000007-mlp"
    assert open_run(tmp_path / run.name).info() == RunInfo(
        workload="mlp.py", created="2026-05-01T12:00:00.007000+00:00", mode="module", device="simulated"
    )


@artefacts
def test_an_artefact_comes_back(run: Run, artefact: Value, name: str, read: Callable[[Run], Any]) -> None:
    assert read(run) is None
    run.write(artefact)
    assert (run.folder / name).is_file()
    assert read(Run(run.folder)) == artefact


@artefacts
def test_another_schema_version_is_refused(
    run: Run, artefact: Value, name: str, read: Callable[[Run], Any]
) -> None:
    run.write(artefact)
    path = run.folder / name
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(EvidenceError) as caught:
        read(run)
    assert str(caught.value) == (
        f"{path}: has schema version 2, this cgate reads 1; "
        "use the cgate version that wrote it, or run the workload again"
    )


@artefacts
@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"schema_version": 1}', b'{"schema_version": "1"}', b"\xff"]
)
def test_a_damaged_artefact_is_refused(
    run: Run, artefact: Value, name: str, read: Callable[[Run], Any], damage: bytes
) -> None:
    path = run.folder / name
    path.write_bytes(damage)
    with pytest.raises(EvidenceError) as caught:
        read(run)
    assert str(caught.value).startswith(f"{path}: damaged (")
    assert caught.value.exit_code == 22


def test_an_artefact_that_can_not_be_opened_is_refused(run: Run) -> None:
    (run.folder / "verdict.json").mkdir()
    with pytest.raises(EvidenceError, match=r"verdict\.json: can't read it \(Is a directory\)$"):
        run.verdict()


# --- writing --------------------------------------------------------------------------------------


def test_writing_again_replaces_the_whole_artefact(run: Run) -> None:
    run.write(VERDICT)
    run.write(msgspec.structs.replace(VERDICT, reasons=()))
    found = run.verdict()
    assert found is not None
    assert found.reasons == ()


def test_a_write_that_fails_leaves_the_old_artefact_and_nothing_else(run: Run) -> None:
    run.write(VERDICT)
    before = sorted(path.name for path in run.folder.iterdir())
    with pytest.raises(RuntimeError), run.replacing("verdict.json") as temporary:
        temporary.write_text("half of it")
        raise RuntimeError("power cut")
    assert run.verdict() == VERDICT
    assert sorted(path.name for path in run.folder.iterdir()) == before


def test_an_unfinished_write_is_not_seen(run: Run) -> None:
    with run.replacing("verdict.json") as temporary:
        temporary.write_text("half of it")
        assert run.verdict() is None
        temporary.write_bytes(msgspec.json.encode(VERDICT))
    assert run.verdict() == VERDICT


# --- the log --------------------------------------------------------------------------------------


def test_a_run_without_a_log_has_no_records(run: Run) -> None:
    assert run.records() == ()


def test_every_kind_of_record_comes_back_in_order(run: Run) -> None:
    for record in RECORDS:
        run.append(record)
    assert Run(run.folder).records() == RECORDS
    assert {type(record) for record in RECORDS} == set(Record.__args__)
    assert run.pilot_log_path.read_bytes().count(b"\n") == len(RECORDS)


LOG = b"".join(msgspec.json.encode(record) + b"\n" for record in RECORDS)


@given(cut=st.integers(0, len(LOG)))
def test_every_prefix_of_a_log_is_readable(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    run = Run(tmp_path_factory.mktemp("run"))
    run.pilot_log_path.write_bytes(LOG[:cut])
    whole_lines = LOG[:cut].count(b"\n")
    assert run.records() == RECORDS[:whole_lines]


def test_an_unfinished_last_line_is_left_out(run: Run) -> None:
    run.append(RECORDS[0])
    with run.pilot_log_path.open("ab") as log:
        log.write(msgspec.json.encode(RECORDS[1]))
    assert run.records() == RECORDS[:1]


@pytest.mark.parametrize("line", [b"{", b'{"record":"unheard_of"}', b'{"record":"phase_started"}', b"\xff"])
def test_a_damaged_line_in_the_middle_is_refused_with_its_number(run: Run, line: bytes) -> None:
    run.pilot_log_path.write_bytes(LOG + line + b"\n" + LOG)
    with pytest.raises(EvidenceError) as caught:
        run.records()
    assert str(caught.value).startswith(f"{run.pilot_log_path}:{len(RECORDS) + 1}: damaged (")
    assert str(caught.value).endswith("; run the stage again")


# --- which run ------------------------------------------------------------------------------------


def test_the_newest_run_is_the_last_made(tmp_path: Path) -> None:
    made(tmp_path, "a.py")
    made(tmp_path, "b.py", after_ms=1)
    assert newest_run(tmp_path).info().workload == "b.py"
    assert newest_run(tmp_path, workload="a.py").info().workload == "a.py"


def test_runs_of_one_millisecond_have_their_own_folders(tmp_path: Path) -> None:
    assert [made(tmp_path).name for _ in range(3)] == [
        "20260501T120000007-mlp",
        "20260501T120000007-mlp-1",
        "20260501T120000007-mlp-2",
    ]


def test_folders_that_are_no_runs_are_passed_over(tmp_path: Path) -> None:
    run = made(tmp_path)
    (tmp_path / "99999999-notes").mkdir()
    assert newest_run(tmp_path).folder == run.folder


def test_without_a_run_the_way_to_one_is_told(tmp_path: Path) -> None:
    hint = "start with: cgate run WORKLOAD.py, or name one with --run DIR"
    with pytest.raises(EvidenceError) as caught:
        newest_run(tmp_path / "absent")
    assert str(caught.value) == f"{tmp_path}/absent: no run found; {hint}"
    made(tmp_path, "a.py")
    with pytest.raises(EvidenceError) as caught:
        newest_run(tmp_path, workload="b.py")
    assert str(caught.value) == f"{tmp_path}: no run of b.py found; {hint}"


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError) as caught:
        open_run(tmp_path)
    assert str(caught.value) == f"{tmp_path}: no run.json in it; name a run folder of cgate"


def test_a_place_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(
        EvidenceError, match=r"runs/below: can't make a run folder \(.+\); run in a writable folder$"
    ):
        made(tmp_path / "runs" / "below")


def test_an_absent_artefact_has_its_reason() -> None:
    assert missing("timeline").reason == (
        "the run has no timeline: it ended before that stage, or the stage was not run"
    )


def test_one_process_adds_to_a_run_at_a_time(tmp_path: Path) -> None:
    run = create_run("model.py", "module", "simulated", root=tmp_path)
    with run.exclusively(), pytest.raises(UsageError, match="another cgate adds to run"), run.exclusively():
        pytest.fail("two at a time")
    with run.exclusively():
        run.append(RECORDS[0])
    assert len(run.records()) == 1


def test_who_adds_to_a_run_ends_its_verdict(tmp_path: Path) -> None:
    run = create_run("model.py", "module", "simulated", root=tmp_path)
    (run.folder / "verdict.json").write_text("{}")
    with run.exclusively():
        assert not (run.folder / "verdict.json").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_run_that_may_not_be_read_is_passed_over(tmp_path: Path) -> None:
    mine = create_run("model.py", "module", "simulated", root=tmp_path)
    (tmp_path / "99999999T000000000-other").mkdir(mode=0)
    assert newest_run(tmp_path).folder == mine.folder
