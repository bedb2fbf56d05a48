"""The table of rights: the pages show it, and the wire does what it says for each message, role, owner and state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import ConnectionLost, RobotError
from real import Connection, MessageKind, Server
from real.protocol.access import ACCESS, Door, Owner, Phase, access_page, may, refusal
from real.protocol.handshake import load_keys
from real.protocol.keys import TELEMETRY, Role, allow, load_pair
from tests.fakes import Integrator, until

DOCS = Path(__file__).resolve().parents[3] / "docs"
STATES = ("disarmed", "ready", "running", "holding", "stopped")
WIRE = sorted(kind for kind, right in ACCESS.items() if right.door is Door.WIRE)


@pytest.mark.parametrize(("door", "page"), [(Door.WIRE, "wire.md"), (Door.CONSOLE, "console.md")])
def test_the_page_shows_the_table(door: Door, page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert f"<!-- access: begin -->\n{access_page(door)}\n<!-- access: end -->" in text


def test_the_table_has_each_message_that_a_client_may_send() -> None:
    sent = {kind.name for kind in MessageKind if kind < MessageKind.WELCOME}
    assert {kind.split()[0] for kind in WIRE} == {*sent, "telemetry"}


def test_a_role_includes_those_after_it() -> None:
    for kind, right in ACCESS.items():
        allowed = [role in right.roles for role in Role]  # from operate to stop
        assert allowed == sorted(allowed, reverse=True), kind
        assert Role.OPERATE in right.roles
    assert {kind for kind in ACCESS if may(Role.STOP, kind)} == {"STOP", "STATUS", "stop"}


@given(st.sampled_from(sorted(ACCESS)), st.sampled_from(Role), st.sampled_from(["", "ann"]), st.sampled_from(Phase))
def test_whose_episode_it_is_decides_where_the_table_says_so(kind: str, role: Role, holder: str, phase: Phase) -> None:
    right = ACCESS[kind]
    others = refusal(kind, role, holder, owns=False, phase=phase)
    own = refusal(kind, role, "ann", owns=True, phase=phase)
    assert (own is None) == (role in right.roles and phase in right.phases)
    if right.owner is Owner.HOLDER or (right.owner is Owner.NOT_ANOTHERS and holder):
        assert others is not None
    else:
        assert (others is None) == (own is None)


# -- The table through the server's socket ---------------------------------------------------------------------


class Bench:
    """A server with keys, one client that owns the session, and one of each role that does not."""

    def __init__(self, server: Server, folder: Path, identities: Callable[..., Path]) -> None:
        self.server, self._folder = server, folder
        authenticator: Any = server._authenticator
        entry = authenticator.entry
        authenticator.entry = lambda key, max_age_s=0.0: entry(key, 0.0)  # an edit counts at the next message
        self._owner_keys = identities("owner", "operate")
        self.owner = self._client(self._owner_keys)
        self.others = {role: self._client(identities(f"o-{role}", role)) for role in Role}

    def _client(self, keys: Path) -> Connection:
        client = Connection(self.server.address, keys=load_keys(keys))
        client.wait_until_connected(10)
        return client

    def close(self) -> None:
        for client in (self.owner, *self.others.values()):
            client.close()

    def begin(self, state: str) -> None:
        """Give the owner the role `operate` and the lease, and bring the robot into a state."""
        self.set_owner(Role.OPERATE)
        self.owner.session = 0
        self.owner.session = self.owner.ask(MessageKind.HELLO, hello(take="force"), [], 5).session
        if state != "disarmed":
            number = self.owner.ask(MessageKind.STATUS, None, [], 5).detail["stop_number"]
            reset = {"options": {"clear_stop": "looked"}, "deadline_s": 5.0, "stop_number": number}
            self.owner.ask(MessageKind.RESET, reset, [], 5)
        if state == "running":
            self.owner.ask(MessageKind.STEP, None, [bytes(8)], 5)
        elif state == "holding":
            self.owner.ask(MessageKind.END, {"reason": "enough"}, [], 5)
        elif state == "stopped":
            self.owner.ask(MessageKind.STOP, {"reason": "a hand", "orderly": False}, [], 5)
        until(lambda: self.server.lifecycle.state == state)

    def set_owner(self, role: Role) -> None:
        allow(self._folder, load_pair(self._owner_keys).public, role, "owner")


def hello(**changes: Any) -> dict[str, Any]:
    plain = {"digest": "", "name": "n", "move": True, "replaces": 0, "take": "no", "resume": False}
    return plain | changes


def is_refused(kind: str, client: Connection, session: int) -> bool:
    """Send a message, and return whether the server refused it for the sender's role or session."""
    details: dict[str, Any] = {
        "HELLO": hello(move=False), "HELLO move": hello(), "HELLO take": hello(take="force"),
        "HELLO resume": hello(resume=True, replaces=session), "RESET": {"options": {}, "deadline_s": 5.0},
        "END": {"reason": "r"}, "JUDGE": {"message": "", "deadline_s": 1.0}, "CONSENT": {"yes": True},
        "STOP": {"reason": "r", "orderly": False},
    }  # fmt: skip
    wire_kind = MessageKind[kind.split()[0]]
    before, client.session = client.session, 0 if wire_kind is MessageKind.HELLO else session
    client.sequence = max(client.sequence, 1000)
    try:
        answer = client.ask(wire_kind, details.get(kind), [bytes(8)] if kind == "STEP" else [], 5)
        return kind == "STATUS in full" and "state" not in answer.detail
    except ConnectionLost as error:
        words = ("which does not allow", "does not hold the robot", "belongs to the key")
        return any(word in str(error) for word in words)
    except RobotError:
        return False  # by the robot's state, or since there is nothing to answer; not by rights
    finally:
        client.session = before


@pytest.fixture
def bench(robot: Integrator, tmp_path: Path, identities: Callable[..., Path]) -> Iterator[Bench]:
    identities("first")
    with Server(robot, keys=tmp_path / "server", lockstep=True) as server:
        bench = Bench(server, tmp_path / "server", identities)
        yield bench
        bench.close()


@pytest.mark.parametrize("state", STATES)
def test_the_wire_does_what_the_table_says_in_each_state(bench: Bench, state: str) -> None:
    gone = ("RESET", "STOP") if state == "disarmed" else ()  # after which it is disarmed no more
    kinds = [kind for kind in WIRE if kind not in gone]
    for kind in kinds:
        if kind == "telemetry":
            continue
        right = ACCESS[kind]
        for role in Role:
            for owns in (False, True):
                bench.begin(state)
                session = bench.owner.session
                if owns:
                    bench.set_owner(role)
                client = bench.owner if owns else bench.others[role]
                expected = role not in right.roles or (right.owner is Owner.HOLDER and not owns)
                assert is_refused(kind, client, session) is expected, (kind, role, owns, state)


def test_who_may_listen_is_in_the_table(bench: Bench) -> None:
    authenticator: Any = bench.server._authenticator
    admitted, _ = authenticator.admitted(TELEMETRY)
    entries = {entry.key: entry.role for entry in authenticator._allowed}
    assert {entries[key] for key in admitted} == ACCESS["telemetry"].roles
    assert set(entries.values()) == set(Role)
