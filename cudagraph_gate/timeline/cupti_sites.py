"""Call sites of blocking calls: which line of the user's program made each of them.

CUPTI calls back when a thread enters such a call, in that thread, so that its Python frames say the line.
Only the file's name is kept, never its folder.

The callback needs the interpreter lock. A thread that waits for an event may hold a library's lock that the
thread with the interpreter lock waits for (PyTorch's allocator does when memory is short): to call back there
would be a deadlock, so that event synchronisation has no site.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from cudagraph_gate.timeline.api_names import is_blocking

MOST_SITES: Final = 1_000_000
"""Blocking calls whose site is kept: about 100 MB, hours of any real program."""
_EVENT_WAIT: Final = re.compile(r"EventSynchronize")
_FOREIGN_FOLDERS: Final = ("site-packages", "dist-packages")


def has_site(function: str) -> bool:
    """Whether calls of an API function are looked at."""
    return is_blocking(function) and not _EVENT_WAIT.search(function)


class CallSites:
    """The site of each blocking call by its correlation; filled by :meth:`note`."""

    def __init__(self) -> None:
        package = str(Path(__file__).resolve().parents[1])
        library = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
        self._inside = tuple(f"{folder}/" for folder in (package, *sorted(library)))
        self._foreign: dict[CodeType, bool] = {}
        self._names: dict[tuple[CodeType, int], str] = {}
        self.by_correlation: dict[int, str] = {}

    def note(self, correlation: int) -> None:
        """Remember the calling thread's innermost line of user code. Never raises: CUPTI calls it."""
        try:
            if len(self.by_correlation) < MOST_SITES and (site := self.of(sys._getframe(1))):
                self.by_correlation[correlation] = site
        except Exception:  # noqa: BLE001  (a site is worth less than the program that is recorded)
            pass

    def of(self, frame: FrameType | None) -> str:
        """``file.py:12 function`` of the innermost frame that is the user's; empty if none is."""
        while frame is not None and self._is_foreign(frame.f_code):
            frame = frame.f_back
        if frame is None:
            return ""
        key = (frame.f_code, frame.f_lineno)
        if key not in self._names:
            file = Path(frame.f_code.co_filename).name
            self._names[key] = f"{file}:{frame.f_lineno} {frame.f_code.co_name}"
        return self._names[key]

    def _is_foreign(self, code: CodeType) -> bool:
        known = self._foreign.get(code)
        if known is None:
            file = code.co_filename
            parts = Path(file).parts
            known = file.startswith(("<", *self._inside)) or any(
                folder in parts for folder in _FOREIGN_FOLDERS
            )
            self._foreign[code] = known
        return known
