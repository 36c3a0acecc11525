"""BERT-base in half precision, batch 32, 512 tokens. Expected: NO-GO.

transformers asks whether the stream is capturing, and takes another attention path then: the graph holds
other kernels than the normal path runs, and is slower.

Needs torch and transformers (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch
from transformers import BertConfig, BertModel

SHAPES = {"b32x512": (32, 512)}


def build(shape):
    torch.manual_seed(0)
    model = BertModel(BertConfig(attn_implementation="sdpa")).half().cuda().eval()

    @torch.no_grad()
    def step(tokens, mask):
        return model(tokens, attention_mask=mask).last_hidden_state

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    tokens = torch.randint(0, 30000, shape, device="cuda", generator=generator)
    return tokens, torch.ones(shape, dtype=torch.long, device="cuda")
