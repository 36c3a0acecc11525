"""Adapter for PyTorch: captures into a private pool of torch's allocator and keeps the raw graph.

The capture is begun and ended here, not by ``torch.cuda.graph``: a capture that fails inside that context
manager leaves its stream, and the default generator, in capture mode.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cudagraph_gate.adapters.capturing import no_collection
from cudagraph_gate.device import Device
from cudagraph_gate.device.port import ExecutableGraph, Graph, HostArray, UpdateResult
from cudagraph_gate.errors import NoDeviceError, WorkloadError
from cudagraph_gate.model import Measured


class _TorchStream:
    """torch's current stream, for calls of the device port."""

    blocking = True
    is_capturing = False

    def __init__(self, pointer: int) -> None:
        from cudagraph_gate.device.cuda_status import driver

        self.handle = driver().CUstream(pointer)


class TorchExecutable:
    """A torch graph, replayed through torch so that its random offsets are set before each replay."""

    def __init__(self, torch: Any, owner: Any, executable: ExecutableGraph) -> None:
        self._torch = torch
        self._owner = owner
        self._executable = executable

    def upload(self) -> None:
        """Send it to the device."""
        pointer = self._torch.cuda.current_stream().cuda_stream
        stream: Any = _TorchStream(pointer)
        self._executable.upload(stream)

    def launch(self) -> None:
        """Enqueue one replay on torch's current stream."""
        self._owner.replay()

    def update(self, graph: Graph) -> UpdateResult:
        """Whole-graph update of torch's executable."""
        return self._executable.update(graph)

    def destroy(self) -> None:
        """Free the executable, the graph and its pool."""
        self._executable.destroy()
        self._owner.reset()


class TorchCapture:
    """A step captured by torch."""

    def __init__(self, torch: Any, device: Device, owner: Any, outputs: Any) -> None:
        self._torch = torch
        self._device = device
        self._owner = owner
        self.outputs = outputs
        self.graph: Graph = device.adopt_graph(int(owner.raw_cuda_graph()), owner)

    def instantiate(self) -> TorchExecutable:
        """Instantiate through torch and keep the raw executable."""
        self._owner.instantiate()
        raw = int(self._owner.raw_cuda_graph_exec())
        return TorchExecutable(
            self._torch, self._owner, self._device.adopt_executable(raw, self.graph, self._owner)
        )


class TorchAdapter:
    """CUDA tensors of PyTorch 2.11 or newer."""

    name = "torch"

    def __init__(self, device: Device) -> None:
        import torch

        if device.simulated or not torch.cuda.is_available():
            raise NoDeviceError(
                "a torch workload needs a CUDA GPU that torch can use",
                hint="run it on a machine with an NVIDIA GPU; the simulated device runs portable workloads",
            )
        if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph_exec"):
            raise WorkloadError(
                f"torch {torch.__version__} does not give out its executable graphs",
                hint="install torch 2.11 or newer",
            )
        self._torch: Any = torch
        self._device = device

    def is_device_array(self, value: Any) -> bool:
        """A strided CUDA tensor."""
        torch = self._torch
        return isinstance(value, torch.Tensor) and value.is_cuda and value.layout == torch.strided

    def static_like(self, value: Any) -> Any:
        """A tensor of the same shape and strides with a copy of the values."""
        target = self._torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device, requires_grad=False
        )
        self.copy_into(target, value)
        return target

    def copy_into(self, target: Any, source: Any) -> None:
        """Enqueue a copy on torch's current stream."""
        if (target.shape, target.dtype) != (source.shape, source.dtype):
            given, wanted = f"{source.dtype}{tuple(source.shape)}", f"{target.dtype}{tuple(target.shape)}"
            raise ValueError(f"{given} does not fit {wanted}")
        with self._torch.no_grad():
            target.copy_(source, non_blocking=True)

    def poison(self, value: Any) -> None:
        """Fill with NaN, or with the largest integer."""
        torch = self._torch
        with torch.no_grad():
            if value.is_floating_point() or value.is_complex():
                value.fill_(float("nan"))
            elif value.dtype == torch.bool:
                value.logical_not_()
            else:
                value.fill_(torch.iinfo(value.dtype).max)

    def to_host(self, value: Any) -> HostArray:
        """The values as NumPy; bfloat16 and float8 as float32."""
        tensor = value.detach()
        try:
            return np.asarray(tensor.cpu().numpy())
        except TypeError:
            return np.asarray(tensor.float().cpu().numpy())

    def address(self, value: Any) -> int:
        """``data_ptr``."""
        return int(value.data_ptr())

    def nbytes(self, value: Any) -> int:
        """Size of the elements in bytes."""
        return int(value.numel()) * int(value.element_size())

    def synchronize(self) -> None:
        """Wait for torch's current stream."""
        self._torch.cuda.current_stream().synchronize()

    def capture(self, step: Callable[..., Any], inputs: Sequence[Any]) -> TorchCapture:
        """Capture on a side stream into a private pool, thread-local."""
        torch = self._torch
        owner = torch.cuda.CUDAGraph(keep_graph=True)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), no_collection():
            owner.capture_begin(capture_error_mode="thread_local")
            try:
                outputs = step(*inputs)
            except BaseException:
                _end_quietly(owner)
                raise
            owner.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        return TorchCapture(torch, self._device, owner, outputs)

    def recover(self) -> None:
        """Take the default generator out of capture mode, where a failed capture leaves it (torch 2.11).

        A small capture that succeeds resets it. Without it, the normal path's next random number raises.
        """
        torch = self._torch
        owner, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            owner.capture_begin(capture_error_mode="thread_local")
            torch.ones(1, device="cuda")
            owner.capture_end()
        owner.reset()

    def random_state(self) -> Any:
        """State of torch's host and CUDA generators."""
        return self._torch.get_rng_state(), self._torch.cuda.get_rng_state()

    def set_random_state(self, state: Any) -> None:
        """Set both generators."""
        host, device = state
        self._torch.set_rng_state(host)
        self._torch.cuda.set_rng_state(device)

    def find_state(self, step: Callable[..., Any]) -> Mapping[str, Any]:
        """Parameters and buffers of the modules that the step is, is bound to, or closes over."""
        found: dict[str, Any] = {}
        for prefix, module in _modules(self._torch, step).items():
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                if self.is_device_array(tensor):
                    found[f"{prefix}{name}"] = tensor
        return found

    def allocator_bytes(self) -> Measured:
        """What torch's caching allocator has reserved."""
        return int(self._torch.cuda.memory_reserved())


def _modules(torch: Any, step: Callable[..., Any]) -> dict[str, Any]:
    """Modules reachable from a step, by the prefix of their entries' names; each module once."""
    seen: dict[int, tuple[str, Any]] = {}
    for prefix, value in _reachable(step).items():
        if isinstance(value, torch.nn.Module):
            seen.setdefault(id(value), (prefix, value))
    return dict(seen.values())


def _reachable(step: Callable[..., Any]) -> dict[str, Any]:
    """What a step is, is bound to, closes over, was partially applied to, or names as a global."""
    owner = getattr(step, "__self__", None)
    found = {"": step, "self.": owner}
    found |= {f"self.{name}.": value for name, value in getattr(owner, "__dict__", {}).items()}
    if isinstance(step, functools.partial):
        found |= {f"argument {index}.": value for index, value in enumerate(step.args)}
        return found | _reachable(step.func)
    function = inspect.unwrap(step)  # ``@torch.no_grad()`` wraps the function whose names count
    code = getattr(function, "__code__", None)
    if code is None:
        return found
    cells = getattr(function, "__closure__", None) or ()
    closed = dict(zip(code.co_freevars, map(_content, cells), strict=False))
    named = getattr(function, "__globals__", {})
    globals_used = {name: named[name] for name in code.co_names if name in named}
    return found | {f"{name}.": value for name, value in (globals_used | closed).items()}


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _end_quietly(owner: Any) -> None:
    """The step's own error is the reason; torch's complaint at the end only repeats it."""
    try:
        owner.capture_end()
    except RuntimeError:
        return
