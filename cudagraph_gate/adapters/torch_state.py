"""What a PyTorch step changes besides its outputs (parameters, buffers, gradients, optimisers, generators),
and what PyTorch says of its memory.

``torch`` is passed in: nothing here imports it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from cudagraph_gate.adapters.reachable import reachable_of

_GRAPH_FILES: Final = ("torch/cuda/graphs.py", "torch/_inductor/cudagraph_trees.py")
"""Files of torch that capture and replay graphs."""
COMMON_POOL: Final = (0, 0)
"""What the allocator calls the pool that is no graph's."""


def tensors_of(torch: Any, step: Callable[..., Any]) -> dict[str, Any]:
    """Tensors that torch itself knows of, wherever they lie, by name.

    Parameters and buffers of reachable modules (``model.weight``), what reachable optimisers hold for each
    parameter (``optimizer.model.weight.exp_avg``), and gradients (``model.weight.grad``). Learning rates that
    are numbers, and schedulers, are host state and not among them.
    """
    found: dict[str, Any] = {}
    for prefix, module in reachable_of(step, torch.nn.Module).items():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            found[f"{prefix}{name}"] = tensor
    for prefix, optimizer in reachable_of(step, torch.optim.Optimizer).items():
        found |= dict(_of_optimizer(torch, prefix, optimizer, {id(t): name for name, t in found.items()}))
    gradients = {f"{name}.grad": tensor.grad for name, tensor in found.items() if tensor.is_leaf}
    return found | {name: tensor for name, tensor in gradients.items() if tensor is not None}


def _of_optimizer(
    torch: Any, prefix: str, optimizer: Any, names: dict[int, str]
) -> Iterator[tuple[str, Any]]:
    number = 0
    for place, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if isinstance(value, torch.Tensor):
                yield f"{prefix}group {place}.{key}", value
        for parameter in group["params"]:
            name = names.get(id(parameter), f"parameter {number}")
            number += 1
            if id(parameter) not in names:
                yield f"{prefix}{name}", parameter
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"{prefix}{name}.{key}", value


def generators_of(torch: Any, step: Callable[..., Any]) -> list[Any]:
    """CUDA generators that the step can reach, besides torch's default ones, which torch registers itself."""
    default = {id(generator) for generator in torch.cuda.default_generators}
    found = reachable_of(step, torch.Generator).values()
    return [each for each in found if each.device.type == "cuda" and id(each) not in default]


def runs_graphs(error: BaseException) -> bool:
    """Whether the error came out of torch's own graphs: the step captures or replays one itself."""
    frames = traceback.walk_tb(error.__traceback__)
    files = (frame.f_code.co_filename.replace("\\", "/") for frame, _line in frames)
    return any(file.endswith(_GRAPH_FILES) for file in files)


def free_blocks(segments: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Address and size of the blocks in ``torch.cuda.memory_snapshot()`` that belong to nobody.

    Those of a graph's own pool are left out: its replays use them though no tensor does.
    """
    free = []
    for segment in segments:
        address = segment["address"]
        common = tuple(segment.get("segment_pool_id", COMMON_POOL)) == COMMON_POOL
        for block in segment["blocks"]:
            if common and block["state"] == "inactive":
                free.append((address, block["size"]))
            address += block["size"]
    return free
