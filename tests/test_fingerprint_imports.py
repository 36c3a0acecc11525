"""The files that a workload imports are part of what a verdict holds for."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudagraph_gate import fingerprint
from cudagraph_gate.fingerprint.neighbours import digest_of_neighbours, neighbours
from cudagraph_gate.model import Fingerprint


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "model.py"


PACKAGE = {
    "model.py": "import numpy, helper\ndef build(shape):\n    from net.layers import mlp\n",
    "helper.py": "import model\nimport os.path",
    "net/__init__.py": "",
    "net/layers/__init__.py": "from . import mlp\nfrom ..common import SIZE",
    "net/layers/mlp.py": "from ...outside import nothing",
    "net/common.py": "broken syntax (",
    "unused.py": "",
}


def test_files_are_followed_through_imports(tmp_path: Path) -> None:
    names = [file.relative_to(tmp_path).as_posix() for file in neighbours(lay(tmp_path, PACKAGE))]
    assert names == [
        "helper.py",
        "net/__init__.py",
        "net/common.py",
        "net/layers/__init__.py",
        "net/layers/mlp.py",
    ]


@pytest.mark.parametrize(
    ("changed", "seen"), [("helper.py", True), ("net/common.py", True), ("unused.py", False)]
)
def test_a_change_of_an_imported_file_makes_evidence_stale(tmp_path: Path, changed: str, seen: bool) -> None:
    workload = lay(tmp_path, PACKAGE)

    def now() -> Fingerprint:
        return fingerprint.collect(simulated=True, device_name="", workload=workload)

    before = now()
    (tmp_path / changed).write_text("changed = 1")
    assert fingerprint.differences(before, now()) == (("workload_imports_sha256",) if seen else ())


def test_a_workload_on_its_own_has_no_such_field(tmp_path: Path) -> None:
    assert digest_of_neighbours(lay(tmp_path, {"model.py": "import numpy\nfrom os import path"})) == ""
