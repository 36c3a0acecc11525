"""``--shapes`` in its forms, and the run that a trial is added to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command import LONG_KERNELS, Ended, Recorded, runs, write
from served import cgate

from cudagraph_gate import pipeline
from cudagraph_gate.cli import with_bare_shapes
from cudagraph_gate.device import DeviceChoice


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("pilot --shapes", "pilot --shapes="),
        ("pilot --shapes model.py", "pilot --shapes= model.py"),
        ("pilot --shapes a/b/model.py", "pilot --shapes= a/b/model.py"),
        ("pilot model.py --shapes", "pilot model.py --shapes="),
        ("run model.py --shapes --json", "run model.py --shapes= --json"),
        ("run --shapes --device simulated model.py", "run --shapes= --device simulated model.py"),
        ("run --shapes b1,b8 model.py", "run --shapes b1,b8 model.py"),
        ("run model.py --shapes b1=1x128,b8=8x128", "run model.py --shapes b1=1x128,b8=8x128"),
        ("run model.py --shapes traffic.csv", "run model.py --shapes traffic.csv"),
        ("run model.py --shapes=b1", "run model.py --shapes=b1"),
        ("profile model.py --shapes -- --shapes", "profile model.py --shapes= -- --shapes"),
        ("profile train.py -- --shapes b1", "profile train.py -- --shapes b1"),
        ("verdict --shapes", "verdict --shapes"),
        ("--help", "--help"),
        ("", ""),
    ],
)
def test_bare_shapes_get_an_empty_value(given: str, spelled: str):
    assert with_bare_shapes(given.split()) == spelled.split()


def tried(ended: Ended) -> list[str]:
    """The shapes of the newest trial in what ``pilot --json`` printed."""
    starts = [record for record in json.loads(ended.out)["records"] if record["record"] == "trial_started"]
    return list(starts[-1]["shapes"])


@pytest.mark.parametrize(
    ("arguments", "shapes"),
    [
        ("--shapes", ["b1", "b8"]),
        ("--shapes b8 model.py", ["b8"]),
        ("--shapes n=16", ["n"]),
        ("model.py --shapes mix.csv", ["b8"]),
    ],
)
def test_pilot_tries_the_shapes_that_were_asked_for(profiled: Recorded, arguments: str, shapes: list[str]):
    (profiled.folder / "mix.csv").write_text("arrival_s,shape\n0.0,b8\n0.2,b8\n")
    ended = cgate(profiled.folder, "pilot", *arguments.split(), "--json")
    assert (ended.code, tried(ended)) == (0, shapes)
    assert len(runs(profiled.folder)) == 1, "nothing changed, so it was added to the run"


def test_profile_takes_a_new_shape(tmp_path: Path):
    write(tmp_path, *LONG_KERNELS)
    found = json.loads(cgate(tmp_path, "profile", "model.py", "--shapes", "n=16", "--json").out)
    assert found["profile"]["shape"] == "n"
    assert found["profile"]["input_bytes"] == {"x": 16 * 4}


def test_run_with_bare_shapes_tries_all(tmp_path: Path):
    write(tmp_path, *LONG_KERNELS)
    judged = json.loads(cgate(tmp_path, "run", "--shapes", "model.py", "--json").out)
    first, second = judged["fingerprint"]["identity"]["shapes"]
    assert (first[:2], second[:2]) == ("b1", "b8")


def test_a_changed_file_gets_a_new_run_and_says_so(profiled: Recorded):
    first = profiled.run.name
    write(profiled.folder, *LONG_KERNELS, more="# changed\n")
    ended = cgate(profiled.folder, "pilot", "model.py")
    assert ended.err.splitlines()[0] == f"starting a new run: since {first}, workload_sha256 changed"
    assert len(runs(profiled.folder)) == 2


def chosen_run(folder: Path, monkeypatch: pytest.MonkeyPatch, device: DeviceChoice) -> tuple[str, str]:
    """The run that a trial is added to, and what the user is told."""
    monkeypatch.chdir(folder)
    said: list[str] = []
    run = pipeline.run_for_pilot(None, None, pipeline.Options(device=device, warn=said.append))
    return run.name, "".join(said)


def test_another_device_gets_a_new_run_and_says_so(profiled: Recorded, monkeypatch: pytest.MonkeyPatch):
    before = profiled.run.name
    name, said = chosen_run(profiled.folder, monkeypatch, "simulated")
    assert name != before
    assert said.startswith(f"starting a new run: since {before}, ")
    assert said.endswith("--device changed")


def test_a_run_without_a_fingerprint_is_not_added_to(profiled: Recorded, monkeypatch: pytest.MonkeyPatch):
    before = profiled.run.name
    (profiled.run / "fingerprint.json").unlink()
    name, said = chosen_run(profiled.folder, monkeypatch, "auto")
    assert name != before
    assert said.startswith(f"starting a new run: {before} has no fingerprint")


def test_a_named_run_is_added_to(profiled: Recorded):
    older = profiled.run
    copy = shutil.copytree(older, older.parent / "99990101T000000000-model")
    assert cgate(profiled.folder, "pilot", "--run", str(older.relative_to(profiled.folder))).code == 0
    assert (older / "pilot.jsonl").exists()
    assert not (copy / "pilot.jsonl").exists()


def test_a_named_run_of_another_version_of_the_file_is_not_added_to(profiled: Recorded):
    write(profiled.folder, *LONG_KERNELS, more="# changed\n")
    ended = cgate(profiled.folder, "pilot", "--run", str(profiled.run))
    assert ended.code == 2
    assert f"since {profiled.run.name} was recorded, workload_sha256 changed" in ended.complaint
    assert not (profiled.run / "pilot.jsonl").exists()


def test_a_named_run_of_another_workload_is_not_added_to(profiled: Recorded):
    shutil.copy(profiled.folder / "model.py", profiled.folder / "other.py")
    ended = cgate(profiled.folder, "pilot", "other.py", "--run", str(profiled.run))
    assert ended.code == 2
    assert "is a run of model.py, not of other.py" in ended.complaint


def test_one_name_means_one_shape_in_a_run(profiled: Recorded):
    first = cgate(profiled.folder, "pilot", "--shapes", "n=16")
    assert first.code == 0
    second = cgate(profiled.folder, "pilot", "--shapes", "n=32")
    assert second.code == 2
    assert second.complaint.startswith(f"cgate: shape n is 16 in run {profiled.run.name}, not 32; ")
    assert len(runs(profiled.folder)) == 1


def test_a_trial_without_a_profile_has_a_fingerprint(tmp_path: Path):
    write(tmp_path, *LONG_KERNELS)
    for _ in range(2):
        assert cgate(tmp_path, "pilot", "model.py").code == 0
    (run,) = runs(tmp_path)
    assert json.loads((run / "fingerprint.json").read_text())["identity"]["shapes"] == ["b1"]


def test_a_shape_that_is_not_declared_leaves_no_run_behind(tmp_path: Path):
    write(tmp_path)
    assert cgate(tmp_path, "pilot", "model.py", "--shapes", "n=").code == 2
    assert runs(tmp_path) == []
