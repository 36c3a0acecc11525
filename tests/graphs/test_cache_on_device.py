"""A cache with real arrays, on the simulated device and on a GPU."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import numpy as np
from portable_kernel import ONE_BLOCK, SCALE

from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.device import Device, DeviceArray, Kernel
from cudagraph_gate.device.simulated import SimulatedDevice, SimulatedSpec
from cudagraph_gate.graphs import GraphCache, GraphedStep, GraphKey
from cudagraph_gate.graphs import cache as cache_module

DOCUMENT = Path(__file__).parents[2] / "docs" / "graph_cache.md"
SLOW_NS = 5_000_000


class Server:
    """Serves ``2 * x`` by graphs, one for each factor of the model."""

    def __init__(self, device: Device, kernel: Kernel = SCALE, **options: Any) -> None:
        self._device = device
        self._kernel = kernel
        self._out = device.array(np.zeros(64, np.float32))
        self._adapter = ArrayAdapter(device)
        self.cache = GraphCache(
            **{"capacity_entries": 2, "free_bytes": lambda: device.memory_info().free_bytes, **options}
        )

    def request(self, x: DeviceArray, version: int) -> Any:
        """Outputs on the host."""

        def step(x: DeviceArray) -> DeviceArray:
            self._device.launch(self._kernel, ONE_BLOCK, (self._out, x, np.float32(version)))
            return self._out

        with self.lease(x, version, step) as graphed:
            return (graphed(x) if graphed is not None else step(x)).to_host()

    def lease(self, x: DeviceArray, version: int, step: Any) -> Any:
        key = GraphKey.of((x,), model_version=str(version), device=self._device.name)
        return self.cache.lease(key, lambda: GraphedStep(self._adapter, step, (x,)).prepare(1))


def numbers(start: float) -> Any:
    return np.arange(64, dtype=np.float32) + np.float32(start)


def test_requests_are_right_while_graphs_come_and_go(device: Device) -> None:
    server = Server(device)
    for index in range(12):
        version = index % 3 + 1
        served = server.request(device.array(numbers(index)), version)
        np.testing.assert_array_equal(served, version * numbers(index))
    found = server.cache.statistics
    assert (found.entries, found.captures, found.evictions, found.failures) == (2, 12, 10, 0)


def test_memory_is_counted_as_the_device_sees_it_and_comes_back() -> None:
    device = SimulatedDevice()
    server, x = Server(device), device.array(numbers(0))
    before = device.memory_info().free_bytes
    for version in (1, 2):
        server.request(x, version)
    used = before - device.memory_info().free_bytes
    assert used == server.cache.statistics.bytes == 2 * (4_700 + 256)  # one node and one static input each
    server.cache.clear()
    assert device.memory_info().free_bytes == before


def test_a_graph_in_flight_is_destroyed_after_its_last_work() -> None:
    device = SimulatedDevice(SimulatedSpec(jitter=0))
    slow = Kernel("slow", "", SCALE.reference, SLOW_NS)
    server, x = Server(device, slow), device.array(numbers(0))
    side = device.create_stream()

    def step(x: DeviceArray) -> DeviceArray:
        device.launch(slow, ONE_BLOCK, (x, x, np.float32(1)))
        return x

    with device.use_stream(side):
        with server.lease(x, 1, step) as graphed:
            graphed(x)
        enqueued_ns = device.clock_ns()
    server.cache.clear()
    assert device.clock_ns() >= enqueued_ns + SLOW_NS - 10_000


def test_the_document_and_the_docstring_run() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, DOCUMENT.name, "exec"), {})
    result = doctest.testmod(cache_module)
    assert (result.failed, result.attempted > 10) == (0, True)
