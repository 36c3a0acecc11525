"""GPT-2 small in half precision, random weights, three shapes, from launch-bound to nearly GPU-bound.

Expected: a large gain for batch 1, a small one for 8 x 512 tokens, where the GPU is busy most of the time.

Needs torch and transformers (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

SHAPES = {"b1x16": (1, 16), "b1x128": (1, 128), "b8x512": (8, 512)}


def build(shape):
    torch.manual_seed(0)
    config = GPT2Config(use_cache=False)
    model = GPT2LMHeadModel(config).half().cuda().eval()

    @torch.no_grad()
    def step(tokens):
        return model(tokens).logits

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randint(0, 50257, shape, device="cuda", generator=generator),)
