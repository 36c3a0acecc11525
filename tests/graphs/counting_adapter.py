"""An adapter whose arrays are host arrays: it counts its calls and fails where a test says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from cudagraph_gate.adapters import Adapter, CapturedStep, Executable
from cudagraph_gate.device.port import (
    DeviceArray,
    Event,
    Graph,
    HostArray,
    Kernel,
    LaunchShape,
    Node,
    Stream,
    UpdateResult,
)
from cudagraph_gate.errors import DeviceError
from cudagraph_gate.model import Measured, NotMeasured


class FakeError(DeviceError):
    """What the fakes raise."""

    def __init__(self, call: str) -> None:
        super().__init__("CUDA_ERROR_UNKNOWN", call)


class Calls:
    """Counts calls by name; those in ``failing`` raise what is given there."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failing: dict[str, BaseException] = {}

    def __call__(self, name: str) -> None:
        self.counts[name] += 1
        if name in self.failing:
            raise self.failing[name]

    def fail(self, *names: str) -> None:
        self.failing |= {name: FakeError(name) for name in names}


class FakeGraph:
    """A graph that holds nothing."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def add_kernel(
        self, kernel: Kernel, shape: LaunchShape, args: Sequence[Any], after: Sequence[Node] = ()
    ) -> Node:
        raise NotImplementedError

    def add_copy(self, target: DeviceArray, source: DeviceArray, after: Sequence[Node] = ()) -> Node:
        raise NotImplementedError

    def add_fill(self, target: DeviceArray, byte: int, after: Sequence[Node] = ()) -> Node:
        raise NotImplementedError

    def nodes(self) -> tuple[()]:
        return ()

    def edges(self) -> tuple[()]:
        return ()

    def instantiate(self) -> Any:
        raise NotImplementedError

    def destroy(self) -> None:
        self._calls("destroy_graph")


class FakeEvent:
    """Counts who waits for it."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def synchronize(self) -> None:
        self._calls("wait_event")

    def elapsed_ns(self, since: Event) -> int:
        raise NotImplementedError


class FakeStream:
    """A stream on which events can be recorded."""

    blocking = False
    is_capturing = False

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def synchronize(self) -> None:
        self._calls("synchronize_stream")

    def record(self) -> Event:
        self._calls("record")
        return FakeEvent(self._calls)

    def wait(self, event: Event) -> None:
        self._calls("stream_wait")


class FakeExecutable:
    """Runs the captured step again on the static arrays."""

    def __init__(self, calls: Calls, replay: Callable[[], None]) -> None:
        self._calls = calls
        self._replay = replay
        self._destroyed = False

    def upload(self) -> None:
        self._calls("upload")

    def launch(self) -> None:
        assert not self._destroyed, "launched after it was destroyed"
        self._calls("launch")
        self._replay()

    def update(self, graph: Graph) -> UpdateResult:
        assert isinstance(graph, FakeGraph)
        self._calls("update")
        return UpdateResult(ok="refuse_update" not in self._calls.failing, result="answer")

    def destroy(self) -> None:
        self._destroyed = True
        self._calls("destroy")


class FakeCapture:
    """A captured step; its output is overwritten by each replay."""

    def __init__(self, calls: Calls, step: Callable[..., Any], inputs: Sequence[Any]) -> None:
        self._calls = calls
        self._step = step
        self._inputs = inputs
        self.graph: Graph = FakeGraph(calls)
        self.outputs: Any = step(*inputs)

    def instantiate(self) -> Executable:
        self._calls("instantiate")

        def replay() -> None:
            self.outputs[...] = self._step(*self._inputs)

        return FakeExecutable(self._calls, replay)


class CountingAdapter:
    """The whole of :class:`Adapter`, on NumPy arrays."""

    name = "counting"

    def __init__(self) -> None:
        self.calls = Calls()

    def is_device_array(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def static_like(self, value: Any) -> Any:
        self.calls("static_like")
        return value.copy()

    def copy_into(self, target: Any, source: Any) -> None:
        self.calls("copy_into")
        if target.shape != source.shape:
            raise ValueError(f"{source.shape} does not fit {target.shape}")
        target[...] = source

    def poison(self, value: Any) -> None:
        value.fill(-1)

    def to_host(self, value: Any) -> HostArray:
        return np.array(value)

    def same_values(self, left: Any, right: Any) -> bool:
        return np.array_equal(left, right)

    def draw_random(self) -> HostArray | None:
        return None

    def release_cached(self) -> None:
        """Nothing is cached."""

    def nbytes(self, value: Any) -> int:
        return int(value.nbytes)

    def current_stream(self) -> Stream:
        return FakeStream(self.calls)

    def new_stream(self) -> Any:
        return FakeStream(self.calls)

    @contextmanager
    def on_stream(self, stream: Any) -> Iterator[None]:
        del stream
        yield

    def synchronize(self) -> None:
        self.calls("synchronize")

    def capture(self, step: Callable[..., Any], inputs: Sequence[Any]) -> CapturedStep:
        self.calls("capture")
        return FakeCapture(self.calls, step, inputs)

    def recover(self) -> None:
        self.calls("recover")

    def random_state(self, step: Callable[..., Any] | None = None) -> Any:
        del step

    def set_random_state(self, state: Any) -> None:
        del state

    def address(self, value: Any) -> int:
        return int(value.ctypes.data)

    def find_state(self, step: Callable[..., Any]) -> Mapping[str, Any]:
        return {}

    def allocator_bytes(self) -> Measured:
        return NotMeasured(reason="there is no allocator")


IS_AN_ADAPTER: Adapter = CountingAdapter()
"""For the type checker: the fake is an adapter."""
