"""What exact tests of the simulated device need: kernels that only take time, and recordings."""

from __future__ import annotations

from typing import Any

from device_programs import ONE_BLOCK

from cudagraph_gate.device.port import Kernel, Stream
from cudagraph_gate.device.simulated import SimulatedDevice


def kernel(cost_ns: int) -> Kernel:
    """A kernel that only takes time."""
    return Kernel(f"busy{cost_ns}", "", lambda _shape, *_args: None, cost_ns)


SHORT, LONG = kernel(2_000), kernel(20_000)


class Recording:
    """Records the block; times are relative to its start."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device

    def __enter__(self) -> Recording:
        self._device.synchronize()
        self.start_ns = self._device.clock_ns()
        self._device.start_trace()
        return self

    def __exit__(self, *_error: object) -> None:
        self.trace = self._device.stop_trace()

    @property
    def operations(self) -> list[tuple[int, int]]:
        return [
            (row["start_ns"] - self.start_ns, row["end_ns"] - self.start_ns) for row in self.trace.operations
        ]

    @property
    def calls(self) -> list[tuple[str, int, int]]:
        rows = self.trace.calls
        return [(row["name"], row["start_ns"] - self.start_ns, row["end_ns"] - self.start_ns) for row in rows]


def launch(device: SimulatedDevice, work: Kernel, *streams: Stream) -> None:
    for stream in streams:
        device.launch(work, ONE_BLOCK, (), stream)


def chain(device: SimulatedDevice, work: Kernel, nodes: int) -> Any:
    """An executable of dependent kernels."""
    graph, after = device.create_graph(), []
    for _ in range(nodes):
        after = [graph.add_kernel(work, ONE_BLOCK, (), after=after)]
    return graph.instantiate()
