"""The base class of a project's agent and the decorators of its methods, under the framework's names."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from rlenv_kaiwu.models import ModelPool

__all__ = [
    "BaseAgent", "Counter", "DecoratedAgent", "Method", "Run", "bind", "check_hasattr", "exploit_wrapper",
    "learn_wrapper", "load_model_wrapper", "load_opponent_agent_wrapper", "original", "predict_wrapper",
    "reset_wrapper", "save_model_wrapper",
]  # fmt: skip

Method: TypeAlias = Callable[..., Any]
"""A method of a project's agent."""

_RUN = "_kaiwu_run"


class Counter:
    """Count the steps and episodes of environments. A `Run` is a counter that ends when its budget is used up.

    Attributes:
        steps: number of steps, including refused ones.
        refusals: number of steps with an illegal action, in which nothing moved.
        episodes: number of episodes begun.
    """

    def __init__(self) -> None:
        self.steps = self.refusals = self.episodes = 0

    def stepped(self, count: int = 1) -> None:
        """Count steps, before they are carried out."""
        self.steps += count

    def refused(self, count: int = 1) -> None:
        """Count steps with an illegal action, which `stepped` has already counted."""
        self.refusals += count

    def began_episode(self) -> None:
        """Count the beginning of an episode."""
        self.episodes += 1


class Run(Counter, ABC):
    """The run to which agents belong, which decides what their decorated methods do.

    Args:
        style: the project's year, which determines what a decorated ``predict`` returns.
        models: the run's model pool.
    """

    def __init__(self, style: str, models: ModelPool) -> None:
        super().__init__()
        self.style, self.models = style, models

    @abstractmethod
    def learn(self, agent: object, method: Method, samples: object) -> object:
        """Learn from samples here, or send them to the sample pool."""

    @abstractmethod
    def send(self, agent: object, samples: object) -> None:
        """Send samples to the sample pool."""

    @abstractmethod
    def choose(
        self, agent: object, method: Method, arguments: tuple[object, ...], named: dict[str, object]
    ) -> tuple[object, int]:
        """Return the agent's actions and the number of the model that chose them."""

    @abstractmethod
    def publish(self, agent: object, method: Method) -> object:
        """Save a model to the run's folder."""

    @abstractmethod
    def fetch(self, agent: object, method: Method, number: object) -> object:
        """Load a model from the run's model pool."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Return the framework's own counters."""

    def predict(self, agent: object, method: Method, arguments: tuple[object, ...], named: dict[str, object]) -> object:
        """Return the agent's actions, in projects of 2025 with the number of the model that chose them."""
        actions, number = self.choose(agent, method, arguments, named)
        return (actions, number) if self.style == "2025" else actions

    def save(self, agent: object, method: Method, path: str | None, number: object) -> object:
        """Save a model to the run's folder, or only to ``path`` if the workflow gives one."""
        if path is not None:
            return method(path=path, id="1" if number is None else number)
        return self.publish(agent, method)

    def load(self, agent: object, method: Method, path: str | None, number: object) -> object:
        """Load a model from the run's model pool, or from ``path`` if the workflow gives one."""
        return self.fetch(agent, method, number) if path is None else method(path=path, id=number)


def bind(agent: object, run: Run) -> None:
    """Make an agent part of a run. The agent's constructor need not have called that of its base class."""
    setattr(agent, _RUN, run)


def original(agent: object, name: str) -> Method:
    """Return an agent's method without its decorator.

    Raises:
        ValueError: the agent has no such method.
    """
    method = getattr(type(agent), name, None)
    if method is None:
        raise ValueError(f"the project's {type(agent).__name__} has no method {name}: agent.py must define it")
    return cast("Method", functools.partial(getattr(method, "__wrapped__", method), agent))


def _run_of(agent: object) -> Run | None:
    return cast("Run | None", getattr(agent, _RUN, None))


def learn_wrapper(method: Method) -> Method:
    """Decorate ``learn``: in one process it trains at once, in a distributed run it sends the samples to the pool."""

    @functools.wraps(method)
    def learn(agent: object, list_sample_data: object = None, *arguments: object, **named: object) -> object:
        run = _run_of(agent)
        if run is None or arguments or named:
            return method(agent, list_sample_data, *arguments, **named)
        return run.learn(agent, functools.partial(method, agent), list_sample_data)

    return learn


def _acting(method: Method) -> Method:
    @functools.wraps(method)
    def act(agent: object, *arguments: object, **named: object) -> object:
        run = _run_of(agent)
        if run is None:
            return method(agent, *arguments, **named)
        return run.predict(agent, functools.partial(method, agent), arguments, named)

    return act


def predict_wrapper(method: Method) -> Method:
    """Decorate ``predict``, which chooses actions in training."""
    return _acting(method)


def exploit_wrapper(method: Method) -> Method:
    """Decorate ``exploit``, which chooses the best actions, without changing it."""
    return method


def reset_wrapper(method: Method) -> Method:
    """Decorate ``reset``, which begins an episode, without changing it."""
    return method


def save_model_wrapper(method: Method) -> Method:
    """Decorate ``save_model``: the run provides the path and the id if the workflow omits them."""

    @functools.wraps(method)
    def save(agent: object, path: str | None = None, id: object = None, **named: object) -> object:
        run = _run_of(agent)
        if run is None:
            return method(agent, path=path, id="1" if id is None else id, **named)
        return run.save(agent, functools.partial(method, agent, **named), path, id)

    return save


def load_model_wrapper(method: Method) -> Method:
    """Decorate ``load_model``: the run provides the path, and the number of the newest or a random model."""

    @functools.wraps(method)
    def load(agent: object, path: str | None = None, id: object = "1", **named: object) -> object:
        run = _run_of(agent)
        if run is None:
            return method(agent, path=path, id=id, **named)
        return run.load(agent, functools.partial(method, agent, **named), path, id)

    return load


def load_opponent_agent_wrapper(method: Method) -> Method:
    """Decorate ``load_opponent_agent``, which the run implements."""

    @functools.wraps(method)
    def load(agent: object, id: object = "1") -> object:
        run = _run_of(agent)
        return method(agent, id=id) if run is None else run.fetch(agent, original(agent, "load_model"), id)

    return load


def check_hasattr(attr_must_be_impl: list[str]) -> Callable[[Method], Method]:
    """Return a decorator that refuses an agent without these attributes, as projects before 2024 require."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def checked(agent: object, *arguments: object, **named: object) -> object:
            result = method(agent, *arguments, **named)
            missing = [name for name in attr_must_be_impl if not hasattr(agent, name)]
            if missing:
                raise NotImplementedError(f"{type(agent).__name__} must set {', '.join(missing)}")
            return result

        return checked

    return decorate


class DecoratedAgent:
    """The base class of agents up to 2025. The project decorates their methods itself."""

    def __init__(
        self, agent_type: str = "player", device: object = None, logger: object = None, monitor: object = None
    ) -> None:
        self.agent_type, self.device, self.logger, self.monitor = agent_type, device, logger, monitor

    def send_sample_data(self, list_sample_data: object) -> object:
        """Send samples to the sample pool; the learner is called with batches of them."""
        run = _run_of(self)
        if run is None:
            raise ValueError("send_sample_data before the run has begun: there is no sample pool")
        return run.send(self, list_sample_data)


class BaseAgent(DecoratedAgent):
    """The base class of agents since 2026. The class decorates their methods itself."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name, decorate in _DECORATORS.items():
            method = cls.__dict__.get(name)
            if callable(method) and not hasattr(method, "__wrapped__"):
                setattr(cls, name, decorate(method))


_DECORATORS: dict[str, Callable[[Method], Method]] = {
    "learn": learn_wrapper,
    "predict": predict_wrapper,
    "save_model": save_model_wrapper,
    "load_model": load_model_wrapper,
    "load_opponent_agent": load_opponent_agent_wrapper,
}
"""Method of an agent -> its decorator."""
