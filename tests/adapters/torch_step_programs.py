"""Whole kinds of torch steps on a GPU: a script that prints facts. Each failure has a process of its own."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from program_facts import Facts, Program, print_facts
from program_facts_of_streams import drawing, escaped, failing, on_stream

from cudagraph_gate.adapters.torch import TorchAdapter
from cudagraph_gate.device import open_device

WIDTH = 16


def rows(start: float = 0.0) -> Any:
    return torch.linspace(start - 1, start + 1, 4 * WIDTH, device="cuda").reshape(4, WIDTH)


def replayed(step: Callable[..., Any], start: float, *, warm: int = 3) -> list[Any]:
    """The step captured and replayed with other values, and the normal path's answer to them."""
    static = rows()
    for _ in range(warm):
        step(static)
    captured = ADAPTER.capture(step, (static,))
    executable = captured.instantiate()
    ADAPTER.copy_into(static, rows(start))
    ADAPTER.poison(captured.outputs)
    executable.launch()
    return [ADAPTER.to_host(captured.outputs).tolist(), ADAPTER.to_host(step(rows(start))).tolist()]


def trajectory(call: Callable[[Any], Any], static: Any, saved: Any, state: Any) -> list[float]:
    """Losses of three requests from the saved state on."""
    for name, value in state.items():
        ADAPTER.copy_into(value, saved[name])
    losses = []
    for start in (0.5, 1.0, 1.5):
        ADAPTER.copy_into(static, rows(start))
        losses.append(float(ADAPTER.to_host(call(static))))
    return losses


# --- training -----------------------------------------------------------------------------------------


def training(make: Callable[..., Any]) -> Facts:
    """Three steps of forward, backward and optimiser from one state, by both paths."""
    torch.manual_seed(1)
    model = torch.nn.Linear(WIDTH, 1).cuda()
    optimizer = make(model.parameters())

    def step(values: Any) -> Any:
        optimizer.zero_grad(set_to_none=False)
        loss = (model(values) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    static = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # capturable=True, and not captured yet
        for _ in range(3):
            step(static)
    state = ADAPTER.find_state(step)
    saved = {name: ADAPTER.static_like(value) for name, value in state.items()}
    normal = trajectory(step, static, saved, state)
    ends = {name: ADAPTER.to_host(value).tolist() for name, value in state.items()}
    captured = ADAPTER.capture(step, (static,))
    executable = captured.instantiate()

    def replay(_values: Any) -> Any:
        executable.launch()
        return captured.outputs

    graph = trajectory(replay, static, saved, state)
    return {
        "names": sorted(state),
        "normal": normal,
        "graph": graph,
        "state": all(ends[name] == ADAPTER.to_host(value).tolist() for name, value in state.items()),
        "moved": [name for name, value in ADAPTER.find_state(step).items() if value is not state[name]],
    }


def adam() -> Facts:
    return training(lambda parameters: torch.optim.Adam(parameters, lr=0.05, capturable=True))


def momentum() -> Facts:
    return training(lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9))


# --- autocast, compiled and Triton code -----------------------------------------------------------------


def autocast() -> Facts:
    """In the step and around it: replays and the normal path after them follow changed weights."""
    layer = torch.nn.Linear(WIDTH, WIDTH).cuda()

    @torch.no_grad()
    def inside(values: Any) -> Any:
        with torch.autocast("cuda", dtype=torch.float16):
            return layer(values)

    found: Facts = {"inside": replayed(inside, 2.0)}
    with torch.autocast("cuda", dtype=torch.float16):
        static = rows()
        layer(static)
        captured = ADAPTER.capture(lambda values: layer(values).detach(), (static,))
        executable = captured.instantiate()
        with torch.no_grad():
            layer.weight.mul_(3)
        torch.clear_autocast_cache()
        executable.launch()
        found["around"] = [
            ADAPTER.to_host(captured.outputs).tolist(),
            ADAPTER.to_host(layer(static)).tolist(),
        ]
    return found


def compiled() -> Facts:
    """torch.compile without graphs of its own, compiled by the warm-up."""
    layer = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()).cuda()
    function = torch.compile(layer)

    @torch.no_grad()
    def step(values: Any) -> Any:
        return function(values)

    return {"results": replayed(step, 2.0)}


def triton_inside() -> Facts:
    """A Triton kernel on torch's current stream."""
    import triton
    from triton import language as tl

    globals()["tl"] = tl
    kernel = triton.jit(shift_kernel)

    def step(values: Any) -> Any:
        out = torch.empty_like(values)
        kernel[(1,)](values, out, values.numel(), BLOCK=64)
        return out

    return {"results": replayed(step, 2.0)}


def shift_kernel(source, target, count, BLOCK: tl.constexpr):  # type: ignore # noqa: F821, N803
    places = tl.arange(0, BLOCK)  # type: ignore  # noqa: F821
    inside = places < count
    values = tl.load(source + places, mask=inside)  # type: ignore  # noqa: F821
    tl.store(target + places, values + 1.0, mask=inside)  # type: ignore  # noqa: F821


# --- random numbers, streams ------------------------------------------------------------------------------


def own_generator() -> Facts:
    """A generator of the step's own draws on in replays, and is restored."""
    generator = torch.Generator("cuda").manual_seed(5)

    def step() -> Any:
        return torch.rand(8, device="cuda", generator=generator)

    return drawing(ADAPTER, step)


def streams() -> Facts:
    return on_stream(
        ADAPTER,
        lambda: int(torch.cuda.current_stream().cuda_stream),
        lambda stream: int(stream.cuda_stream),
    )


def wrong_stream() -> Facts:
    """A kernel on a stream of the step's own, which nothing joins."""
    side, out = torch.cuda.Stream(), torch.zeros(4, device="cuda", dtype=torch.float64)

    def step(values: Any) -> Any:
        with torch.cuda.stream(side):
            out.add_(1)
        return values * 2

    return escaped(DEVICE, ADAPTER, step, (rows(),))


# --- failures ---------------------------------------------------------------------------------------------


def own_graphs() -> Facts:
    """A step that torch has compiled with graphs of its own."""
    layer = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()).cuda()
    function = torch.compile(layer, mode="reduce-overhead")

    @torch.no_grad()
    def step(values: Any) -> Any:
        return function(values)

    for _ in range(4):
        step(rows())
    return failing(ADAPTER, step, (rows(),), after_failure)


def own_captured_graph() -> Facts:
    """A step that replays a torch.cuda.CUDAGraph."""
    static, graph = rows(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = static * 2

    def step(values: Any) -> Any:
        static.copy_(values)
        graph.replay()
        return out

    step(rows())
    return failing(ADAPTER, step, (rows(),), after_failure)


def not_capturable() -> Facts:
    """Adam whose step count is on the host."""
    model = torch.nn.Linear(WIDTH, 1).cuda()
    optimizer = torch.optim.Adam(model.parameters())

    def step(values: Any) -> Any:
        optimizer.zero_grad(set_to_none=False)
        loss = model(values).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step(rows())
    return failing(ADAPTER, step, (rows(),), after_failure)


def failing_with_generator() -> Facts:
    """A failed capture leaves no generator in capture mode."""
    generator = torch.Generator("cuda").manual_seed(5)

    def step(values: Any) -> Any:
        drawn = torch.rand(4, device="cuda", generator=generator)
        return float(drawn.sum()) + values

    def normal() -> Any:
        drawn = torch.rand(4, device="cuda", generator=generator)
        return [bool(((drawn >= 0) & (drawn < 1)).all()), after_failure()]

    return failing(ADAPTER, step, (rows(),), normal)


def after_failure() -> bool:
    """Random numbers, the normal path and a capture work."""
    torch.rand(3, device="cuda")
    graph, normal = replayed(lambda values: values * 2, 3.0)
    return bool(graph == normal)


PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (adam, momentum, autocast, own_generator, streams, triton_inside, compiled, wrong_stream)
}
FAILURES: dict[str, Program] = {
    program.__name__: program
    for program in (own_graphs, own_captured_graph, not_capturable, failing_with_generator)
}

if __name__ == "__main__":
    import torch

    DEVICE = open_device("cuda")
    ADAPTER = TorchAdapter(DEVICE)
    if len(sys.argv) > 1:
        print_facts({name: FAILURES[name] for name in sys.argv[1:]})
    else:
        print_facts(PROGRAMS)
