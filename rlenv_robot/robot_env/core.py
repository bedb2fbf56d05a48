"""Combine a robot with a task to a world (clause B.6.2), with optional verdicts of people on its episodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from typing import SupportsFloat, cast

import numpy as np

from hal import Field, IllegalAction, Robot, RobotError, RobotState, SampleSink, Spec, StreamSpec, Violation
from hal.field import JsonDict
from hal.reset.confirmation import Answer, ResetConfirmation, VerdictRequest
from hal.reset.record import ResetRecord
from hal.robot import check_reset_options
from hal.wrapper import RobotWrapper
from recorder.frame_layout import FrameLayout
from rlenv_robot.robot_models import RobotModel, robot_model_of
from rlenv_robot.tables import ExtraInfo, FieldValues, Options, Reward, check_options
from rlenv_robot.tasks.agents import map_reward, message_fields
from rlenv_robot.tasks.episode_rules import EpisodeRules, Judgement, Mode, check_seed, random_seed
from rlenv_robot.tasks.task import Arrays, Episode, Task, VerdictTask
from rlenv_robot.world import NOTHING, EnvDescription, TimeStep, first_part

__all__ = ["DEADLINE_S", "RobotWorld", "Verdicts", "asker"]

_log = logging.getLogger(__name__)

DEADLINE_S = 60.0
"""Time limit for a person's answer, in seconds; after it the episode continues without a verdict."""

Ask = Callable[[int], "Answer | None"]
"""Ask for the verdict on the episode with a number; return None if nobody can be asked."""


def asker(robot: Robot, task: Task, judge: ResetConfirmation | None) -> Ask | None:
    """Return the function that asks for a verdict at the end of each episode, or None.

    Args:
        robot: asked if the task's reward needs a verdict: the question goes to the person who resets the scene
            (`hal.Homing.judge`).
        task: may be a `VerdictTask`.
        judge: asked after every episode, instead of the person at the robot.
    """
    question = task.verdict_question if isinstance(task, VerdictTask) else ""
    if judge is not None:
        words = [question] if question else []
        return lambda number: judge.judge(VerdictRequest(robot.spec.name, number, DEADLINE_S, *words))
    if not isinstance(task, VerdictTask):
        return None
    at_robot = RobotWrapper(robot)  # whose default is that nobody can be asked
    return lambda number: at_robot.judge(question, DEADLINE_S)


class Verdicts:
    """Collect the verdicts and resets of one robot's episodes.

    Args:
        ask: see `asker`.
    """

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._answer: Answer | None = None
        self._failed: list[ResetRecord] = []
        self._resets: list[ResetRecord] = []
        self._begun: ResetRecord | None = None

    def reset_failed(self, record: ResetRecord | None) -> None:
        """Store the record of a failed reset for the next episode's record."""
        if record is not None:
            self._failed.append(self._ours(record))

    def begin(self, record: ResetRecord | None) -> None:
        """Begin an episode with the record of its reset."""
        self._answer = None
        self._resets = [*self._failed, *([self._ours(record)] if record is not None else [])]
        self._failed = []
        self._begun = record

    def _ours(self, record: ResetRecord) -> ResetRecord:
        """Return a reset's record, without its verdict if that is on another client's episode."""
        if self._begun is not None and record.judged == self._begun.episode:
            return record
        return record.without_verdict()

    def end(self, number: int) -> str | None:
        """Ask for the verdict on an episode; return None if nobody answers or asking fails."""
        if self._ask is None:
            return None
        try:
            self._answer = self._ask(number)
        except RobotError as error:
            _log.warning("episode %d has no verdict: %s", number, error)
        return None if self._answer is None else self._answer.verdict

    def to_dict(self) -> JsonDict:
        """Return the entries of the episode's record: ``reset``, ``failed_resets``, ``verdict``, ``judged_by``."""
        plain: JsonDict = {}
        resets = [record.to_dict() for record in self._resets]
        if self._begun is not None and resets:
            plain["reset"] = resets.pop()
        if resets:
            plain["failed_resets"] = resets
        if self._answer is not None and self._answer.verdict is not None:
            plain |= {"verdict": self._answer.verdict, "judged_by": self._answer.by}
        return plain


# -- world -----------------------------------------------------------------------------------------------------------


_OPTIONS = {
    "seed": "integer of 0 or more: determines all random draws from here on, and restarts the count of episodes",
    "goal": "name -> value, given parts of the goal instead of drawn ones; {goal}",
    "clear_stop": "text: what was found at a stopped robot, and why it may move again",
    "stop_number": "int: number of the newest stop that the person saw; required by a robot on a network",
}
_STEP_EXTRA = {"sensor_error": "sensor name -> a known error, added to that sensor's reading of this step"}
_EXTRA_INFO = {
    "applied": "command name -> the command that the robot received, after the guard's limits on speed and lead",
    "state": "the task's hidden state, name -> value; in training only, never in inference",
    "images": "camera name -> image, if the robot has cameras",
    "used": "stream name -> number of the sample of a sensor's value, if the robot's streams are recorded",
    "recording_error": "why the requested recording has stopped, here or on the robot's controller",
    "returned": "{lost, session} after a lost connection: why it was lost; the session was kept, or how it ended",
    "faults": "faults that the robot reports; they truncate the episode",
    "fault": "{kind, message} of the error that lost the robot; the observation repeats the last one",
    "truncated_by": "why the episode was truncated: time, or a fault",
    "success": "True or False, at the end of an episode: the person's verdict, else the task's result",
    "verdict": "success, failure or discard: a person's verdict at the end of the episode, if one was asked",
    "metrics": "name -> metric, at the end of an episode",
}
_KEPT_WHEN_LOST = ("agents", "messages", "state")
"""Entries of ``extra_info`` that the last table after a robot's fault repeats, as it repeats the observation."""

_REWARD = Field("reward", (), "float64", meaning="of the step that led to this frame, as described above")

_OF_AGENTS = {
    "agents": "agent -> its own name -> name in this observation: the mapping from the whole to what each agent sees",
    "messages": "receiver -> sender -> the message in the sender's last action, where agents send any",
}
_REWARDS = replace(_REWARD, meaning="a dictionary from agent to such a number; " + _REWARD.meaning)

_OF_CONDITIONS = {"randomisation": "path -> value drawn for this episode; at its beginning, in training only"}


_new = tuple.__new__  # what a named tuple's constructor calls, at half its time


class RobotWorld:
    """Combine a `Robot` and a `Task` to a world.

    Args:
        robot: any robot; a real one must already be guarded.
        task: a task for that model of robot.
        mode: in ``training`` the task's privileged state is in ``extra_info["state"]``; in ``inference`` it is never
            computed (R2.1).
        judge: asked for a verdict after every episode. Without it, and if the task's reward needs a verdict, the person
            who resets the robot's scene is asked (`rlenv_robot.robot_env.core`).

    Attributes:
        step_extra: the fields that a step accepts in ``extra_info``: those of the task, and the known error of a
            sensor.

    Raises:
        SpecMismatch: the task is for another robot.
    """

    def __init__(
        self, robot: Robot, task: Task, mode: Mode = "training", judge: ResetConfirmation | None = None
    ) -> None:
        self._rules = EpisodeRules(task, robot.spec, mode)
        self._recent = self._rules.recent_readings()
        extra = self._rules.step_extra
        self.step_extra = replace(extra, structures={**_STEP_EXTRA, **extra.structures})
        self.robot, self.task, self.mode = robot, task, mode
        self._wrapped = RobotWrapper(robot)  # with a default for each member that the robot leaves out
        self.agents = self._rules.agents
        self._seed = random_seed()
        self._episodes = 0
        self._episode = Episode({})
        self._robot_state: RobotState | None = None
        self._step_no = 0
        self._last: TimeStep | None = None
        self._verdicts, self._judges_all = Verdicts(asker(robot, task, judge)), judge is not None

    @property
    def seed(self) -> int:
        """The seed of the episodes that follow."""
        return self._seed

    @property
    def name(self) -> str:
        """The task's name."""
        return self.task.name

    @property
    def observation(self) -> Spec:
        """The task's observation spec."""
        return self.task.observation

    @property
    def action(self) -> Spec:
        """The task's action spec."""
        return self.task.action

    @property
    def description(self) -> EnvDescription:
        """The task's description, with the options and the extra information of all robot environments."""
        goal = ", ".join(f"{field.name}: {field.meaning}" for field in self.task.goal) or "this task has none"
        options = {name: text.format(goal=goal) for name, text in _OPTIONS.items()}
        reward, extra_info = (_REWARDS, _OF_AGENTS) if self.agents else (_REWARD, {})
        about = first_part(self.task) + self._settings()
        conditions = self._wrapped.about().get("conditions", {})
        extra_info = {**extra_info, **_EXTRA_INFO, **(_OF_CONDITIONS if conditions else {})}
        structures = self.step_extra.structures
        return EnvDescription(about, reward, options, structures, extra_info, conditions=conditions)

    def _settings(self) -> str:
        text = (
            f"\n\nA step takes {self.robot.spec.period_s:.4g} s; an episode is truncated after {self.task.steps} steps."
        )
        names: list[str] = [setting.name for setting in fields(self.task)] if is_dataclass(self.task) else []
        values = ", ".join(f"``{name}`` = {getattr(self.task, name)}" for name in names)
        return text + (f" Settings here: {values}." if values else "")

    @property
    def layout(self) -> FrameLayout:
        """The layout of a recorded frame: the task's observation and action, the robot's commands and sensors."""
        spec = self.robot.spec
        streams = tuple(stream.name for stream in self.streams if stream.used)
        return FrameLayout(
            self.task.observation,
            self.task.action,
            tuple(self._rules.agent_fields),
            spec.commands,
            spec.sensors,
            streams,
        )

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """The robot's streams of samples."""
        return self._wrapped.streams

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Connect the robot's streams to sinks, as `hal.RobotWrapper.stream_to` does."""
        self._wrapped.stream_to(sinks)

    # -- reset and step ----------------------------------------------------------------------------------

    def reset(self, options: Options) -> TimeStep:
        """Draw an episode and bring the robot to its start.

        Args:
            options: ``seed`` (int; restarts the count of episodes), ``goal`` (name -> value, instead of a drawn one),
                ``clear_stop`` (why a latched stop may be cleared), ``stop_number`` (of the newest stop seen by the
                person who clears it, `real.RemoteRobot.reset`).

        Raises:
            ValueError: an option is unknown or has a wrong type; nothing moved.
            IllegalAction: a part of the goal violates the task's spec; nothing moved.
            SpecError: at the first reset, a function of the task returns another name, shape or kind than declared.
            RobotError: the robot could not be brought to its start.
        """
        self.check_reset(options)
        if options.get("seed") is not None:
            self._seed, self._episodes = check_seed(options["seed"]), 0
        draw = self._rules.draw(self._seed, 0, self._episodes, options)
        self._episodes += 1
        self._episode, self._step_no = draw.episode, 0
        if self._recent is not None:
            self._recent.begin()
        request: dict[str, object] = {"seed": draw.robot_seed, "start": draw.episode.start}
        request |= {name: options[name] for name in ("clear_stop", "stop_number") if name in options}
        robot_state = self._robot_state = self._reset(request)
        self._rules.check_first(robot_state.sensors, draw.episode.goal)
        failed = bool(robot_state.faults)
        timestep = self._timestep(robot_state, self._rules.judge_start(robot_state.sensors, draw.episode.goal, failed))
        self._add_report(timestep.extra_info)
        return timestep

    def check_reset(self, options: Options) -> None:
        """Check the options of a reset, including the values of a goal, without any effect.

        Raises:
            ValueError: an option is unknown or has a wrong type.
            IllegalAction: a part of the goal violates the task's spec, or ``stop_number`` is not a whole number.
        """
        check_options(options, "reset", '{"seed": 7}', _OPTIONS)
        goal, reason = options.get("goal"), options.get("clear_stop")
        if goal is not None and not isinstance(goal, Mapping):
            names = ", ".join(self.task.goal.names) or "nothing, as this task has no goal"
            raise ValueError(f"reset option 'goal' is {goal!r:.80}, expected a mapping from name to value of {names}")
        if reason is not None and not isinstance(reason, str):
            raise ValueError(
                f"reset option 'clear_stop' is {reason!r:.80}, expected a text: what was found at the robot, "
                "and why it may move again"
            )
        check_reset_options(Spec("commands"), {"stop_number": options.get("stop_number")})
        seed = options.get("seed")
        if seed is not None:
            seed = check_seed(seed)
        if goal is not None:  # by the draw that the reset makes
            self._rules.draw(*((self._seed, 0, self._episodes) if seed is None else (seed, 0, 0)), options)

    def _reset(self, request: Options) -> RobotState:
        before = self._wrapped.last_reset
        try:
            robot_state = self.robot.reset(request)
        except RobotError:
            record = self._wrapped.last_reset
            self._verdicts.reset_failed(None if record is before else record)
            raise
        self._verdicts.begin(self._wrapped.last_reset)
        return robot_state

    def _add_report(self, extra: ExtraInfo) -> None:
        """Add what the robot reports of itself at the beginning of an episode."""
        report = self._wrapped.about()
        if self.mode == "training" and report.get("randomisation"):
            extra["randomisation"] = report["randomisation"]
        recording = report.get("server", {}).get("recording")
        if isinstance(recording, Mapping) and recording.get("why") is not None:
            extra["recording_error"] = f"the robot's controller: {recording['why']}"
        if "returned" in report:
            extra["returned"] = report["returned"]

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Command the robot for one control period.

        A fault of the robot (connection lost, stopped, stale) ends the episode: the time step is truncated, repeats the
        last observation, and gives the reason in ``extra_info["fault"]``.

        Raises:
            IllegalAction: the task's command violates the robot's spec, or ``extra_info`` can't be used; nothing moved.
        """
        before = self._robot_state
        assert before is not None  # the environment resets first
        sensor_error = _sensor_error(extra_info, self.robot.spec.sensors) if extra_info else NOTHING
        action = self._rules.with_extra(action, extra_info)
        try:
            robot_state = self.robot.step(self.task.command(action, before.sensors))
        except IllegalAction:
            raise
        except RobotError as error:
            return self._lost(error)
        if sensor_error:
            robot_state = _with_sensor_error(robot_state, sensor_error)
        self._robot_state = robot_state
        self._step_no += 1
        sensors, goal, failed = robot_state.sensors, self._episode.goal, bool(robot_state.faults)
        judgement = self._rules.judge(before.sensors, action, sensors, goal, self._step_no, failed)
        if self._recent is not None:
            self._recent.add(sensors)
        return self._timestep(robot_state, judgement, action)

    def _timestep(self, robot_state: RobotState, judgement: Judgement[bool], action: Arrays | None = None) -> TimeStep:
        values, terminated, truncated = judgement
        # A single agent's reward is a number; to ask by isinstance would cost 1 % of a simulated step.
        reward: Reward = map_reward(values, float) if self.agents else float(cast("SupportsFloat", values))
        sensors, goal = robot_state.sensors, self._episode.goal
        extra = self._rules.extra_info(robot_state, goal, action)
        if robot_state.used:
            extra["used"] = robot_state.used
        if terminated or truncated:
            reward = self._end(robot_state, reward, extra, truncated)
        observation = self.task.observe(sensors, goal)
        stamp_ns, applied = robot_state.stamp_ns, robot_state.applied
        timestep_values = (observation, reward, terminated, truncated, extra, stamp_ns, applied, sensors, True)
        self._last = timestep = _new(TimeStep, timestep_values)
        return timestep

    def _end(self, robot_state: RobotState, reward: Reward, extra: ExtraInfo, truncated: bool) -> Reward:
        """Add to ``extra`` how the episode went, and return the last step's reward with the verdict's part in it."""
        faults = robot_state.faults
        if faults:
            extra["faults"] = tuple(map(str, faults))
        if truncated:
            extra["truncated_by"] = f"fault: {faults[0]}" if faults else "time"
        outcome = self._rules.outcome(robot_state.sensors, self._episode.goal, bool(faults), self._recent)
        extra["success"] = bool(outcome.success)
        extra["metrics"] = {name: float(value) for name, value in outcome.metrics.items()}
        return self._rules.add_verdict(reward, self._verdict(extra))

    def _verdict(self, extra: ExtraInfo) -> str | None:
        """Ask a person about the episode that ends here, and add the answer to ``extra``."""
        verdict = self._verdicts.end(self._episodes - 1) if self._step_no else None
        if verdict is not None:
            extra["verdict"] = verdict
        if verdict in ("success", "failure"):  # the person watched the episode; the task can only measure
            extra["success"] = verdict == "success"
        return verdict

    def _lost(self, error: RobotError) -> TimeStep:
        """End the episode of a robot that can no longer be trusted."""
        last = self._last
        assert last is not None
        fault = {"kind": type(error).__name__, "message": str(error)}
        # What is true of the last observation stays: a central critic bootstraps from its state.
        kept = {name: last.extra_info[name] for name in _KEPT_WHEN_LOST if name in last.extra_info}
        extra = {
            **deepcopy(kept),
            "applied": last.applied,
            "fault": fault,
            "truncated_by": f"fault: {error}",
            "success": False,
        }
        if self._judges_all:  # the judge is not at the robot that was lost, and saw what came before
            self._verdict(extra)
        self._last = timestep = last._replace(
            reward=self._rules.no_reward(), terminated=False, truncated=True, extra_info=extra, acted=False
        )
        return timestep

    def end(self, reason: str) -> ExtraInfo:
        """End the episode in an orderly way; the robot keeps its last command, as after a time limit.

        Returns:
            ``success`` and ``metrics`` according to the newest reading, the person's ``verdict`` if one was asked, and
            ``fault`` if the robot could not be informed, as after a lost connection.
        """
        state, last = self._robot_state, self._last
        assert state is not None  # the environment resets first
        assert last is not None
        extra: ExtraInfo = {}
        try:
            self._wrapped.end_episode(reason)
        except RobotError as error:
            _log.warning("the robot could not be informed of the episode's end: %s", error)
            extra["fault"] = {"kind": type(error).__name__, "message": str(error)}
        self._end(state, self._rules.no_reward(), extra, False)
        self._last = last._replace(truncated=True, extra_info={**last.extra_info, **extra})
        return extra

    # -- the rest ----------------------------------------------------------------------------------------

    def episode_info(self) -> JsonDict:
        """Return task, goal, seed and the robot's report (``controller``), and at the end success and metrics."""
        info: JsonDict = {
            "task": self.task.name,
            "robot": self.robot.spec.name,
            "seed": self._seed,
            "draw": self._episodes - 1,
            "goal": {name: np.asarray(value).tolist() for name, value in self._episode.goal.items()},
        }
        if sent := message_fields(self.agents):
            info["messages"] = sent
        report = self._wrapped.about()
        if report:
            info["controller"] = report
        last = self._last.extra_info if self._last is not None else {}
        info.update({key: last[key] for key in ("success", "metrics", "fault") if key in last})
        info.update(self._verdicts.to_dict())
        return info

    def image(self, options: Options) -> np.ndarray:
        """Render the robot's model in the last measured pose, with the goal marked."""
        from rlenv_robot.rendering.drawing import draw

        sensors, goal = self.measured()
        if not sensors:
            raise RobotError("nothing to show yet: reset first")
        return next(iter(draw(self.drawn_model(), sensors, goal, options)))

    def drawn_model(self) -> RobotModel:
        """Return the model with which the robot is drawn.

        Raises:
            RobotError: no model of this robot is known.
        """
        try:
            return replace(robot_model_of(self.task), sensors=())  # which may have no simulation, and show nothing
        except ValueError as error:
            raise RobotError(f"a {self.robot.spec.name!r} can't be drawn: {error}") from error

    def measured(self) -> tuple[FieldValues, FieldValues]:
        """Return the newest sensors and the episode's goal, from any thread; both are empty before the first reset."""
        robot_state = self._robot_state
        return ({}, {}) if robot_state is None else (robot_state.sensors, self._episode.goal)

    def stop(self, reason: str) -> None:
        """Stop the robot, from any thread."""
        self.robot.stop(reason)

    def close(self) -> None:
        """Close the robot."""
        self.robot.close()


def _sensor_error(extra_info: Mapping[str, object], sensors: Spec) -> FieldValues:
    """Return the ``sensor_error`` of a step, checked before anything moves.

    Raises:
        IllegalAction: naming the entry.
    """
    errors = extra_info.get("sensor_error", {})
    if not isinstance(errors, Mapping):
        problem = f"a {type(errors).__name__}, expected a mapping from sensor to error"
        raise _wrong_extra("dtype", "sensor_error", problem)
    for name, value in errors.items():
        if name not in sensors:
            names = ", ".join(sensors.names)
            raise _wrong_extra("unknown", f"sensor_error.{name}", f"unknown, the sensors are {names}")
        Field(name, sensors[name].shape, sensors[name].dtype).validate(value, "extra_info.sensor_error")
    return errors


def _wrong_extra(code: str, key: str, problem: str) -> IllegalAction:
    return IllegalAction(Violation(code, f"extra_info.{key}", (), f"extra_info.{key} is {problem}"))


def _with_sensor_error(robot_state: RobotState, error: FieldValues) -> RobotState:
    """Add a known error to some sensors of a reading (clause 6.2.2.2: transferring a sensor's error)."""
    sensors = dict(robot_state.sensors)
    for name, value in error.items():
        sensors[name] = (sensors[name] + np.asarray(value)).astype(sensors[name].dtype)
    return robot_state._replace(sensors=sensors)
