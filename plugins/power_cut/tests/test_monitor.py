"""A server that proves to a power cut that its control loop lives, and stops when the supply was cut."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from hal import ProfileError
from real import RemoteRobot
from rlenv_power_cut.control_socket import ask, held_ports
from rlenv_power_cut.examination import examine_power_cuts
from rlenv_power_cut.link import PowerCutError, PowerCutLink
from rlenv_power_cut.monitor import Monitor, PowerCutExtension
from rlenv_robot.cli.main import main
from rlenv_robot.config.profile import load_profile
from rlenv_robot.serving.extension import load_extensions
from tests.fakes import until

CUT_MS = 700
"""Long, since this machine's pseudo-terminals pause for tens of milliseconds while it is busy."""


def _extension(board, **settings) -> PowerCutExtension:
    return PowerCutExtension(board.port, **{"cut_ms": CUT_MS, "loop_ms": 400} | settings)


def _ignore(_: str) -> None:
    pass


def test_heartbeats_alone_switch_nothing_on(board, server) -> None:
    with _extension(board).attach(server, _ignore) as monitor:
        until(lambda: monitor.status.age_ms < CUT_MS)
        time.sleep(0.5)
        assert not board.is_on
        assert not monitor.status.is_on


def test_a_living_loop_keeps_the_supply_and_a_hung_one_loses_it(board, robot, server) -> None:
    with _extension(board).attach(server, _ignore) as monitor:
        with closing(RemoteRobot(server.address)) as client:  # a client that goes ends its episode
            client.reset({})
            monitor.switch_on(0)
            assert board.is_on
            time.sleep(2 * CUT_MS / 1e3)
            assert board.is_on, "a healthy loop lost its supply"
            robot.hangs = True
            hung_s = time.monotonic()
            until(lambda: not board.is_on, 5.0)
            assert time.monotonic() - hung_s < (CUT_MS + 400 + 300) / 1e3
            until(lambda: server.stopped is not None, 3.0)
        assert "cut the supply: the heartbeat stayed away" in str(server.stopped)
        assert "no period" in str(server.stopped) or "not returned" in str(server.stopped)


def test_a_cut_by_the_button_stops_the_robot_by_name(board, server) -> None:
    with _extension(board).attach(server, _ignore) as monitor:
        monitor.switch_on(0)
        board.board.stop_pressed = True
        until(lambda: server.stopped is not None, 3.0)
        assert "its button was pressed; cut 1" in str(server.stopped)
        assert f"rlenv-robot robot power-cut on {board.port} --cut 1" in str(server.stopped)
        with pytest.raises(PowerCutError, match="the stop button is pressed"):
            monitor.switch_on(1)
        board.board.stop_pressed = False
        with pytest.raises(PowerCutError, match="another cut"):
            monitor.switch_on(0)
        monitor.switch_on(1)
        assert board.is_on


def test_a_command_that_failed_is_not_carried_out_later(board, server) -> None:
    link = PowerCutLink(board.port)
    link.first_status()
    link.set(CUT_MS, False)
    monitor = Monitor(link, server, _extension(board))
    with pytest.raises(PowerCutError, match="nothing will be later"):
        monitor.switch_on(0)  # nobody runs the monitor yet
    monitor.start()
    time.sleep(3 * CUT_MS / 1e3)
    assert not board.is_on
    monitor.switch_on(0)
    assert board.is_on
    monitor.close()


def test_a_lost_port_stops_the_robot_and_comes_back_off(board, server) -> None:
    with _extension(board).attach(server, _ignore) as monitor:
        monitor.switch_on(0)
        board.orders.append("unplug")
        until(lambda: server.stopped is not None and not board.is_on, 5.0)
        assert "the power cut is lost" in str(server.stopped)
        board.orders.append("plug")
        until(lambda: not str(monitor.answer({"verb": "status"})["state"]).startswith("lost"), 5.0)
        assert not monitor.status.is_on
        monitor.switch_on(monitor.status.cuts)
        assert board.is_on


def test_the_end_of_the_server_cuts_at_once(board, server) -> None:
    with _extension(board, cut_ms=2000).attach(server, _ignore) as monitor:
        monitor.switch_on(0)
        began_s = time.monotonic()
    until(lambda: not board.is_on, 1.5)
    assert time.monotonic() - began_s < 1.5
    assert board.board.firmware.cause == 4  # the host


def test_a_stop_keeps_the_supply_unless_it_shall_cut(board, server) -> None:
    with _extension(board).attach(server, _ignore) as monitor:
        monitor.switch_on(0)
        server.stop("a hand is in the way")
        time.sleep(CUT_MS / 1e3)
        assert board.is_on, "the arm would have fallen at a stop"


def test_a_stop_cuts_where_it_shall(board, server) -> None:
    with _extension(board, cut_at_stop=True).attach(server, _ignore) as monitor:
        monitor.switch_on(0)
        server.stop("a hand is in the way")
        until(lambda: not board.is_on, 0.6)
        monitor.switch_on(monitor.status.cuts)  # the stop is old: it does not cut again
        time.sleep(0.3)
        assert board.is_on


def test_people_switch_it_by_a_command(board, server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robot", "power-cut", "on", board.port, "--cut", "0"]) == 2
    assert "no server holds" in capsys.readouterr().err
    with _extension(board).attach(server, _ignore):
        assert [Path(port) for port in held_ports()].count(Path(board.port).resolve()) == 1
        until(lambda: ask(board.port, {"verb": "status"})["silent"] is None)
        time.sleep(0.8)
        assert main(["robot", "power-cut", "on", board.port, "--cut", "7"]) == 2
        assert "another cut" in capsys.readouterr().err
        assert main(["robot", "power-cut", "on", board.port, "--cut", "0"]) == 0
        assert main(["robot", "power-cut", "status", board.port]) == 0
        assert "held by a server" in capsys.readouterr().out
        assert board.is_on
        assert main(["robot", "power-cut", "off", board.port]) == 0
        until(lambda: not board.is_on, 0.5)
        for wrong in ({}, {"verb": "on"}, {"verb": "on", "cut": True}, {"verb": "explode"}):
            with pytest.raises(PowerCutError):
                ask(board.port, wrong)
    assert main(["robot", "power-cut", "status", board.port]) == 0
    assert "the host switched it off (cut 1" in capsys.readouterr().out
    assert main(["robot", "power-cut", "off", board.port]) == 0


def test_doctor_names_each_trouble(board, server, tmp_path: Path) -> None:
    def findings() -> list[tuple[str, bool | None, str, str]]:
        found = [tuple(finding) for finding in examine_power_cuts(folder=tmp_path / "by-id")]
        return [
            one for one in found if one[2] == "none" or str(Path(board.port).resolve()) in one[2] or "by-id" in one[2]
        ]

    folder = tmp_path / "by-id"
    folder.mkdir()
    if not held_ports():
        assert findings()[0][2] == "none"
    (folder / "usb-MicroPython_Board").symlink_to(Path(board.port).resolve())
    ((_, ok, state, advice),) = findings()
    assert ok is None
    assert "off: the board was switched on" in state
    assert "no server holds it" in advice
    with _extension(board).attach(server, _ignore) as monitor:
        ((_, ok, state, advice),) = findings()
        assert ok is None
        assert "rlenv-robot robot power-cut on" in advice
        assert f"longer than the server's watchdog of {server.settings.watchdog_s * 1e3:g} ms" in advice
        monitor.switch_on(0)
        assert "on, newest heartbeat" in findings()[0][2]
    board.board.write = lambda data: True  # a board that says nothing
    ((_, ok, state, _),) = findings()
    assert "without this firmware" in state


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('port = "/dev/x"\ncut_ms = 10', "20 to 2000"),
        ('port = "/dev/x"\nloop_ms = 1', "150 to 10000"),
        ('port = "/dev/x"\nconfirm = 1', "true and false"),
        ("cut_ms = 100", "port"),
        ('port = "/dev/x"\ncut_sm = 100', "cut_ms"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_key(tmp_path: Path, line: str, fault: str) -> None:
    (tmp_path / "profile.toml").write_text(f"[extensions.power-cut]\n{line}\n")
    with pytest.raises(ProfileError, match=fault) as error:
        load_extensions(load_profile(tmp_path / "profile.toml"))
    assert error.value.key == "extensions.power-cut"


def test_an_unknown_extension_is_refused(tmp_path: Path) -> None:
    (tmp_path / "profile.toml").write_text("[extensions.power-cat]\n")
    with pytest.raises(ProfileError, match="power-cut"):
        load_extensions(load_profile(tmp_path / "profile.toml"))


def test_a_server_with_an_absent_board_does_not_serve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text(
        '[robot]\nwhere = "twin"\n[serve]\naddress = "tcp://127.0.0.1:*"\n'
        '[extensions.power-cut]\nport = "/dev/absent"\n'
    )
    assert main(["serve", str(profile)]) == 2
    assert "/dev/absent: no such device" in capsys.readouterr().err
