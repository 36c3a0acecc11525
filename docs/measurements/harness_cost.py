"""What a timed replay costs beyond the bare launch: ``python docs/measurements/harness_cost.py > cost.json``.

Needs a GPU. A graph of one small kernel is launched and synchronised: bare, by the driver's bindings or by
torch, and as the trial times it. Blocks of both alternate in random order in one process; the bare calls go
through the same timing loop, so that the difference is the trial's own. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from cudagraph_gate import fingerprint
from cudagraph_gate.adapters import Adapter
from cudagraph_gate.adapters.cuda_core import ArrayAdapter
from cudagraph_gate.device import Device, Kernel, LaunchShape, open_device
from cudagraph_gate.graphs import GraphedStep
from cudagraph_gate.pilot.measure import timed

BLOCKS: Final = 40
REQUESTS: Final = 200
SEED: Final = 7
SOURCE: Final = """
extern "C" __global__ void scale(float* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= 0.5f;
}"""
COUNT: Final = 256
Call = Callable[[], object]


def _scale(shape: LaunchShape, values: Any, n: Any) -> None:
    del shape
    values[:n] *= 0.5


SCALE: Final = Kernel(name="scale", source=SOURCE, reference=_scale, cost_ns=2_000)


def port_calls(device: Device) -> tuple[Call, Call]:
    """The bare pair of calls and the trial's, for a graph of the device port."""
    from cuda.bindings import driver

    def step(values: Any) -> Any:
        device.launch(SCALE, LaunchShape((1, 1, 1), (COUNT, 1, 1)), (values, np.int32(COUNT)))
        return values

    adapter = ArrayAdapter(device)
    graphed = made(adapter, step, device.array(np.ones(COUNT, np.float32)))
    graph: Any = graphed.graph
    stream: Any = device.current_stream()
    _status, handle = driver.cuGraphInstantiate(graph._handle, 0)
    queue = stream.handle

    def bare() -> None:
        driver.cuGraphLaunch(handle, queue)
        driver.cuStreamSynchronize(queue)

    return bare, replay_of(graphed, adapter)


def torch_calls(device: Device) -> tuple[Call, Call]:
    """The bare pair of calls and the trial's, for a graph of torch."""
    import torch

    from cudagraph_gate.adapters.torch import TorchAdapter

    values = torch.ones(COUNT, device="cuda")
    static = values.clone()
    stream = torch.cuda.Stream()
    owner = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        static.mul_(0.5)
    torch.cuda.synchronize()
    with torch.cuda.graph(owner, stream=stream):
        static.mul_(0.5)
    current = torch.cuda.current_stream()

    def bare() -> None:
        owner.replay()
        current.synchronize()

    adapter = TorchAdapter(device)
    return bare, replay_of(made(adapter, lambda tensor: tensor.mul_(0.5), values), adapter)


def made(adapter: Adapter, step: Callable[..., Any], values: Any) -> GraphedStep:
    """A graph of ``step``, ready."""
    graphed = GraphedStep(adapter, step, (values,))
    graphed.warm_up(3)
    graphed.capture()
    graphed.instantiate()
    graphed.upload()
    return graphed


def replay_of(graphed: GraphedStep, adapter: Adapter) -> Call:
    """The request that the trial times as ``replay``."""
    synchronize = adapter.synchronize

    def replay() -> None:
        graphed.launch()
        synchronize()

    return replay


def compared(device: Device, bare: Call, ours: Call) -> dict[str, Any]:
    """Medians of alternating blocks, and the added time with the spread over block pairs."""
    chance = random.Random(SEED)
    calls = {"bare": bare, "ours": ours}
    medians: dict[str, list[float]] = {name: [] for name in calls}
    for call in (bare, ours):
        timed(device, lambda _inputs, call=call: call(), [()], REQUESTS)
    for _ in range(BLOCKS):
        for name in chance.sample(list(calls), 2):
            call = calls[name]
            sample = timed(device, lambda _inputs, call=call: call(), [()], REQUESTS)
            medians[name].append(statistics.median(sample.latencies_ns))
    added = sorted(one - other for one, other in zip(medians["ours"], medians["bare"], strict=True))
    return {
        "bare_ns": statistics.median(medians["bare"]),
        "ours_ns": statistics.median(medians["ours"]),
        "added_ns": statistics.median(added),
        "added_low_ns": added[len(added) // 20],
        "added_high_ns": added[-1 - len(added) // 20],
        "blocks": BLOCKS,
        "requests_per_block": REQUESTS,
    }


def main() -> None:
    """Measure both kinds of graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-torch", action="store_true")
    asked = parser.parse_args()
    device = open_device("cuda")
    found = {"device port": compared(device, *port_calls(device))}
    if not asked.without_torch:
        found["torch"] = compared(device, *torch_calls(device))
    here = fingerprint.collect(simulated=False, device_name=device.name)
    sys.stdout.write(json.dumps({"added": found, "fingerprint": msgspec.to_builtins(here)}, indent=2) + "\n")


if __name__ == "__main__":
    main()
