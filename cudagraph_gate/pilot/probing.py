"""What this machine can measure, and which graph features its driver has: each one tried, not looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from cudagraph_gate import fingerprint
from cudagraph_gate.device import Device, DeviceChoice, Kernel, LaunchShape, open_device
from cudagraph_gate.device.port import DeviceArray, ExecutableGraph, Graph
from cudagraph_gate.errors import CgateError, NoDeviceError
from cudagraph_gate.pilot.jobs import ProbeJob
from cudagraph_gate.pilot.trial_log import AnswerSink
from cudagraph_gate.timeline.recorder import Level, open_recorder

COUNT: Final = 256
SHAPE: Final = LaunchShape((1, 1, 1), (COUNT, 1, 1))


def _add_one(shape: LaunchShape, values: Any, n: Any) -> None:
    del shape
    values[:n] += 1


ADD_ONE: Final = Kernel(
    name="cgate_add_one",
    source="""
extern "C" __global__ void cgate_add_one(float* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += 1.0f;
}""",
    reference=_add_one,
    cost_ns=2_000,
)


def probe(job: ProbeJob, report: AnswerSink) -> None:
    """Try every feature and answer with its name, whether it works, and what was seen or what failed."""
    report.progress("opening the device")
    device, why_no_gpu = _opened(job.device)
    report.answer(device=device.name, simulated=device.simulated, why_no_gpu=why_no_gpu)
    found: list[dict[str, Any]] = []
    for name, feature in FEATURES.items():
        report.progress(name, done=len(found), total=len(FEATURES))
        found.append(_tried(name, feature, device))
        report.answer(features=found)
    here = fingerprint.collect(simulated=device.simulated, device_name=device.name)
    report.answer(fingerprint=msgspec.to_builtins(here))


def _opened(choice: DeviceChoice) -> tuple[Device, str]:
    """The device, and why it is no GPU where one was looked for."""
    if choice != "auto":
        return open_device(choice), ""
    try:
        return open_device("cuda"), ""
    except NoDeviceError as error:
        return open_device("simulated"), f"no GPU can be used here: {error}"


def _tried(name: str, feature: Callable[[Device], str], device: Device) -> dict[str, Any]:
    try:
        return {"name": name, "works": True, "detail": feature(device)}
    except CgateError as error:
        return {"name": name, "works": False, "detail": str(error)}


def _values(device: Device) -> DeviceArray:
    return device.array(np.zeros(COUNT, np.float32))


def _add(device: Device, values: DeviceArray) -> None:
    device.launch(ADD_ONE, SHAPE, (values, np.int32(COUNT)))


def _expect(values: DeviceArray, wanted: float) -> None:
    found = values.to_host()
    if not np.all(found == wanted):
        raise CgateError(f"computed {found[0]:g} instead of {wanted:g}")


def _launch(device: Device) -> str:
    values = _values(device)
    _add(device, values)
    _expect(values, 1)
    return "compiled and right"


def _recording(level: Level) -> Callable[[Device], str]:
    def feature(device: Device) -> str:
        values = _values(device)
        recorder = open_recorder(device, level)
        recorder.start()
        with device.annotate("probe"):
            _add(device, values)
        device.synchronize()
        timeline = recorder.stop()
        kernels = int((timeline.operations["kind"] == "kernel").sum())
        if kernels != 1:
            raise CgateError(f"{kernels} kernels recorded instead of 1")
        calls = len(timeline.calls)
        return f"{timeline.meta.source}: {kernels} kernel, {calls} call{'s' if calls != 1 else ''}"

    return feature


def _captured(device: Device, values: DeviceArray, launches: int = 1) -> Graph:
    stream = device.create_stream()
    with device.use_stream(stream):
        device.begin_capture(stream)
        try:
            for _ in range(launches):
                _add(device, values)
        finally:
            graph = device.end_capture(stream)
    return graph


def _replayed(device: Device, executable: ExecutableGraph) -> None:
    executable.launch(device.current_stream())
    device.synchronize()


def _capture(device: Device) -> str:
    values = _values(device)
    executable = _captured(device, values).instantiate()
    executable.upload(device.current_stream())
    _replayed(device, executable)
    _replayed(device, executable)
    _expect(values, 2)
    executable.destroy()
    return "captured, instantiated, uploaded, replayed twice"


def _explicit(device: Device) -> str:
    values, copied = _values(device), _values(device)
    graph = device.create_graph()
    add = graph.add_kernel(ADD_ONE, SHAPE, (values, np.int32(COUNT)))
    graph.add_copy(copied, values, [add])
    _replayed(device, graph.instantiate())
    _expect(copied, 1)
    return f"{len(graph.nodes())} nodes, {len(graph.edges())} edge"


def _update(device: Device) -> str:
    values, others = _values(device), _values(device)
    executable = _captured(device, values).instantiate()
    result = executable.update(_captured(device, others))
    if not result.ok:
        raise CgateError(f"the driver refused: {result.result}")
    _replayed(device, executable)
    _expect(others, 1)
    _expect(values, 0)
    return "took over other arguments"


def _refused_update(device: Device) -> str:
    values = _values(device)
    result = _captured(device, values).instantiate().update(_captured(device, values, launches=2))
    if result.ok:
        raise CgateError("accepted another topology")
    return result.result


def _node_update(device: Device) -> str:
    values, others = _values(device), _values(device)
    graph = _captured(device, values)
    executable = graph.instantiate()
    executable.update_kernel(graph.nodes()[0], ADD_ONE, SHAPE, (others, np.int32(COUNT)))
    _replayed(device, executable)
    _expect(others, 1)
    return "changed one kernel's arguments"


FEATURES: Final[dict[str, Callable[[Device], str]]] = {
    "kernel launch": _launch,
    "stream capture": _capture,
    "explicit graph": _explicit,
    "whole-graph update": _update,
    "refused update": _refused_update,
    "kernel node update": _node_update,
    "recording, light": _recording("light"),
    "recording, full": _recording("full"),
}
"""Recorders last: one stays in the process once it was switched on."""
