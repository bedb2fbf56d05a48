"""The console does what the table of rights says: each message by each role in each phase, and sequences of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from real import Server
from real.protocol.access import ACCESS, Door, Owner, Phase, may, refusal
from real.protocol.keys import Role, allow, revoke
from rlenv_operate.console.access import new_token
from rlenv_operate.console.mover import MoverSettings
from tests.fakes import Integrator, until

server = pytest.importorskip("rlenv_operate.console.server", reason="the extra 'console' is not installed")
client = pytest.importorskip("websockets.sync.client", reason="the extra 'console' is not installed")

CONSOLE = sorted(kind for kind, right in ACCESS.items() if right.door is Door.CONSOLE)
ACTS = {
    "arm": {"act": "arm"}, "arm with take": {"act": "arm", "take": True}, "hold": {"act": "hold"},
    "hold with take": {"act": "hold", "take": True}, "verdict": {"act": "success"}, "stop": {"act": "stop"},
    "reset_done": {"act": "reset_done"}, "reset_refused": {"act": "reset_refused"},
}  # fmt: skip


class Person:
    """A token on the console's list, and its page."""

    def __init__(self, name: str, role: Role, folder: Path, console: Any) -> None:
        self.name, self.role, self._folder = name, role, folder
        token = new_token(folder, name, role)
        lines = [line.split() for line in (folder / "allowed.keys").read_text().splitlines()]
        self.digest = next(line[0] for line in lines if line[2] == name)
        base = f"127.0.0.1:{console.port}"
        self._open = lambda: client.connect(f"ws://{base}/ws", origin=f"http://{base}")
        self._token = token
        self.web: Any = None
        self.come()

    def come(self) -> None:
        """Open the page, unless it is open."""
        if self.web is None:
            self.web = self._open().__enter__()
            self._taken = 0
            self.web.send(json.dumps({"t": "login", "token": self._token}))
            self.next("welcome")

    def go(self) -> None:
        if self.web is not None:
            self.web.__exit__(None, None, None)
            self.web = None

    def set_role(self, role: Role | None) -> None:
        """Change the role on the list; None takes the token off it."""
        if role is None:
            revoke(self._folder, self.digest)
            self.go()
        else:
            allow(self._folder, self.digest, role, self.name)
        self.role = role

    def send(self, **message: Any) -> None:
        self.web.send(json.dumps(message))

    def next(self, kind: str, timeout_s: float = 20.0) -> dict[str, Any]:
        end = time.monotonic() + timeout_s
        while True:
            message = json.loads(self.web.recv(timeout=max(0.0, end - time.monotonic())))
            if message["t"] == "state":
                self._taken += 1
                self.send(t="seen", n=self._taken)
            if message["t"] == kind:
                return dict(message)

    def act(self, kind: str, **values: Any) -> dict[str, Any]:
        self.send(t="act", id=1, **ACTS[kind], **values)
        return self.next("outcome")

    def drive(self) -> None:
        """Ask for motion, and wait until the console has taken this up, whatever it made of it."""
        self.send(t="drive", engaged=True, axes=[1.0, 0.0])
        self.send(t="replay", slot=1)  # without a folder of runs; a role that may not replay is not answered
        if self.role is not None and may(self.role, "replay"):
            self.next("replay")
        else:
            self.act("reset_done")


class Bench:
    """A served robot and its console, and people of it."""

    def __init__(self, served: Server, folder: Path, *roles: Role) -> None:
        self.served, self.folder = served, folder
        new_token(folder / "tokens", "nobody", Role.STOP)
        settings = server.ConsoleSettings(
            address=served.address, port=0, tokens=folder / "tokens", mover=MoverSettings(velocity=1.0)
        )
        self.console = server.ConsoleServer(settings).start()
        self.people = [Person(f"p{n}-{role}", role, folder / "tokens", self.console) for n, role in enumerate(roles)]

    @property
    def mover(self) -> Any:
        return self.console._mover

    def phase(self) -> Phase:
        return Phase(self.mover.state()["phase"])

    def arm(self, person: Person) -> None:
        """Arm, also a stopped robot, in whoever's place."""
        until(lambda: self.console._feed.look.snapshot is not None)
        number = self.served.about()["stop_number"]
        outcome = person.act("arm with take", text="looked", stop_number=number)
        assert outcome["ok"], outcome

    def bring_to(self, phase: Phase, owner: Person) -> None:
        """Bring the console's episode into a phase, with this owner, who has the role `operate` then."""
        if owner.role is None or not may(owner.role, "drive"):  # which has ended its episode, or is about to
            until(lambda: self.phase() is Phase.IDLE)
        if owner.role is not Role.OPERATE:
            owner.set_role(Role.OPERATE)
        until(lambda: self.phase() is Phase.IDLE or self.mover._ending is None)  # what ends has ended
        if self.phase() is not phase or not (phase is Phase.IDLE or self.mover.owner.digest == owner.digest):
            if phase is Phase.IDLE:
                owner.act("hold with take")
            else:
                self.arm(owner)
            if phase in (Phase.MOVING, Phase.JUDGING):
                owner.drive()  # the console takes it up before it answers
                until(lambda: self.phase() is Phase.MOVING)
                until(lambda: self.served.lifecycle.state == "running")
            if phase is Phase.JUDGING:
                assert owner.act("stop")["ok"]
            until(lambda: self.phase() is phase)

    def close(self) -> None:
        for person in self.people:
            person.go()
        self.console.close()


@pytest.fixture
def bench(served: Server, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(served, tmp_path, Role.OPERATE, *Role)
    yield bench
    bench.close()


def is_refused(person: Person, kind: str, bench: Bench) -> bool:
    """Send a message, and return whether the console refused it for the sender's rights."""
    if kind == "drive":
        bench.mover._drive = None
        before = list(bench.console._pages)
        person.drive()
        return bench.mover._drive is None and bool(before)
    if kind == "watch":
        person.act("reset_done")  # what comes after its answer is by the present role
        return "sensors" not in person.next("state")
    if kind == "see":
        person.send(t="see", cameras=["front"])
        person.act("reset_done")
        pages = [page for page in bench.console._pages if page.visitor.name == person.name]
        seen = any("front" in page.cameras for page in pages)
        person.send(t="see", cameras=[])
        return not seen
    if kind == "replay":
        person.send(t="replay", slot=0)
        try:
            person.next("replay", 0.5 if person.role is Role.STOP else 20)
        except TimeoutError:
            return True
        return False
    if kind == "compare":
        person.send(t="compare")
        return "does not allow" in person.next("compare")["problem"]
    if kind == "job":
        person.send(t="job", id=1, do="end", step="train")
        outcome = person.next("outcome")
    else:
        outcome = person.act(kind)
    words = ("does not allow", "may not", "lost its rights")
    return not outcome["ok"] and any(word in outcome["text"] for word in words)


@pytest.mark.slow
@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.ARMED, Phase.MOVING, Phase.JUDGING])
def test_the_console_does_what_the_table_says_in_each_phase(bench: Bench, phase: Phase) -> None:
    owner, *others = bench.people
    kinds = [kind for kind in CONSOLE if kind != "verdict for the robot"]  # its question is asked by no robot here
    for kind in kinds:
        for role in Role:
            for owns in (False, True):
                bench.bring_to(phase, owner)
                holder = "" if phase is Phase.IDLE else owner.name
                if owns and owner.role is not role:
                    owner.set_role(role)
                sender = owner if owns else next(one for one in others if one.role is role)
                expected = refusal(kind, role, holder, owns=owns and bool(holder), phase=phase)
                refused = is_refused(sender, kind, bench)
                assert refused is (expected is not None), (kind, role, owns, phase, expected)


class Operators(RuleBasedStateMachine):
    """People arm, drive, take, hold, judge, stop, come and go, while roles are changed under them."""

    bench: Bench
    robot: Integrator

    def __init__(self) -> None:
        super().__init__()
        for person in self.bench.people:
            person.set_role(Role.OPERATE)
            person.come()
        self.bench.people[0].act("hold with take")
        until(lambda: self.bench.phase() is Phase.IDLE)

    people = st.integers(0, 2)

    def _settled(self) -> tuple[Phase, Any]:
        """Return phase and owner once a change of rights had its effect."""
        mover = self.bench.mover

        def is_settled() -> bool:
            owner = mover.owner
            entry = None if owner is None else mover._rights(owner)
            return owner is None or (entry is not None and may(entry.role, "drive") and mover._ending is None)

        until(is_settled, 20)
        return self.bench.phase(), mover.owner

    def _refusal(self, kind: str, person: Person) -> str | None:
        phase, owner = self._settled()
        assert person.role is not None
        owns = owner is not None and owner.digest == person.digest
        return refusal(kind, person.role, "" if owner is None else owner.name, owns=owns, phase=phase)

    @rule(at=people, kind=st.sampled_from(["arm", "arm with take", "hold", "hold with take", "verdict"]))
    def act(self, at: int, kind: str) -> None:
        person = self.bench.people[at]
        if person.web is None:
            return
        expected = self._refusal(kind, person)
        number = self.bench.served.about()["stop_number"]
        outcome = person.act(kind, text="looked", stop_number=number)
        if expected is not None:
            assert not outcome["ok"]
        else:
            assert "may not" not in outcome["text"], outcome
            assert "does not allow" not in outcome["text"], outcome

    @rule(at=people)
    def drive(self, at: int) -> None:
        person = self.bench.people[at]
        if person.web is None:
            return
        expected = self._refusal("drive", person)
        time.sleep(0.3)  # until what was driven before is too old to move the robot
        before, count = self.robot.commands[-1:], len(self.robot.commands)
        for _ in range(5):
            person.drive()
        if expected is None:
            until(lambda: self.robot.commands[-1:] != before or self.robot.commands[-1][0] >= 1.0)
        else:
            assert all(command == before[0] for command in self.robot.commands[count:] if before), expected

    @rule(at=people, role=st.sampled_from([*Role, None]))
    def change(self, at: int, role: Role | None) -> None:
        person = self.bench.people[at]
        self._settled()
        before = self.bench.mover.owner
        person.set_role(role)
        if role is None or not may(role, "drive"):
            if before is not None and before.digest == person.digest:
                until(lambda: self.bench.mover.owner is None or self.bench.mover.owner.digest != person.digest)
                until(lambda: self.bench.served.lifecycle.state != "running")
        elif person.web is None:
            person.come()

    @rule(at=people)
    @precondition(lambda self: any(person.web is not None for person in self.bench.people))
    def stop(self, at: int) -> None:
        person = self.bench.people[at]
        if person.web is not None:
            assert person.act("stop")["ok"], "whatever the role"
            assert self.bench.served.lifecycle.state == "stopped"

    @invariant()
    def nobody_without_the_right_owns_the_robot(self) -> None:
        self._settled()


@pytest.mark.slow
def test_in_any_sequence_the_robot_moves_for_its_owner_alone(served: Server, robot: Integrator, tmp_path: Path) -> None:
    bench = Bench(served, tmp_path, Role.OPERATE, Role.OPERATE, Role.OPERATE)
    machine = type("Machine", (Operators,), {"bench": bench, "robot": robot})
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=6, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
    finally:
        bench.close()


def test_the_table_s_owners_are_those_of_the_console() -> None:
    own = {kind for kind in CONSOLE if ACCESS[kind].owner is not Owner.ANYBODY}
    assert own == {"arm", "drive", "hold", "verdict"}
