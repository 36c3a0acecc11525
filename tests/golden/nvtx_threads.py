"""Nested NVTX ranges of two kinds on two threads, and one range that ends on another thread."""

import threading

import nvtx
import torch

row = torch.randn(1, 256, device="cuda")
weight = torch.randn(256, 256, device="cuda") / 16


def work(name):
    """Five outer ranges with an inner one each, and a kernel in either."""
    for number in range(5):
        with nvtx.annotate(f"{name}#{number}", domain="golden", category="outer"):
            result = row @ weight
            torch.cuda.nvtx.range_push("inner")
            torch.relu(result)
            torch.cuda.nvtx.range_pop()
    torch.cuda.synchronize()


across = nvtx.start_range("across", domain="golden")
threads = [threading.Thread(target=work, args=(name,)) for name in ("step", "other")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
closing = threading.Thread(target=nvtx.end_range, args=(across,))
closing.start()
closing.join()
