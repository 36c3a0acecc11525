"""Runs a script job as a worker does, on the simulated device: ``script_runner.py JOB MESSAGES``.

Messages go to the file, one JSON object a line.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from cudagraph_gate.device import open_device
from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.errors import WorkloadError
from cudagraph_gate.pilot.jobs import ScriptJob, decode_job
from cudagraph_gate.pilot.script import run_recorded
from cudagraph_gate.timeline.simulated import SimulatedRecorder


class Messages:
    """A sink that writes at once, so that nothing is lost when the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, **message: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(message) + "\n")

    def progress(self, text: str, phase: str = "", done: int = 0, total: int = 0) -> None:
        self.write(progress=text)

    def done(self) -> None:
        self.write(done=True)


def main(text: str, path: str) -> None:
    job, messages = decode_job(text), Messages(Path(path))
    assert isinstance(job, ScriptJob)
    device = open_device("simulated")
    assert isinstance(device, SimulatedDevice)
    code = 0
    try:
        run_recorded(job, messages, device, SimulatedRecorder(device, "full", job.range_name))
        messages.done()
    except WorkloadError as error:
        messages.write(failure=str(error))
        code = 21
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
