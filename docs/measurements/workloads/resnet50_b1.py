"""ResNet-50 in half precision, one image: launch-bound."""

import torch
from torchvision.models import resnet50

SHAPES = {"b1": (1, 3, 224, 224)}


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
