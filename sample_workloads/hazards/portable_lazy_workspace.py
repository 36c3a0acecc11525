"""H46 on the device port: what is set up for a size at its first use, and that use is the capture.

Source: triton-lang/triton#10596, triton-lang/triton#10604, vllm-project/vllm#46523.
Mechanism: an operator tunes itself once for each size: it allocates a workspace, tries variants and waits for
them. The application warms it up with another size than the one that it captures, so that tuning falls into
the capture, where allocating and waiting are not permitted.
What fools a naive gate: it warms up with the size of its test, and in production the error names the capture
and not the tuning.

Portable: runs on a CUDA GPU and on the simulated device.
"""

from short_kernels import chain, empty, random_input

from cudagraph_gate.device import current_device

HAZARD = "H46"
KIND = "K5"
EXPECTED = ("NO-GO",)
REASON = ("capture-illegal",)

SHAPES = {"n4096": 4096}
TUNED = {}


def tuned_chain(x):
    """The chain by the variant that was fastest for this size."""
    n = x.shape[0]
    if n not in TUNED:
        workspace = empty(n)  # the line to blame
        chain(workspace, 4)
        current_device().current_stream().synchronize()
        TUNED[n] = workspace
    chain(x)


def build(shape):
    device, out = current_device(), empty(shape)

    def step(x):
        device.copy(out, x)
        chain(out)
        return out

    return step


def build_graphed(shape):
    device, x, out = current_device(), empty(shape), empty(shape)
    tuned_chain(empty(shape // 2))
    stream = device.create_stream()
    with device.use_stream(stream):
        device.begin_capture(stream)
        try:
            device.copy(out, x)
            tuned_chain(out)
        finally:
            graph = device.end_capture(stream)
    executable = graph.instantiate()

    def graphed(fresh):
        device.copy(x, fresh)
        executable.launch(device.current_stream())
        return out

    return graphed


def inputs(shape, seed):
    return (random_input(shape, seed),)
