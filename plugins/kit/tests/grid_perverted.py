"""A perverted environment, which passes on everything but one thing, and a cell of a perversion grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from plugins.kit.tests.grid_ways import Moment, kept
from rlenv_robot.world import NOTHING

__all__ = ["Cell", "Perverted"]


@dataclass(frozen=True)
class Cell:
    """One perversion of one subject.

    Attributes:
        subject: key of `SUBJECTS`.
        what: place and way, or the behaviour.
        when: when it happens.
        made: makes the perverted subject.
    """

    subject: str
    what: str
    when: str
    made: Callable[[], Any]

    @property
    def name(self) -> str:
        return f"{self.subject}: {self.what}, {self.when}"


class Perverted:
    """An environment of which one thing is perverted; it passes on everything else."""

    hits = 0

    def __init__(self, made: Callable[[], Any]) -> None:
        self.inner = made()
        self.at = Moment()
        self.last_seen: Any = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def hit(self) -> None:
        type(self).hits += 1

    # -- the interface ---------------------------------------------------------------------------------------

    def reset(self, options: Any = NOTHING) -> Any:
        table = self.answer_reset(options)
        self.at = Moment(
            "reset", 0, self.at.episode + 1, False, False, self.at.ended,
            isinstance(options, Mapping) and options.get("seed") is not None, {}, kept(table), self.last_seen,
        )  # fmt: skip
        self.last_seen = kept(table)
        return self.table(table)

    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        answer = self.answer_step(action, extra_info)
        table, reward = answer
        refused = "error" in table.get("extra_info", {})
        self.at.kind, self.at.before = "refusal" if refused else "frame", self.last_seen
        self.at.frame += not refused
        self.at.over = bool(table["terminated"] or table["truncated"])
        self.last_seen = kept(table)
        answer = self.table(table), self.reward_table(reward)
        self.at.refused |= refused
        self.at.ended |= self.at.over
        return answer

    def render(self, options: Any = NOTHING) -> Any:
        if isinstance(options, Mapping) and callable(options.get("to")):
            to = options["to"]
            options = {**options, "to": lambda table: to(self.shown(table))}
        return self.inner.render(options) if options else self.inner.render()

    # -- what perversions replace ----------------------------------------------------------------------------

    def answer_reset(self, options: Any) -> Any:
        return self.inner.reset(options)

    def answer_step(self, action: Any, extra_info: Any) -> Any:
        return self.inner.step(action, extra_info)

    def table(self, table: Any) -> Any:
        return table

    def reward_table(self, table: Any) -> Any:
        return table

    def shown(self, table: Any) -> Any:
        return table
