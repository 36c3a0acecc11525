"""Ten replays of a graph of sixteen kernels, after three rounds on the normal path."""

import torch

weights = torch.randn(8, 256, 256, device="cuda") / 16
row = torch.randn(1, 256, device="cuda")


def step():
    """Eight products and eight ReLUs."""
    result = row
    for weight in weights:
        result = torch.relu(result @ weight)
    return result


for _ in range(3):
    step()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(10):
    graph.replay()
    torch.cuda.synchronize()
