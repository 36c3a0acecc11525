"""When the requests of a run are due: at the recorded times, or at Poisson ones drawn with a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cudagraph_gate.workload.shapes import Mix

DRAWN_GAP_NS = 1_000_000
"""Mean gap of drawn arrivals before they are scaled: far above rounding to whole ns."""


@dataclass(frozen=True)
class Arrivals:
    """At least two requests of a mix, in order of arrival."""

    requests: tuple[int, ...]
    """Position of each one's shape in the mix's weights."""
    due_ns: tuple[int, ...]
    """From the first one on, ascending; not all 0."""

    @property
    def mean_gap_ns(self) -> float:
        """Mean time between two arrivals."""
        return self.due_ns[-1] / (len(self.due_ns) - 1)

    def at_mean_gap(self, gap_ns: float) -> Arrivals:
        """The same requests in the same rhythm, so much faster or slower."""
        factor = gap_ns / self.mean_gap_ns
        return replace(self, due_ns=tuple(round(due * factor) for due in self.due_ns))


def has_rate(mix: Mix) -> bool:
    """Whether arrivals were recorded at two different times at least: one alone has no rate."""
    return bool(mix.arrivals_ns) and mix.arrivals_ns[-1] > 0


def arrivals(mix: Mix, count: int, seed: int) -> Arrivals:
    """The first ``count`` recorded requests, again from the start where there are fewer; else drawn ones.

    Every shape of the mix is among them: one that so few requests leave out takes the place of another
    shape's request. More than ``count`` where those all arrive at once, or where the mix has more shapes.
    Raises ValueError for fewer than two.
    """
    if count < 2:
        raise ValueError(f"{count} requests have no rate")
    count = max(count, len(mix.weights))
    made = _recorded(mix, count) if has_rate(mix) else _drawn(mix, count, seed)
    return replace(made, requests=with_every_shape(made.requests, list(mix.weights.values()), seed))


def _recorded(mix: Mix, count: int) -> Arrivals:
    """The recorded requests; a repetition starts one mean gap after the last of them."""
    shapes, known = list(mix.weights), len(mix.arrivals_ns)
    first_later = next(index for index, due in enumerate(mix.arrivals_ns) if due)
    span = mix.arrivals_ns[-1]
    period = span + round(span / (known - 1))
    each = range(max(count, first_later + 1))  # a burst alone has no rate
    return Arrivals(
        requests=tuple(shapes.index(mix.shapes[index % known]) for index in each),
        due_ns=tuple(index // known * period + mix.arrivals_ns[index % known] for index in each),
    )


def _drawn(mix: Mix, count: int, seed: int) -> Arrivals:
    """Shapes by weight, exponential gaps; fewer of the same seed are the beginning of more."""
    chance = random.Random(seed)
    shapes, weights = range(len(mix.weights)), list(mix.weights.values())
    requests, due_ns, now = [], [], 0.0
    for _ in range(count):
        requests.append(chance.choices(shapes, weights)[0])
        due_ns.append(round(now))
        now += 1 + chance.expovariate(1 / DRAWN_GAP_NS)  # + 1: never all at once
    return Arrivals(tuple(requests), tuple(due_ns))


def with_every_shape(requests: Sequence[int], weights: Sequence[float], seed: int) -> tuple[int, ...]:
    """Puts each shape that is left out in the place of a request of the shape furthest above its share.

    Which request that is falls by chance. No shape loses its last one. There are at least as many
    requests as shapes.
    """
    made, chance, total = list(requests), random.Random(seed), sum(weights)
    served = Counter(made)
    for missing in sorted(set(range(len(weights))) - set(made)):
        above = {
            shape: count - len(made) * weights[shape] / total for shape, count in served.items() if count > 1
        }
        taken_from = max(sorted(above), key=above.__getitem__)
        place = chance.choice([index for index, shape in enumerate(made) if shape == taken_from])
        made[place] = missing
        served[taken_from] -= 1
        served[missing] += 1
    return tuple(made)
