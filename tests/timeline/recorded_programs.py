"""Small programs under a recorder, for both devices.

As a script it runs one on the GPU: ``recorded_programs.py PROGRAM LEVEL FOLDER`` writes the timelines that
it recorded into the folder, and prints their file names.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from portable_kernel import COUNT, numbers, scale

from cudagraph_gate.device import Device, DeviceArray, open_device
from cudagraph_gate.timeline.recorder import Level, open_recorder
from cudagraph_gate.timeline.table import REQUEST_DOMAIN, REQUEST_RANGE, Timeline, save

REQUESTS: Final = 3
REPLAYS: Final = 2


def scaled(device: Device, out: DeviceArray, source: DeviceArray, times: int = 1) -> None:
    for _ in range(times):
        scale(device, out, source)


def arrays(device: Device) -> tuple[DeviceArray, DeviceArray]:
    """Two arrays, after one launch: compiling and loading is not part of any recording."""
    source, out = device.array(np.ones(COUNT, np.float32)), device.array(np.zeros(COUNT, np.float32))
    scaled(device, out, source)
    device.synchronize()
    return source, out


def requests(device: Device, level: Level) -> list[Timeline]:
    """Three requests: copy in, memset, two kernels, copy on the device, wait."""
    recorder = open_recorder(device, level)
    source, out = arrays(device)
    host = numbers()
    recorder.start()
    for _ in range(REQUESTS):
        with (
            device.annotate(REQUEST_RANGE, domain=REQUEST_DOMAIN),
            device.annotate("inner", domain="application"),
        ):
            device.copy(source, host)
            device.fill(out, 0)
            scaled(device, out, source, 2)
            device.copy(source, out)
            device.current_stream().synchronize()
    device.synchronize()
    return [recorder.stop()]


def graph(device: Device, level: Level) -> list[Timeline]:
    """Two replays of a graph of three kernels and a memset, made before the recording; a kernel outside."""
    recorder = open_recorder(device, level)
    source, out = arrays(device)
    stream = device.create_stream()
    with device.use_stream(stream):
        device.begin_capture(stream)
        device.fill(out, 0)
        scaled(device, out, source, 3)
        executable = device.end_capture(stream).instantiate()
        executable.launch(stream)
        device.synchronize()
        recorder.start()
        for _ in range(REPLAYS):
            executable.launch(stream)
        scaled(device, out, source)
        device.synchronize()
    return [recorder.stop()]


def twice(device: Device, level: Level) -> list[Timeline]:
    """A recording of two kernels, five that nobody records, and one of three kernels."""
    recorder = open_recorder(device, level)
    source, out = arrays(device)
    timelines = []
    for recorded, unrecorded in ((2, 5), (3, 0)):
        recorder.start()
        with device.annotate("part"):
            scaled(device, out, source, recorded)
        device.synchronize()
        timelines.append(recorder.stop())
        with device.annotate("between"):
            scaled(device, out, source, unrecorded)
        device.synchronize()
    return timelines


def nothing(device: Device, level: Level) -> list[Timeline]:
    """A recording in which nothing happens."""
    recorder = open_recorder(device, level)
    recorder.start()
    return [recorder.stop()]


PROGRAMS: Final[Mapping[str, Callable[[Device, Level], list[Timeline]]]] = {
    "requests": requests,
    "graph": graph,
    "twice": twice,
    "nothing": nothing,
}


def main(program: str, level: Level, folder: str) -> None:
    timelines = PROGRAMS[program](open_device("cuda"), level)
    paths = [str(Path(folder) / f"{number}.parquet") for number in range(len(timelines))]
    for timeline, path in zip(timelines, paths, strict=True):
        save(timeline, Path(path))
    sys.stdout.write(json.dumps(paths) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
