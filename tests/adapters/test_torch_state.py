"""What a torch step changes, on a small stand-in for the ``torch`` module, which is passed in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cudagraph_gate.adapters.torch_state import free_blocks, generators_of, runs_graphs, tensors_of


class Tensor:
    is_leaf = True

    def __init__(self, grad: Tensor | None = None) -> None:
        self.grad = grad


class Module:
    def __init__(self, **parameters: Tensor) -> None:
        self.parameters = parameters
        self.buffers = {"seen": Tensor()}

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.parameters.items()

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.buffers.items()


class Optimizer:
    def __init__(self, *groups: list[Tensor], lr: Any = 0.1) -> None:
        self.param_groups = [{"params": group, "lr": lr} for group in groups]
        self.state: Any = defaultdict(dict)


class Generator:
    def __init__(self, device: str) -> None:
        self.device = SimpleNamespace(type=device)


DEFAULT = Generator("cuda")
TORCH = SimpleNamespace(
    Tensor=Tensor,
    Generator=Generator,
    nn=SimpleNamespace(Module=Module),
    optim=SimpleNamespace(Optimizer=Optimizer),
    cuda=SimpleNamespace(default_generators=(DEFAULT,)),
)


def test_parameters_and_buffers_have_their_modules_name() -> None:
    model = Module(weight=Tensor(), bias=Tensor())
    found = tensors_of(TORCH, lambda: model)
    assert list(found) == ["model.weight", "model.bias", "model.seen"]
    assert found["model.weight"] is model.parameters["weight"]


def test_gradients_that_are_there_are_state() -> None:
    gradient = Tensor()
    model = Module(weight=Tensor(gradient), bias=Tensor())
    found = tensors_of(TORCH, lambda: model)
    assert found["model.weight.grad"] is gradient
    assert "model.bias.grad" not in found


def test_an_optimisers_moments_are_named_after_their_parameter() -> None:
    model = Module(weight=Tensor())
    adam = Optimizer([model.parameters["weight"]])
    moment, step = Tensor(), Tensor()
    adam.state[model.parameters["weight"]] = {"exp_avg": moment, "step": step, "epochs": 3}
    found = tensors_of(TORCH, lambda: (model, adam))
    assert found["adam.model.weight.exp_avg"] is moment
    assert found["adam.model.weight.step"] is step
    assert sum(value is model.parameters["weight"] for value in found.values()) == 1
    assert all(isinstance(value, Tensor) for value in found.values())


def test_parameters_that_no_module_names_are_numbered() -> None:
    first, second = Tensor(), Tensor(grad=Tensor())
    sgd = Optimizer([first], [second])
    sgd.state[second] = {"momentum_buffer": Tensor()}
    assert sorted(tensors_of(TORCH, lambda: sgd)) == [
        "sgd.parameter 0",
        "sgd.parameter 1",
        "sgd.parameter 1.grad",
        "sgd.parameter 1.momentum_buffer",
    ]


def test_a_learning_rate_is_state_where_it_is_a_tensor() -> None:
    rate = Tensor()
    sgd = Optimizer([Tensor()], lr=rate)
    assert tensors_of(TORCH, lambda: sgd)["sgd.group 0.lr"] is rate


def test_looking_for_state_makes_none() -> None:
    sgd = Optimizer([Tensor()])
    tensors_of(TORCH, lambda: sgd)
    assert not sgd.state


def test_own_cuda_generators_are_found_besides_the_default_one() -> None:
    mine, host, default = Generator("cuda"), Generator("cpu"), DEFAULT
    assert generators_of(TORCH, lambda: (mine, host, default)) == [mine]


def raised_in(file: str) -> BaseException:
    """An error that a function of ``file`` raised."""
    scope: dict[str, Any] = {}
    exec(compile("def replay():\n    raise RuntimeError('captured')\n", file, "exec"), scope)
    with pytest.raises(RuntimeError) as caught:
        scope["replay"]()
    return caught.value


@pytest.mark.parametrize(
    ("file", "graphs"),
    [
        ("/venv/lib/python3.12/site-packages/torch/cuda/graphs.py", True),
        ("/venv/lib/python3.12/site-packages/torch/_inductor/cudagraph_trees.py", True),
        ("/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", False),
        ("/home/me/graphs.py", False),
    ],
)
def test_an_error_out_of_torchs_own_graphs_is_told(file: str, graphs: bool) -> None:
    assert runs_graphs(raised_in(file)) is graphs


def segment(address: int, *blocks: tuple[int, str], **more: Any) -> dict[str, Any]:
    return {"address": address, "blocks": [{"size": size, "state": state} for size, state in blocks]} | more


def test_free_blocks_are_those_of_no_tensor_and_of_no_graph() -> None:
    shared = segment(1_000, (512, "active_allocated"), (256, "inactive"), (768, "active_pending_free"))
    unused = segment(8_000, (2_048, "inactive"), segment_pool_id=(0, 0))
    pool = segment(20_000, (4_096, "inactive"), segment_pool_id=(0, 7))
    assert free_blocks([shared, unused, pool]) == [(1_512, 256), (8_000, 2_048)]
