"""Gives NumPy 2.5 its ``row_stack`` back, which numba-cuda looks up at import (0.30). Not for products."""

import numpy as np

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack
