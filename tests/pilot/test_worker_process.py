"""Workers that wait for their job, with what it needs imported."""

from __future__ import annotations

import os
import signal
import time

import pytest

from cudagraph_gate.pilot.jobs import WAITS_FOR_JOB, ProbeJob
from cudagraph_gate.pilot.worker import run_worker
from cudagraph_gate.pilot.worker_process import Spares, WorkerProcess

JOB = ProbeJob(device="simulated")


def outcome(process: WorkerProcess) -> tuple[str, bool]:
    result = run_worker(JOB, stage="doctor", process=process)
    return result.end.outcome, "features" in result.answer


def test_one_that_waits_takes_the_job_it_is_given() -> None:
    with Spares(["json", "cudagraph_gate.pilot.probing"]) as spares:
        spares.prepare()
        process = spares.take(JOB)
        assert process.popen.stdin is not None  # it was there before its job
        assert outcome(process) == ("finished", True)


def test_where_none_waits_one_is_spawned() -> None:
    with Spares([]) as spares:
        process = spares.take(JOB)
        assert process.popen.stdin is None
        assert outcome(process) == ("finished", True)


def test_what_can_not_be_imported_is_the_jobs_affair() -> None:
    with Spares(["no_such_module_at_all"]) as spares:
        spares.prepare()
        assert outcome(spares.take(JOB)) == ("finished", True)


def test_one_that_died_while_it_waited_is_replaced() -> None:
    with Spares([]) as spares:
        spares.prepare()
        (waiting,) = spares._waiting
        os.kill(waiting.popen.pid, signal.SIGKILL)
        waiting.popen.wait()
        assert outcome(spares.take(JOB)) == ("finished", True)


def test_none_is_left_behind() -> None:
    with Spares([], most=2) as spares:
        spares.prepare(3)
        waiting = list(spares._waiting)
        assert len(waiting) == 2
    assert [each.popen.returncode for each in waiting] == [-signal.SIGKILL] * 2


def test_no_more_wait_than_there_are_jobs_to_come() -> None:
    with Spares([], most=4) as spares:
        spares.prepare(1)
        spares.prepare(0)
        assert len(spares._waiting) == 1


def test_many_imports_are_no_matter() -> None:
    names = ["cudagraph_gate.pilot.probing", *(f"no_such_module_{number:05}" for number in range(8_000))]
    with Spares(names) as spares:
        spares.prepare()
        assert outcome(spares.take(JOB)) == ("finished", True)


def test_one_that_waits_ends_with_the_process_that_would_give_it_a_job() -> None:
    process = WorkerProcess.spawn(WAITS_FOR_JOB, waits=True)
    os.close(process.alive)
    process.alive = os.open(os.devnull, os.O_RDONLY)
    end = time.monotonic() + 20
    while process.popen.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    assert process.popen.returncode is not None
    process.close()


def test_a_worker_that_was_spawned_with_its_job_takes_no_other() -> None:
    process = WorkerProcess.spawn(WAITS_FOR_JOB, waits=False)
    with pytest.raises(ValueError, match="with its job"):
        process.give(JOB)
    process.kill()
    process.close()


def test_how_long_a_worker_took_is_noted() -> None:
    taken = run_worker(JOB, stage="doctor").end.elapsed
    assert isinstance(taken, int)
    assert 10_000_000 < taken < 60_000_000_000
