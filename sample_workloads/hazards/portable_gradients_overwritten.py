"""H86 on the device port: gradients of two micro-batches, the second of which overwrites the first.

Source: pytorch/pytorch#181723, NVIDIA/TransformerEngine#2937.
Mechanism: the graph of a backward pass writes its gradients to memory of its own. Where a parameter has no
gradient yet, that memory itself becomes its gradient; the second micro-batch then writes over it before it is
added, and the sum is twice the second one.
What fools a naive gate: with one micro-batch for each step everything is right.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from short_kernels import ADD, chain, empty, launch, random_input

from cudagraph_gate.device import current_device

HAZARD = "H86"
KIND = "K10"
EXPECTED = ("NO-GO",)
REASON = ("gradient",)

SHAPES = {"n4096": 4096}


class Parameter:
    """A parameter whose gradients are added up."""

    def __init__(self):
        self.grad = None

    def accumulate(self, gradient):
        """The first gradient is kept as it is, further ones are added to it."""
        if self.grad is None:
            self.grad = gradient
        else:
            launch(ADD, self.grad, gradient)


def training_step(backward):
    """Both micro-batches of one step by ``backward``."""

    def step(first, second):
        weight = Parameter()
        for batch in (first, second):
            weight.accumulate(backward(batch))
        return {"weight.grad": weight.grad}

    return step


def build(shape):
    device, gradients = current_device(), [empty(shape), empty(shape)]
    turn = [0]

    def backward(batch):
        turn[0] = 1 - turn[0]
        gradient = gradients[turn[0]]
        device.copy(gradient, batch)
        chain(gradient)
        return gradient

    return training_step(backward)


def build_graphed(shape):
    device, batch, gradient = current_device(), empty(shape), empty(shape)
    stream = device.create_stream()
    with device.use_stream(stream):
        device.begin_capture(stream)
        try:
            device.copy(gradient, batch)
            chain(gradient)
        finally:
            graph = device.end_capture(stream)
    executable = graph.instantiate()

    def backward(fresh):
        device.copy(batch, fresh)
        executable.launch(device.current_stream())
        return gradient

    return training_step(backward)


def inputs(shape, seed):
    return random_input(shape, seed), random_input(shape, seed + 1000)
