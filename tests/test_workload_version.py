"""What ``version()`` may say, and what is refused with its line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cudagraph_gate import fingerprint
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.workload import load_workload, model_version

MODEL = "def build(shape): ...\n\ndef inputs(shape, seed): ...\n\n"


@pytest.fixture(autouse=True)
def _import_path_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # loading a workload adds its folder


def told(folder: Path, text: str) -> str | None:
    """The version of a workload with ``text`` in it."""
    path = folder / "model.py"
    path.write_text(MODEL + text)
    return model_version(load_workload(path))


def test_a_version_is_text_or_a_whole_number(tmp_path: Path) -> None:
    assert told(tmp_path, "def version(): return 'a1b2c3'\n") == "a1b2c3"
    assert told(tmp_path, "def version(): return 0\n") == "0"
    assert told(tmp_path, "") is None


def test_a_version_is_the_one_of_now(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        MODEL + "NUMBER = 0\ndef version():\n    global NUMBER\n    NUMBER += 1\n    return NUMBER\n"
    )
    workload = load_workload(path)
    assert [model_version(workload), model_version(workload)] == ["1", "2"]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("None", "a NoneType"),
        ("True", "a bool"),
        ("' '", "' '"),
        ("object()", "a object"),
        ("0.5", "a float"),
    ],
)
def test_what_names_no_version_is_refused_with_its_line(tmp_path: Path, value: str, named: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        told(tmp_path, f"def version(): return {value}\n")
    assert str(caught.value).startswith(f"model.py:5: version() returned {named}; ")


def test_what_it_raises_is_the_workloads_error(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"^model\.py:6: version\(\) raised KeyError: 'revision'"):
        told(tmp_path, "def version():\n    return {}['revision']\n")


def environment(version: str | None) -> fingerprint.Fingerprint:
    """A fingerprint of this process."""
    return fingerprint.collect(simulated=True, device_name="simulated", model_version=version)


def test_the_fingerprint_of_another_version_has_another_digest() -> None:
    first, second, none = (environment(version) for version in ("v1", "v2", None))
    assert first.identity["model_version"] == "v1"
    assert "model_version" not in none.identity
    assert len({first.digest, second.digest, none.digest}) == 3


def test_only_a_process_that_runs_the_workload_can_compare_versions() -> None:
    first, second, none = (environment(version) for version in ("v1", "v2", None))
    assert fingerprint.differences(first, second) == ("model_version",)
    assert fingerprint.differences(first, none) == ()
