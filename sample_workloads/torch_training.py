"""A whole training step: forward, backward and Adam. Expected: a large gain, parameters compared as state.

What makes it possible: Adam with ``capturable=True`` (its step count is on the GPU), and gradients that stay
where they are (``set_to_none=False``). The trial finds parameters, gradients and the optimiser's moments by
itself, restores them before each path, and compares them after it. A learning rate that changes must be a
tensor: a number would be frozen in the graph.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

SHAPES = {"b32": 32}
LAYERS, WIDTH, CLASSES = 6, 256, 10


def build(shape):
    torch.manual_seed(0)
    parts = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = torch.nn.Sequential(*parts, torch.nn.Linear(WIDTH, CLASSES)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    loss_of = torch.nn.CrossEntropyLoss()

    def step(images, labels):
        optimizer.zero_grad(set_to_none=False)
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    images = torch.randn(shape, WIDTH, device="cuda", generator=generator)
    return images, torch.randint(0, CLASSES, (shape,), device="cuda", generator=generator)
