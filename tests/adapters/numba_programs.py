"""The Numba adapter on a GPU: a script that prints facts. Programs that break things come last."""

from __future__ import annotations

from typing import Any

import numpy as np
from program_facts import Facts, Program, print_facts
from program_facts_of_streams import escaped, failing, on_stream

from cudagraph_gate.adapters import adapter_for
from cudagraph_gate.adapters.numba import NumbaAdapter, current_stream
from cudagraph_gate.device import open_device
from cudagraph_gate.graphs import GraphedStep, contents

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)
BLOCK = 32


def array(start: float = 0) -> Any:
    return cuda.to_device(VALUES + np.float32(start))


def doubling(out: Any) -> Any:
    """A step that writes twice its input into ``out``."""

    def step(values: Any) -> Any:
        KERNEL[1, BLOCK, current_stream()](values, out)
        return out

    return step


def replays() -> Facts:
    static, out = array(), cuda.device_array_like(VALUES)
    step = doubling(out)
    step(static)
    captured = ADAPTER.capture(step, (static,))
    executable = captured.instantiate()
    executable.upload()
    results = []
    for start in (1, 5):
        ADAPTER.copy_into(static, array(start))
        ADAPTER.poison(captured.outputs)
        executable.launch()
        results.append(ADAPTER.to_host(captured.outputs).tolist())
    return {
        "results": results,
        "kinds": contents(captured.graph).kinds,
        "same": ADAPTER.address(captured.outputs) == ADAPTER.address(out),
        "adapter": type(adapter_for(DEVICE, (static,))).__name__,
    }


def graphed() -> Facts:
    """Static inputs are Numba's own arrays, as the step's kernel wants them."""
    given: list[str] = []
    inner = doubling(cuda.device_array_like(VALUES))

    def watched(values: Any) -> Any:
        given.append(type(values).__name__)
        return inner(values)

    step = GraphedStep(ADAPTER, watched, (array(),))
    step.warm_up(2)
    step.capture()
    step.instantiate()
    step.upload()
    return {"replayed": ADAPTER.to_host(step(array(2))).tolist(), "given": given}


def streams() -> Facts:
    return on_stream(
        ADAPTER,
        lambda: int(current_stream().__cuda_stream__()[1]),
        lambda stream: int(stream.handle),
    )


def arrays() -> Facts:
    static = ADAPTER.static_like(array(1))
    host = ADAPTER.to_host(static).tolist()
    ADAPTER.poison(static)
    return {
        "static": host,
        "kind": type(static).__name__,
        "poison": sorted(set(ADAPTER.to_host(static).view(np.uint8).reshape(-1).tolist())),
        "taken": [ADAPTER.is_device_array(value) for value in (static, VALUES, array()[:, ::2])],
        "nbytes": ADAPTER.nbytes(static),
    }


# --- escaped work and failures --------------------------------------------------------------------------


def wrong_stream() -> Facts:
    """A launch that names no stream."""
    out = cuda.device_array_like(VALUES)
    named = doubling(cuda.device_array_like(VALUES))

    def step(values: Any) -> Any:
        LOST[1, BLOCK](out)
        return named(values)

    return escaped(DEVICE, ADAPTER, step, (array(),))


def allocating() -> Facts:
    """Numba's allocator in a capture."""

    def step(values: Any) -> Any:
        return doubling(cuda.device_array_like(VALUES))(values)

    def normal() -> Any:
        captured = ADAPTER.capture(doubling(cuda.device_array_like(VALUES)), (array(1),))
        captured.instantiate().launch()
        return ADAPTER.to_host(captured.outputs).tolist()

    return failing(ADAPTER, step, (array(),), normal)


PROGRAMS: dict[str, Program] = {
    program.__name__: program for program in (replays, graphed, streams, arrays, allocating, wrong_stream)
}

if __name__ == "__main__":
    if not hasattr(np, "row_stack"):  # NumPy 2.5 dropped it; numba-cuda 0.30 looks it up at import
        np.row_stack = np.vstack  # type: ignore[attr-defined]
    from numba import cuda

    @cuda.jit
    def twice(source: Any, target: Any) -> None:
        index = cuda.grid(1)
        if index < source.size:
            row, column = index // source.shape[1], index % source.shape[1]
            target[row, column] = source[row, column] * np.float32(2)

    @cuda.jit
    def lost(target: Any) -> None:
        index = cuda.grid(1)
        if index < target.shape[1]:
            target[0, index] = np.float32(1)

    KERNEL, LOST = twice, lost
    DEVICE = open_device("cuda")
    ADAPTER = NumbaAdapter(DEVICE)
    print_facts(PROGRAMS)
