"""A step's graph built node by node instead of captured: the source for ``build_explicit``.

The builder adds the step's nodes to a graph and returns ``(inputs, outputs)``: the arrays that the nodes
read, in the order of the step's parameters, and what they write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from cudagraph_gate.adapters import Adapter, CapturedStep, unusable
from cudagraph_gate.adapters.cuda_core import ArrayCapture
from cudagraph_gate.device import Device, DeviceArray, Kernel, LaunchShape
from cudagraph_gate.device.port import Graph, Node, NodeInfo
from cudagraph_gate.errors import DeviceError, WorkloadError, device_error
from cudagraph_gate.workload import flatten

RETURN_BOTH = "return (inputs, outputs): the arrays that the nodes read, in the order of step's parameters"
_PORTABLE = "this device has no cuda.core graph: use add_kernel, add_copy and add_fill"


class ExplicitGraph:
    """The graph that a builder gets: the port's graph, which also keeps alive what its nodes use.

    A node holds addresses only; without this, an array that the builder made for its nodes alone would be
    freed when it returns.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._kept: list[Any] = []

    @property
    def definition(self) -> Any:
        """cuda.core's ``GraphDefinition`` of the same graph, for every node type that CUDA has.

        Its nodes may stand in ``after`` of the methods here. Memory that it gets by raw pointer needs
        :meth:`keep`. Raises CUDA_ERROR_NOT_SUPPORTED on the simulated device.
        """
        if not hasattr(type(self._graph), "definition"):
            raise device_error("CUDA_ERROR_NOT_SUPPORTED", "graph.definition", detail=_PORTABLE)
        return self._graph.definition  # type: ignore[attr-defined]

    def keep(self, *values: Any) -> None:
        """Hold objects as long as the graph or its executable lives."""
        self._kept.extend(values)

    @property
    def kept(self) -> tuple[Any, ...]:
        """What is held: everything that the nodes were given, and what :meth:`keep` was."""
        return tuple(self._kept)

    def add_kernel(
        self, kernel: Kernel, shape: LaunchShape, args: Sequence[Any], after: Sequence[Node] = ()
    ) -> Node:
        """Add a kernel node that runs after the given nodes."""
        self.keep(*args)
        return self._graph.add_kernel(kernel, shape, args, after)

    def add_copy(self, target: DeviceArray, source: DeviceArray, after: Sequence[Node] = ()) -> Node:
        """Add a device-to-device copy node."""
        self.keep(target, source)
        return self._graph.add_copy(target, source, after)

    def add_fill(self, target: DeviceArray, byte: int, after: Sequence[Node] = ()) -> Node:
        """Add a memset node: every byte of ``target`` becomes ``byte``."""
        self.keep(target)
        return self._graph.add_fill(target, byte, after)

    def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes so far."""
        return self._graph.nodes()

    def edges(self) -> tuple[tuple[int, int], ...]:
        """Dependencies so far, as pairs of node indices (from, to)."""
        return self._graph.edges()


class ExplicitSource:
    """Builds a step's graph by ``build(graph) -> (inputs, outputs)``, once for each graph.

    A source for :class:`~cudagraph_gate.graphs.graphed_step.GraphedStep`. ``where`` is the place of
    ``build`` that errors name.
    """

    def __init__(
        self,
        adapter: Adapter,
        device: Device,
        build: Callable[[ExplicitGraph], Any],
        *,
        where: str | None = None,
    ) -> None:
        self._adapter = adapter
        self._device = device
        self._build = build
        self._where = where
        self._made: tuple[tuple[Any, ...], CapturedStep] | None = None
        """Static inputs and step that :meth:`static_inputs` made and :meth:`capture` gives out."""

    def static_inputs(self, example: tuple[Any, ...]) -> tuple[Any, ...]:
        """Build the graph; its inputs, holding the example's values.

        Raises WorkloadError for what the builder should not have returned, and what it raised itself.
        """
        graph = self._device.create_graph()
        try:
            builder = ExplicitGraph(graph)
            inputs, outputs = self._both(self._build(builder))
            if not graph.nodes():
                raise self._error("added no node to the graph", "add the step's nodes, or leave it out")
            self._require_arrays(inputs, outputs)
            self._fill(inputs, example)
        except BaseException:
            with suppress(DeviceError):
                graph.destroy()
            raise
        kept = (inputs, outputs, *builder.kept)
        self._made = inputs, ArrayCapture(self._adapter.current_stream, graph, outputs, kept)
        return inputs

    def capture(self, static: tuple[Any, ...]) -> CapturedStep:
        """The graph that reads ``static``, which must come from :meth:`static_inputs`."""
        made, self._made = self._made, None
        if made is None or len(static) != len(made[0]) or any(map(_differ, static, made[0])):
            raise RuntimeError("an explicit graph reads its own inputs, those of static_inputs, once each")
        return made[1]

    def _both(self, returned: Any) -> tuple[tuple[Any, ...], Any]:
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            kind = type(returned).__name__
            count = f" of {len(returned)}" if isinstance(returned, tuple | list) else ""
            raise self._error(f"returned a {kind}{count}, not inputs and outputs", RETURN_BOTH)
        inputs, outputs = returned
        if inputs is None:
            return (), outputs
        return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), outputs

    def _require_arrays(self, inputs: tuple[Any, ...], outputs: Any) -> None:
        adapter = self._adapter
        named = {f"input {index}": value for index, value in enumerate(inputs)}
        if complaint := unusable(adapter, named):
            raise self._error(f"returned no usable inputs: {complaint.what}", complaint.hint)
        leaves = dict(flatten(outputs))
        if not any(map(adapter.is_device_array, leaves.values())):
            complaint = unusable(adapter, leaves)
            why = complaint.what if complaint else "there is none"
            raise self._error(f"returned no output in device memory: {why}", RETURN_BOTH)

    def _fill(self, inputs: tuple[Any, ...], example: tuple[Any, ...]) -> None:
        """Enqueue copying the example's values into the graph's inputs."""
        if len(inputs) != len(example):
            raise self._error(f"returned {len(inputs)} inputs, and step takes {len(example)}", RETURN_BOTH)
        filled: dict[int, int] = {}
        for index, (target, source) in enumerate(zip(inputs, example, strict=True)):
            address = self._adapter.address(target) if self._adapter.nbytes(target) else -1 - index
            if filled.setdefault(address, index) != index:
                what = f"returned the same array as input {filled[address]} and input {index}"
                raise self._error(what, "give each input memory of its own")
            try:
                self._adapter.copy_into(target, source)
            except (ValueError, TypeError) as error:
                hint = "make the static inputs with the shapes and dtypes of inputs(shape, seed)"
                raise self._error(f"returned an input {index} that can't be used: {error}", hint) from error

    def _error(self, what: str, hint: str | None) -> WorkloadError:
        return WorkloadError(f"build_explicit {what}", where=self._where, hint=hint)


def _differ(one: Any, other: Any) -> bool:
    return one is not other
