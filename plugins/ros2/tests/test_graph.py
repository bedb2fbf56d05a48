"""An examination of a network finds a missing router, another domain, other hashes and unknown types."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack, closing

import pytest

from plugins.ros2.tests.router import free_port
from rlenv_ros2.graph import Endpoint, endpoints_of, examine_network, examine_router, findings_of
from rlenv_ros2.messages import MessageTypes
from rlenv_ros2.zenoh_transport import ZenohTransport, open_session
from tests.fakes import until

STRING = "std_msgs/msg/String"


def test_no_router_is_said_with_the_command_that_starts_one() -> None:
    pytest.importorskip("zenoh", reason="needs eclipse-zenoh: pip install 'rlenv-robot[ros2]'")
    (finding,) = examine_router(f"tcp/127.0.0.1:{free_port()}", timeout_s=0.3)
    assert finding.ok is None
    assert "rmw_zenohd" in finding.advice


def test_the_examination_of_doctor_needs_no_router() -> None:
    assert all(finding.ok is not False for finding in examine_network())


def test_nodes_topics_and_services_of_all_domains_are_seen(router: str) -> None:
    with ExitStack() as ends:
        here = ends.enter_context(closing(ZenohTransport("left_arm", "/lab", router=router)))
        there = ends.enter_context(closing(ZenohTransport("far", domain=5, router=router)))
        here.advertise("/lab/chatter", STRING)
        here.serve("/lab/left_arm/stop", lambda: (True, ""))
        there.subscribe("/chatter", STRING, lambda message, source: None)
        session = open_session(router)
        ends.callback(session.close)
        found = endpoints_of(session)
        assert Endpoint(0, "NN", "/lab/left_arm") in found
        assert Endpoint(5, "NN", "/far") in found
        assert ("MP", "/lab/left_arm", "/lab/chatter", STRING) in [endpoint[1:5] for endpoint in found]
        assert ("SS", "/lab/left_arm", "/lab/left_arm/stop", "std_srvs/srv/Trigger") in [e[1:5] for e in found]
        findings = {finding.subject: finding for finding in examine_router(router)}
    assert findings["ROS 2 domain 5"].ok is None
    assert "--domain" in findings["ROS 2 domain 5"].advice
    assert findings["ROS 2 domain 0"].ok is True
    assert "/lab/chatter" in findings["ROS 2 topics and services"].state
    assert not [finding for finding in findings.values() if finding.ok is False]


def test_another_distribution_is_said_to_drop_messages(router: str) -> None:
    with closing(ZenohTransport("old", router=router, distribution="humble")) as old:
        old.advertise("/chatter", STRING)
        (wrong,) = (finding for finding in examine_router(router) if finding.ok is False)
        assert wrong.subject == "ROS 2 /chatter"
        assert "dropped silently" in wrong.advice
        assert "--distribution humble" in wrong.advice
        assert all(finding.ok is not False for finding in examine_router(router, distribution="humble"))


def test_messages_of_another_distribution_do_not_come(router: str) -> None:
    """ROS 2 reports a dropped message to neither side, so the examination has to report it."""
    came: list[str] = []
    with (
        closing(ZenohTransport("old", router=router, distribution="humble")) as old,
        closing(ZenohTransport("new", router=router)) as new,
        closing(ZenohTransport("old_too", router=router, distribution="humble")) as twin,
    ):
        new.subscribe("/chatter", STRING, lambda message, source: came.append("new"))
        twin.subscribe("/chatter", STRING, lambda message, source: came.append(message.data))
        publish = old.advertise("/chatter", STRING)

        def arrived() -> bool:
            publish(old.types.make(STRING, data="old"))
            return "old" in came

        until(arrived)
        time.sleep(0.3)
    assert set(came) == {"old"}


def test_another_definition_and_an_unknown_type() -> None:
    types = MessageTypes()
    strange = Endpoint(0, "MP", "/n", "/a", STRING, "RIHS01_" + "0" * 64)
    unknown = Endpoint(0, "MP", "/n", "/b", "my_msgs/msg/Thing", "RIHS01_" + "0" * 64)
    findings = {finding.subject: finding for finding in findings_of([strange, unknown], 0, types)}
    assert findings["ROS 2 /a"].ok is False
    assert "another definition" in findings["ROS 2 /a"].state
    assert findings["ROS 2 /b"].ok is None
    assert "my_msgs/msg/Thing" in findings["ROS 2 /b"].state


@pytest.mark.parametrize(
    "key", ["", "@ros2_lv/x/1/0/0/NN/%/%/a", "@ros2_lv/0/1", "0/chatter/a/b", "@ros2_lv/0/1/0/0/NN/%/%"]
)
def test_other_keys_are_no_tokens(key: str) -> None:
    assert Endpoint.from_token(key) is None


@pytest.mark.process
def test_the_verb_lists_and_fails_for_a_mismatch(router: str) -> None:
    def listed(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rlenv_robot", "robot", "topics", router, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    with closing(ZenohTransport("old", router=router, distribution="humble")) as old:
        old.advertise("/chatter", STRING)
        done = listed()
        assert (done.returncode, done.stderr) == (1, "")
        assert "WRONG" in done.stdout
        done = listed("--distribution", "humble")
        assert done.returncode == 0, done.stdout


def test_a_router_elsewhere_needs_trust() -> None:
    with pytest.raises(ValueError, match="trust"):
        ZenohTransport("a", router="tcp/192.0.2.7:7447")
