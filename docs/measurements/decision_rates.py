"""How often the trial's decision is right: ``python docs/measurements/decision_rates.py > rates.json``.

Needs no GPU: requests run on the simulated device with seeded jitter, in the blocks and the order of the
trial, on the device's clock; each trial is judged as gate 6 judges it, short of the policy's minimum. With
two equal paths (A/A) every "faster" is false; with a graph path that takes 5 % less, every other answer is a
miss. Harder variants let whole blocks differ, the machine drift slowly, or blocks be few or short. Prints
JSON; exit code 1 where a required rate is missed. ``--table FILE`` prints a kept result as a table.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudagraph_gate.device import Kernel, LaunchShape
from cudagraph_gate.device.simulated import SimulatedDevice, SimulatedSpec
from cudagraph_gate.gates.latency import PathComparison, compare_paths
from cudagraph_gate.gates.trial_view import ShapeTrial
from cudagraph_gate.pilot.measure import BLOCKS_PER_PATH, block_order, timed
from cudagraph_gate.records import Block, PathName
from cudagraph_gate.stats import faster

TRIALS: Final = 1_000
JITTER: Final = 0.02
GAIN: Final = 0.05
MOST_FALSE: Final = 0.01
LEAST_FOUND: Final = 0.95
"""What is required of the first variant; the others show where it ends."""
PATHS: Final[tuple[PathName, ...]] = ("normal", "graph")
REQUEST_NS: Final = 1_000_000
ONE: Final = LaunchShape((1, 1, 1), (1, 1, 1))


@dataclass(frozen=True)
class Variant:
    """What the simulated machine is like besides its jitter; shares of a request."""

    name: str
    block_sd: float = 0.0
    """Standard deviation of what a whole block is slower or faster."""
    walk_sd: float = 0.0
    """Standard deviation of a random walk's step from round to round, which moves both paths alike."""
    requests: int = 20
    """Of each block."""
    blocks: int = BLOCKS_PER_PATH
    """Of each path that were measured before the trial ended."""


VARIANTS: Final = (
    Variant("jitter alone"),
    Variant("blocks differ by 1 %", block_sd=0.01),
    Variant("blocks differ by 2 %", block_sd=0.02),
    Variant("drift of 1 % a round", walk_sd=0.01),
    Variant("blocks differ and drift, 1 % each", block_sd=0.01, walk_sd=0.01),
    Variant("5 requests a block, blocks differ by 1 %", block_sd=0.01, requests=5),
    Variant("ended after 4 blocks, blocks differ by 1 %", block_sd=0.01, blocks=4),
)


class Machine:
    """A simulated device whose requests take a time that is set, jitter and all."""

    def __init__(self, seed: int) -> None:
        self.device = SimulatedDevice(SimulatedSpec(jitter=JITTER, seed=seed))
        spec = self.device.spec
        self._fixed_ns = spec.launch_call_ns + spec.start_latency_ns
        self.request_ns = REQUEST_NS
        self._kernel = Kernel(
            "work", "", lambda *_args: None, lambda *_args: self.request_ns - self._fixed_ns
        )

    def request(self, _inputs: tuple[Any, ...]) -> None:
        """One kernel and the wait for it: ``request_ns`` on average."""
        self.device.launch(self._kernel, ONE, ())
        self.device.current_stream().synchronize()


def timed_blocks(variant: Variant, gain: float, seed: int) -> Iterator[Block]:
    """The timed blocks of one trial in the trial's own order."""
    machine, chance = Machine(seed), np.random.default_rng([seed, 1])
    drift = np.cumsum(chance.normal(0, variant.walk_sd, BLOCKS_PER_PATH))
    for order, (path, half) in enumerate(block_order(seed, PATHS)):
        turn = order // len(PATHS)
        if turn == variant.blocks:
            return
        level = 1 + drift[turn] + chance.normal(0, variant.block_sd)
        machine.request_ns = round(REQUEST_NS * level * (1 - gain if path == "graph" else 1))
        sample = timed(machine.device, machine.request, [()], variant.requests)
        yield Block(
            shape="one",
            path=path,
            order=order,
            half=half,
            latencies_ns=sample.latencies_ns,
            cpu_ns=sample.cpu_ns,
        )


def found_faster(variant: Variant, gain: float, seed: int) -> bool:
    """Whether the trial with this seed says that the graph path is faster."""
    paths = compare_paths(ShapeTrial("one", tuple(timed_blocks(variant, gain, seed))))
    assert isinstance(paths, PathComparison), paths
    return faster(paths.p50.ratio, paths.noise)


def rates(variant: Variant, trials: int, tell: Callable[[str], object]) -> dict[str, Any]:
    """Share of "faster" without and with a gain; each trial has its own seed."""
    shares = {}
    for number, (name, gain) in enumerate((("false_faster", 0.0), ("found", GAIN))):
        seeds = range(number * trials, (number + 1) * trials)
        shares[name] = sum(found_faster(variant, gain, seed) for seed in seeds) / trials
        tell(f"{variant.name}: {name} {shares[name]:.1%}\n")
    return {
        "variant": variant.name,
        "block_sd": variant.block_sd,
        "walk_sd": variant.walk_sd,
        "requests_per_block": variant.requests,
        "blocks_per_path": variant.blocks,
        **shares,
    }


def measured(trials: int) -> dict[str, Any]:
    """All variants, and whether the first keeps the required rates."""
    rows = [rates(variant, trials, sys.stderr.write) for variant in VARIANTS]
    return {
        "simulated": True,
        "trials": trials,
        "jitter": JITTER,
        "gain": GAIN,
        "required": {"false_faster_at_most": MOST_FALSE, "found_at_least": LEAST_FOUND},
        "kept": rows[0]["false_faster"] <= MOST_FALSE and rows[0]["found"] >= LEAST_FOUND,
        "variants": rows,
        "python": platform.python_version(),
        "numpy": version("numpy"),
    }


def table(result: dict[str, Any]) -> str:
    """A Markdown table of a result."""
    head = (
        f"| simulated, {result['jitter']:.0%} jitter, {result['trials']} trials each | A/A called faster | "
    )
    lines = [f"{head}gain of {result['gain']:.0%} found |", "|---|---|---|"]
    lines += [
        f"| {row['variant']} | {row['false_faster']:.1%} | {row['found']:.1%} |" for row in result["variants"]
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, or print the table of a kept result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--table", type=Path, metavar="FILE")
    asked = parser.parse_args()
    if asked.table:
        sys.stdout.write(table(json.loads(asked.table.read_text())))
        return 0
    result = measured(asked.trials)
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0 if result["kept"] else 1


if __name__ == "__main__":
    sys.exit(main())
