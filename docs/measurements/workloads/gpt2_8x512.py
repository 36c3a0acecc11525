"""GPT-2 small in half precision, batch 8, 512 tokens: partly bound by the GPU."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

SHAPES = {"b8x512": (8, 512)}


def build(shape):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(use_cache=False)).half().cuda().eval()

    @torch.no_grad()
    def step(tokens):
        return model(tokens).logits

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randint(0, 50257, shape, device="cuda", generator=generator),)
