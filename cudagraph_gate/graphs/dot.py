"""Graphviz text of boxes and arrows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """A node; ``lines`` of its label from top to bottom, ``colour`` by its Graphviz name."""

    number: int
    lines: tuple[str, ...]
    colour: str


@dataclass(frozen=True)
class Arrow:
    """An edge between the numbers of two boxes; ``style`` is solid, dashed or dotted."""

    source: int
    target: int
    style: str = "solid"


def digraph(name: str, boxes: Iterable[Box], arrows: Iterable[Arrow]) -> str:
    """A directed graph; ``name`` is a Graphviz identifier."""
    lines = [f"digraph {name} {{", '  node [shape=box, style=filled, fontname="sans-serif"];']
    lines += [f"  n{box.number} [label={_quoted(box.lines)}, fillcolor={box.colour}];" for box in boxes]
    lines += [f"  n{arrow.source} -> n{arrow.target} [style={arrow.style}];" for arrow in arrows]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(lines: Iterable[str]) -> str:
    """A DOT string: backslashes and quotes of names are taken literally, each line gets a line break."""
    text = "\n".join(lines)
    kept = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)
    return '"' + kept.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
