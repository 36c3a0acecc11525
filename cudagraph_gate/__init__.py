"""Decide, with evidence, whether CUDA Graphs are worth it and safe for a GPU workload."""

__version__ = "0.1.0"
