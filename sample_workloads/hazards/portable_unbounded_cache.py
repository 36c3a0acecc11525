"""H102 on the device port: a cache of graphs that is keyed by the address of its input and never forgets.

Source: ggml-org/llama.cpp#20315, ggml-org/llama.cpp#26558, ggml-org/llama.cpp#25835,
ikawrakow/ik_llama.cpp#2288.
Mechanism: inputs that are fresh have new addresses, so nearly every request captures a graph that will not be
used again, and all of them are kept: memory grows, and nothing is gained.
What fools a naive gate: its test rotates over a few inputs, and finds each graph again.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from short_kernels import chain, empty, random_input

from cudagraph_gate.device import current_device

HAZARD = "H102"
KIND = "K12"
EXPECTED = ("NO-GO",)
REASON = ("memory-growth", "churn", "no-gain")  # capturing takes longer than it saves

SHAPES = {"n4096": 4096}


def build(shape):
    device, out = current_device(), empty(shape)

    def step(x):
        device.copy(out, x)
        chain(out)
        return out

    return step


def build_graphed(shape):
    device, stream, graphs = current_device(), current_device().create_stream(), {}

    def capture(x):
        out = empty(shape)
        with device.use_stream(stream):
            device.begin_capture(stream)
            try:
                device.copy(out, x)
                chain(out)
            finally:
                graph = device.end_capture(stream)
        return graph.instantiate(), out

    def graphed(x):
        if x.pointer not in graphs:
            graphs[x.pointer] = capture(x)
        executable, out = graphs[x.pointer]
        executable.launch(device.current_stream())
        return out

    return graphed


def inputs(shape, seed):
    return (random_input(shape, seed),)
