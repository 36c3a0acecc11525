"""What recording costs the recorded program: ``python docs/measurements/recorder_cost.py > cost.json``.

Needs a GPU and PyTorch. The program is "mlp64": 64 times a matrix product (1x256 by 256x256) and a ReLU,
eager, synchronised at the end of each iteration. Each mode is measured against unrecorded iterations in a
process of its own, because one recorder's registration in CUPTI stays when it stops: blocks of both alternate
in random order. In the mode ``nothing`` no recorder was ever loaded; its two halves show the noise, and its
absolute times show what a recorder that is loaded and stopped still costs. Prints JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import msgspec

from cudagraph_gate import fingerprint
from cudagraph_gate.stats import compare_blocks, distribution

LAYERS: Final = 64
WARM_UP: Final = 30
BLOCKS: Final = 20
"""Blocks of either kind: enough for the bootstrap to resample."""
ITERATIONS: Final = 25
"""Of a block: about 50 ms, so that drifts of the machine hit both kinds alike."""
RECORDED_WARM_UP: Final = 5
"""After a recorder is switched on, and also where none is: first buffers, first callbacks."""
SEED: Final = 7
LIMIT_S: Final = 240

Recording = Callable[[], AbstractContextManager[object]]


def mlp64() -> Callable[[], None]:
    """One iteration of the program."""
    import torch

    x = torch.randn(1, 256, device="cuda")
    weights = [torch.randn(256, 256, device="cuda") / 16 for _ in range(LAYERS)]

    def iteration() -> None:
        value = x
        for weight in weights:
            value = torch.relu(value @ weight)
        torch.cuda.synchronize()

    return iteration


class _Ours:
    """Our recorder, as a context."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        self._recorder.start()

    def __exit__(self, *_: object) -> None:
        timeline = self._recorder.stop()
        meta = timeline.meta
        assert len(timeline.operations) > ITERATIONS * LAYERS, meta
        assert not meta.dropped_records, meta


def ours(level: Any, **options: Any) -> Callable[[], Recording]:
    """Our recorder at a level."""

    def opened() -> Recording:
        from cudagraph_gate.timeline.cupti import CuptiRecorder

        recorder = CuptiRecorder(level, **options)  # before the first CUDA call, as in a profile
        return lambda: _Ours(recorder)

    return opened


def torch_profiler(*, cpu: bool) -> Callable[[], Recording]:
    """PyTorch's profiler with or without the CPU's side."""

    def opened() -> Recording:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CUDA, *([ProfilerActivity.CPU] if cpu else [])]
        return lambda: profile(activities=activities)

    return opened


def nothing() -> Recording:
    """No recorder at all."""
    return nullcontext


MODES: Final[dict[str, Callable[[], Recording]]] = {
    "nothing": nothing,
    "light": ours("light"),
    "full": ours("full"),
    "full without CPU times": ours("full", cpu_times=False),
    "full without call sites": ours("full", call_sites=False),
    "full without both": ours("full", cpu_times=False, call_sites=False),
    "torch.profiler CUDA": torch_profiler(cpu=False),
    "torch.profiler CPU and CUDA": torch_profiler(cpu=True),
}


def block(iteration: Callable[[], None]) -> list[int]:
    """Latencies of one block, in ns."""
    for _ in range(RECORDED_WARM_UP):
        iteration()
    latencies = []
    for _ in range(ITERATIONS):
        start = time.perf_counter_ns()
        iteration()
        latencies.append(time.perf_counter_ns() - start)
    return latencies


def measured(mode: str, seed: int) -> dict[str, Any]:
    """Alternate recorded and unrecorded blocks in this process."""
    recording = MODES[mode]()
    iteration = mlp64()
    for _ in range(WARM_UP):
        iteration()
    with recording():  # the first recording pays for loading
        block(iteration)
    blocks: dict[bool, list[list[int]]] = {False: [], True: []}
    chance = random.Random(seed)
    for _ in range(BLOCKS):
        for recorded in chance.sample((False, True), 2):
            gc.collect()
            with recording() if recorded else nullcontext():
                blocks[recorded].append(block(iteration))
    ratio = compare_blocks(blocks[False], blocks[True], 0.5, seed)
    flat = {kind: [value for one in parts for value in one] for kind, parts in blocks.items()}
    return {
        "times": ratio.ratio,
        "low": ratio.low,
        "high": ratio.high,
        "unrecorded_ns": msgspec.to_builtins(distribution(flat[False])),
        "recorded_ns": msgspec.to_builtins(distribution(flat[True])),
    }


def environment() -> Any:
    """The fingerprint of a process with the libraries loaded."""
    import torch

    torch.zeros(1, device="cuda")
    found = fingerprint.collect(simulated=False, device_name=torch.cuda.get_device_name())
    return msgspec.to_builtins(found)


def in_child(mode: str, seed: int) -> Any:
    """One mode in a process of its own; its failure is part of the result."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [sys.executable, __file__, "--mode", mode, "--seed", str(seed), "--out", str(path)]
        try:
            done = subprocess.run(command, check=False, stdout=sys.stderr, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return {"failed": f"no result after {LIMIT_S} s"}
        if done.returncode or not path.exists():
            return {"failed": f"exit code {done.returncode}"}
        return json.loads(path.read_text())


def main() -> None:
    """Run all modes in random order, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=[*MODES, "environment"])
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--rounds", type=int, default=1, help="how often each mode is measured")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.mode:
        result = environment() if asked.mode == "environment" else measured(asked.mode, asked.seed)
        asked.out.write_text(json.dumps(result))
        return
    chance = random.Random(asked.seed)
    modes: dict[str, list[Any]] = {mode: [] for mode in MODES}
    for number in range(asked.rounds):
        for mode in chance.sample(list(MODES), len(MODES)):
            modes[mode].append(in_child(mode, asked.seed + number))
    program = {"layers": LAYERS, "kernels": 2 * LAYERS, "blocks": BLOCKS, "iterations_per_block": ITERATIONS}
    found = {"program": program, "modes": modes, "fingerprint": in_child("environment", asked.seed)}
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
