"""The verb as a process, and the companion of ``serve``."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from plugins.ros2.tests.router import router  # noqa: F401 - a fixture
from plugins.ros2node.tests.conftest import Node
from rlenv_robot.cli.main import main
from rlenv_robot.cli.serve import companions
from rlenv_robot.config.profile import Profile
from rlenv_ros2node.companion import Ros2Companion
from tests.fakes import until


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command until the end of the block; it ends by SIGINT."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "rlenv_robot", *words]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGINT)
        try:
            started.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.communicate()
            raise


@pytest.mark.process
@pytest.mark.slow
def test_serve_brings_the_node_along(router: str) -> None:  # noqa: F811
    with process("serve", "--address", "tcp://127.0.0.1:*", "--ros2", router), closing(Node(router=router)) as node:
        node.listen("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray")
        until(lambda: "/diagnostics" in node.newest, 60.0)
        assert node.call("/rlenv_robot/stop").success
        until(lambda: int(node.newest["/diagnostics"].status[0].level) == 2)
        assert not node.call("/rlenv_robot/reset").success


def test_serve_has_the_option() -> None:
    assert any(isinstance(companion, Ros2Companion) for companion in companions())
    parser = argparse.ArgumentParser()
    Ros2Companion().add(parser)

    def words(*given: str) -> list[tuple[str, list[str]]]:
        return list(Ros2Companion().commands(parser.parse_args(given), Profile()))

    assert words() == []
    assert words("--ros2") == [("robot ros2", [])]
    assert words("--ros2", "tcp/127.0.0.1:9") == [("robot ros2", ["--router", "tcp/127.0.0.1:9"])]


def test_no_server_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robot", "ros2", "tcp://127.0.0.1:9"]) == 2
    assert "127.0.0.1:9" in capsys.readouterr().err


def test_a_number_without_a_reason_clears_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robot", "ros2", "--stop-number", "3"]) == 2
    assert "--clear-stop" in capsys.readouterr().err
