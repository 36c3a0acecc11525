"""Models and versions that take turns while their graphs are kept in a cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Final

from cudagraph_gate.graphs import GraphCache, GraphedStep, GraphKey
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.blame import reason_code
from cudagraph_gate.pilot.scenarios.builds import Model, with_further_builds
from cudagraph_gate.pilot.scenarios.guards import Guards
from cudagraph_gate.pilot.scenarios.making import Maker
from cudagraph_gate.pilot.scenarios.scene import Outcome, Scene, broke, held, undecided
from cudagraph_gate.pilot.session import Inputs
from cudagraph_gate.records import Phase
from cudagraph_gate.workload.calls import error_text

MODELS: Final = 3
"""The first one, a second build, and one of another shape."""
VERSIONS: Final = 2
"""The old one and the one that is tried."""
_KEEP: Final = (
    "give each build buffers of its own, or drop the graphs of a model before the next one is built"
)


# --- another model, and back ----------------------------------------------------------------------


def model_switch(scene: Scene) -> Outcome:
    """A second build takes over, then one of another shape, then the first one comes back."""
    return with_further_builds(scene, lambda each: switch(each, GraphCache(capacity_entries=MODELS)))


def switch(scene: Scene, cache: GraphCache) -> Outcome:
    """The same with graphs kept in ``cache``."""
    models = _Switched(scene, cache)
    try:
        return models.run()
    except _Mistaken:
        return broke(Reason.WRONG_OUTPUT, "another graph was served than the one that was made for the model")
    except Exception as error:
        if reason_code(error, Phase.SCENARIO) is not Reason.MEMORY:
            raise
        return undecided(Reason.MEMORY, f"there is no room for a second build: {error_text(error)}")
    finally:
        cache.clear()


class _Switched:
    """Models whose graphs one cache keeps."""

    def __init__(self, scene: Scene, cache: GraphCache) -> None:
        self._scene = scene
        self._cache = cache
        self._graphs: dict[str, GraphedStep] = {}
        """By the name of the model: what was made for it."""

    def run(self) -> Outcome:
        scene = self._scene
        first = Model.of(scene)
        state = first.named_state()
        if difference := self._serve("first", first):
            return broke(Reason.WRONG_OUTPUT, f"the first model's graph is wrong: {difference}")
        scene.announce("a second build")
        second = Model.built(scene, scene.job.shape)
        guards = self._guards(first)
        if difference := self._serve("second", second):
            return broke(Reason.WRONG_OUTPUT, f"the second build's graph is wrong: {difference}")
        seen = f"a second build{self._of_another_shape()}"
        back = _still(first, state)
        if back is None:
            return self._built_again(f"{seen}, which takes the first model's place")
        return self._come_back(seen, back, second, guards)

    def _guards(self, first: Model) -> Guards:
        """Where the second build has left memory of the first one free, it is somebody else's now."""
        like = [*first.expected.start.requests[0], *first.session.state().values()]
        return Guards(first.session, like, sizes=True, poisoned=True)

    def _come_back(self, seen: str, first: Model, second: Model, guards: Guards) -> Outcome:
        made = self._cache.statistics.captures
        for name, model in (("first", first), ("second", second)):
            if difference := self._serve(name, model):
                return broke(
                    Reason.LIFETIME if name == "first" else Reason.WRONG_OUTPUT,
                    f"once another model was built, the {name} one's graph is wrong: {difference}",
                    advice=_KEEP,
                )
        if harmed := guards.harmed():
            return broke(
                Reason.LIFETIME,
                f"once a second model was built, a kept graph writes to {harmed} arrays that others own: "
                "the build has freed what the graph still uses",
                advice=_KEEP,
            )
        if self._cache.statistics.captures != made:
            return broke(Reason.CHURN, "a graph that was kept was made again when its model came back")
        return held(f"{seen} and back: each was served by its own graph, kept meanwhile")

    def _built_again(self, seen: str) -> Outcome:
        """One model at a time: the first one is built again, its old graph dropped before."""
        self._cache.clear()
        self._graphs.clear()
        self._scene.announce("the first model, built again")
        if difference := self._serve("first", Model.built(self._scene, self._scene.job.shape)):
            return broke(Reason.WRONG_OUTPUT, f"built again, the first model's graph is wrong: {difference}")
        return held(f"{seen}; built again, it is served by a graph of its own")

    def _of_another_shape(self) -> str:
        """Serve a further shape, if there is one; returns how to go on in the sentence."""
        scene = self._scene
        others = [name for name in scene.loaded.workload.shapes if name != scene.job.shape]
        if not others:
            return ""
        scene.announce(f"shape {others[0]}")
        try:
            other = Model.built(scene, others[0])
            difference = self._serve("other", other)
        except _Mistaken:
            raise
        except Exception:  # noqa: BLE001  (whether this shape can be served at all is asked elsewhere)
            scene.session.device.synchronize()
            return ""
        return "" if difference else f", shape {others[0]}"

    def _serve(self, name: str, model: Model) -> str:
        """The first difference of the model's requests, each served through the cache; empty: right."""
        key = _version(model.key(), name)
        maker = Maker(self._scene, model)

        def served(passed: Inputs) -> Any:
            with self._cache.lease(key, maker) as graphed:
                if graphed is None:
                    raise maker.failure()
                self._graphs.setdefault(name, graphed)
                if [other for other, known in self._graphs.items() if known is graphed] != [name]:
                    raise _Mistaken
                return graphed.replay(passed)

        return model.wrong(served)


class _Mistaken(Exception):  # noqa: N818  (tells ``switch``, and nobody else)
    """A key was answered with another key's graph."""


def _version(key: GraphKey, name: str) -> GraphKey:
    return replace(key, model_version=f"{key.model_version} {name}".strip())


def _still(model: Model, state: Any) -> Model | None:
    """The model if its normal path is what it was, with ``state`` named anew or as it was; else None."""
    candidates = (model, model.with_state(state))
    return next((each for each in candidates if each.intact()), None)


# --- version upgrade ------------------------------------------------------------------------------


def version_upgrade(scene: Scene) -> Outcome:
    """Each component of the key changes in turn."""
    return upgrade(scene, GraphCache(capacity_entries=VERSIONS))


def upgrade(scene: Scene, cache: GraphCache) -> Outcome:
    """The same with graphs kept in ``cache``."""
    model = Model.of(scene)
    maker = Maker(scene, model)
    old = model.key()
    try:
        first = _leased(cache, old, maker)
        for name, new in _changed(old):
            scene.announce(f"another {name}")
            if complaint := _complaint(cache, maker, model, (old, first), new, name):
                return complaint
            cache.invalidate(new)  # a graph of each component at a time might not fit
    finally:
        cache.clear()
    return held(f"{maker.made - 1} components changed: each got a graph of its own, the old one stayed")


def _complaint(
    cache: GraphCache,
    maker: Maker,
    model: Model,
    known: tuple[GraphKey, GraphedStep],
    new: GraphKey,
    name: str,
) -> Outcome | None:
    """What is wrong once ``new`` differs from the old key in the component ``name``; None: nothing."""
    old, first = known
    made = maker.made
    if difference := model.wrong(_through(cache, new, maker)):
        return broke(Reason.WRONG_OUTPUT, f"the graph of another {name} is wrong: {difference}")
    if maker.made != made + 1 or _leased(cache, new, maker) is first:
        return broke(Reason.WRONG_OUTPUT, f"another {name} in the key is answered with the old graph")
    if difference := model.wrong(_through(cache, old, maker)):
        return broke(
            Reason.LIFETIME,
            f"once a graph of another {name} was made, the old one is wrong: {difference}",
            advice="let no call of the step free or replace what an earlier graph of it still uses",
        )
    if maker.made != made + 1 or _leased(cache, old, maker) is not first:
        return broke(Reason.CHURN, f"another {name} in the key has driven out the graph of the old key")
    return None


def _through(cache: GraphCache, key: GraphKey, maker: Maker) -> Any:
    def served(passed: Inputs) -> Any:
        with cache.lease(key, maker) as graphed:
            if graphed is None:
                raise maker.failure()
            return graphed.replay(passed)

    return served


def _leased(cache: GraphCache, key: GraphKey, maker: Maker) -> GraphedStep:
    with cache.lease(key, maker) as graphed:
        if graphed is None:
            raise maker.failure()
        return graphed


def _changed(key: GraphKey) -> Iterator[tuple[str, GraphKey]]:
    """Each component's name, and the key in which that one differs."""
    for field in fields(key):
        yield field.name.replace("_", " "), replace(key, **{field.name: _other(getattr(key, field.name))})


def _other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return f"{value}+1"
    return (*value[:-1], _other(value[-1])) if value else ("other",)
