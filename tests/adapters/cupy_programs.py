"""The CuPy adapter on a GPU: a script that prints facts. Programs that break things come last."""

from __future__ import annotations

from typing import Any

import numpy as np
from program_facts import Facts, Program, print_facts
from program_facts_of_streams import drawing, escaped, failing, on_stream

from cudagraph_gate.adapters import adapter_for
from cudagraph_gate.adapters.cupy import CupyAdapter
from cudagraph_gate.device import open_device
from cudagraph_gate.graphs import GraphedStep, contents

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def array(start: float = 0) -> Any:
    return cupy.asarray(VALUES + np.float32(start))


def allocating(values: Any) -> Any:
    """Several temporaries and a new output."""
    return ((values * 2 + 1) - values / 4).sum(axis=0)


def scribble() -> Any:
    """Other work of the process, which takes memory of the sizes that the step uses."""
    return [cupy.full(shape, -1, np.float32) for shape in [(3, 4), (4,)] for _ in range(8)]


# --- capture and replay -----------------------------------------------------------------------------


def replays() -> Facts:
    static = array()
    captured = ADAPTER.capture(allocating, (static,))
    executable = captured.instantiate()
    executable.upload()
    results = []
    for start in (1, 5):
        ADAPTER.copy_into(static, array(start))
        ADAPTER.poison(captured.outputs)
        kept = scribble()
        executable.launch()
        results.append(ADAPTER.to_host(captured.outputs).tolist())
        assert all(bool((block == -1).all()) for block in kept), "a replay wrote into foreign memory"
    updated = executable.update(captured.graph).ok
    executable.destroy()
    return {
        "results": results,
        "kernels": contents(captured.graph).kinds.get("kernel", 0),
        "updated": updated,
        "capturing": ADAPTER.current_stream().is_capturing,
        "adapter": type(adapter_for(DEVICE, (3, static))).__name__,
    }


def graphed() -> Facts:
    step = GraphedStep(ADAPTER, allocating, (array(),))
    step.warm_up(2)
    step.capture()
    step.instantiate()
    step.upload()
    replayed = ADAPTER.to_host(step(array(2))).tolist()
    step.invalidate()
    return {"replayed": replayed, "normal": ADAPTER.to_host(step(array(2))).tolist()}


def product() -> Facts:
    """cuBLAS inside, which CuPy refuses to call while a stream captures."""
    weights = cupy.asarray(2 * np.eye(4, dtype=np.float32))
    return failing(ADAPTER, lambda values: values @ weights, (array(),), after_failure)


def other_stream() -> Facts:
    """A replay on a stream of the application's."""
    static, stream = array(), ADAPTER.new_stream()
    captured = ADAPTER.capture(allocating, (static,))
    executable = captured.instantiate()
    with ADAPTER.on_stream(stream):
        ADAPTER.copy_into(static, array(7))
        executable.launch()
        ADAPTER.synchronize()
    return {"result": ADAPTER.to_host(captured.outputs).tolist()}


def streams() -> Facts:
    return on_stream(ADAPTER, lambda: int(cupy.cuda.get_current_stream().ptr), lambda stream: int(stream.ptr))


def pool() -> Facts:
    """Memory of a graph's pool is counted, and given back with the graph."""

    def step(values: Any) -> Any:
        return (values * 2).sum()

    large = cupy.zeros(2**22, np.float32)
    step(large)
    cupy.get_default_memory_pool().free_all_blocks()
    before = ADAPTER.allocator_bytes()
    captured = ADAPTER.capture(step, (large,))
    executable = captured.instantiate()
    during = ADAPTER.allocator_bytes()
    executable.destroy()
    del captured, executable
    return {"before": before, "during": during, "after": ADAPTER.allocator_bytes()}


# --- random numbers -----------------------------------------------------------------------------------


def random_numbers() -> Facts:
    """Replays draw what the normal path draws from the same state."""
    generator = cupy.random.default_rng(3)

    def step() -> Any:
        return generator.random(8, dtype=np.float32)

    return drawing(ADAPTER, step)


def global_random_numbers() -> Facts:
    """The generator that does not tell its state repeats itself all the same."""
    cupy.random.rand(3)
    start = ADAPTER.random_state()
    drawn = []
    for _ in range(2):
        drawn.append(cupy.random.rand(4).tolist())
        ADAPTER.set_random_state(start)
    return {"drawn": drawn}


# --- arrays -------------------------------------------------------------------------------------------


def arrays() -> Facts:
    base = cupy.arange(24, dtype=np.float32).reshape(4, 6)
    found = {}
    for name, value in {"contiguous": base, "fortran": base.T, "sliced": base[:, ::2]}.items():
        static = ADAPTER.static_like(value)
        same = bool((static == value).all())
        copy = value.copy()
        ADAPTER.poison(static)
        ADAPTER.copy_into(static, copy)
        found[name] = [same, static.data.ptr != value.data.ptr, bool((static == value).all())]
    sliced = cupy.ones((4, 6), np.float32)
    ADAPTER.poison(sliced[:, ::2])
    refusals = []
    for source in (cupy.zeros((4, 5), np.float32), cupy.zeros((4, 6), np.int32)):
        try:
            ADAPTER.copy_into(base, source)
            refusals.append("accepted")
        except ValueError as error:
            refusals.append(str(error))
    own = DEVICE.array(VALUES)
    return {
        **found,
        "poisoned": [bool((sliced[:, ::2] < -10).all()), bool((sliced[:, 1::2] == 1).all())],
        "refusals": refusals,
        "taken": [ADAPTER.is_device_array(value) for value in (base.T, own, VALUES, 3)],
        "kinds": [type(ADAPTER.static_like(value)).__name__ for value in (base, own)],
        "nbytes": ADAPTER.nbytes(cupy.zeros((3, 5), np.float16)),
    }


# --- escaped work and failures --------------------------------------------------------------------------


def kept_arrays() -> Facts:
    """Where an array's memory goes when its owner lets go of it, with and without being kept."""

    def reused() -> bool:
        values = cupy.zeros(1 << 20, np.float32)
        address = ADAPTER.address(values)
        del values
        return bool(ADAPTER.address(cupy.zeros(1 << 20, np.float32)) == address)

    with ADAPTER.keeping_arrays():
        kept = reused()
    return {"kept": kept, "let go": reused()}


def wrong_stream() -> Facts:
    """A kernel on a stream of the step's own, which nothing joins."""
    side, out = cupy.cuda.Stream(non_blocking=True), cupy.zeros((3, 4), np.float32)
    raw = cupy.RawKernel('extern "C" __global__ void lost(float* x) { x[threadIdx.x] += 1.0f; }', "lost")

    def step(values: Any) -> Any:
        with side:
            raw((1,), (12,), (out,))
        return values * 2

    return escaped(DEVICE, ADAPTER, step, (array(),))


def prohibited() -> Facts:
    return failing(ADAPTER, lambda values: float(values.sum()), (array(),), after_failure)


def step_raises() -> Facts:
    def step(values: Any) -> Any:
        raise KeyError("weights")

    return failing(ADAPTER, step, (array(),), after_failure)


def after_failure() -> Any:
    static = array()
    captured = ADAPTER.capture(allocating, (static,))
    ADAPTER.copy_into(static, array(1))
    captured.instantiate().launch()
    return ADAPTER.to_host(captured.outputs).tolist()


PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        replays,
        graphed,
        product,
        other_stream,
        streams,
        pool,
        random_numbers,
        global_random_numbers,
        arrays,
        kept_arrays,
        prohibited,
        step_raises,
        wrong_stream,
    )
}

if __name__ == "__main__":
    import cupy

    DEVICE = open_device("cuda")
    ADAPTER = CupyAdapter(DEVICE)
    print_facts(PROGRAMS)
