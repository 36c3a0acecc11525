"""CuPy and torch in one step, on a GPU: a script that prints facts."""

from __future__ import annotations

from typing import Any

import numpy as np
from program_facts import Facts, Program, print_facts
from program_facts_of_streams import escaped

from cudagraph_gate.adapters import adapter_for
from cudagraph_gate.adapters.torch import TorchAdapter
from cudagraph_gate.device import open_device

COUNT = 32
SOURCE = (
    'extern "C" __global__ void raise1(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }'
)


def values(start: float = 0.0) -> Any:
    return torch.arange(COUNT, dtype=torch.float32, device="cuda") + start


def raised(source: Any, stream: Any) -> Any:
    """CuPy's kernel on torch's memory."""
    target = torch.empty_like(source)
    with stream:
        RAISE((1,), (COUNT,), (cupy.asarray(source), cupy.asarray(target)))
    return target


def torchs_stream() -> Any:
    return cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)


def on_torchs_stream() -> Facts:
    """Torch, then CuPy, then torch: replayed with other values."""

    def step(x: Any) -> Any:
        return raised(x * 2, torchs_stream()) * 3

    static = values()
    step(static)
    captured = ADAPTER.capture(step, (static,))
    executable = captured.instantiate()
    ADAPTER.copy_into(static, values(5))
    ADAPTER.poison(captured.outputs)
    executable.launch()
    return {
        "result": ADAPTER.to_host(captured.outputs).tolist(),
        **escaped(DEVICE, ADAPTER, step, (values(),)),
    }


def on_cupys_stream() -> Facts:
    """The mistake: CuPy's own current stream."""
    kept = values()

    def step(x: Any) -> Any:
        raised(kept, cupy.cuda.Stream.null)
        return x * 2

    return escaped(DEVICE, ADAPTER, step, (values(),))


def cupy_arrays() -> Facts:
    """What a torch step takes from CuPy and returns to it."""
    array = cupy.arange(4, dtype=np.float32)
    static = ADAPTER.static_like(array)
    ADAPTER.copy_into(static, values()[:4] + 3)
    read = ADAPTER.to_host(static).tolist()
    ADAPTER.poison(static)
    return {
        "adapter": type(adapter_for(DEVICE, (array, values()))).__name__,
        "taken": ADAPTER.is_device_array(array),
        "kind": type(static).__module__.partition(".")[0],
        "other": ADAPTER.address(static) != ADAPTER.address(array),
        "nbytes": ADAPTER.nbytes(array),
        "read": read,
        "poisoned": bool(cupy.isnan(static).all()),
    }


PROGRAMS: dict[str, Program] = {
    program.__name__: program for program in (cupy_arrays, on_torchs_stream, on_cupys_stream)
}

if __name__ == "__main__":
    import cupy
    import torch

    RAISE = cupy.RawKernel(SOURCE, "raise1")
    DEVICE = open_device("cuda")
    ADAPTER = TorchAdapter(DEVICE)
    print_facts(PROGRAMS)
