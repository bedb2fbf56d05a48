"""Check the messages between the agents of a batch: whose they are, when and where they arrive, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import Unchecked, deep_difference
from rlenv_kit.vector_probe import Table, VectorProbe, is_over
from rlenv_kit.vector_rows import illegal_rows
from rlenv_robot.tasks.agents import agents_of, messages

__all__ = ["message_checks"]

_STEPS = 24
"""Steps of the walk whose messages are compared with actions."""

_FEW = 4
"""Distinct values from which on a field is not taken for a message by chance."""

_ENOUGH = 6
"""Messages from which on a row is judged by itself."""


def message_checks(probe: VectorProbe) -> list[PlannedCheck]:
    """Return the check of messages."""
    return declared(vars(_Messages), _Messages(probe), probe)


class _Messages:
    def __init__(self, probe: VectorProbe) -> None:
        self._probe = probe

    @check(
        "messages", "a message is its sender's and reaches the others, a refused one nobody", "B.3.2-3", "rows apart"
    )
    def messages(self, probe: VectorProbe) -> None:
        known = getattr(getattr(probe.envs, "task", probe.envs), "agents", ())
        named = any(not hasattr(agent, "message") for agent in known or ())  # an attribute of another kind
        agents = () if named else agents_of(getattr(probe.envs, "task", probe.envs))
        table, told, earlier = probe.reset(), 0, dict[str, np.ndarray]()
        evidence = _Evidence(probe.num)
        for action in probe.actions(_STEPS):
            over = np.array([is_over(table, row) for row in range(probe.num)])
            table, _ = probe.step(probe.request(table, action))
            extra = table.get("extra_info", {})
            sent = extra.get("messages")
            if isinstance(sent, Mapping):
                told += 1
                self._check_sent(sent, extra.get("agents"), action)
                silent = over | np.isin(np.arange(probe.num), list(extra.get("error") or {}))
                evidence.take(sent, action, earlier, ~silent)
            earlier = action
            if not isinstance(sent, Mapping):
                continue
            if any(agent.message for agent in agents):
                place = deep_difference(messages(agents, action), sent, "messages")
                if place:
                    raise Failed(f"{place} is not what the actions hold", "a message is a part of its sender's action")
        if not told:
            raise NotTried("no table has messages between agents")
        evidence.judge(extra.get("agents"))
        self._check_begun(probe.reset())
        self._check_refused(probe.actions(1)[0])

    @staticmethod
    def _check_begun(table: Table) -> None:
        """Check that no message is left of the episodes before."""
        for receiver, inbox in (table.get("extra_info", {}).get("messages") or {}).items():
            for sender, message in inbox.items() if isinstance(inbox, Mapping) else ():
                value = np.asarray(message)
                if (value != "").any() if value.dtype.kind == "U" else value.any():
                    raise Failed(f"a reset's table has a message of {sender!r} to {receiver!r}",
                                 "an episode begins without messages: zeros, or none")  # fmt: skip

    def _check_sent(self, sent: Mapping[str, Unchecked], known: Unchecked, action: Mapping[str, np.ndarray]) -> None:
        """Check whose messages arrive where, by the agents' names, and by the names of fields that begin with one."""
        known = known if isinstance(known, Mapping) else {}
        for receiver, inbox in sent.items():
            for sender, message in inbox.items() if isinstance(inbox, Mapping) else ():
                if known and not {sender, receiver} <= known.keys():
                    raise Failed(f"a message is from {sender!r} to {receiver!r}", f"the agents are {', '.join(known)}")
                if sender == receiver:
                    raise Failed(f"{receiver!r} gets its own message", "it reaches the other agents")
                if np.shape(message)[:1] != (self._probe.num,):
                    raise Failed(f"the message of {sender!r} has shape {np.shape(message)}",
                                 f"its leading axis is {self._probe.num}")  # fmt: skip
                fields = [
                    name for name, value in action.items() if value.size > self._probe.num or value.dtype.kind != "i"
                ]
                equal = [name for name in fields if np.array_equal(action[name], message)]
                owners = {agent for agent in known for name in equal if str(name).startswith(f"{agent}_")}
                if equal and owners and sender not in owners:
                    raise Failed(f"the message of {sender!r} to {receiver!r} is the action's {equal[0]}",
                                 "a message is a part of its sender's action")  # fmt: skip

    def _check_refused(self, action: Mapping[str, np.ndarray]) -> None:
        """Check that the message of a refused row arrives nowhere."""
        probe = self._probe
        for what, break_it in illegal_rows(probe, 0):
            table = probe.reset()
            request = probe.request(table, dict(action))
            break_it(request)
            table, _ = probe.step(request)
            for inbox in (table.get("extra_info", {}).get("messages") or {}).values():
                for message in inbox.values() if isinstance(inbox, Mapping) else ():
                    for name, value in action.items():
                        same = np.shape(message) == value.shape and np.array_equal(value[1:], message[1:])
                        if same and value[1:].any() and value[0].any() and np.array_equal(message[0], value[0]):
                            raise Failed(f"{what} in row 0: the row's {name} arrived as a message",
                                         "a refused action sends none")  # fmt: skip


class _Evidence:
    """Compare messages with the fields of their step and of the one before, over all rows of a walk.

    A field counts as a message if its values vary and most messages are equal to it. An empty message, a refused row
    and one that has ended tell nothing.

    Args:
        num: number of rows.
    """

    def __init__(self, num: int) -> None:
        self._num = num
        self._rows: dict[tuple[str, str], list[np.ndarray]] = {}
        self._values: dict[str, set[bytes]] = {}

    def take(
        self, sent: Mapping[str, Unchecked], action: Mapping[str, np.ndarray], earlier: Mapping[str, np.ndarray],
        told: np.ndarray,
    ) -> None:  # fmt: skip
        """Take the messages of a step, its action, that of the step before (may be empty), and the rows that tell."""
        for name, value in action.items():
            self._values.setdefault(name, set()).update(row.tobytes() for row in value)
        for inbox in sent.values():
            for sender, message in inbox.items() if isinstance(inbox, Mapping) else ():
                for name in action:
                    shape, given = action[name].shape, np.asarray(message)
                    if given.shape != shape:
                        continue
                    came, now = given.reshape(self._num, -1), action[name].reshape(self._num, -1)
                    filled = told & (came != ("" if came.dtype.kind == "U" else 0)).any(axis=1)
                    old = earlier[name].reshape(self._num, -1) if name in earlier else now
                    same, late = (came == now).all(axis=1), (came == old).all(axis=1)
                    moved = filled & (now != old).any(axis=1)
                    counts = (filled, filled & same, moved, moved & same, moved & late)
                    known = self._rows.setdefault((sender, name), [np.zeros(self._num, int) for _ in counts])
                    for total, count in zip(known, counts, strict=True):
                        total += count

    def judge(self, agents: Unchecked) -> None:
        """Judge the messages of the walk.

        Args:
            agents: ``extra_info["agents"]``, for the names of the agents.

        Raises:
            Failed: they come late, are another agent's, or are changed on their way.
        """
        names = agents.keys() if isinstance(agents, Mapping) else ()
        for (sender, name), (filled, same, moved, now, late) in self._rows.items():
            if len(self._values[name]) < _FEW or filled.sum() < 2 * _ENOUGH:
                continue
            if late.sum() > 0.5 * moved.sum() and now.sum() < 0.25 * moved.sum():
                raise Failed(f"the messages of {sender!r} are {name} of the step before in {late.sum()} of "
                             f"{moved.sum()} rows", "a message arrives with the table of its step")  # fmt: skip
            whole = (filled >= _ENOUGH) & (same == filled)
            others = (filled >= _ENOUGH) & (same < 0.5 * filled)
            if same.sum() == filled.sum():
                owner = next((other for other in names if other != sender and name.startswith(f"{other}_")), "")
                if owner:
                    raise Failed(f"the messages of {sender!r} are {name}", f"that is a field of {owner!r}")
            elif same.sum() > 0.5 * filled.sum() or (whole.any() and others.any()):
                raise Failed(f"the messages of {sender!r} are {name} in {same.sum()} of {filled.sum()} rows, by row "
                             f"{same.tolist()} of {filled.tolist()}",
                             "a message is a part of its sender's action, in its own row")  # fmt: skip
