"""The command line: exit codes, one line for what a user can do wrong, no traceback."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from hal import RobotStopped
from plugins.kit.tests import subjects_that_end
from rlenv_robot.cli import main as cli
from rlenv_robot.cli.output import print_table
from rlenv_robot.cli.verbs import Group, Verb, VerbAction, plugin_verbs
from rlenv_robot.training.trainers import offline_trainer, trainer


def _all_verbs() -> dict[str, Verb]:
    """Return every verb by its words; those that are known by one word alone too are in `cli.FORMER_VERBS`."""
    verbs: dict[str, Verb] = {}
    for word, entry in cli.VERBS.items():
        if isinstance(entry, Group):
            verbs |= {f"{word} {name}": verb for name, verb in entry.verbs.items()}
        else:
            verbs[word] = entry
    verbs |= {f"data {name}": verb for name, verb in plugin_verbs("rlenv_robot.data_verbs").items()}
    return verbs | {f"{verb.group} {name}".strip(): verb for name, verb in plugin_verbs().items()}


VERBS = _all_verbs()
FIRST_WORDS = sorted({words.split()[0] for words in VERBS})
VERB_MODULES = [verb for words, verb in VERBS.items() if words != "dev completion"]
Captured = pytest.CaptureFixture[str]


def _run(*arguments: str) -> int:
    """Return the exit code of the command, whether it returns or exits."""
    try:
        return cli.main(arguments)
    except SystemExit as over:
        return int(over.code or 0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with rlenv_robot.make("so101-reach", record=folder, info={"source": "random"}, steps=6) as env:
        rng = np.random.default_rng(0)
        for seed in range(22):
            obs = env.reset({"seed": seed})
            while not (obs["terminated"] or obs["truncated"]):
                near = obs["extra_info"]["applied"]["joint_target"] + rng.uniform(-0.05, 0.05, 6).astype(np.float32)
                action = {"joint_target": near.clip(*env.action["joint_target"].bounds)}
                obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
    return folder


# -- the command itself ----------------------------------------------------------------------------------------


def test_help_names_every_verb(capsys: Captured) -> None:
    assert _run("--help") == 0
    told = capsys.readouterr().out
    listed = told.partition("VERB\n")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^      ([\w-]+) ", listed, re.MULTILINE)) == FIRST_WORDS
    headings = re.findall(r"^    (\w.*):$", listed, re.MULTILINE)
    assert headings[0] == "train and run policies"
    assert len(headings) == 5, "a reader scans them first"
    assert len(cli.VERBS) <= 12, "the core's own"
    assert len(FIRST_WORDS) <= 17, "with the plug-ins of this repository"


@pytest.mark.parametrize("group", [word for word in FIRST_WORDS if word not in VERBS])
def test_help_of_a_group_names_its_verbs(group: str, capsys: Captured) -> None:
    assert _run(group, "--help") == 0
    told = capsys.readouterr().out
    for words in VERBS:
        if words.startswith(f"{group} "):
            assert re.search(rf"^ +{words.split()[1]} ", told, re.MULTILINE)
    sections = re.split(r"^    [\w ,]+:$", told.partition("VERB\n")[2].partition("\n\n")[0], flags=re.MULTILINE)
    assert max(section.count("\n") for section in sections) <= 12, "none is too long to be scanned"


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["--help"], ["data", "--help"]])
def test_help_imports_no_verb(arguments: list[str]) -> None:
    """Nor NumPy, nor one of our packages: the lines come from a table."""
    code = """
import sys
from rlenv_robot.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    loaded = set(done.stderr.split())
    assert "rlenv_robot.cli.verbs" in loaded
    assert loaded.isdisjoint(
        {"numpy", "hal", "sim", "real", "recorder", *(verb.declaration.partition(":")[0] for verb in VERB_MODULES)}
    )


@pytest.mark.process
def test_no_verb_s_help_imports_more_than_its_arguments() -> None:
    """One process asks every verb for its help; all that they import together is the command line itself."""
    code = """
import sys
from rlenv_robot.cli.main import main
for words in sys.argv[1:]:
    before = set(sys.modules)
    try:
        main([*words.split(), "--help"])
    except SystemExit:
        print(words, *sorted(set(sys.modules) - before), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code, *VERBS], capture_output=True, text=True, timeout=60)
    heavy = {"numpy", "hal", "sim", "real", "recorder", "mujoco", "zmq", "pydantic", "mcap", "rich", "cv2"}
    light = (
        "rlenv_robot.cli", "rlenv_robot.config.import_check", "rlenv_robot.config.plugins",
        "rlenv_robot.config.section_options", "rlenv_robot.config.serve_section",
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert len(lines) == len(VERBS), done.stderr
    for line in lines:
        imported = set(line.split())
        ours = {name for name in imported if name.startswith("rlenv_robot.") and not name.startswith(light)}
        assert not imported & heavy, line
        assert ours <= {"rlenv_robot.config"}, line


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: Captured) -> None:
    assert _run(*verb.split(), "--help") == 0
    told = capsys.readouterr().out
    assert f"usage: rlenv-robot {verb}" in told
    assert f"\n  rlenv-robot {verb} {VERBS[verb].example}".rstrip() in told, "it has an example"


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parser and, depth first, that of each of its verbs and acts."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            names = action.verbs if isinstance(action, VerbAction) else list(action.choices)
            for name in names:
                inner = action.parser_of(name) if isinstance(action, VerbAction) else action.choices[name]
                yield from _parsers(inner)


def test_every_help_has_an_example_that_parses(capsys: Captured) -> None:
    parsers = {tuple(parser.prog.split()): parser for parser in _parsers(cli.command_parser())}
    lines: set[str] = set()
    for prog, parser in parsers.items():
        examples = [line for line in parser.format_help().splitlines() if line.startswith("  rlenv-robot ")]
        assert len(prog) == 1 or any(line.split()[: len(prog)] == list(prog) for line in examples), parser.prog
        lines |= set(examples)
    assert len(lines) > len(parsers) > 75, "groups and acts are among them"
    for line in lines:
        words = shlex.split(line.replace("; ", " && "), comments=True)
        words = list(itertools.takewhile(lambda word: word not in ("&&", ">"), words))
        verb = next(n for n in range(len(words), 0, -1) if tuple(words[:n]) in parsers)
        try:
            parsers[tuple(words[:verb])].parse_args(words[verb:])
        except SystemExit:
            pytest.fail(f"{line}: {capsys.readouterr().err}")


@pytest.mark.parametrize("verb", cli.FORMER_VERBS)
def test_a_verb_of_a_group_is_still_known_without_it(verb: str, capsys: Captured) -> None:
    (words,) = [words for words in VERBS if words.endswith(f" {verb}")]
    assert _run(verb, "--help") == 0
    assert f"usage: rlenv-robot {words} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("sevre",), "'sevre' is no verb, did you mean 'serve'? verbs are demo, "),
        (("telop",), "did you mean 'operate teleop'?"),
        (("excit",), "did you mean 'sim2real excite'?"),
        (("evaluate",), "did you mean 'run'?"),
        (("data", "list"), "did you mean 'data ls'?"),
        (("robot", "statsu"), "did you mean 'status'?"),
        (("so101-reach",), "'so101-reach' is no verb, it is an environment: 'rlenv-robot run so101-reach' runs it; "),
        (("so101-reech",), "'so101-reech' is no verb, did you mean 'rlenv-robot run so101-reach'? verbs are demo, "),
        (("dev", "nonsense"), "'nonsense' is no verb; verbs are profile, completion, "),
    ],
)
def test_a_mistyped_verb_is_told_the_nearest(words: tuple[str, ...], told: str, capsys: Captured) -> None:
    assert _run(*words) == 2
    assert told in capsys.readouterr().err


def test_a_robots_name_is_short_for_its_description(capsys: Captured) -> None:
    assert _run("robot", "so101") == 0
    described = capsys.readouterr().out
    assert described.startswith("so101, 30 Hz:")
    assert _run("robot", "show", "so101") == 0
    assert capsys.readouterr().out == described
    assert _run("robot") == 0
    assert "so101\n" in capsys.readouterr().out


def test_the_version(capsys: Captured) -> None:
    assert _run("--version") == 0
    assert capsys.readouterr().out == f"rlenv-robot {rlenv_robot.__version__}\n"


MISTAKES = {
    "run so101-reach --polcy random": "--polcy is no option, did you mean '--policy'?",
    "train so101-reach --methd ppo --out x.npz": "unrecognized arguments: --methd ppo; did you mean '--method'?",
    "run so101-reach --policy random --episodes three": "argument --episodes: invalid int value: 'three'",
    "train so101-reach": "the following arguments are required: --out",
    "train so101-reach --out x.npz --seed abc": "argument --seed: invalid int value: 'abc'",
    "run so101-reach --policy random --seed -1": "--seed is -1, it must be 0 or above",
    "retrain runs --out y.npz": "the following arguments are required: --policy",
    "retrain runs --policy p.npz --out y.npz --goal target_position=far": "'target_position=far' is not a goal",
    "serve so101.toml --host 300.1.1.1": "arguments: --host 300.1.1.1; rlenv-robot serve --help lists them",
    "serve so101.toml --rate -1": "unrecognized arguments: --rate -1; rlenv-robot serve --help lists them",
    "robot calibrate --port /dev/none": "the following arguments are required: file",
    "data show runs --episodes 3-1": "'3-1' is not a range of episodes; the smaller number comes first",
    "data show runs --units rad": "invalid choice: 'rad' (choose from",
    "data check runs --rate abc": "argument --rate: invalid float value: 'abc'",
    "data export runs out": "the following arguments are required: --to",
    "data label runs 0 --verdict great": "invalid choice: 'great' (choose from",
    "policy card nofile.npz": "the following arguments are required: --task, --command",
    "operate teleop --robot tcp://127.0.0.1:5777 --keys": "argument --keys: expected one argument",
}
"""Calls that once printed the usage of their verb, up to 22 lines, or a message that named no option."""


@pytest.mark.parametrize("call", MISTAKES)
def test_a_mistake_is_one_line(call: str, capsys: Captured) -> None:
    assert _run(*call.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert MISTAKES[call] in line


def test_a_stopped_robot_is_cleared_by_the_option_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def run(args: argparse.Namespace) -> int:
        raise RobotStopped("the cable smoked")

    monkeypatch.setattr("rlenv_robot.cli.run.run", run)
    words = ["run", "so101-reach", "--policy", "random"]
    assert _run(*words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert 'stopped: the cable smoked. Look at it, then add --clear-stop "WHAT YOU FOUND" to the command' in line
    assert _run(*words, "--clear-stop", "a cable was loose") == 2
    assert "add --clear-stop" not in capsys.readouterr().err


def test_a_trainer_without_its_library_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(self: EntryPoint) -> object:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(EntryPoint, "load", load)
    with pytest.raises(ValueError, match=re.escape("needs torch: pip install 'rlenv-robot[train]'")):
        trainer("ppo")
    with pytest.raises(ValueError, match=re.escape("needs torch: pip install 'rlenv-robot[train]'")):
        offline_trainer("iql")


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("protocol",), ("check", "go", "--steps", "many")])
def test_wrong_usage_is_2(arguments: tuple[str, ...], capsys: Captured) -> None:
    assert _run(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rlenv-robot")
    assert line.endswith("--help explains the arguments")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("protocol", "so101-reech"), "environment 'so101-reech' is unknown, did you mean 'so101-reach'? Known are"),
        (("protocol", "chess"), "environment 'chess' is unknown. Known are frozen-lake, go, go2-walk"),
        (("protocol", "go", "--out", "/no/such/folder/page.md"), "No such file or directory"),
        (("check", "go", "--steps", "1"), "--steps is 1, it must be at least 2"),
        (("check", "so101-reach", "--robot", "reel"), "robot 'reel' is unknown, allowed are 'sim', 'twin'"),
        (("check", "so101-reach", "--robot", "tcp://127.0.0.1:1", "--yes"), "127.0.0.1:1"),
        (("data", "/no/such/data"), "/no/such/data does not exist"),
        (("data", "replay", "/no/such/run", "--plot", "x.png"), "/no/such/run"),
        (("serve", "/no/such/profile.toml"), "there is no such file; launch/ holds profiles"),
    ],
)
def test_what_a_user_can_do_wrong_is_one_line(arguments: tuple[str, ...], told: str, capsys: Captured) -> None:
    assert _run(*arguments) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("rlenv-robot: ")
    assert told in line
    assert captured.out == ""


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("rlenv_robot.config.profile.load_profile", interrupted)
    assert _run("dev", "profile", "lab.toml") == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("rlenv_robot.config.profile.load_profile", bug)
    with pytest.raises(ZeroDivisionError):
        _run("dev", "profile", "lab.toml")


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="a pipe's reader that goes away is a signal elsewhere only")
@pytest.mark.parametrize("verb", [("protocol", "go"), ("--help",)])
def test_a_reader_that_goes_away_is_no_traceback(verb: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)  # as head does, once it has enough
    done = subprocess.run([sys.executable, "-m", "rlenv_robot", *verb], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert done.returncode in (0, 141, 120)


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send there")
def test_ctrl_c_in_a_real_process() -> None:
    code = "import rlenv_robot.cli.main as c, rlenv_robot.config.profile as d, time\n" \
           "def wait(*_):\n    print('ready', flush=True); time.sleep(60)\n" \
           "d.load_profile = wait\nraise SystemExit(c.main(['dev', 'profile', 'lab.toml']))"  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert (process.returncode, told) == (130, "interrupted\n")


# -- protocol, check -------------------------------------------------------------------------------------------


@pytest.mark.requirement("R4.1", "R4.2")
def test_protocol_prints_and_writes_the_page(tmp_path: Path, capsys: Captured) -> None:
    assert _run("protocol", "go") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# go\n")
    assert _run("protocol", "go", "--out", str(tmp_path / "go.md")) == 0
    assert (tmp_path / "go.md").read_text(encoding="utf-8") == printed
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.requirement("R4.3")
def test_check_tests_robot_and_environment(capsys: Captured) -> None:
    assert _run("check", "so101-reach") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines if ", 0 failed, " in line] == [
        "robot Guard",
        "environment so101-reach",
    ]
    assert _run("check", "go", "--verbose") == 0
    assert "every kind of illegal action is refused" in capsys.readouterr().out


def test_check_is_1_where_something_fails(capsys: Captured) -> None:
    assert _run("check", f"{subjects_that_end.__name__}:{subjects_that_end.IgnoresResetOptions.__name__}") == 1
    told = capsys.readouterr().out
    assert "FAILED" in told
    assert "6.2.2.1-3" in told
    assert "\nok " not in told


# -- data ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R3.6")
def test_data_describes_our_own_runs(recorded: Path, capsys: Captured) -> None:
    assert _run("data", str(recorded)) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{recorded}: 22 episodes, 132 steps\nreturns: lowest ")
    assert "\ntiming: 30 Hz, " in told
    assert "  0        6      " in told
    assert "time" in told
    assert "random" in told
    assert "  ... 2 more, --all lists them\n" in told
    assert "observation.joint_position    shoulder_pan   rad    " in told
    assert "target_position   x              m      " in told
    assert _run("data", str(recorded), "--all") == 0
    assert "more, --all" not in capsys.readouterr().out


def test_data_computes_rewards_for_a_task(recorded: Path, capsys: Captured) -> None:
    assert _run("data", str(recorded), "--task", "so101-reach", "--goal", "hindsight") == 0
    assert "recomputed for so101-reach with goal 'hindsight'" in capsys.readouterr().out
    assert _run("data", str(recorded), "--task", "so101-reech") == 2
    assert "did you mean 'so101-reach'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["so101-pick-place", "g1-pick-bottle"])
def test_data_describes_lerobots_data_sets(shared_data: Path, name: str, capsys: Captured) -> None:
    pytest.importorskip("pyarrow")
    assert _run("data", str(shared_data / name)) == 0
    told = capsys.readouterr().out
    assert "returns: unknown, some rewards are missing" in told
    assert "timing: 30 Hz" in told
    assert "note: no rewards were recorded" in told


# -- replay, tables ------------------------------------------------------------------------------------


@pytest.mark.requirement("R1.5")
def test_replay_hands_on_what_it_is_told(recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("rlenv_robot.rendering.show.render_history", lambda *a, **k: calls.append((a, k)))
    assert (
        _run("data", "replay", str(recorded), "--episode", "3", "--plot", "p.png", "--video", "v.mp4", "--step", "2")
        == 0
    )
    options = {
        "video": "v.mp4",
        "plot": "p.png",
        "montage": False,
        "step": 2,
        "frames": None,
        "fine": None,
        "world": None,
        "panel": True,
        "sgf": None,
    }
    assert calls == [((str(recorded), 3), options)]
    assert capsys.readouterr().out == "p.png\nv.mp4\n"


@pytest.mark.requirement("R1.5")
def test_replay_plots_a_recorded_episode(recorded: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert _run("data", "replay", str(recorded), "--plot", str(tmp_path / "p.png")) == 0
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


def test_a_table_on_a_terminal_is_drawn_and_takes_brackets_for_what_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    pytest.importorskip("rich")
    rows = [("[red]a", "1"), ("b", "2")]
    print_table("Plain", ("name", "value"), rows)
    plain = capsys.readouterr().out
    assert plain == "Plain:\n  name    value\n  [red]a  1\n  b       2\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    print_table("Drawn", ("name", "value"), rows)
    drawn = capsys.readouterr().out
    assert "[red]a" in drawn
    assert drawn != plain
