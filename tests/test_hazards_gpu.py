"""Every sample hazard on a GPU, through the command: none is let through, no control is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNNER = ROOT / "docs" / "measurements" / "hazards.py"


@pytest.mark.gpu
@pytest.mark.timeout(2_400)
def test_every_hazard_is_refused_with_its_reason_and_no_control_is(tmp_path: Path) -> None:
    environment = os.environ | {
        "CGATE": f"{sys.executable} -m cudagraph_gate",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    ended = subprocess.run(
        [sys.executable, str(RUNNER), str(tmp_path)], env=environment, capture_output=True, text=True
    )
    rows = json.loads((tmp_path / "hazards.json").read_text())
    assert len(rows) > 40
    assert [(row["name"], row["verdict"], row["codes"], row["why"]) for row in rows if not row["ok"]] == []
    assert ended.returncode == 0
