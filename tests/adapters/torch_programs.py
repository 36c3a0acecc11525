"""The torch adapter on a GPU: a script that prints facts. Programs that break things come last."""

from __future__ import annotations

import functools
import gc
import sys
from contextlib import suppress
from typing import Any

import numpy as np
from program_facts import Facts, Program, print_facts

from cudagraph_gate.adapters import adapter_for, unusable
from cudagraph_gate.adapters.torch import TorchAdapter
from cudagraph_gate.device import open_device
from cudagraph_gate.graphs import GraphedStep, contents
from cudagraph_gate.pilot.freed_memory import reads_freed


def linear() -> Any:
    """A layer of weight 2 and bias 1 over four features, with a buffer."""
    layer = torch.nn.Linear(4, 4).cuda()
    with torch.no_grad():
        layer.weight.copy_(2 * torch.eye(4))
        layer.bias.fill_(1)
    layer.register_buffer("seen", torch.zeros(1, device="cuda"))
    return layer


def row(start: float) -> Any:
    return torch.arange(4, dtype=torch.float32, device="cuda")[None] + start


def without_gradients(layer: Any) -> Any:
    @torch.no_grad()
    def step(values: Any) -> Any:
        return torch.relu(layer(values))

    return step


# --- capture and replay -----------------------------------------------------------------------------


def replays() -> Facts:
    """Capture, instantiate, upload, replay with new values, update, destroy."""
    step, static = without_gradients(linear()), row(0)
    step(static)
    captured = ADAPTER.capture(step, (static,))
    executable = captured.instantiate()
    executable.upload()
    ADAPTER.synchronize()
    results = []
    for start in (1.0, 5.0):
        ADAPTER.copy_into(static, row(start))
        ADAPTER.poison(captured.outputs)
        executable.launch()
        results.append(ADAPTER.to_host(captured.outputs).tolist())
    kinds = contents(captured.graph).kinds
    update = executable.update(captured.graph)
    executable.launch()
    after_update = ADAPTER.to_host(captured.outputs).tolist()
    executable.destroy()
    return {
        "results": results,
        "kernels": kinds.get("kernel", 0),
        "update": [update.ok, update.result],
        "after_update": after_update,
        "capturing": torch.cuda.is_current_stream_capturing(),
    }


def graphed() -> Facts:
    """The whole state machine, and the normal path after it."""
    step = GraphedStep(ADAPTER, without_gradients(linear()), (row(0),))
    step.warm_up(3)
    step.capture()
    step.instantiate()
    step.upload()
    replayed = ADAPTER.to_host(step(row(2))).tolist()
    updated = step.update().ok
    again = ADAPTER.to_host(step(row(3))).tolist()
    step.invalidate()
    return {
        "replayed": replayed,
        "updated": updated,
        "again": again,
        "normal": ADAPTER.to_host(step(row(4))).tolist(),
        "state": str(step.state),
    }


def pool() -> Facts:
    """Memory of the graph's pool goes back to the allocator when it is destroyed."""
    weight = torch.randn(1024, 1024, device="cuda")
    example = torch.randn(1024, 1024, device="cuda")

    def step(values: Any) -> Any:
        return (values * weight).relu()

    step(example)
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    before = ADAPTER.allocator_bytes()
    captured = ADAPTER.capture(step, (example,))
    executable = captured.instantiate()
    executable.launch()
    ADAPTER.synchronize()
    during = ADAPTER.allocator_bytes()
    executable.destroy()
    del captured, executable
    torch.cuda.empty_cache()
    return {"before": before, "during": during, "after": ADAPTER.allocator_bytes()}


def random_numbers() -> Facts:
    """Each replay draws new numbers: the ones that the normal path would draw."""
    out = torch.zeros(8, device="cuda")

    def step() -> Any:
        return out.copy_(torch.rand(8, device="cuda"))

    step()
    torch.cuda.manual_seed(7)
    normal = [ADAPTER.to_host(step()).tolist() for _ in range(2)]
    captured = ADAPTER.capture(step, ())
    executable = captured.instantiate()
    torch.cuda.manual_seed(7)
    drawn = []
    for _ in range(2):
        executable.launch()
        drawn.append(ADAPTER.to_host(captured.outputs).tolist())
    executable.destroy()
    return {"normal": normal, "drawn": drawn}


def preserved() -> Facts:
    """The generators can be taken back to where they stood."""
    torch.manual_seed(3)
    expected = [torch.rand(2).tolist(), torch.rand(2, device="cuda").tolist()]
    torch.manual_seed(3)
    before = ADAPTER.random_state()
    torch.rand(5)
    torch.rand(5, device="cuda")
    ADAPTER.set_random_state(before)
    return {"expected": expected, "drawn": [torch.rand(2).tolist(), torch.rand(2, device="cuda").tolist()]}


# --- state ------------------------------------------------------------------------------------------


class Owner:
    """A step that is the method of an object that is no module."""

    def __init__(self) -> None:
        self.layer = linear()

    def step(self, values: Any) -> Any:
        return self.layer(values)


SHARED_LAYER: Any = None
"""Set where torch is there."""


def names_a_global(values: Any) -> Any:
    """A step that uses a module of the file's top level."""
    return SHARED_LAYER(values)


def found_state() -> Facts:
    """Names of the state found for each kind of step."""
    layer = linear()
    globals()["SHARED_LAYER"] = layer
    cpu = torch.nn.Linear(2, 2)

    def closes_over(values: Any) -> Any:
        return layer(cpu(values)) if values.is_cpu else layer(values)

    def names(step: Any) -> list[str]:
        return sorted(ADAPTER.find_state(step))

    same = ADAPTER.find_state(layer)["weight"] is layer.weight
    return {
        "module": names(layer),
        "method": names(layer.forward),
        "closure": names(closes_over),
        "plain": names(lambda values: values),
        "holder": names(Owner().step),
        "decorated": names(without_gradients(layer)),
        "partial": names(functools.partial(torch.nn.functional.linear, layer)),
        "global": names(names_a_global),
        "same": same,
    }


# --- arrays -----------------------------------------------------------------------------------------


def dtypes() -> Facts:
    """Values on the host, by dtype."""
    found = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool):
        host = ADAPTER.to_host(torch.tensor([1.5, 0.0, 3.0], device="cuda").to(dtype))
        found[str(dtype)] = [str(host.dtype), host.astype(np.float64).tolist()]
    return found


def poisoned() -> Facts:
    """What poison leaves, by dtype."""
    found = {}
    for dtype in (torch.float32, torch.bfloat16, torch.complex64):
        value = torch.ones(3, device="cuda", dtype=dtype)
        ADAPTER.poison(value)
        found[str(dtype)] = bool(torch.isnan(value).all())
    integers = torch.ones(3, device="cuda", dtype=torch.int32)
    flags = torch.tensor([True, False], device="cuda")
    parameter = torch.nn.Parameter(torch.ones(2, device="cuda"))
    for value in (integers, flags, parameter):
        ADAPTER.poison(value)
    found["int32"] = integers.tolist()
    found["bool"] = flags.tolist()
    found["parameter"] = bool(torch.isnan(parameter).all())
    return found


def strided() -> Facts:
    """Static copies keep shape, strides, dtype and values, and need no gradient."""
    base = torch.arange(24, dtype=torch.float32, device="cuda").reshape(4, 6)
    found = {}
    for name, value in {
        "contiguous": base,
        "transposed": base.t(),
        "sliced": base[:, ::2],
        "channels_last": torch.ones(2, 3, 4, 5, device="cuda").to(memory_format=torch.channels_last),
        "scalar": torch.tensor(3.0, device="cuda"),
        "parameter": torch.nn.Parameter(base),
    }.items():
        static = ADAPTER.static_like(value)
        found[name] = [
            static.stride() == value.stride() and static.shape == value.shape,
            bool(torch.equal(static, value.detach())),
            static.data_ptr() != value.data_ptr(),
            not static.requires_grad,
        ]
    return found


def kept_arrays() -> Facts:
    """Where a tensor's memory goes when its owner lets go of it, with and without being kept."""

    def reused() -> bool:
        values = torch.zeros(1 << 20, device="cuda")
        address = ADAPTER.address(values)
        del values
        return bool(ADAPTER.address(torch.zeros(1 << 20, device="cuda")) == address)

    with ADAPTER.keeping_arrays():
        kept = reused()
    return {"kept": kept, "let go": reused()}


def freed() -> Facts:
    """Whether a kernel's argument is found that points to a tensor which its owner let go of."""
    held = [torch.ones(1_000, device="cuda")]
    captured = ADAPTER.capture(lambda values: values * held[0] + 1, (torch.ones(1_000, device="cuda"),))
    alive = reads_freed(captured.graph, ADAPTER.free_memory())
    del held[:]
    lost = reads_freed(captured.graph, ADAPTER.free_memory())
    return {"alive": alive is None, "lost": lost is not None and lost.index == 0}


def copies() -> Facts:
    """What copy_into accepts and refuses, and what counts as a device array."""
    target = torch.zeros(4, device="cuda")
    refusals = []
    for source in (torch.zeros(5, device="cuda"), torch.zeros(4, device="cuda", dtype=torch.int32)):
        try:
            ADAPTER.copy_into(target, source)
            refusals.append("accepted")
        except ValueError as error:
            refusals.append(str(error))
    ADAPTER.copy_into(target, torch.ones(4, device="cuda", requires_grad=True))
    complaint = unusable(ADAPTER, {"images": torch.zeros(2)})
    sparse = torch.eye(2, device="cuda").to_sparse()
    return {
        "refusals": refusals,
        "copied": target.tolist(),
        "nbytes": ADAPTER.nbytes(torch.zeros(3, 5, device="cuda", dtype=torch.bfloat16)),
        "complaint": complaint.what if complaint else None,
        "arrays": [ADAPTER.is_device_array(value) for value in (target, target.cpu(), sparse, np.ones(2), 3)],
        "chosen": type(adapter_for(DEVICE, (3, target))).__name__,
    }


# --- failures ---------------------------------------------------------------------------------------


def step_raises() -> Facts:
    """The step's own error passes; nothing captures, and the normal path works after recover()."""
    values = row(0)

    def step(inputs: Any) -> Any:
        inputs + 1
        raise KeyError("weights")

    return failed(step, values)


def prohibited() -> Facts:
    """A synchronising call in the step fails the capture."""
    return failed(lambda inputs: inputs[inputs > 1].nonzero(), row(0))


def hidden() -> Facts:
    """A step that swallows the error of its prohibited call fails at the end of the capture."""

    def step(inputs: Any) -> Any:
        with suppress(RuntimeError):
            inputs.sum().item()
        return inputs + 1

    return failed(step, row(0))


def failed(step: Any, values: Any) -> Facts:
    """The capture's error, then the normal path: random numbers, a capture that succeeds, its outputs.

    Each capture takes 64 MiB of its pool.
    """

    def large(inputs: Any) -> Any:
        torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        return step(inputs)

    errors, held = [], []
    for _ in range(3):
        try:
            ADAPTER.capture(large, (values,))
        except Exception as raised:  # noqa: BLE001  (which error it is, is the fact)
            errors.append(type(raised).__name__)
        capturing = torch.cuda.is_current_stream_capturing()
        ADAPTER.recover()
        gc.collect()
        ADAPTER.release_cached()
        held.append(ADAPTER.allocator_bytes())
    error = errors[0] if len(set(errors)) == 1 and len(errors) == len(held) else f"{errors}"
    drawn = torch.rand(3, device="cuda")
    torch.cuda.synchronize()
    layer, static = without_gradients(linear()), row(1)
    layer(static)
    captured = ADAPTER.capture(layer, (static,))
    executable = captured.instantiate()
    executable.launch()
    return {
        "error": error,
        "capturing": capturing,
        "random": bool(((drawn >= 0) & (drawn < 1)).all()),
        "again": ADAPTER.to_host(captured.outputs).tolist(),
        "kept": max(held) - held[0],
    }


def graphed_failure() -> Facts:
    """After a failed capture of a graphed step its normal path draws random numbers, with nobody's help."""

    def step(values: Any) -> Any:
        torch.cuda.synchronize()
        return values + torch.rand(4, device="cuda")

    graphed_step = GraphedStep(ADAPTER, step, (row(0),))
    graphed_step.warm_up(1)
    try:
        graphed_step.capture()
        error = "none"
    except RuntimeError:
        error = "RuntimeError"
    normal = ADAPTER.to_host(graphed_step(row(0)))
    return {"error": error, "state": str(graphed_step.state), "finite": bool(np.isfinite(normal).all())}


PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        replays,
        graphed,
        pool,
        random_numbers,
        preserved,
        found_state,
        dtypes,
        poisoned,
        strided,
        copies,
        kept_arrays,
        freed,
    )
}
FAILURES: dict[str, Program] = {
    program.__name__: program for program in (step_raises, prohibited, hidden, graphed_failure)
}

if __name__ == "__main__":
    import torch

    DEVICE = open_device("cuda")
    ADAPTER = TorchAdapter(DEVICE)
    if len(sys.argv) > 1:  # each failure has a process of its own
        print_facts({name: FAILURES[name] for name in sys.argv[1:]})
    else:
        print_facts(PROGRAMS)
