"""No verb imports a module that a data set, a log, a policy's file or a robot's server names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from plugins.sim2real.tests.cli.test_sim_to_real import recorded
from recorder.formats.registry import writable_format
from recorder.log.writer import LogWriter
from recorder.read.reader import LogReader
from recorder.table.load import load_runs
from rlenv_robot.policies.feedback import FeedbackPolicy, load_arrays, save_arrays
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.training.learner import flat_for

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
HOSTILE = "notes:arm"
CANARY = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\ndef arm(*_, **__): raise SystemExit('ran')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the module that data will name, in which every program here runs."""
    (tmp_path / "notes.py").write_text(CANARY)
    return tmp_path


def run_in(folder: Path, program: str, *arguments: str) -> str:
    """Run Python with the folder on its path, as ``python -m rlenv_robot`` in it has; return what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (folder / "ran").exists(), done.stdout + done.stderr
    return done.stdout


def hostile_log(run: Path, copy: Path) -> Path:
    """Write the frames of a run into a log that names code as the robot and the task of its episodes."""
    reader = LogReader(run)
    frames = reader.frames()
    with LogWriter(copy, reader.layout) as log:
        for episode in reader.episodes():
            log.begin({**episode.begin, "robot": HOSTILE, "task": HOSTILE})
            for row in frames[frames["episode"] == episode.number]:
                log.frame(row)
            log.end({**(episode.end or {}), "robot": HOSTILE, "task": HOSTILE})
    return copy


VERBS = """
    import sys
    from rlenv_robot.cli.main import main

    for line in sys.argv[1:]:
        try:
            code = main(line.split())
        except SystemExit as error:
            code = error.code
        print(f"{line}: {code}", flush=True)
    assert "notes" not in sys.modules
"""


def test_the_canary_sings_for_a_person(folder: Path) -> None:
    """The same module by a person's argument is imported: the other tests could see it."""
    with pytest.raises(AssertionError, match="ran"):
        run_in(folder, VERBS, f"robot {HOSTILE}")
    assert (folder / "ran").exists()


@pytest.mark.slow
def test_no_verb_imports_what_a_set_or_a_log_names(folder: Path) -> None:
    pytest.importorskip("pyarrow")
    run = recorded(folder / "runs")
    log = hostile_log(run, folder / "logs" / run.name)
    _, write = writable_format("lerobot")
    write(load_runs(folder / "logs"), folder / "set")
    about = folder / "set" / "meta" / "info.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "robot_type": HOSTILE}))
    verbs = [
        "sim2real gap {}", "sim2real gap {} --model twin", "sim2real identify {}", "sim2real offsets {}",
        "sim2real regress {} --out test_it.py", "data show {}", "data check {}",
        "data export {} out-{} --to parquet", "data replay {} --video it.mp4", "data replay {}",
    ]  # fmt: skip
    lines = [verb.format(*[name] * verb.count("{}")) for verb in verbs for name in ("set", f"logs/{log.name}")]
    text = run_in(
        folder, VERBS, *(line.replace("out-logs/", "out-") for line in lines), f"sim2real gap runs/{run.name}"
    )
    codes = dict(line.rsplit(": ", 1) for line in text.splitlines() if line.rsplit(": ", 1)[0] in lines)
    for name in ("set", f"logs/{log.name}"):
        assert [codes[f"sim2real {verb} {name}"] for verb in ("gap", "identify")] == ["2", "2"], text
        assert codes[f"data show {name}"] == "0", text


def test_no_verb_imports_the_format_that_a_selection_or_a_set_names(folder: Path) -> None:
    """The module of a format counts on the command line alone: `--format notes:arm` is refused by what it holds."""
    pytest.importorskip("pyarrow")
    run = recorded(folder / "runs")
    run_in(folder, VERBS, f"data select runs/{run.name} --out one.selection.json")
    text = (folder / "one.selection.json").read_text()
    (folder / "hostile.selection.json").write_text(text.replace('"format": "run"', f'"format": "{HOSTILE}"'))
    assert HOSTILE in (folder / "hostile.selection.json").read_text()
    verbs = ("show", "check", "ls", "select", "cut --episodes 0", "export --to parquet")
    lines = [" ".join(["data", (words := verb.split())[0], "hostile.selection.json",
                       *(["new"] if len(words) > 1 else []), *words[1:]]) for verb in verbs]  # fmt: skip
    told = run_in(folder, VERBS, *lines)
    codes = dict(line.rsplit(": ", 1) for line in told.splitlines() if line.rsplit(": ", 1)[0] in lines)
    assert codes["data show hostile.selection.json"] == "2", told
    with pytest.raises(AssertionError, match="ran"):
        run_in(folder, VERBS, f"data show runs --format {HOSTILE}")


def test_no_part_of_the_console_imports_what_a_log_or_a_server_names(folder: Path) -> None:
    """The list of episodes, the replay, the scene, the mover's task, and the handshake with a server."""
    run = recorded(folder / "runs", 5)
    hostile_log(run, folder / "logs" / run.name)
    program = """
        import sys
        from contextlib import closing
        from hal import RobotError, SourceError
        from real import RemoteRobot, Server
        from rlenv_robot.robot_models import find_robot_model
        from rlenv_operate.console.replay import Replays
        from rlenv_operate.console.server import _scene
        from rlenv_robot.tasks.free import Free

        hostile = "notes:arm"
        replays = Replays("logs")
        assert len(replays.listing()) == 1
        for simulated in (False, True):
            try:
                replays.load(0, simulated=simulated)
            except SourceError as error:
                assert "no model of the robot" in str(error), error
            else:
                raise AssertionError("drawn")
        assert _scene(hostile) is None
        try:
            Free.of_registered(hostile, 10)
        except ValueError as error:
            assert "unknown" in str(error)
        else:
            raise AssertionError("made")
        robot = find_robot_model("so101").make_served_simulation("sim")
        object.__setattr__(robot.spec, "name", hostile)
        assert Free.of_spec(robot.spec, 10).robot == hostile
        with Server(robot) as server:
            try:
                with closing(RemoteRobot(server.address)) as remote:
                    remote.spec
            except RobotError as error:
                assert "robot name 'notes:arm' is not allowed" in str(error), error
            else:
                raise AssertionError("connected")
        assert "notes" not in sys.modules
    """
    run_in(folder, program)


@pytest.mark.parametrize("view", ["foxglove", "rerun"])
def test_no_live_view_imports_what_a_server_names(folder: Path, view: str) -> None:
    pytest.importorskip({"foxglove": "foxglove", "rerun": "rerun"}[view])
    programs = {
        "foxglove": """
            import sys
            import foxglove
            from rlenv_robot.robot_models import find_robot_model
            from rlenv_operate.live.foxglove_view import _RobotTopics
            spec = find_robot_model("so101").load_spec()
            object.__setattr__(spec, "name", "notes:arm")
            assert _RobotTopics(spec, foxglove.Context())._frames is None
            assert "notes" not in sys.modules
        """,
        "rerun": """
            import sys
            from rlenv_robot.robot_models import find_robot_model
            from rlenv_operate.live.rerun_view import RerunView
            spec = find_robot_model("so101").load_spec()
            object.__setattr__(spec, "name", "notes:arm")
            view = RerunView.__new__(RerunView)
            import rerun
            view._recording = rerun.RecordingStream("test")
            view._describe(spec)
            assert view._frames is None
            assert "notes" not in sys.modules
        """,
    }
    run_in(folder, programs[view])


def test_no_verb_imports_what_a_policy_names(folder: Path) -> None:
    """The task in a policy's file, its robot, and the processors of a policy of LeRobot."""
    recorded(folder / "runs")
    vectors = flat_for(Reach())
    FeedbackPolicy.zeros(vectors, "notes:task", find_robot_model("so101").load_spec()).save(folder / "policy.npz", {})
    header, arrays = load_arrays(folder / "policy.npz")
    header["robot"] = {**header["robot"], "name": HOSTILE}
    save_arrays(folder / "robot.npz", header, arrays)
    lerobot = folder / "lerobot"
    lerobot.mkdir()
    (lerobot / "model.safetensors").write_bytes(b"")
    field = {"name": "joint_position", "shape": [6], "dtype": "float32"}
    features = {name: {"fields": [field]} for name in ("observation.state", "action")}
    (lerobot / "info.json").write_text(json.dumps({"features": features}))
    (lerobot / "config.json").write_text(json.dumps({"type": "act", "input_features": {}}))
    (lerobot / "policy_preprocessor.json").write_text(json.dumps({"steps": [{"class": "notes.arm"}]}))
    fake = folder / "lerobot_fake" / "lerobot" / "policies"
    fake.mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake.parent / "__init__.py").touch()
    (fake / "factory.py").write_text(
        "import importlib, json, types\n"
        "class Policy:\n"
        "    config = None\n"
        "    from_pretrained = staticmethod(lambda path: Policy())\n"
        "def get_policy_class(kind): return Policy\n"
        "def make_pre_post_processors(config, pretrained_path):\n"  # what LeRobot 0.4 does with a step's class
        "    steps = json.load(open(pretrained_path + '/policy_preprocessor.json'))['steps']\n"
        "    return [importlib.import_module(step['class'].rpartition('.')[0]) for step in steps], None\n"
    )
    program = "import sys\nsys.path.insert(0, 'lerobot_fake')\n" + textwrap.dedent(VERBS)
    lines = [
        "retrain runs --policy policy.npz --out out.npz --seconds 1",
        "sim2real manifest policy.npz", "sim2real manifest robot.npz",
        "run so101-reach --policy robot.npz --episodes 1", "run so101-reach --policy lerobot --episodes 1",
    ]  # fmt: skip
    text = run_in(folder, program, *lines)
    codes = [line.rsplit(": ", 1)[1] for line in text.splitlines() if line.rsplit(": ", 1)[0] in lines]
    assert codes == ["2", "0", "2", "2", "2"], text
