"""Programs that need a real GPU, each recorded in a process of its own.

``gpu_programs.py PROGRAM FOLDER`` writes the timeline into the folder and prints its file's name.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from portable_kernel import COUNT, numbers, scale

from cudagraph_gate.device import Device, DeviceArray, open_device
from cudagraph_gate.timeline.cupti import CuptiRecorder
from cudagraph_gate.timeline.table import Timeline, save

LAUNCHES: Final = 20_000
SPILL_BUFFER_BYTES: Final = 1024 * 1024
LOADS: Final = 5
LOAD_S: Final = 0.1

Program = Callable[[Device, CuptiRecorder], Timeline]


def arrays(device: Device) -> tuple[DeviceArray, DeviceArray]:
    """Source and output, after one launch: compiling is not part of a recording."""
    source, out = device.array(numbers()), device.empty((COUNT,), "float32")
    scale(device, out, source)
    device.synchronize()
    return source, out


def nested_ranges(device: Device, recorder: CuptiRecorder) -> Timeline:
    """Two threads with nested ranges at the same time; one range ends on another thread."""
    import nvtx

    both = threading.Barrier(2)
    handed: list[Any] = []

    def work(number: int) -> None:
        if number == 0:
            handed.append(nvtx.start_range("handed over", domain="app"))
        with nvtx.annotate(f"outer {number}", domain="app"):
            both.wait()
            for step in range(3):
                with nvtx.annotate("inner", domain="app", category="steps"), nvtx.annotate(f"step {step}"):
                    time.sleep(0.001)
            both.wait()
        if number == 1:
            nvtx.end_range(handed[0])

    recorder.start()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    device.synchronize()
    return recorder.stop()


def torch_ranges(device: Device, recorder: CuptiRecorder) -> Timeline:
    """PyTorch's own ranges, nested, around its kernels."""
    import torch

    x = torch.ones(64, device="cuda")
    torch.cuda.synchronize()
    recorder.start()
    with torch.cuda.nvtx.range("outer"):
        torch.cuda.nvtx.range_push("inner")
        x.add_(1)
        torch.cuda.nvtx.range_pop()
    torch.cuda.synchronize()
    return recorder.stop()


def two_streams(device: Device, recorder: CuptiRecorder) -> Timeline:
    """A kernel on one stream, and one on another that waits for it."""
    source, out = arrays(device)
    first, second = device.create_stream(), device.create_stream()
    recorder.start()
    with device.use_stream(first):
        scale(device, out, source)
    event = first.record()
    second.wait(event)
    with device.use_stream(second):
        scale(device, source, out)
    second.synchronize()
    device.synchronize()
    return recorder.stop()


def many(device: Device, recorder: CuptiRecorder) -> Timeline:
    """More launches than fit into the buffers, so that they are written and lent again."""
    source, out = arrays(device)
    recorder.start()
    for _ in range(LAUNCHES):
        scale(device, out, source)
    device.synchronize()
    return recorder.stop()


def waits_for_the_gpu(device: Device) -> None:
    """The line below is the call site."""
    device.synchronize()


def sites(device: Device, recorder: CuptiRecorder) -> Timeline:
    """Blocking calls of the user's code."""
    source, out = arrays(device)
    recorder.start()
    for _ in range(3):
        scale(device, out, source)
        waits_for_the_gpu(device)
    out.to_host()
    return recorder.stop()


def _loading(device: Device, recorder: CuptiRecorder, load: Callable[[], None]) -> Timeline:
    source, out = arrays(device)
    recorder.start()
    for _ in range(LOADS):
        with device.annotate("load", domain="app"):
            load()
        scale(device, out, source)
        device.synchronize()
    return recorder.stop()


def sleeping(device: Device, recorder: CuptiRecorder) -> Timeline:
    """A host that waits for its data."""
    return _loading(device, recorder, lambda: time.sleep(LOAD_S))


def computing(device: Device, recorder: CuptiRecorder) -> Timeline:
    """A host that makes its data itself."""

    def load() -> None:
        end = time.monotonic() + LOAD_S
        while time.monotonic() < end:
            pass

    return _loading(device, recorder, load)


PROGRAMS: Final[Mapping[str, Program]] = {
    "nested_ranges": nested_ranges,
    "torch_ranges": torch_ranges,
    "two_streams": two_streams,
    "many": many,
    "sites": sites,
    "sleeping": sleeping,
    "computing": computing,
}


def main(program: str, folder: str) -> None:
    buffer_bytes = SPILL_BUFFER_BYTES if program == "many" else 8 * SPILL_BUFFER_BYTES
    device = open_device("cuda")
    recorder = CuptiRecorder("full", Path(folder), buffer_bytes=buffer_bytes)
    path = Path(folder) / f"{program}.parquet"
    save(PROGRAMS[program](device, recorder), path)
    sys.stdout.write(json.dumps(str(path)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
