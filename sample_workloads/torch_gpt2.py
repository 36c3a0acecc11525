"""GPT-2 small in half precision, batch 1, 16 tokens, random weights: launch-bound.

Needs torch and transformers (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

SHAPES = {"b1x16": (1, 16)}


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
