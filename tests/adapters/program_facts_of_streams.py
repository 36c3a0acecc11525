"""What the scripts of several frameworks ask of a step's streams, random numbers and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from program_facts import Facts

from cudagraph_gate.device import Device
from cudagraph_gate.graphs import contents
from cudagraph_gate.pilot.escaped import escaped_findings, record_capture
from cudagraph_gate.timeline.recorder import open_recorder


def escaped(device: Device, adapter: Any, step: Callable[..., Any], values: Sequence[Any]) -> Facts:
    """What escapes when ``step`` is captured, by the kernels of a recorded normal request."""
    step(*values)
    device.synchronize()
    held = contents(adapter.capture(step, values).graph)
    recorder = open_recorder(device, "light")
    recorder.start()
    step(*values)
    device.synchronize()
    operations = recorder.stop().operations
    kernels = operations[operations["kind"].astype(str) == "kernel"]["name"].astype(str)
    missing = Counter(kernels) - Counter(held.kernels)
    workload = SimpleNamespace(device=device, adapter=adapter, step=step)
    during: Any = record_capture(workload, tuple(values))  # type: ignore[arg-type]
    findings = escaped_findings("b1", during, missing)
    return {
        "captured": sorted(held.kernels),
        "escaped": [finding.call for finding in findings],
        "messages": [finding.message for finding in findings],
    }


def drawing(adapter: Any, step: Callable[[], Any]) -> Facts:
    """Two draws of the normal path and of replays from the same random state."""
    start = adapter.random_state(step)
    normal = [adapter.to_host(step()).tolist() for _ in range(2)]
    captured = adapter.capture(step, ())
    executable = captured.instantiate()
    adapter.set_random_state(start)
    drawn = []
    for _ in range(2):
        executable.launch()
        drawn.append(adapter.to_host(captured.outputs).tolist())
    return {"normal": normal, "drawn": drawn}


def on_stream(adapter: Any, pointer_of: Callable[[], int], pointer: Callable[[Any], int]) -> Facts:
    """Whether a new stream is the framework's and the port's for the block alone."""
    before, stream = pointer_of(), adapter.new_stream()
    with adapter.on_stream(stream):
        inside = [pointer_of(), int(adapter.current_stream().handle)]
        blocking = adapter.current_stream().blocking
    return {
        "inside": inside == [pointer(stream)] * 2,
        "blocking": blocking,
        "outside": [pointer_of(), int(adapter.current_stream().handle)] == [before] * 2,
    }


def failing(
    adapter: Any, step: Callable[..., Any], values: Sequence[Any], normal: Callable[[], Any]
) -> Facts:
    """The error of a capture that fails, and the normal path's result after it."""
    error: Exception | None = None
    try:
        adapter.capture(step, values)
    except Exception as raised:  # noqa: BLE001  (which error it is, is the fact)
        error = raised
    adapter.recover()
    return {
        "error": type(error).__name__,
        "text": str(error),
        "capturing": adapter.current_stream().is_capturing,
        "normal": normal(),
    }
