"""A child process that records itself on the simulated device: ``child_runner.py FOLDER CODE``.

``CODE`` is run after the recording began; it may use ``device``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from portable_kernel import COUNT, numbers, scale

from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.pilot.child_recording import ChildRecording
from cudagraph_gate.timeline.simulated import SimulatedRecorder

device = SimulatedDevice()
source, out = device.array(numbers()), device.empty((COUNT,), "float32")
ChildRecording(Path(sys.argv[1]), SimulatedRecorder(device, "full")).begin()
scale(device, out, source)
exec(sys.argv[2], {"os": os, "sys": sys, "time": time, "signal": signal})
