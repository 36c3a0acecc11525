"""Arrays of other libraries through the array adapter, on a GPU: a script that prints facts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from program_facts import Facts, Program, print_facts

from cudagraph_gate.adapters import unusable
from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.device import open_device

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


class DlpackOnly:
    """Shows its memory by DLPack and in no other way."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __dlpack__(self, **options: Any) -> Any:
        return self._inner.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._inner.__dlpack_device__()


class InterfaceOnly:
    """Shows its memory by ``__cuda_array_interface__`` and in no other way."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property
    def __cuda_array_interface__(self) -> Any:
        return self._inner.__cuda_array_interface__


def torch_array(values: Any) -> Any:
    import torch

    return torch.from_numpy(values.copy()).cuda()


def cupy_array(values: Any) -> Any:
    import cupy

    return cupy.asarray(values)


def core_buffer(values: Any) -> Any:
    from cuda.core import Device

    core = Device()
    buffer = core.allocate(values.nbytes, stream=core.default_stream)
    core.default_stream.sync()
    kind = ADAPTER.static_like(buffer).dtype
    ADAPTER.copy_into(buffer, DEVICE.array(values.reshape(-1).view(kind)))
    DEVICE.synchronize()
    return buffer


def used(make: Callable[[Any], Any]) -> Facts:
    """What the adapter makes of an array of VALUES."""
    array = make(VALUES)
    DEVICE.synchronize()
    static = ADAPTER.static_like(array)
    read = ADAPTER.to_host(array)
    replacement = DEVICE.array((VALUES + 10).view(read.dtype).reshape(read.shape))
    ADAPTER.copy_into(array, replacement)
    ADAPTER.synchronize()
    changed = ADAPTER.to_host(array)
    ADAPTER.poison(array)
    return {
        "taken": ADAPTER.is_device_array(array),
        "nbytes": ADAPTER.nbytes(array),
        "read": read.reshape(-1).view(np.float32).tolist(),
        "static": static.to_host().reshape(-1).view(np.float32).tolist(),
        "changed": changed.reshape(-1).view(np.float32).tolist(),
        "poison": sorted(set(ADAPTER.to_host(array).reshape(-1).view(np.uint8).tolist())),
    }


def refused(make: Callable[[], Any]) -> Facts:
    value = make()
    complaint = unusable(ADAPTER, {"value": value})
    return {"taken": ADAPTER.is_device_array(value), "complaint": complaint.what if complaint else None}


def cupy_capture() -> Facts:
    """A CuPy step on the device's stream: captured, and replayed with new values."""
    import cupy

    source, out = cupy.asarray(VALUES), cupy.zeros_like(cupy.asarray(VALUES))

    def step(values: Any) -> Any:
        with cupy.cuda.ExternalStream(int(DEVICE.current_stream().__cuda_stream__()[1])):  # type: ignore[attr-defined]
            cupy.multiply(values, 2, out=out)
        return out

    step(source)
    DEVICE.synchronize()
    captured = ADAPTER.capture(step, (source,))
    executable = captured.instantiate()
    ADAPTER.copy_into(source, DEVICE.array(VALUES + 1))
    executable.launch()
    return {"replayed": ADAPTER.to_host(captured.outputs).tolist()}


PROGRAMS: dict[str, Program] = {
    "torch": lambda: used(torch_array),
    "torch-dlpack": lambda: used(lambda values: DlpackOnly(torch_array(values))),
    "torch-interface": lambda: used(lambda values: InterfaceOnly(torch_array(values))),
    "buffer": lambda: used(core_buffer),
    "own-interface": lambda: used(lambda values: InterfaceOnly(DEVICE.array(values))),
    "torch-transposed": lambda: refused(lambda: torch_array(VALUES).t()),
    "torch-strided": lambda: refused(lambda: InterfaceOnly(torch_array(VALUES)[:, ::2])),
    "torch-host": lambda: refused(lambda: torch_array(VALUES).cpu()),
    "torch-bfloat16-dlpack": lambda: refused(lambda: DlpackOnly(torch_array(VALUES).bfloat16())),
    "numpy": lambda: refused(VALUES.copy),
    "numpy-dlpack": lambda: refused(lambda: DlpackOnly(VALUES.copy())),
}
CUPY_PROGRAMS: dict[str, Program] = {
    "cupy": lambda: used(cupy_array),
    "cupy-dlpack": lambda: used(lambda values: DlpackOnly(cupy_array(values))),
    "cupy-strided": lambda: refused(lambda: cupy_array(VALUES)[:, ::2]),
    "cupy-capture": cupy_capture,
}

if __name__ == "__main__":
    DEVICE = open_device("cuda")
    ADAPTER = ArrayAdapter(DEVICE)
    print_facts(CUPY_PROGRAMS if "cupy" in sys.argv else PROGRAMS)
