"""Adapter for PyTorch: captures into a private pool of torch's allocator and keeps the raw graph.

The capture is begun and ended here, not by ``torch.cuda.graph``: a capture that fails inside that context
manager leaves its stream, and the default generator, in capture mode.

A torch step may launch kernels of others (CuPy, Triton, Numba, cuda.core, raw) on
``torch.cuda.current_stream()``: the capture sees them. CuPy and Numba must not allocate in it: they write
into tensors, or into arrays made in ``build``. What is compiled at the first call is compiled by the warm-up.
A step that replays graphs of its own, such as ``torch.compile(mode="reduce-overhead")``, is refused: it
belongs into ``build_graphed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import numpy as np

from cudagraph_gate.adapters.capturing import no_collection
from cudagraph_gate.adapters.foreign import wrapped
from cudagraph_gate.adapters.streams import foreign_stream
from cudagraph_gate.adapters.torch_state import free_blocks, generators_of, runs_graphs, tensors_of
from cudagraph_gate.device import Device
from cudagraph_gate.device.port import ExecutableGraph, Graph, HostArray, Stream, UpdateResult
from cudagraph_gate.errors import NoDeviceError, WorkloadError, device_error
from cudagraph_gate.model import Measured

DRAWN: Final = 256
"""Random numbers drawn to see that the generator works: two such draws never agree by chance."""


class TorchExecutable:
    """A torch graph, replayed through torch so that its random offsets are set before each replay."""

    def __init__(self, torch: Any, owner: Any, executable: ExecutableGraph) -> None:
        self._torch = torch
        self._owner = owner
        self._executable = executable

    def upload(self) -> None:
        """Send it to the device."""
        self._executable.upload(foreign_stream(self._torch.cuda.current_stream().cuda_stream))

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

    def reinstantiate(self, executable: TorchExecutable) -> TorchExecutable:
        """torch destroys its old executable itself; destroying ours would free graph and pool too."""
        del executable
        return self.instantiate()


class TorchAdapter:
    """CUDA tensors of PyTorch 2.11 or newer; beside them, other libraries' arrays that torch can view."""

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
        self._index = int(torch.cuda.current_device())
        self._raw_stream: Callable[[int], int] = getattr(
            torch._C, "_cuda_getCurrentRawStream", lambda _index: int(torch.cuda.current_stream().cuda_stream)
        )
        self._clear_workspaces: Callable[[], None] = getattr(
            torch._C, "_cuda_clearCublasWorkspaces", lambda: None
        )
        self._streams: dict[int, Any] = {}
        """Streams that were current, by raw pointer."""
        self._mark: Any = None
        """A number in memory of its own, for :meth:`recover`, which must not need any more of it."""
        self._generators: dict[int, Any] = {}
        """CUDA generators of the steps seen so far, besides torch's default ones."""

    def is_device_array(self, value: Any) -> bool:
        """A strided CUDA tensor, or another library's array that torch can view."""
        torch = self._torch
        if isinstance(value, torch.Tensor):
            return bool(value.is_cuda and value.layout == torch.strided)
        if getattr(value, "__cuda_array_interface__", None) is None:
            return False
        try:
            self._tensor(value)
        except (TypeError, ValueError, RuntimeError):  # a dtype or a stride that torch has not
            return False
        return True

    def _tensor(self, value: Any) -> Any:
        """The value, or torch's view of its memory."""
        torch = self._torch
        return value if isinstance(value, torch.Tensor) else torch.as_tensor(value, device="cuda")

    def static_like(self, value: Any) -> Any:
        """An array of the same kind, shape and strides with a copy of the values."""
        source = self._tensor(value)
        target = self._torch.empty_strided(
            source.shape, source.stride(), dtype=source.dtype, device=source.device, requires_grad=False
        )
        self.copy_into(target, source)
        return target if source is value else wrapped(self._device, value, target)

    def copy_into(self, target: Any, source: Any) -> None:
        """Enqueue a copy on torch's current stream."""
        target, source = self._tensor(target), self._tensor(source)
        if (target.shape, target.dtype) != (source.shape, source.dtype):
            given, wanted = f"{source.dtype}{tuple(source.shape)}", f"{target.dtype}{tuple(target.shape)}"
            raise ValueError(f"{given} does not fit {wanted}")
        with self._torch.no_grad():
            target.copy_(source, non_blocking=True)

    def poison(self, value: Any) -> None:
        """Fill with NaN, or with the largest integer."""
        torch, value = self._torch, self._tensor(value)
        with torch.no_grad():
            if value.is_floating_point() or value.is_complex():
                value.fill_(float("nan"))
            elif value.dtype == torch.bool:
                value.logical_not_()
            else:
                value.fill_(torch.iinfo(value.dtype).max)

    def to_host(self, value: Any) -> HostArray:
        """The values as NumPy; bfloat16 and float8 as float32."""
        tensor = self._tensor(value).detach()
        try:
            return np.asarray(tensor.cpu().numpy())
        except TypeError:
            return np.asarray(tensor.float().cpu().numpy())

    def same_values(self, left: Any, right: Any) -> bool:
        """``torch.equal`` of the bytes, so that NaN equals NaN and -0.0 is not 0.0."""
        one, other = self._tensor(left).detach(), self._tensor(right).detach()
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return False
        torch = self._torch
        return bool(torch.equal(*(each.contiguous().view(-1).view(torch.uint8) for each in (one, other))))

    def address(self, value: Any) -> int:
        """``data_ptr``."""
        return int(self._tensor(value).data_ptr())

    def nbytes(self, value: Any) -> int:
        """Size of the elements in bytes."""
        tensor = self._tensor(value)
        return int(tensor.numel()) * int(tensor.element_size())

    def current_stream(self) -> Stream:
        """torch's."""
        return foreign_stream(int(self._torch.cuda.current_stream().cuda_stream))

    def new_stream(self) -> Any:
        """A stream of torch's pool of streams."""
        return self._torch.cuda.Stream()

    @contextmanager
    def on_stream(self, stream: Any) -> Iterator[None]:
        """``torch.cuda.stream``."""
        with self._torch.cuda.stream(stream):
            yield

    def synchronize(self) -> None:
        """Wait for torch's current stream."""
        # By its raw pointer: torch.cuda.current_stream() takes 4 us, which would count as the request's.
        pointer = self._raw_stream(self._index)
        stream = self._streams.get(pointer)
        if stream is None:
            stream = self._streams[pointer] = self._torch.cuda.current_stream()
        stream.synchronize()

    def capture(self, step: Callable[..., Any], inputs: Sequence[Any]) -> TorchCapture:
        """Capture on a side stream into a private pool, thread-local.

        Casts that autocast has cached are dropped before and after: the graph must not use those of the
        past, nor later work those that only a replay computes. So are cuBLAS's workspaces: torch keeps one
        for each stream (32 MiB on an H200), and a graph's own must go with its pool.
        """
        torch = self._torch
        owner = torch.cuda.CUDAGraph(keep_graph=True)
        self._note_generators(step)
        self._register_generators(owner)
        if self._mark is None:
            self._mark = torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # as torch.cuda.graph does: pools of destroyed graphs are given back
        torch.clear_autocast_cache()
        self._clear_workspaces()
        stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream), no_collection():
                owner.capture_begin(pool=pool, capture_error_mode="thread_local")
                outputs = _call_in_capture(owner, step, inputs)
                owner.capture_end()
        except BaseException:
            _give_up_pool(torch, owner, pool)
            raise
        finally:
            torch.clear_autocast_cache()
            self._clear_workspaces()
        torch.cuda.current_stream().wait_stream(stream)
        return TorchCapture(torch, self._device, owner, outputs)

    def recover(self) -> None:
        """Take the generators out of capture mode, where a failed capture leaves them (torch 2.11).

        A small capture that succeeds resets them. Without it, the normal path's next random number raises.
        """
        if self._mark is None:  # nothing was captured
            return
        torch = self._torch
        owner, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        self._register_generators(owner)
        with torch.cuda.stream(stream):
            owner.capture_begin(capture_error_mode="thread_local")
            try:
                self._mark.add_(0)
            finally:
                owner.capture_end()
        owner.reset()

    def random_state(self, step: Callable[..., Any] | None = None) -> Any:
        """State of torch's host and CUDA generators, and of those that ``step`` reaches."""
        if step is not None:
            self._note_generators(step)
        own = tuple((generator, generator.get_state()) for generator in self._generators.values())
        return self._torch.get_rng_state(), self._torch.cuda.get_rng_state(), own

    def set_random_state(self, state: Any) -> None:
        """Set all of them."""
        host, device, own = state
        self._torch.set_rng_state(host)
        self._torch.cuda.set_rng_state(device)
        for generator, value in own:
            generator.set_state(value)

    def draw_random(self) -> HostArray | None:
        """``torch.rand`` on the GPU."""
        return self.to_host(self._torch.rand(DRAWN, device="cuda"))

    def _note_generators(self, step: Callable[..., Any]) -> None:
        self._generators |= {id(each): each for each in generators_of(self._torch, step)}

    def _register_generators(self, owner: Any) -> None:
        for generator in self._generators.values():
            owner.register_generator_state(generator)

    def find_state(self, step: Callable[..., Any]) -> Mapping[str, Any]:
        """CUDA tensors of the modules and optimisers that the step is, is bound to, or closes over."""
        self._note_generators(step)
        found = tensors_of(self._torch, step)
        return {name: tensor for name, tensor in found.items() if self.is_device_array(tensor)}

    def allocator_bytes(self) -> Measured:
        """What torch's caching allocator has reserved."""
        return int(self._torch.cuda.memory_reserved())

    def occupied_bytes(self) -> Measured:
        """What it has reserved, without the free parts of what tensors share: pools of graphs included."""
        figures = self._torch.cuda.memory_stats()
        return int(figures["reserved_bytes.all.current"] - figures["inactive_split_bytes.all.current"])

    def free_memory(self) -> Sequence[tuple[int, int]]:
        """Inactive blocks of the allocator's common pool."""
        return free_blocks(self._torch.cuda.memory_snapshot())

    def release_cached(self) -> None:
        """``torch.cuda.empty_cache``."""
        self._torch.cuda.empty_cache()

    def release_workspaces(self) -> None:
        """Those of cuBLAS: torch keeps one for each stream and thread (32 MiB on an H200)."""
        self._torch.cuda.synchronize()
        self._clear_workspaces()

    @contextmanager
    def keeping_arrays(self) -> Iterator[None]:
        """The results of every operator, seen by a dispatch mode."""
        from torch.utils._python_dispatch import TorchDispatchMode

        kept: list[Any] = []

        class Keeping(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
                results = func(*args, **(kwargs or {}))
                kept.append(results)
                return results

        with Keeping():
            yield


def _call_in_capture(owner: Any, step: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """Call the step, and end the capture when it raises."""
    try:
        return step(*inputs)
    except BaseException as error:
        _end_quietly(owner)
        if not runs_graphs(error):
            raise
        refusal = device_error(
            "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
            "torch.cuda.CUDAGraph",
            detail="the step runs graphs of its own: declare it as build_graphed(shape)",
        )
        raise refusal.with_traceback(error.__traceback__) from error


def _give_up_pool(torch: Any, owner: Any, pool: Any) -> None:
    """Undo what torch does not where the driver refuses the end of a capture.

    Its allocator would go on as if that capture were under way, and keep the pool for good (torch 2.11).
    """
    try:
        owner.pool()
    except RuntimeError:  # it never ended
        device = torch.cuda.current_device()
        for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
            with suppress(RuntimeError, AttributeError):  # it had not begun, or torch works otherwise
                getattr(torch._C, name)(device, pool)


def _end_quietly(owner: Any) -> None:
    """The step's own error is the reason; torch's complaint at the end only repeats it."""
    try:
        owner.capture_end()
    except RuntimeError:
        return
