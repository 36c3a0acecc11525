"""Scripts of the adapters' GPU tests: programs that return facts, and a test reads each one's."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

Facts = dict[str, Any]
Program = Callable[[], Facts]


def print_facts(programs: Mapping[str, Program]) -> None:
    """Run all programs, one after the other; one that raises has its traceback for a fact."""
    found: dict[str, Facts] = {}
    for name, program in programs.items():
        try:
            found[name] = program()
        except Exception:  # noqa: BLE001  (the test that reads it fails with it)
            found[name] = {"traceback": traceback.format_exc()}
    sys.stdout.write("\n" + json.dumps(found) + "\n")


def facts_of(found: Mapping[str, Facts], name: str) -> Facts:
    """The facts of one program; fails with its traceback when it raised."""
    facts = found[name]
    assert "traceback" not in facts, facts["traceback"]
    return facts
