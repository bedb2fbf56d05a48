"""The table of rights: which role may send which message, over the wire and at the console, and for which episode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from real.protocol.keys import Role

__all__ = ["ACCESS", "Door", "Owner", "Phase", "Right", "access_page", "may", "refusal", "role_refusal"]


class Door(StrEnum):
    """The entrance by which a message comes in."""

    WIRE = "wire"
    CONSOLE = "console"


class Owner(StrEnum):
    """The required owner of the session or the episode that a message concerns."""

    ANYBODY = "anybody's"
    HOLDER = "the sender's own"
    NOT_ANOTHERS = "the sender's own, or nobody's"


class Phase(StrEnum):
    """A phase of the console's episode."""

    IDLE = "idle"  # nobody moves the robot through this console
    ARMING = "arming"  # the reset is under way
    ARMED = "armed"  # the reset is done; nothing was commanded yet
    MOVING = "moving"  # commands go to the robot
    JUDGING = "judging"  # the episode has ended by itself, and its owner is asked for a verdict


_ALL = frozenset(Role)
_WATCHERS = frozenset({Role.WATCH, Role.MOVE, Role.OPERATE})
_MOVERS = frozenset({Role.MOVE, Role.OPERATE})
_OPERATORS = frozenset({Role.OPERATE})

_ANY_PHASE = frozenset(Phase)
_EPISODE = frozenset({Phase.ARMED, Phase.MOVING})


@dataclass(frozen=True, slots=True)
class Right:
    """One row of the table.

    Attributes:
        door: the entrance by which the message comes in.
        effect: the effect of the message.
        roles: the roles that may send it.
        owner: the required owner of the session (wire) or the episode (console) that it concerns.
        phases: the phases of the console's episode in which it is accepted; `real.control.lifecycle` decides for the
            wire's messages.
    """

    door: Door
    effect: str
    roles: frozenset[Role]
    owner: Owner = Owner.ANYBODY
    phases: frozenset[Phase] = _ANY_PHASE


ACCESS: Mapping[str, Right] = {
    # -- wire: kinds of `real.protocol.messages.MessageKind`; HELLO has rows of its own for what it asks for
    "HELLO": Right(Door.WIRE, "read the robot's description", _WATCHERS),
    "HELLO move": Right(Door.WIRE, "ask for the lease", _MOVERS),
    "HELLO take": Right(Door.WIRE, "take the lease from its holder", _OPERATORS),
    "HELLO resume": Right(Door.WIRE, "go on with a session after a lost connection", _MOVERS, Owner.HOLDER),
    "RESET": Right(Door.WIRE, "reset the robot; clear a stop", _MOVERS, Owner.HOLDER),
    "STEP": Right(Door.WIRE, "command the robot for one period", _MOVERS, Owner.HOLDER),
    "END": Right(Door.WIRE, "end the episode", _MOVERS, Owner.HOLDER),
    "JUDGE": Right(Door.WIRE, "have the person at the robot asked for a verdict", _MOVERS, Owner.HOLDER),
    "CONSENT": Right(Door.WIRE, "hand the lease to the client that asks", _MOVERS, Owner.HOLDER),
    "RELEASE": Right(Door.WIRE, "give the lease back", _MOVERS, Owner.HOLDER),
    "STATUS": Right(Door.WIRE, "read the address for stops", _ALL),
    "STATUS in full": Right(Door.WIRE, "read the whole status", _WATCHERS),
    "telemetry": Right(Door.WIRE, "listen to telemetry and images", _WATCHERS),
    "STOP": Right(Door.WIRE, "stop the robot", _ALL),
    # -- console: messages and acts of `rlenv_operate.console.messages`
    "stop": Right(Door.CONSOLE, "stop the robot", _ALL),
    "watch": Right(Door.CONSOLE, "see state, questions, episodes and acts; live views", _WATCHERS),
    "see": Right(Door.CONSOLE, "choose cameras to see", _WATCHERS),
    "replay": Right(Door.CONSOLE, "replay recorded episodes", _WATCHERS),
    "compare": Right(Door.CONSOLE, "say which of two recorded episodes is better", _OPERATORS),
    "job": Right(Door.CONSOLE, "choose robot and task; start, end and answer calibration and training", _MOVERS),
    "arm": Right(Door.CONSOLE, "reset the robot and begin an episode", _MOVERS, Owner.NOT_ANOTHERS),
    "arm with take": Right(Door.CONSOLE, "the same, in the place of whoever moves the robot", _OPERATORS),
    "drive": Right(Door.CONSOLE, "move the robot", _MOVERS, Owner.HOLDER, _EPISODE),
    "hold": Right(Door.CONSOLE, "end the episode or the reset; the robot holds", _MOVERS, Owner.NOT_ANOTHERS),
    "hold with take": Right(Door.CONSOLE, "the same, whoever moves the robot", _OPERATORS),
    "verdict": Right(
        Door.CONSOLE, "judge the console's own episode", _MOVERS, Owner.HOLDER, _EPISODE | {Phase.JUDGING}
    ),
    "verdict for the robot": Right(
        Door.CONSOLE, "answer the verdict that the robot's server asks the people at the robot for", _MOVERS
    ),
    "reset_done": Right(Door.CONSOLE, "confirm that the scene is ready", _MOVERS),
    "reset_refused": Right(Door.CONSOLE, "refuse to confirm it", _MOVERS),
}  # fmt: skip
"""Message name -> its right. Both doors look up each message here before they handle it."""


def may(role: Role, kind: str) -> bool:
    """Return whether a role suffices for a message, whoever holds the robot."""
    return role in ACCESS[kind].roles


def role_refusal(kind: str, role: Role) -> str | None:
    """Return why a role does not suffice for a message, to follow the sender's name; None if it does."""
    roles = ACCESS[kind].roles
    if role in roles:
        return None
    return f"has the role {role} here, which does not allow {kind}; allowed with {', '.join(sorted(roles))}"


def refusal(kind: str, role: Role, holder: str = "", *, owns: bool = False, phase: Phase = Phase.IDLE) -> str | None:
    """Return why a message of the console is refused, to follow the sender's name; None if it is allowed.

    Args:
        kind: a key of `ACCESS`.
        role: the sender's present role.
        holder: name of the person or client that moves the robot through this door; empty for none.
        owns: whether the sender is this holder, as shown by key or token, not by name.
        phase: phase of the console's episode.
    """
    right = ACCESS[kind]
    if (why := role_refusal(kind, role)) is not None:
        return why
    if right.owner is Owner.HOLDER and not owns:
        return f"may not {kind}: {f'the episode is that of {holder}' if holder else 'there is no episode'}"
    if right.owner is Owner.NOT_ANOTHERS and holder and not owns:
        return f"may not {kind}: {holder} moves the robot; with the role operate, take it"
    if phase not in right.phases:
        return f"may not {kind} while the episode is {phase}; allowed while it is {', '.join(sorted(right.phases))}"
    return None


def access_page(door: Door) -> str:
    """Return a door's part of the table as Markdown, for docs/wire.md and docs/console.md."""
    heads = ("message", "effect", *(role.value for role in Role), *_HEADS[door])
    lines = [heads, ("---",) * len(heads)]
    for kind, right in ACCESS.items():
        if right.door is door:
            roles = ("yes" if role in right.roles else "" for role in Role)
            lines.append((f"`{kind}`", right.effect, *roles, *_ends(door, right)))
    return "\n".join(_line(cells) for cells in lines)


_HEADS = {Door.WIRE: ("session",), Door.CONSOLE: ("episode", "while it is")}


def _ends(door: Door, right: Right) -> Iterable[str]:
    if door is Door.WIRE:
        return (right.owner.value,)
    phases = "" if right.phases == _ANY_PHASE else ", ".join(phase for phase in Phase if phase in right.phases)
    return right.owner.value, phases


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
