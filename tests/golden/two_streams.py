"""Ten rounds of work on two streams that wait for each other by events."""

import torch

main, side = torch.cuda.Stream(), torch.cuda.Stream()
left = torch.randn(256, 256, device="cuda")
right = torch.randn(256, 256, device="cuda")
torch.cuda.synchronize()


def request():
    """Products on both streams at the same time, then one that needs both."""
    forked, joined = torch.cuda.Event(), torch.cuda.Event()
    with torch.cuda.stream(main):
        first = torch.relu(left)
        forked.record()
    with torch.cuda.stream(side):
        side.wait_event(forked)
        second = first @ right
        joined.record()
    with torch.cuda.stream(main):
        third = first @ left
        main.wait_event(joined)
        result = second + third
    main.synchronize()
    return result


for _ in range(10):
    request()
