"""ResNet-50 in half precision, batch 128, random weights: the GPU is the bottleneck, not the host.

Needs torch and torchvision (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch
from torchvision.models import resnet50

SHAPES = {"b128": (128, 3, 224, 224)}


def build(shape):
    torch.manual_seed(0)
    model = resnet50(weights=None).half().cuda().eval()

    @torch.no_grad()
    def step(images):
        return model(images)

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", dtype=torch.half, generator=generator),)
