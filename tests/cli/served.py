"""The command in a process of its own that need not import anything: for tests of what it answers.

Tests of how it starts and ends have it from ``command``.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from command import Ended, unattacked, without_gpu

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Keeps NumPy and PyArrow from starting threads, beside which a process had better not be forked."""
SERVER = Path(__file__).with_name("command_server.py")


def cgate(folder: Path, *arguments: str) -> Ended:
    """Run the command in ``folder``."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place, name) for name in ("out", "err")]
        for file in files:
            file.touch()
        command = {
            "folder": str(folder),
            "arguments": unattacked(arguments),
            "environment": without_gpu(),
            "files": [str(file) for file in files],
        }
        server.stdin.write(json.dumps(command) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        out, err = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    return Ended(code, out, err)


@lru_cache(maxsize=1)
def _server() -> subprocess.Popen[str]:
    """One for the whole session."""
    server = subprocess.Popen(
        [sys.executable, str(SERVER)],
        env=without_gpu(**ONE_THREAD),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)
    return server
