"""Start the steps from a robot to a better policy, each an ordinary command with the choices that a page made.

Nothing of a page's message becomes a word of a command unless it is one of the offered choices, a number, or a name of
letters, digits, ``-`` and ``_``.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from hal import RobotError
from hal.field import JsonDict
from rlenv_operate.console.jobs import Jobs
from rlenv_operate.console.messages import Job as JobMessage
from rlenv_operate.console.mover import Mover
from rlenv_robot.policies.zoo import PREFIX, ZooPolicy, zoo_names, zoo_policy
from rlenv_robot.registry import environment_names, task
from rlenv_robot.rendering.show import find_episode
from rlenv_robot.robot_models import RobotModel, find_robot_model, robot_names
from rlenv_robot.training.trainers import trainer_names

__all__ = ["Choice", "Loop", "results_text"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_KINDS = (".npz", ".onnx")
_STATES = (".search", ".state")
"""Endings of the files from which ``train --resume`` goes on: by evolution, and by other methods."""
_WORDS = ".train.json"
"""Ending of the file with the words of a training's command."""
SIMULATED, VIRTUAL = "twin", "virtual"
"""Places of a robot besides a serial port: a simulation with a real robot's faults, and virtual servos on a bus."""

_PROFILE, _CALIBRATION, _BUS = "robot.toml", "arm.json", "virtual-arm"


@dataclass(frozen=True, slots=True)
class Choice:
    """The robot and the task of the flow.

    Attributes:
        robot: name of the robot's model.
        where: ``twin``, ``virtual``, or the serial port of an arm.
        task: name of the task.
    """

    robot: str
    where: str
    task: str


class Loop:
    """The flow of one folder. All methods are thread-safe.

    Args:
        folder: holds the policies, runs, calibrations and jobs.
        address: address of the robot's server, on this machine.
        mover: moves the robot for persons and policies; it gets the chosen task.

    Attributes:
        jobs: the processes.
    """

    def __init__(self, folder: Path, address: str, mover: Mover) -> None:
        self.folder, self._address, self._mover = folder, address, mover
        for name in ("policies", "runs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.jobs = Jobs(folder)
        self._lock = threading.Lock()
        self._offered = _offered_robots()
        self._choice = self._read_choice()
        if self._choice is not None:
            mover.choose(self._choice.task)

    # -- what a page shows ----------------------------------------------------------------------------------

    def text(self) -> str:
        """Return the flow's state as JSON: choices, policies, commands and jobs."""
        policies, zoo = [path.name for path in self._policies()], self._zoo()
        ready = [
            {"name": name, "episodes": each.episodes, "reached": each.successes["policy"]} for name, each in zoo.items()
        ]
        return json.dumps(
            {
                "t": "loop", "folder": str(self.folder), "address": self._address, "robots": self._robots(),
                "choice": None if self._choice is None else asdict(self._choice), "methods": _methods(),
                "policies": policies, "zoo": ready, "needs_calibration": self._needs_calibration(),
                "jobs": self.jobs.view(), "commands": self._commands([*zoo, *policies]),
                "unfinished": self._unfinished(),
            },
            separators=(",", ":"),
        )  # fmt: skip

    def policy(self, name: str) -> Path:
        """Return the path of one of the folder's policies, or the name of one of the zoo for the chosen task as a path.

        Raises:
            ValueError: there is no such policy.
        """
        if name in self._zoo():
            return Path(name)
        for path in self._policies():
            if path.name == name:
                return path
        raise ValueError(f"there is no policy {name!r} in {self.folder / 'policies'}; train one")

    def _zoo(self) -> dict[str, ZooPolicy]:
        """Return the policies for the chosen task that installed packages bring, by name with ``zoo:``."""
        policies = dict[str, ZooPolicy]()
        for name in zoo_names() if self._choice is not None else []:
            with suppress(RobotError, ValueError):  # of a package that is damaged
                policies[PREFIX + name] = zoo_policy(name)
        return {name: one for name, one in policies.items()
                if one.task == self._chosen().task and one.file.suffix in _KINDS}  # fmt: skip

    def _policies(self) -> list[Path]:
        files = (path for path in (self.folder / "policies").iterdir() if path.suffix in _KINDS)
        return sorted(files, key=lambda path: path.stat().st_mtime)

    def _robots(self) -> list[JsonDict]:
        ports = _ports()
        return [
            {
                "robot": robot,
                "where": [SIMULATED] * bool(model.twin) + ([VIRTUAL, *ports] if robot == "so101" else []),
                "tasks": tasks,
            }
            for robot, (model, tasks) in self._offered.items()
        ]

    def _commands(self, policies: list[str]) -> dict[str, str]:
        """Return the command of each step that is carried out in the page, with the present choice."""
        choice = self._choice
        if choice is None:
            return {}
        policy = _word(policies[-1]) if policies else "POLICY"
        steps = {
            "robot": ["serve", _PROFILE],
            "calibrate": self._calibration(restart=False),
            "record": ["operate", "teleop", self._address, "--task", choice.task, "--record", "runs"],
            "run": ["run", choice.task, "--policy", policy, "--robot", self._address, "--record", "runs"],
            "judge": ["run", choice.task, "--policy", policy, "--robot", self._address, "--record", "runs",
                      "--verdicts"],
            "compare": ["data", "show", "runs"],
        }  # fmt: skip
        return {step: shlex.join(["rlenv-robot", *words]) for step, words in steps.items() if words}

    def _unfinished(self) -> str:
        """Return the name of the newest policy whose training was interrupted, or an empty text."""
        if self.jobs.runs("train"):
            return ""
        states = (path for path in (self.folder / "policies").iterdir() if path.suffix in _STATES)
        files = [path for path in states if path.with_suffix(_WORDS).exists()]  # else another program's
        return max(files, key=lambda path: path.stat().st_mtime).stem if files else ""

    # -- what a person does ---------------------------------------------------------------------------------

    def carry_out(self, message: JobMessage, by: str) -> tuple[str, str]:
        """Start, end or answer a step's command.

        Args:
            message: the page's message.
            by: the person.

        Returns:
            The command for the log of acts, and a message for the person.

        Raises:
            ValueError: a choice, a name or a number is not allowed, or the step is not possible now.
            OSError: a file can't be written, or a process can't be started.
        """
        job = self.jobs.get(message.step)
        if message.do == "enter":
            self.jobs.enter(message.step)
            return "" if job is None else job.command, "answered"
        if message.do == "end":
            ended = self.jobs.end(message.step)
            return "" if job is None else job.command, f"{message.step} has ended" if ended else "nothing ran"
        starts: dict[str, Callable[[JobMessage, str], str]] = {
            "robot": self._start_robot, "calibrate": self._start_calibration, "train": self._start_training,
            "retrain": self._start_retraining,
        }  # fmt: skip
        with self._lock:
            outcome = starts[message.step](message, by)
        started = self.jobs.get(message.step)
        return "" if started is None else started.command, outcome

    def stop_calibration(self) -> bool:
        """End a calibration, which lets the arm down; return whether one ran. Called at a person's Stop."""
        return self.jobs.end("calibrate")

    def _start_robot(self, message: JobMessage, by: str) -> str:
        choice = self._checked(message)
        self._mover.choose(choice.task)
        self.jobs.end("robot")
        self._choice = choice
        (self.folder / "choice.json").write_text(json.dumps(asdict(choice)), encoding="utf-8")
        if choice.where == VIRTUAL and not self.jobs.runs("virtual"):
            words = ["robot", "twin", choice.robot, "--bus", "--link", _BUS, "--uncalibrated"]
            held = ["0"] * len(find_robot_model(choice.robot).load_arm().joints)  # in its zero pose, to calibrate it
            self.jobs.start("virtual", [*words, "--hand", *held], by, progress=False)
        if self._needs_calibration() and not (self.folder / _CALIBRATION).exists():
            return "chosen; calibrate the arm before it is served"
        (self.folder / _PROFILE).write_text(self._profile(choice), encoding="utf-8")
        self.jobs.start("robot", ["serve", _PROFILE], by, progress=False, needs="virtual")
        return f"the server of {choice.robot} starts"

    def _start_calibration(self, message: JobMessage, by: str) -> str:
        if not self._needs_calibration():
            raise ValueError("this robot needs no calibration")
        self._mover.check_idle()
        self.jobs.end("robot")  # which has the port
        self.jobs.start("calibrate", self._calibration(message.restart), by, progress=True, needs="virtual")
        return "the calibration begins"

    def _start_training(self, message: JobMessage, by: str) -> str:
        choice = self._chosen()
        if message.resume:
            name = self._unfinished()
            if not name:
                raise ValueError("no interrupted training is there to go on with")
            words = json.loads((self.folder / "policies" / f"{name}{_WORDS}").read_text(encoding="utf-8"))
            self.jobs.start("train", [*words, "--resume"], by, {"name": name}, progress=True)
            return f"the training of {name} goes on"
        if message.method not in _methods():
            raise ValueError(f"method is {message.method!r}, allowed are {', '.join(_methods())}")
        name = self._new_name(message.name)
        words = ["train", choice.task, "--method", message.method, "--out", f"policies/{name}.npz"]
        words += ["--seed", str(message.seed)] if message.seed else []
        words += ["--steps", str(message.steps)] if message.steps else []
        (self.folder / "policies" / f"{name}{_WORDS}").write_text(json.dumps(words), encoding="utf-8")
        self.jobs.start("train", words, by, {"name": name}, progress=True)
        return f"the training of {name} begins"

    def _start_retraining(self, message: JobMessage, by: str) -> str:
        choice, start = self._chosen(), self.policy(message.policy)
        name = self._new_name(message.name)
        words = ["retrain", "runs", "--policy", _word(start.name), "--out", f"policies/{name}.npz"]
        words += ["--task", choice.task]
        words += ["--steps", str(message.steps)] if message.steps else []
        self.jobs.start("retrain", words, by, {"name": name}, progress=True)
        return f"the retraining of {start.name} begins"

    # -- inside ---------------------------------------------------------------------------------------------

    def _chosen(self) -> Choice:
        if self._choice is None:
            raise ValueError("choose a robot and a task first")
        return self._choice

    def _checked(self, message: JobMessage) -> Choice:
        for offered in self._robots():
            if offered["robot"] == message.robot:
                for value, allowed in ((message.where, offered["where"]), (message.task, offered["tasks"])):
                    if value not in allowed:
                        raise ValueError(f"{value!r} is not offered, allowed are {', '.join(allowed)}")
                return Choice(message.robot, message.where, message.task)
        raise ValueError(f"the robot {message.robot!r} is not offered, allowed are {', '.join(self._offered)}")

    def _read_choice(self) -> Choice | None:
        try:
            choice = Choice(**json.loads((self.folder / "choice.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return choice if choice.robot in self._offered and choice.task in self._offered[choice.robot][1] else None

    def _new_name(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(f"the name {name!r} is not allowed: 1 to 40 letters, digits, - and _")
        if (self.folder / "policies" / f"{name}.npz").exists():
            raise ValueError(f"there is a policy {name} already; choose another name")
        return name

    def _needs_calibration(self) -> bool:
        return self._choice is not None and self._choice.where != SIMULATED

    def _calibration(self, restart: bool) -> list[str]:
        if not self._needs_calibration():
            return []
        choice = self._chosen()
        words = ["robot", "calibrate", _CALIBRATION, "--arm", choice.robot, "--port", self._port(choice)]
        # Nobody's hand moves a virtual arm, so it sweeps its joints itself.
        return [*words, *["--motor"] * (choice.where == VIRTUAL), *["--restart"] * restart]

    def _port(self, choice: Choice) -> str:
        return _BUS if choice.where == VIRTUAL else choice.where

    def _profile(self, choice: Choice) -> str:
        place = 'where = "twin"'
        if choice.where != SIMULATED:
            options = f"port = {json.dumps(self._port(choice))}, calibration = {json.dumps(_CALIBRATION)}"
            place = f'driver = "feetech"\noptions = {{{options}}}'
        return (
            f'# Written by the console. Serve it without the page: rlenv-robot serve {_PROFILE}\n'
            f'[robot]\nkind = "{choice.robot}"\n{place}\n\n[task]\nname = "{choice.task}"\n\n'
            f'[serve]\naddress = "{self._address}"\ntelemetry = "tcp://127.0.0.1:*"\ntelemetry_hz = 30.0\n\n'
            '[record]\nfolder = "runs"\n'
        )  # fmt: skip


def results_text(loop: Loop | None) -> str:
    """Return what each policy of the recorded runs reached, as JSON: ``rows``, and ``problem``."""
    message: JsonDict = {"t": "results", "rows": [], "problem": ""}
    try:
        if loop is None:
            raise ValueError("the console was started without --folder")
        message["rows"] = _results(loop.folder / "runs")
    except (RobotError, ValueError, OSError) as error:
        message["problem"] = str(error)
    return json.dumps(message, separators=(",", ":"), allow_nan=False)


def _results(runs: Path) -> list[JsonDict]:
    """Return a row for each policy, in the order of their first episodes."""
    table, _ = find_episode(runs, -1)
    groups = defaultdict[str, list[JsonDict]](list)
    for info in table.episodes:
        groups[Path(str(info.get("policy") or "")).name].append(dict(info))
    return [_row(name, episodes) for name, episodes in groups.items()]


def _row(name: str, episodes: list[JsonDict]) -> JsonDict:
    verdicts = [str(info.get("verdict") or "") for info in episodes]
    metrics = [info.get("metrics") or {} for info in episodes]
    names = dict.fromkeys(key for each in metrics for key in each)
    medians = {key: round(median(each[key] for each in metrics if key in each), 2) for key in names}
    return {
        "policy": name, "episodes": len(episodes), "reached": sum(bool(info.get("success")) for info in episodes),
        **{verdict: verdicts.count(verdict) for verdict in ("success", "failure", "discard")}, "medians": medians,
    }  # fmt: skip


def _word(policy: str) -> str:
    """Return the word of a command for a policy of the folder, or of the zoo."""
    return policy if policy.startswith(PREFIX) else f"policies/{policy}"


def _offered_robots() -> dict[str, tuple[RobotModel, list[str]]]:
    """Return the robots that can be served here, each with its model and its tasks."""
    tasks = defaultdict[str, list[str]](list)
    for name in environment_names():
        try:
            tasks[task(name).robot].append(name)
        except (RobotError, ValueError):  # an environment without a robot, or of a package that is missing
            continue
    models = {name: find_robot_model(name) for name in robot_names() if tasks[name]}
    offered = {name: (model, tasks[name]) for name, model in models.items() if model.twin is not None}
    return dict(sorted(offered.items(), key=lambda item: item[0] != "so101"))  # the one with a driver comes first


def _methods() -> list[str]:
    """Return the methods that can train here; the first one is that of ``train`` without ``--method``."""
    needs = {"ppo": "torch", "evolution": "cmaes"}
    names = sorted([*trainer_names(), "evolution"], key=lambda name: (name != "ppo", name != "evolution"))
    return [name for name in names if name not in needs or find_spec(needs[name])]


def _ports() -> list[str]:
    """Return the serial ports of this machine by their lasting names."""
    return sorted(str(path) for path in Path("/dev/serial/by-id").glob("*"))
