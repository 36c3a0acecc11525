"""The exit codes that scripts rely on, one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from command import Recorded, installed, runs, without_gpu, write
from command import cgate as cgate_alone
from served import cgate

from cudagraph_gate.errors import CgateError, ExitCode
from cudagraph_gate.evidence import Run, create_run
from cudagraph_gate.gates import exit_code
from cudagraph_gate.model import Decision, Fingerprint, NotMeasured, Verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "gates"))
from evidence_builder import diagnosis, profile, shape_records, started


def judged(decision: Decision) -> Verdict:
    return Verdict(
        verdict=decision,
        rehearsal=None,
        recorded_verdict=None,
        stale=(),
        reasons=(),
        conditions=(),
        gates=(),
        workload="model.py",
        run="r",
        fingerprint=NotMeasured(reason="none"),
        policy={},
    )


@pytest.mark.parametrize(
    ("decision", "code"),
    [(Decision.GO, 0), (Decision.NO_GO, 10), (Decision.CONDITIONAL, 11), (Decision.INCONCLUSIVE, 12)],
)
def test_each_verdict_has_its_code(decision: Decision, code: int):
    assert exit_code(judged(decision)) == code


def test_a_rehearsal_is_12(original: Recorded):
    assert original.ended.code == 12


def test_what_judges_nothing_is_0(profiled: Recorded):
    assert profiled.ended.code == 0
    assert cgate(profiled.folder, "report").code == 0
    assert cgate(profiled.folder, "pilot").code == 0


COLLECT = """\
import sys, msgspec
from pathlib import Path
from cudagraph_gate.fingerprint import collect
here = collect(simulated=False, device_name="GPU", workload=Path(sys.argv[1]), shapes=("b1",))
sys.stdout.buffer.write(msgspec.json.encode(here))
"""


def environment_of_a_new_process(workload: Path) -> Fingerprint:
    done = subprocess.run([sys.executable, "-c", COLLECT, workload], capture_output=True, check=True)
    return msgspec.json.decode(done.stdout, type=Fingerprint)


def write_run(folder: Path, graph_ns: int) -> Run:
    """A run of a GPU like this machine, whose normal requests take 1 ms."""
    workload = write(folder)
    run = create_run("model.py", "module", "cuda", root=folder / ".cgate" / "runs")
    for artefact in (environment_of_a_new_process(workload), profile(), diagnosis()):
        run.write(artefact)
    for record in (started(), *shape_records(graph_ns=graph_ns)):
        run.append(record)
    return run


def test_a_graph_without_gain_is_10(tmp_path: Path):
    write_run(tmp_path, graph_ns=1_100_000)
    ended = cgate_alone(tmp_path, "verdict", "--json", env=dict(os.environ))
    found = msgspec.json.decode(ended.out)
    assert (ended.code, found["verdict"], found["stale"]) == (10, "NO-GO", [])


def test_the_same_run_with_gain_is_12_since_not_everything_was_tried(tmp_path: Path):
    write_run(tmp_path, graph_ns=600_000)
    assert cgate_alone(tmp_path, "verdict", env=dict(os.environ)).code == 12


def test_the_evidence_of_another_machine_is_stale_and_12(tmp_path: Path):
    run = write_run(tmp_path, graph_ns=1_100_000)
    here = run.fingerprint()
    assert here is not None
    run.write(msgspec.structs.replace(here, identity=here.identity | {"cpu_model": "another"}))
    ended = cgate_alone(tmp_path, "verdict", "--json", env=dict(os.environ))
    found = msgspec.json.decode(ended.out)
    assert (ended.code, found["stale"], found["recorded_verdict"]) == (12, ["cpu_model"], "NO-GO")


# --- 2 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("frobnicate", "No such command 'frobnicate'."),
        ("run", "Missing argument 'workload'."),
        ("run model.py --frob", "No such option: --frob"),
        ("run model.py another.py", "unexpected extra argument(s) (another.py)"),
        ("run model.py --device gpu", "--device gpu is unknown; use auto, cuda or simulated"),
        ("run model.py --time-limit 0", "Invalid value for '--time-limit'"),
        ("run model.py --rungs 7", "Invalid value for '--rungs'"),
        ("pilot model.py --rungs 0", "Invalid value for '--rungs'"),
        ("pilot model.py --policy bad.toml", "bad.toml: unknown policy key 'min_gian'"),
        ("run model.py --policy none.toml", "none.toml: can't read the policy (No such file or directory)"),
        ("verdict --policy bad.toml", "bad.toml: unknown policy key 'min_gian'; did you mean min_gain?"),
        ("verdict --policy text.toml", "text.toml: not valid TOML:"),
        ("report --html none/r.html", "none/r.html: its folder does not exist"),
        ("profile model.py -- --steps 20", "model.py defines build: it takes no arguments"),
        ("profile script.py --device simulated", "a script can't run on the simulated device"),
        ("profile script.py --shapes", "a script has no shapes"),
        (
            "profile model.py --shapes =3",
            "--shapes has the item '=3', which has no name; write --shapes like",
        ),
        ("profile model.py --shapes b9=1x", "--shapes has the item 'b9=1x', which is no shape"),
        ("profile model.py --shapes b1=7", "b1 is declared as 64; give the new shape another name"),
        ("pilot model.py --shapes b1,b1", "--shapes names b1 twice"),
        ("pilot model.py --shapes none.csv", "none.csv: can't be read (No such file or directory)"),
    ],
)
def test_a_wrong_command_line_is_2(profiled: Recorded, arguments: str, says: str):
    (profiled.folder / "bad.toml").write_text("min_gian = 0.1\n")
    (profiled.folder / "text.toml").write_text("min gain\n")
    (profiled.folder / "script.py").write_text("print()\n")
    ended = cgate(profiled.folder, *arguments.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.complaint.startswith("cgate: ")
    assert says in ended.complaint
    assert len(runs(profiled.folder)) == 1, "what was never run leaves no run behind"


def test_no_command_shows_the_help_and_is_2(tmp_path: Path):
    ended = cgate(tmp_path)
    assert (ended.code, ended.err) == (2, "")
    assert "Usage: cgate" in ended.out


# --- 20 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        "run model.py --device cuda",
        "doctor --device cuda",
        "profile script.py",
        "profile script.py -- --steps 20",
    ],
)
def test_no_gpu_where_one_is_needed_is_20(tmp_path: Path, arguments: str):
    write(tmp_path)
    (tmp_path / "script.py").write_text("print('never run')\n")
    ended = cgate(tmp_path, *arguments.split())
    assert (ended.code, ended.out) == (20, "")
    assert ended.complaint.startswith("cgate: ")
    assert not runs(tmp_path)


def test_a_script_is_not_sent_to_the_simulated_device(tmp_path: Path):
    (tmp_path / "script.py").write_text("print()\n")
    complaint = cgate(tmp_path, "profile", "script.py").complaint
    assert complaint.endswith("read the trace here: cgate profile --from FILE")
    assert "simulated" not in complaint


# --- 21 -------------------------------------------------------------------------------------------

INPUTS = "    return (current_device().array(np.full(shape, seed, np.float32)),)"
MISTAKES = {
    "raises in build": (
        "    device = current_device()\n",
        "    raise ValueError('no weights')\n",
        "model.py:12: build(b1) raised ValueError: no weights",
    ),
    "raises in inputs": (
        INPUTS,
        "    return 1 / 0",
        "model.py:22: inputs(b1, 20240) raised ZeroDivisionError: division by zero",
    ),
    "arrays of the CPU": (
        INPUTS,
        "    return (np.ones(shape, np.float32),)",
        "model.py:21: inputs: x is a CPU numpy.ndarray, not a device array; return arrays in GPU memory: ",
    ),
    "returns nothing": (
        "        return work\n",
        "",
        "model.py:14: step returned nothing; return the output array(s)",
    ),
    "raises in step": (
        "        return work\n",
        "        return None + 1\n",
        "model.py:18: step of shape b1 raised TypeError: unsupported operand type(s) for +",
    ),
    "no step": ("    return step\n", "", "model.py:11: build returned a NoneType, not a step"),
    "no inputs": (
        "def inputs(",
        "def other(",
        "model.py:11: build without inputs; define inputs(shape, seed)",
    ),
    "not installed": (
        "import numpy as np\n",
        "import numpy as np, surely_not_there\n",
        "model.py:1: importing it raised ModuleNotFoundError: No module named 'surely_not_there'; "
        "install surely_not_there here, or put it beside model.py",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_workload_is_21_with_its_line(tmp_path: Path, mistake: str):
    old, new, says = MISTAKES[mistake]
    write(tmp_path, old, new)
    ended = cgate(tmp_path, "run", "model.py")
    assert (ended.code, ended.out) == (21, "")
    assert ended.complaint.startswith(f"cgate: {says}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def build(shape:\n", "w.py:1: SyntaxError: '(' was never closed; correct the syntax"),
        (
            "x = 1\n",
            "w.py: has no build(shape), so there is no step to try; define build(shape) and "
            "inputs(shape, seed), or profile it as a script: cgate profile w.py",
        ),
        ("def inputs(shape, seed): ...\n", "w.py: has no build(shape), so there is no step to try; "),
    ],
)
def test_a_file_that_is_no_workload_is_21(tmp_path: Path, text: str, says: str):
    (tmp_path / "w.py").write_text(text)
    ended = cgate(tmp_path, "run", "w.py")
    assert (ended.code, ended.out) == (21, "")
    assert ended.err.startswith(f"cgate: {says}")


def test_a_missing_file_is_21_and_the_nearest_is_named(tmp_path: Path):
    write(tmp_path)
    ended = cgate(tmp_path, "run", "modle.py")
    assert (ended.code, ended.err) == (21, "cgate: modle.py: no such file; did you mean model.py?\n")


def test_an_unknown_shape_is_21_and_the_nearest_is_named(profiled: Recorded):
    ended = cgate(profiled.folder, "pilot", "model.py", "--shapes", "b7")
    assert (ended.code, ended.out) == (21, "")
    assert ended.complaint == "cgate: model.py: no shape b7; did you mean b8? known: b1, b8"


# --- 22 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["verdict", "report", "pilot"])
def test_no_runs_at_all_is_22(tmp_path: Path, command: str):
    ended = cgate(tmp_path, command)
    says = "cgate: .cgate/runs: no run found; start with: cgate run WORKLOAD.py, or name one with --run DIR\n"
    assert (ended.code, ended.out, ended.err) == (22, "", says)


@pytest.mark.parametrize(
    ("command", "place"), [("verdict", "nowhere"), ("report", "empty"), ("pilot", "w.py")]
)
def test_a_folder_that_is_no_run_is_22(tmp_path: Path, command: str, place: str):
    (tmp_path / "empty").mkdir()
    (tmp_path / "w.py").touch()
    ended = cgate(tmp_path, command, "--run", place)
    assert (ended.code, ended.out) == (22, "")
    assert ended.err.startswith(f"cgate: {place}")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("run.json", "{}", "damaged ("),
        ("fingerprint.json", "\x00", "damaged ("),
        ("diagnosis.json", '{"schema_version": 1, ', "damaged ("),
        ("profile.json", '{"schema_version": 99}', "has schema version 99, this cgate reads 1"),
        ("pilot.jsonl", "nonsense\n", "damaged ("),
    ],
)
def test_a_damaged_artefact_is_22_and_named(recorded: Recorded, name: str, content: str, says: str):
    (recorded.run / name).write_text(content)
    ended = cgate(recorded.folder, "verdict" if name == "pilot.jsonl" else "report")
    assert (ended.code, ended.out) == (22, "")
    assert f"/{name}" in ended.err
    assert says in ended.err


# --- 130 and 1 ------------------------------------------------------------------------------------


INTERRUPTIBLE = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where tests run in the background
from cudagraph_gate.cli import main
main()
"""


def test_an_interrupt_is_130_with_one_line_and_leaves_no_worker(tmp_path: Path):
    slow = "        import pathlib, os, time\n        pathlib.Path('pid').write_text(str(os.getpid()))\n"
    write(tmp_path, "        return work\n", slow + "        time.sleep(60)\n        return work\n")
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, "run", "model.py"],
        cwd=tmp_path,
        env=without_gpu(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "loading the workload\n"
        assert process.stderr.readline() == "b1: building\n"
        worker = wait_for_pid(tmp_path / "pid")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err == "cgate: interrupted; what was recorded until then, if anything, is kept\n"
    assert not is_running(worker)
    assert not runs(tmp_path), "nothing had been recorded"


def wait_for_pid(path: Path) -> int:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError("the worker did not start")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_bug_of_ours_is_1_and_its_traceback_is_kept_for_the_report(tmp_path: Path):
    write(tmp_path, more="from cudagraph_gate.pilot import recording\nrecording.distribution = None\n")
    ended = cgate(tmp_path, "run", "model.py")
    assert (ended.code, ended.out) == (1, "")
    assert "Traceback" not in ended.err
    (run,) = runs(tmp_path)
    assert ended.complaint.endswith(f"please report .cgate/runs/{run.name}/internal-error.txt")
    assert "Traceback" in (run / "internal-error.txt").read_text()


def test_an_error_without_a_code_of_its_own_is_a_bug():
    assert CgateError("what").exit_code == ExitCode.BUG == 1


def test_the_installed_command_is_the_same(original: Recorded):
    script = installed()
    if script is None:
        pytest.skip("the project is not installed as a command")
    by_script = cgate_alone(original.folder, "verdict", "--json", entry=(script,))
    assert (by_script.code, by_script.out) == (12, original.ended.out)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--scenarios", "hangg"], "--scenarios hangg is no scenario; did you mean hang?"),
        (["--skip", "drill,nothing"], "--skip nothing is no scenario; known are capture-failure, "),
        (["--scenarios", ""], "--scenarios names no scenario; known are capture-failure, "),
        (["--scenarios", "hang", "--quick"], "--quick chooses scenarios itself; leave out one of "),
    ],
)
@pytest.mark.parametrize("command", ["run", "pilot"])
def test_scenarios_that_there_are_not_are_refused_before_anything_is_run(
    tmp_path: Path, command: str, arguments: list[str], complaint: str
) -> None:
    write(tmp_path)
    ended = cgate(tmp_path, command, "model.py", *arguments)
    assert ended.code == 2
    assert ended.complaint.startswith(f"cgate: {complaint}")
    assert not (tmp_path / ".cgate").exists()
