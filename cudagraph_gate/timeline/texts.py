"""Text columns of a timeline: each distinct text once, and a code for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd


def coded(codes: npt.NDArray[Any], texts: Sequence[str]) -> pd.Categorical[Any]:
    """The text of each code, an index into ``texts``, -1 for none; equal texts become one category."""
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    categories = pd.Index(list(places), dtype="str")
    if len(places) < len(texts):
        target = np.array([places[text] for text in texts], dtype=np.int32)
        codes = np.where(codes < 0, -1, target[codes])
    return pd.Categorical.from_codes(codes, categories=categories)


def named(values: npt.NDArray[Any], name: Callable[[int], str]) -> pd.Categorical[Any]:
    """The name of each value; ``name`` is called once for each distinct one."""
    codes, distinct = pd.factorize(values)
    return coded(codes, [name(int(value)) for value in distinct])
