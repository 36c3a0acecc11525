"""Twelve rounds of a small eager network, each ended by a blocking copy to the host."""

import torch

weights = torch.randn(8, 256, 256, device="cuda") / 16
row = torch.randn(1, 256, device="cuda")


def request():
    """Eight products and eight ReLUs, then the sum on the host."""
    result = row
    for weight in weights:
        result = torch.relu(result @ weight)
    return result.sum().item()


for _ in range(12):
    request()
