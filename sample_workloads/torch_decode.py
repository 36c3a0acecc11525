"""One token of a decode loop with a static KV cache. Expected: a large gain, the cache compared as state.

The cache has its full length from the start, and each request writes one position of it in place: what would
grow a tensor, or index with a Python number, would freeze in the graph. The position is a tensor, so it is an
input like the token.

Needs torch (``pip install 'cudagraph-gate[torch]'``) and a CUDA GPU.
"""

import torch
from torch.nn.functional import gelu, scaled_dot_product_attention

SHAPES = {"b1": 1, "b8": 8}
LAYERS, HEADS, WIDTH, LENGTH, WORDS = 12, 12, 768, 256, 32_000
CACHES = {}


class Layer(torch.nn.Module):
    """Attention over the cache and a feed-forward part."""

    def __init__(self, batch):
        super().__init__()
        self.norm_1, self.norm_2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        cache = torch.zeros(batch, HEADS, LENGTH, WIDTH // HEADS)
        self.register_buffer("keys", cache)
        self.register_buffer("values", cache.clone())

    def forward(self, x, position, visible):
        """One token of each sequence; ``visible`` says which positions of the cache count."""
        query, key, value = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm_1(x)).chunk(3, -1)
        )
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        seen = scaled_dot_product_attention(query, self.keys, self.values, attn_mask=visible)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norm_2(x))))


def build(shape):
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(WORDS, WIDTH).half().cuda()
    layers = torch.nn.ModuleList(Layer(shape) for _ in range(LAYERS)).half().cuda().eval()
    places = torch.arange(LENGTH, device="cuda")
    CACHES.clear()
    for number, layer in enumerate(layers):
        CACHES.update({f"keys {number}": layer.keys, f"values {number}": layer.values})

    @torch.no_grad()
    def step(tokens, position):
        x = embedding(tokens)
        visible = (places <= position).expand(1, 1, 1, LENGTH)
        for layer in layers:
            x = layer(x, position, visible)
        return x @ embedding.weight.T

    return step


def inputs(shape, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    tokens = torch.randint(0, WORDS, (shape, 1), device="cuda", generator=generator)
    return tokens, torch.tensor([seed % LENGTH], device="cuda")


def state():
    return CACHES
