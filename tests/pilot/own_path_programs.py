"""Graph paths of workloads' own on a GPU: a script that prints what was seen of one.

``own_path_programs.py NAME FOLDER``: the sample chain, and ways of PyTorch to graph a model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from opened_sessions import ROOT, opened_file

from cudagraph_gate.model import NotMeasured
from cudagraph_gate.pilot import correctness
from cudagraph_gate.pilot.input_kinds import extreme_inputs, kinds_of_inputs
from cudagraph_gate.pilot.kept_outputs import kept_outputs, overwritten_by_graph
from cudagraph_gate.pilot.own_path import OwnPath
from cudagraph_gate.pilot.path_idle import record_paths
from cudagraph_gate.records import PathIdle

TORCH: Final = """\
import torch

WIDTH = 256

def model():
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers).cuda().eval()

def build(shape):
    eager = model()

    @torch.no_grad()
    def step(x):
        return eager(x)

    return step

def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(8, WIDTH, device="cuda", generator=generator),)

def check(expected, actual):
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)

"""
TORCH_PATHS: Final = {
    "callables": """\
def build_graphed(shape):
    return torch.cuda.make_graphed_callables(model().requires_grad_(False), inputs(shape, 0))
""",
    "compiled": """\
def build_graphed(shape):
    compiled = torch.compile(model(), mode="reduce-overhead", fullgraph=True)

    @torch.no_grad()
    def step(x):
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(x)

    return step
""",
    "eager": """\
def build_graphed(shape):
    return build(shape)
""",
}


def workload(name: str, folder: Path) -> Path:
    """The sample, or a torch workload that is written into the folder."""
    if name not in TORCH_PATHS:
        return ROOT / "sample_workloads" / f"{name}.py"
    path = folder / "model.py"
    path.write_text(TORCH + TORCH_PATHS[name])
    return path


def seen_of(name: str, folder: Path) -> dict[str, Any]:
    """What the trial would see of one own path."""
    opened = opened_file(workload(name, folder), folder, "cuda", method="own")
    session = opened.session
    sets, extremes = session.input_sets(1), extreme_inputs(session, opened.first)
    path = OwnPath(session)
    path.make(opened.first)
    expected = correctness.expect(session, sets, more=extremes.input_sets)

    def disturb(_request: int) -> None:
        correctness.churn(session, opened.first)

    actual = correctness.follow(session, path.replay, expected.start, before_each=disturb)
    equal = [found.equal for found in correctness.compare_paths(session, expected, actual)]
    kept = kept_outputs(session, session.call, expected)
    overwritten = overwritten_by_graph(session, path.replay, expected)
    one = record_paths(session, path, sets, opened.log)
    path.invalidate()
    return {
        "equal": equal,
        "constant": kinds_of_inputs(session, sets).constant,
        "normal_overwrites": kept,
        "graph_overwrites": overwritten,
        "one": one.reason if isinstance(one, NotMeasured) else len(one),
        "idle": {idle.path: facts(idle) for idle in opened.of(PathIdle)},
    }


def facts(idle: PathIdle) -> dict[str, Any]:
    """Numbers of a record; a reason where there is none."""
    busy, launches = idle.busy_ns, idle.graph_launches
    return {
        "requests": idle.requests,
        "operations": idle.operations,
        "window_ns": idle.window_ns,
        "busy_ns": busy.reason if isinstance(busy, NotMeasured) else busy,
        "graph_launches": launches.reason if isinstance(launches, NotMeasured) else launches,
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(seen_of(sys.argv[1], Path(sys.argv[2]))) + "\n")
