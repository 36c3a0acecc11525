"""GPU tests that change their process for good run as a script in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

SCRIPT_SECONDS: Final = 150
"""Importing torch, opening a context and compiling a kernel take up to 30 s on a busy machine."""


def run_script(script: Path, *arguments: str) -> Any:
    """What ``script`` printed on its last line, as JSON; fails with its errors when it failed."""
    tests = Path(__file__).resolve().parent
    paths = [str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=SCRIPT_SECONDS,
        env=environment,
    )
    assert done.returncode == 0, f"{script.name} {arguments} ended with {done.returncode}:\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])
