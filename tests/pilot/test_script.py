"""Script mode: whatever way a script ends, what it did until then is recorded, and the end is told.

The scripts run in processes of their own, on the simulated device; those on a GPU are in tests/cli.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import script_runner

from cudagraph_gate.evidence import create_run, open_run
from cudagraph_gate.pilot.jobs import ScriptJob, encode_job
from cudagraph_gate.timeline.table import Timeline, load

ROOT = Path(__file__).resolve().parents[2]
BASE = """\
import atexit, ctypes, os, subprocess, sys, threading, time
import multiprocessing
import numpy as np
from cudagraph_gate.device import Kernel, LaunchShape, current_device

device = current_device()
WORK = Kernel("work", "", lambda shape, n: None, 2_000)

def launch(count=1):
    for _ in range(count):
        device.launch(WORK, LaunchShape((1, 1, 1), (1, 1, 1)), (np.int32(1),))

def step():
    with device.annotate("step", domain="user"):
        launch()

"""


@dataclass(frozen=True)
class Ended:
    """How a script's worker ended."""

    code: int
    messages: list[dict[str, Any]]
    out: str
    timeline: Timeline

    @property
    def kernels(self) -> int:
        return len(self.timeline.operations)

    @property
    def problems(self) -> tuple[str, ...]:
        return self.timeline.meta.problems

    @property
    def done(self) -> bool:
        return {"done": True} in self.messages


class Script:
    """A script in a folder of its own."""

    def __init__(self, folder: Path, text: str, *arguments: str, **options: Any) -> None:
        path = folder / "train.py"
        path.write_text(BASE + textwrap.dedent(text))
        self._run = create_run(str(path), "script", "auto", root=folder / "runs")
        self._messages = folder / "messages.jsonl"
        self._messages.touch()
        job = ScriptJob(folder=str(self._run.folder), script=str(path), arguments=arguments, **options)
        environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
        self.process = subprocess.Popen(
            [sys.executable, script_runner.__file__, encode_job(job), str(self._messages)],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ended(self) -> Ended:
        out, _ = self.process.communicate(timeout=60)
        lines = [json.loads(line) for line in self._messages.read_text().splitlines()]
        return Ended(self.process.returncode, lines, out, load(self._run.timeline_path))


def ended(folder: Path, text: str, *arguments: str, **options: Any) -> Ended:
    return Script(folder, text, *arguments, **options).ended()


@pytest.fixture(scope="module", autouse=True)
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Script]:
    """A script that no exception reaches. It is given 12 s to end: the other tests pass meanwhile."""
    folder = tmp_path_factory.mktemp("stuck")
    script = Script(folder, "launch(3)\nctypes.CDLL(None).sleep(40)", duration_s=0.3)
    yield script
    script.process.kill()
    script.process.communicate()


# --- as python script.py ----------------------------------------------------------------------------


def test_a_script_sees_what_python_would_show_it(tmp_path: Path) -> None:
    found = ended(tmp_path, "print(__name__, sys.argv, sys.path[0], os.getcwd())\nlaunch(3)", "--steps", "3")
    folder = str(tmp_path)
    assert found.out == f"__main__ {[f'{folder}/train.py', '--steps', '3']} {folder} {folder}\n"
    assert (found.code, found.done, found.kernels, found.problems) == (0, True, 3, ())


@pytest.mark.parametrize("end", ["", "sys.exit()", "sys.exit(0)", "raise SystemExit"])
def test_a_script_that_ends_well_is_done(tmp_path: Path, end: str) -> None:
    found = ended(tmp_path, f"launch(2)\n{end}")
    assert (found.code, found.done, found.kernels) == (0, True, 2)


@pytest.mark.parametrize(
    ("end", "failure"),
    [
        ("raise ValueError('no more data')", "train.py:18: the script raised ValueError: no more data"),
        ("sys.exit(3)", "train.py: the script ended with exit code 3"),
        ("raise KeyboardInterrupt", "train.py: the script was interrupted"),
        ("raise BaseException('odd')", "train.py:18: the script raised BaseException: odd"),
    ],
)
def test_a_script_that_fails_is_recorded_until_then(tmp_path: Path, end: str, failure: str) -> None:
    found = ended(tmp_path, f"launch(2)\n{end}")
    assert (found.code, found.kernels) == (21, 2)
    assert found.messages[-1] == {"failure": failure}


@pytest.mark.parametrize(("code", "done"), [(0, True), (5, False)])
def test_leaving_the_process_at_once_loses_nothing(tmp_path: Path, code: int, done: bool) -> None:
    found = ended(tmp_path, f"launch(2)\nos._exit({code})\nlaunch()")
    assert (found.code, found.done, found.kernels) == (code, done, 2)
    assert found.problems == (f"the script ended with os._exit({code})",)


def test_threads_pools_and_exit_functions_are_waited_for(tmp_path: Path) -> None:
    found = ended(
        tmp_path,
        """
        from concurrent.futures import ThreadPoolExecutor
        atexit.register(launch, 4)
        threading.Thread(target=lambda: (time.sleep(0.3), launch(2))).start()
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        ThreadPoolExecutor(1).submit(launch, 8)
        launch()
        """,
    )
    assert (found.code, found.done, found.kernels) == (0, True, 15)


# --- asked to end -----------------------------------------------------------------------------------

FOREVER = """
    while True:
        step()
        time.sleep(0.001)
    """


def test_a_script_is_ended_after_its_duration(tmp_path: Path) -> None:
    began = time.monotonic()
    found = ended(tmp_path, FOREVER, duration_s=0.5)
    assert time.monotonic() - began < 30
    assert (found.code, found.done) == (0, True)
    assert found.kernels > 10
    assert found.problems == ("the script was ended after 0.5 s, as asked",)


def test_a_script_that_ends_before_its_duration_just_ends(tmp_path: Path) -> None:
    found = ended(tmp_path, "launch(2)", duration_s=50)
    assert (found.code, found.done, found.kernels, found.problems) == (0, True, 2, ())


def test_ending_lets_the_script_clean_up_but_records_none_of_it(tmp_path: Path) -> None:
    found = ended(
        tmp_path,
        """
        try:
            while True:
                time.sleep(0.001)
        except Exception:
            print("kept on")
        finally:
            launch(5)
            print("cleaned up")
        """,
        duration_s=0.3,
    )
    assert (found.code, found.done, found.kernels, found.out) == (0, True, 0, "cleaned up\n")


def test_a_script_is_ended_after_its_iterations_and_cut_to_them(tmp_path: Path) -> None:
    found = ended(tmp_path, FOREVER, iterations=5, range_name="step")
    assert (found.code, found.done) == (0, True)
    assert len(found.timeline.requests()) == 5
    assert found.timeline.meta.request_range == "step"
    assert found.problems == ("the script was ended after 5 step, as asked",)


def test_ranges_mark_requests_and_a_name_that_no_range_has_is_said(tmp_path: Path) -> None:
    found = ended(tmp_path, "step(); step()", range_name="step")
    assert len(found.timeline.requests()) == 2
    (tmp_path / "again").mkdir()
    other = ended(tmp_path / "again", "step()", range_name="stop")
    assert other.problems == ("no range called stop was recorded, so that requests are not marked",)
    assert other.timeline.requests().empty


def test_sigterm_saves_what_was_recorded(tmp_path: Path) -> None:
    script = Script(tmp_path, 'launch(3)\nopen("ready", "w").close()\nwhile True: time.sleep(0.01)')
    while not (tmp_path / "ready").exists():
        assert script.process.poll() is None
        time.sleep(0.01)
    script.process.send_signal(signal.SIGTERM)
    found = script.ended()
    assert (found.code, found.done, found.kernels) == (0, True, 3)
    assert found.problems == ("the script was ended by a signal",)


# --- children ---------------------------------------------------------------------------------------


def test_children_are_named_by_program_without_their_arguments(tmp_path: Path) -> None:
    found = ended(
        tmp_path,
        """
        for program in ("true", "true"):
            subprocess.run([program, "--token=secret"])
        os.posix_spawn("/bin/echo", ["echo", "-n", "secret"], {})
        subprocess.run([sys.executable, "-c", "secret = 1"])
        os.system("true secret")
        """,
    )
    (problem,) = found.problems
    name = Path(sys.executable).name
    assert problem == (
        f"5 child processes (echo, {name}, sh, true) were not recorded: --trace-children records Python ones"
    )


def test_processes_of_multiprocessing_are_counted(tmp_path: Path) -> None:
    found = ended(
        tmp_path,
        """
        if __name__ == "__main__":
            for method in ("spawn", "fork"):
                process = multiprocessing.get_context(method).Process(target=time.sleep, args=(0,))
                process.start()
                process.join()
        """,
    )
    name = Path(sys.executable).name
    assert found.problems == (
        f"1 child process ({name}) was not recorded: --trace-children records Python ones",
        "1 child process was forked and not recorded: CUDA can't be used in a fork",
    )


def test_a_forked_child_does_not_end_the_parents_recording(tmp_path: Path) -> None:
    found = ended(
        tmp_path,
        """
        if os.fork() == 0:
            os._exit(7)
        status = os.wait()[1]
        print(os.waitstatus_to_exitcode(status))
        launch(2)
        """,
    )
    assert (found.code, found.out, found.kernels) == (0, "7\n", 2)


def test_a_forked_child_dies_of_sigterm(tmp_path: Path) -> None:
    found = ended(
        tmp_path,
        """
        import signal
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(told, b"1")
            time.sleep(60)
            os._exit(0)
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        launch(2)
        """,
    )
    assert (found.code, found.out, found.kernels) == (0, f"{-signal.SIGTERM}\n", 2)
    assert found.done
    assert open_run(tmp_path / "runs" / os.listdir(tmp_path / "runs")[0]).fingerprint() is not None  # noqa: PTH208


# --- last, since it takes long ------------------------------------------------------------------------


def test_a_script_that_can_not_be_interrupted_is_recorded_and_left(stuck: Script) -> None:
    found = stuck.ended()
    assert (found.code, found.done, found.kernels) == (0, True, 3)
