"""Keeping what was imported out of the garbage collector's way."""

from __future__ import annotations

import gc


def freeze_imports() -> None:
    """Let further collections pass over all that lives now; to be called before the workload builds anything.

    A framework's modules are a million objects, which a collection takes half a second to look at, and the
    trial collects before each reading of memory and each churn. Both paths are timed like this.
    """
    gc.collect()
    gc.freeze()
