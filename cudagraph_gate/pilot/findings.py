"""Findings of the trajectory in words: what was seen, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from cudagraph_gate.errors import CgateError, DeviceError, WorkloadError
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.blame import blame
from cudagraph_gate.pilot.explaining import Explanation
from cudagraph_gate.pilot.trial_log import TrialLog
from cudagraph_gate.records import Finding

GROWN_BYTES: Final = 8 * 1024**2
"""The driver hands out 2 MiB at a time, and keeps some for later."""


def blamed(error: Exception | SystemExit, log: TrialLog, folder: Path) -> Finding:
    """The finding for what was raised in the phase that is going on; ``folder`` holds the user's code."""
    return structs.replace(blame(error, log.shape, log.phase, folder), method=log.method)


@contextmanager
def failures_found(
    log: TrialLog,
    folder: Path,
    find: Callable[[Exception | SystemExit, TrialLog, Path], Finding] = blamed,
) -> Iterator[None]:
    """What is raised becomes a finding; a WorkloadError and what is nobody's but ours is raised again."""
    try:
        yield
    except WorkloadError as error:
        Findings(log).workload(error)
        raise
    except (Exception, SystemExit) as error:
        found = find(error, log, folder)
        log.append(found)
        if not (found.where or isinstance(error, DeviceError | RuntimeError | MemoryError)):
            raise


class Findings:
    """Appends findings of the phase that is going on."""

    def __init__(self, log: TrialLog) -> None:
        self._log = log

    def _find(self, code: Reason, message: str, advice: str, *, blocks: bool = True, **more: Any) -> None:
        self._log.append(
            Finding(
                shape=self._log.shape,
                method=self._log.method,
                phase=self._log.phase,
                code=code,
                message=message,
                advice=advice,
                blocks=blocks,
                **more,
            )
        )

    def workload(self, error: CgateError) -> None:
        """The workload itself failed."""
        self._find(Reason.WORKLOAD, error.what, error.hint or "", where=error.where or "")

    def large_state(self, names: tuple[str, ...]) -> None:
        """State that is not compared unasked."""
        self._find(
            Reason.UNMEASURABLE,
            f"{len(names)} arrays of state, {names[0]} first, are too large to be compared unasked",
            "name what requests change in state(), which is always compared",
            blocks=False,
        )

    def moved(self, moved: Mapping[str, int]) -> None:
        """State that lay elsewhere before a request (by name) than when it was captured."""
        name, request = next(iter(moved.items()))
        others = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
        self._find(
            Reason.UNSTABLE_ADDRESS,
            f"state {name}{others} lay elsewhere before request {request} than when it was captured: "
            "the graph still uses the old memory",
            "change state in place (copy_ into it), or capture again after every such change",
        )

    def lost_inputs(self, names: tuple[str, ...]) -> None:
        """Inputs that the step changes and does not return."""
        self._find(
            Reason.STATE_MUTATION,
            f"the step changes input {', '.join(names)} in place without returning it: "
            "a replay changes its own copy, and the caller's array stays as it was",
            "return it, or let the step keep it and name it in state()",
        )

    def sameness(self, why: str) -> None:
        """Comparisons that could not have failed."""
        self._find(
            Reason.UNMEASURABLE,
            f"agreeing outputs show nothing: {why}",
            "let inputs(shape, seed) depend on its seed, and return what the step computes from them",
        )

    def frozen(self, name: str, *, by_chance: bool = False) -> None:
        """A value of the host that replays repeat; ``by_chance``: one that is drawn anew for each call."""
        if by_chance:
            self._find(
                Reason.RNG,
                f"{name} is random at each call of the normal path, and the same in every replay: "
                "the graph keeps the seed or offset of its capture",
                "draw from the framework's generator, or keep seed and offset in device memory",
            )
            return
        self._find(
            Reason.FROZEN_HOST_STATE,
            f"from the same state and inputs {name} differs at each call of the normal path, "
            "and never between replays",
            "keep what changes from call to call (counters, schedules, seeds) in device memory",
        )

    def grown(self, used_bytes: Sequence[int], blocks: int) -> None:
        """Device memory that an own path took while it was timed on inputs at ever new addresses.

        ``used_bytes`` before, in the middle and at the end: what goes on growing is no first use.
        """
        begin, middle, end = used_bytes
        nbytes = end - begin
        if nbytes < GROWN_BYTES:
            return
        goes_on = end - middle > (middle - begin) // 2
        self._find(
            Reason.MEMORY_GROWTH,
            f"device memory grew by {nbytes / 1024**2:.1f} MiB over {blocks} timed blocks: "
            "graphs, or what belongs to them, are made for inputs that differ in their address only",
            "key graphs by shape and dtype, and copy the inputs to where the graph reads them",
            blocks=goes_on,
        )

    def explained(self, why: Explanation) -> None:
        """The kind of fault behind a difference."""
        self._find(why.code, why.message, why.advice, call=why.call)
