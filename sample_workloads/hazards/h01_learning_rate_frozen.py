"""H01: a training step whose learning rate is a Python number, and a scheduler that lowers it.

Source: pytorch/pytorch#106802, tracel-ai/burn#5779.
Mechanism: SGD passes the rate to its kernels by value. A graph keeps the rate of its capture, and the
scheduler, which only writes a number of the host, no longer has any effect.
What fools a naive gate: the weights after the first replay are right.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch

HAZARD = "H01"
KIND = "K1"
EXPECTED = ("NO-GO",)
REASON = ("frozen-host-state",)

SHAPES = {"b64": 64}
TRAINING = {}


def build(shape):
    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (torch.nn.Linear(128, 128), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    TRAINING["scheduler"] = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    def step(x):
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def between(i):
    TRAINING["scheduler"].step()


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, 128, device="cuda", generator=generator),)
