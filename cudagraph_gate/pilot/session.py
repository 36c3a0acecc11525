"""A workload's step on a device, ready to be called: what recording and trial both start from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cudagraph_gate.adapters import Adapter, adapter_for, unusable
from cudagraph_gate.device import Device, DeviceChoice, open_device
from cudagraph_gate.errors import CgateError, DeviceError, DeviceMemoryError, StickyError, WorkloadError
from cudagraph_gate.records import PathName
from cudagraph_gate.workload import (
    Workload,
    call_user,
    check_inputs,
    check_outputs,
    load_workload,
    name_inputs,
    select_shapes,
    user_error,
)

INPUT_SETS: Final = 8
"""Requests rotate over this many inputs, so that a path that ignores its inputs does not look right."""
INPUT_SETS_BYTES: Final = 2 * 1024**3
"""Most memory for them together; at least two are always made."""

FOUND_STATE_BYTES: Final = 2 * 1024**3
"""Most state that is compared without being asked for: it is copied once and read back several times."""

Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Loaded:
    """A workload on an open device, before anything of it was built."""

    workload: Workload
    device: Device
    shapes: Mapping[str, Any]


def load(path: str, device: DeviceChoice, shapes: str | None) -> Loaded:
    """Open the device, import the workload and choose its shapes. Raises what each of these raises.

    ``shapes`` is what ``--shapes`` said: None (not given) takes the first declared shape, an empty text
    all of them.
    """
    opened = open_device(device)
    workload = load_workload(Path(path))
    chosen = select_shapes(workload, shapes or None)
    return Loaded(workload, opened, chosen if shapes is not None else dict([*chosen.items()][:1]))


@dataclass
class Counted:
    """How far ``between`` has counted, over all phases."""

    next_index: int = 0


@dataclass(frozen=True)
class Session:
    """One shape's step with the adapter of its framework."""

    workload: Workload
    device: Device
    shape_name: str
    shape: Any
    step: Callable[..., Any]
    input_names: tuple[str, ...]
    adapter: Adapter
    counted: Counted = field(default_factory=Counted)
    """Shared by the copies that are made of a session."""

    @property
    def what(self) -> str:
        """How errors name the step."""
        return f"step of shape {self.shape_name}"

    def inputs(self, seed: int) -> Inputs:
        """Fresh inputs of one request. Raises WorkloadError for what is not in device memory."""
        values = _inputs(self.workload, self.shape_name, self.shape, seed)
        made = check_inputs(self.workload, values, self.input_names)
        _refuse_host_arrays(self.workload, self.adapter, self.input_names, made)
        return made

    def input_sets(self, seed: int) -> list[Inputs]:
        """Several requests' inputs, as many as fit a fixed share of memory."""
        first = self.inputs(seed)
        size = max(1, sum(self.adapter.nbytes(value) for value in first))
        count = min(INPUT_SETS, max(2, INPUT_SETS_BYTES // size))
        sets = [first, *(self.inputs(seed + index) for index in range(1, count))]
        for values in sets:
            self._require_same_layout(first, values)
        self.device.synchronize()
        return sets

    def _require_same_layout(self, first: Inputs, values: Inputs) -> None:
        wanted, given = _layout(first), _layout(values)
        if wanted != given:
            raise WorkloadError(
                f"inputs differ between requests of shape {self.shape_name}: {given} and {wanted}",
                where=self.workload.where("inputs"),
                hint="a graph takes inputs of one size: make each size an entry of SHAPES",
            )

    def call(self, inputs: Inputs) -> Any:
        """One step. Raises WorkloadError with the user's file and line; a DeviceError passes."""
        return call_user(self.step, *inputs, workload=self.workload, what=self.what)

    @contextmanager
    def blaming_user(self, path: PathName = "normal") -> Iterator[None]:
        """Around timed loops, which call the step bare: errors of user code get their place.

        Only the normal path's failure is the workload's; what a graph path raises passes, and is a finding.
        """
        try:
            yield
        except CgateError:
            raise
        except (Exception, SystemExit) as error:
            if path != "normal":
                raise
            raise user_error(error, self.workload.folder, self.what) from error

    def with_outputs(self, inputs: Inputs, outputs: Any) -> Session:
        """This session with the adapter that inputs and outputs together ask for.

        Raises WorkloadError when the step returned nothing, or nothing in device memory.
        """
        leaves = dict(check_outputs(self.workload, self.step, outputs))
        adapter = adapter_for(self.device, [*inputs, *leaves.values()])
        complaint = unusable(adapter, leaves)
        if complaint is not None and not any(adapter.is_device_array(leaf) for leaf in leaves.values()):
            raise WorkloadError(
                f"step returned nothing in device memory: {complaint.what}",
                where=self.workload.where("build"),
                hint="return the output arrays where the GPU computed them",
            )
        return replace(self, adapter=adapter)

    def updatable(self) -> tuple[bool, ...]:
        """Per input: whether replays take new values."""
        allowed = self.workload.updatable
        return tuple(allowed is None or name in allowed for name in self.input_names)

    def baked(self, input_sets: Sequence[Inputs], first: Inputs) -> list[Inputs]:
        """The sets where inputs that may not change keep the values of ``first``."""
        updatable = self.updatable()
        return [
            tuple(new if moves else kept for moves, kept, new in zip(updatable, first, values, strict=True))
            for values in input_sets
        ]

    def state(self) -> dict[str, Any]:
        """Mutable arrays now: the workload's ``state()``, else what the framework knows of."""
        if self.workload.state is None:
            return self._found_state()[0]
        named = call_user(self.workload.state, workload=self.workload, what="state()")
        if not isinstance(named, Mapping):
            raise WorkloadError(
                f"state() returned a {type(named).__name__}",
                where=self.workload.where("state"),
                hint="return a dict of name to device array",
            )
        complaint = unusable(self.adapter, named)
        if complaint is not None:
            raise WorkloadError(
                f"state(): {complaint.what}", where=self.workload.where("state"), hint=complaint.hint
            )
        return dict(named)

    def uncompared_state(self) -> tuple[str, ...]:
        """Names of found state that is too large to be copied and compared after every run."""
        return () if self.workload.state is not None else self._found_state()[1]

    def _found_state(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The framework's own state, the smallest arrays first, up to the limit; and what is beyond it."""
        found = sorted(
            self.adapter.find_state(self.step).items(), key=lambda item: self.adapter.nbytes(item[1])
        )
        kept: dict[str, Any] = {}
        total = 0
        for name, value in found:
            total += self.adapter.nbytes(value)
            if total > FOUND_STATE_BYTES:
                return kept, tuple(left for left, _value in found[len(kept) :])
            kept[name] = value
        return kept, ()

    @property
    def next_index(self) -> int:
        """The index with which ``between`` counts on: one more than the highest so far."""
        return self.counted.next_index

    def between(self, index: int) -> None:
        """What the application does after request ``index``.

        Raises WorkloadError, with the user's file and line, for what it raises and for calls of its own that
        the device refuses. A lost device and one without memory pass: a graph may be to blame for those.
        """
        workload, what = self.workload, f"between({index})"
        if workload.between is None:
            return
        self.counted.next_index = max(self.counted.next_index, index + 1)
        try:
            call_user(workload.between, index, workload=workload, what=what)
        except (StickyError, DeviceMemoryError):
            raise
        except DeviceError as error:
            failed = user_error(error, workload.folder, what)
            failed.where = failed.where or workload.where("between")
            raise failed from error

    def teardown(self) -> None:
        """The workload's own end."""
        if self.workload.teardown is not None:
            call_user(self.workload.teardown, workload=self.workload, what="teardown()")


def build(loaded: Loaded, shape_name: str, seed: int) -> tuple[Session, Inputs]:
    """Build one shape's step; returns it with a first request's inputs, by which the adapter was chosen."""
    workload, shape = loaded.workload, loaded.shapes[shape_name]
    step = call_user(workload.build, shape, workload=workload, what=f"build({shape_name})")
    if not callable(step):
        raise WorkloadError(
            f"build returned a {type(step).__name__}, not a step",
            where=workload.where("build"),
            hint="return a function step(*inputs)",
        )
    values = _inputs(workload, shape_name, shape, seed)
    names = name_inputs(step, values)
    made = check_inputs(workload, values, names)
    adapter = _adapter(loaded, workload, names, made, step)
    return Session(workload, loaded.device, shape_name, shape, step, names, adapter), made


def opened(loaded: Loaded, shape_name: str, seed: int) -> Session:
    """Build one shape and serve a first request, whose outputs tell the adapter."""
    session, first = build(loaded, shape_name, seed)
    outputs = session.call(first)
    session.device.synchronize()
    return session.with_outputs(first, outputs)


def _adapter(
    loaded: Loaded, workload: Workload, names: Sequence[str], made: Inputs, step: Callable[..., Any]
) -> Adapter:
    hint_of_step = [step] if _is_torch_module(step) else []
    adapter = adapter_for(loaded.device, [*made, *hint_of_step])
    _refuse_host_arrays(workload, adapter, names, made)
    return adapter


def _layout(values: Inputs) -> str:
    """Dtypes and shapes, as far as the arrays tell them."""
    return ", ".join(f"{getattr(value, 'dtype', '')}{tuple(getattr(value, 'shape', ()))}" for value in values)


def _is_torch_module(step: Callable[..., Any]) -> bool:
    return any(base.__module__.startswith("torch.nn") for base in type(step).__mro__)


def _refuse_host_arrays(workload: Workload, adapter: Adapter, names: Sequence[str], made: Inputs) -> None:
    complaint = unusable(adapter, dict(zip(names, made, strict=True)))
    if complaint is not None:
        raise WorkloadError(f"inputs: {complaint.what}", where=workload.where("inputs"), hint=complaint.hint)


def _inputs(workload: Workload, name: str, shape: Any, seed: int) -> Any:
    return call_user(workload.inputs, shape, seed, workload=workload, what=f"inputs({name}, {seed})")
