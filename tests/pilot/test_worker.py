"""However a worker process ends, the parent names its end, its reason and the user's line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pilot_workloads import line_of, write_workload

from cudagraph_gate.errors import EvidenceError, ExitCode, WorkloadError
from cudagraph_gate.evidence import create_run
from cudagraph_gate.pilot import worker
from cudagraph_gate.pilot.jobs import ProbeJob, Progress, TrialJob, encode
from cudagraph_gate.pilot.worker import WorkerResult, crash_place, run_worker
from cudagraph_gate.records import WorkerEnd

WAIT_S = 20.0
"""Far longer than anything here takes, for a busy machine."""


def work(path: Path, *, limit_s: float = 60.0, shape: str | None = None) -> WorkerResult:
    """One worker that tries the workload."""
    run = create_run(str(path), "module", "simulated", root=path.parent / "runs")
    job = TrialJob(folder=str(run.folder), workload=str(path), device="simulated", shapes=None, shape=shape)
    return run_worker(job, stage="pilot", workload=path, limit_s=limit_s)


def ending_step(folder: Path, line: str) -> Path:
    """A workload whose second request runs ``line``."""
    return write_workload(
        folder,
        f"""
        calls = 0
        def step(x):
            global calls
            calls += 1
            if calls > 1:
                {line}  # the end
            device.copy(work, x)
            return work
        """,
    )


def gone(pid: int) -> bool:
    """Whether the process is gone (a zombie is) before long."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


# --- named ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("ctypes.string_at(0)", "SIGSEGV"),
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGFPE)", "SIGFPE"),
    ],
)
def test_a_crash_is_named_with_signal_phase_and_the_users_line(tmp_path: Path, line: str, name: str) -> None:
    path = ending_step(tmp_path, line)
    end = work(path).end
    assert (end.outcome, end.signal, end.exit_code, end.phase) == ("crashed", name, None, "warm_up")
    assert end.reason == f"{name}, last in model.py:{line_of(path, '# the end')} (step)"


def test_the_crashed_threads_line_is_named_not_another_ones(tmp_path: Path) -> None:
    path = ending_step(tmp_path, "os.abort()")
    path.write_text(
        path.read_text() + "threading.Thread(target=lambda: time.sleep(60), daemon=True).start()\n"
    )
    assert work(path).end.reason.endswith(f"model.py:{line_of(path, '# the end')} (step)")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_killed_from_outside_is_not_called_a_crash(tmp_path: Path, name: str) -> None:
    end = work(ending_step(tmp_path, f"os.kill(os.getpid(), signal.{name}); time.sleep(60)")).end
    assert (end.outcome, end.signal, end.phase) == ("killed", name, "warm_up")
    assert end.reason == f"{name}: killed from outside, or by the kernel for want of host memory"


MORE = encode(Progress(text="", limit_s=600.0))
HANGS = {
    "sleeps": "time.sleep(600)",
    "computes": "while True: pass",
    "asks for more time than there is": f"os.write(int(sys.argv[2]), {MORE!r}); time.sleep(600)",
}
PAUSES = """
        def build(shape):
            time.sleep(1.6)
            global work
            work = array()
            return step

        def step(x):
            if calls.pop(0):
                time.sleep(1.6)
            device.synchronize()
            return x

        calls = [1, *[0] * 9, 1, *[0] * 90]
        """


@pytest.fixture(scope="module")
def waited_for(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, WorkerEnd]]:
    """Workloads that take longer than the time limit, and how they ended; all at once: they just wait."""
    paths = {name: ending_step(tmp_path_factory.mktemp(name), line) for name, line in HANGS.items()}
    paths["pauses"] = write_workload(tmp_path_factory.mktemp("pauses"), PAUSES)
    computes = paths["computes"]
    computes.write_text(computes.read_text() + "os.nice(19)  # whatever else is tested goes first\n")
    started = time.monotonic()
    with ThreadPoolExecutor(len(paths)) as pool:
        ends = list(pool.map(lambda path: work(path, limit_s=4.0).end, paths.values()))
    assert time.monotonic() - started < WAIT_S
    return dict(zip(paths, zip(paths.values(), ends, strict=True), strict=True))


@pytest.mark.parametrize("name", HANGS)
def test_a_hang_is_timed_out_with_the_line_where_it_hangs(
    waited_for: dict[str, tuple[Path, WorkerEnd]], name: str
) -> None:
    path, end = waited_for[name]
    assert (end.outcome, end.phase) == ("timed_out", "warm_up")
    place = f"no progress for 4 s, last in model.py:{line_of(path, '# the end')} (step)"
    assert end.reason == place


def test_progress_starts_the_time_limit_anew(waited_for: dict[str, tuple[Path, WorkerEnd]]) -> None:
    assert waited_for["pauses"][1].outcome == "finished"


def test_a_shorter_limit_that_was_announced_holds_until_the_next_message(tmp_path: Path) -> None:
    message = Progress(text="a hang that is meant to come", phase="scenario", limit_s=1.0)
    path = ending_step(tmp_path, f"os.write(int(sys.argv[2]), {encode(message)!r}); time.sleep(600)")
    started = time.monotonic()
    end = work(path, limit_s=60.0).end
    assert time.monotonic() - started < WAIT_S
    assert (end.outcome, end.signal, end.phase) == ("timed_out", "SIGABRT", "scenario")
    assert end.reason == f"no progress for 1 s, last in model.py:{line_of(path, '# the end')} (step)"


def test_a_worker_that_can_not_be_ended_is_said_so() -> None:
    end = worker._end("pilot", None, worker._Watch(8.0, lambda _progress: None), "model.py:3 (step)")
    assert (end.outcome, end.exit_code, end.signal) == ("timed_out", None, "")
    assert end.reason == "killed, but not gone after 60 s, last in model.py:3 (step)"


@pytest.mark.parametrize("code", [0, 7])
def test_leaving_the_process_is_no_good_end_whatever_its_code(tmp_path: Path, code: int) -> None:
    end = work(ending_step(tmp_path, f"os._exit({code})")).end
    assert (end.outcome, end.exit_code, end.phase) == ("failed", code, "warm_up")
    assert end.reason == f"exit code {code}"


# --- reported failures ------------------------------------------------------------------------------


def test_sys_exit_in_build_is_the_workloads_failure(tmp_path: Path) -> None:
    path = write_workload(tmp_path, "def build(shape):\n    sys.exit(3)\n")
    result = work(path)
    assert isinstance(result.error, WorkloadError)
    assert result.error.where == f"model.py:{line_of(path, 'sys.exit(3)')}"
    assert "build(default) called sys.exit(3)" in result.error.what
    assert (result.end.outcome, result.end.exit_code) == ("failed", ExitCode.WORKLOAD)
    assert result.bug == ""


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "GeneratorExit"])
def test_what_is_no_exception_is_the_workloads_failure_too(tmp_path: Path, raised: str) -> None:
    result = work(write_workload(tmp_path, f"def build(shape):\n    raise {raised}\n"))
    assert isinstance(result.error, WorkloadError)
    assert result.error.what == f"the workload raised {raised}"
    assert result.bug == ""


def test_a_workload_that_closes_standard_output_finishes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write_workload(tmp_path, "def teardown():\n    sys.stdout.close()\n")
    assert work(path).end.outcome == "finished"
    assert "Traceback" not in capfd.readouterr().err


def test_an_exception_without_a_text_is_named_by_its_type(tmp_path: Path) -> None:
    path = write_workload(
        tmp_path,
        """
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError

        def build(shape):
            raise Mute
        """,
    )
    result = work(path)
    assert result.error is not None
    assert result.error.what == "build(default) raised Mute"


def test_a_bug_of_ours_arrives_with_its_traceback(tmp_path: Path) -> None:
    result = work(write_workload(tmp_path), shape="unheard-of")
    assert result.end.exit_code == ExitCode.BUG
    assert result.error is not None
    assert result.error.what == "internal error (KeyError: 'unheard-of')"
    assert "Traceback" in result.bug
    assert "ladder.py" in result.bug


def test_a_missing_run_folder_is_unreadable_evidence_not_a_bug(tmp_path: Path) -> None:
    path = write_workload(tmp_path)
    job = TrialJob(
        folder=str(tmp_path / "none"), workload=str(path), device="simulated", shapes=None, shape=None
    )
    result = run_worker(job, stage="pilot", workload=path)
    assert isinstance(result.error, EvidenceError)
    assert result.bug == ""


def test_what_the_user_prints_reaches_neither_stdout_nor_the_messages(tmp_path: Path) -> None:
    path = ending_step(tmp_path, 'print("{}"); os.write(1, b"loud\\n"); sys.exit(2)')
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(f"""
        from pathlib import Path
        from cudagraph_gate.pilot.jobs import TrialJob
        from cudagraph_gate.pilot.worker import run_worker
        from cudagraph_gate.evidence import create_run
        run = create_run("w", "module", "simulated", root=Path({str(tmp_path)!r}))
        named = dict(folder=str(run.folder), workload={str(path)!r}, device="simulated")
        job = TrialJob(**named, shapes=None, shape=None)
        print(run_worker(job, stage="pilot").end.outcome)
        """)
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "finished\n"
    assert "loud" in done.stderr


def test_progress_tells_how_much_is_over(tmp_path: Path) -> None:
    seen: list[Progress] = []
    result = run_worker(ProbeJob(device="simulated"), stage="doctor", on_progress=seen.append)
    assert [progress.done for progress in seen[1:]] == list(range(8))
    assert {progress.total for progress in seen[1:]} == {8}
    assert all(feature["works"] for feature in result.answer["features"])
    assert result.answer["simulated"] is True
    assert result.end.outcome == "finished"


# --- no process is left -----------------------------------------------------------------------------


def test_a_child_that_outlives_the_worker_neither_delays_nor_survives(tmp_path: Path) -> None:
    child = tmp_path / "child"
    path = write_workload(
        tmp_path,
        f"""
        def build(shape):
            pid = os.fork()
            if pid == 0:
                time.sleep(600)
            open({str(child)!r}, "w").write(str(pid))
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    started = time.monotonic()
    assert work(path).end.outcome == "killed"
    assert time.monotonic() - started < WAIT_S
    assert gone(int(child.read_text()))


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_no_worker_is_left_when_its_parent_ends(tmp_path: Path, name: signal.Signals) -> None:
    pid_file = tmp_path / "pid"
    path = write_workload(
        tmp_path,
        f"""
        def build(shape):
            open({str(pid_file)!r}, "w").write(f"{{os.getpid()}}\\n")
            time.sleep(600)
        """,
    )
    parent = subprocess.Popen(
        [sys.executable, "-m", "cudagraph_gate", "pilot", str(path), "--device", "simulated"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + WAIT_S
    while not (pid_file.exists() and pid_file.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.02)
    worker = int(pid_file.read_text())
    assert Path(f"/proc/{worker}").exists()
    os.kill(parent.pid, name)
    code = parent.wait(WAIT_S)
    assert code == (ExitCode.INTERRUPTED if name is signal.SIGINT else -signal.SIGKILL)
    assert gone(worker)


# --- the fault handler's dump -----------------------------------------------------------------------

DUMP = """\
Fatal Python error: Segmentation fault

Thread 0x00007f1 (most recent call first):
  File "{folder}/loader.py", line 9 in prefetch
  File "/usr/lib/python3.12/threading.py", line 1010 in run

Current thread 0x00007f2 (most recent call first):
  File "{folder}/.venv/lib/site-packages/lib/ops.py", line 3 in op
  File "{folder}/model.py", line 41 in step
  File "{folder}/model.py", line 7 in outer

Extension modules: numpy._core (total: 1)
"""


def test_the_users_innermost_frame_of_the_crashed_thread_is_the_place(tmp_path: Path) -> None:
    assert crash_place(DUMP.format(folder=tmp_path), tmp_path / "model.py") == "model.py:41 (step)"


def test_without_a_frame_of_the_user_it_is_the_crashed_threads_innermost(tmp_path: Path) -> None:
    assert crash_place(DUMP.format(folder="/elsewhere"), tmp_path / "model.py") == "ops.py:3 (op)"
    assert crash_place(DUMP.format(folder="/elsewhere"), None) == "ops.py:3 (op)"


def test_the_place_where_all_driver_calls_pass_is_not_named_but_who_calls() -> None:
    device = Path(worker.__file__).parents[1] / "device"
    frames = f'  File "{device}/cuda_status.py", line 40 in call\n  File "{device}/cuda.py", line 7 in wait\n'
    assert crash_place(f"Current thread 0x1 (most recent call first):\n{frames}", None) == "cuda.py:7 (wait)"


def test_a_dump_without_frames_has_no_place(tmp_path: Path) -> None:
    assert crash_place("", tmp_path / "model.py") == ""
    assert crash_place("Fatal Python error: Aborted\n\n<no Python frame>\n", None) == ""
