"""The simulator adapter (clause 6.2): reset, step and render any world through the standard's tables."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, cast

import numpy as np

from hal import EpisodeError, IllegalAction, Spec, Violation
from hal.field import JsonObject
from rlenv_robot.chunk_steps import ChunkSteps
from rlenv_robot.tables import (
    ActionChunkTable,
    ActionTable,
    ExtraInfo,
    HasStepExtra,
    ObservationTable,
    Options,
    Reward,
    RewardTable,
    check_action_table,
    check_behaviour,
    check_env_id,
    check_options,
    copied,
    keywords_error,
    step_extra_of,
)
from rlenv_robot.tasks.output_check import OutputCheck, WrongOutput, check_every
from rlenv_robot.world import (
    ACTION_MASK,
    NOTHING,
    CheckingWorld,
    EnvDescription,
    OrderlyWorld,
    TimeStep,
    TurnBasedWorld,
    World,
    check_members,
    check_reset,
    is_orderly,
)

__all__ = ["Environment", "Observer"]

Phase = Literal["new", "running", "ended", "closed"]

_GYMNASIUM = {
    "action_space": "its actions are described by env.action",
    "observation_space": "its observations are described by env.observation",
    "metadata": "its description is env.description",
    "unwrapped": "its inside is env.world",
    "seed": 'the seed is an option of reset, env.reset({"seed": 7})',
    "spec": "its specs are env.observation and env.action",
}
"""Attributes of Gymnasium's environments -> what an `Environment` has in their place."""

_ROBOTS = {
    "num_envs": "a batch is made by make_vector(name, num_envs)",
    "get_observation": "reset and step return the observation",
    "send_action": "step({'env_id': ..., 'frame_no': ..., 'action': {...}}) sends an action",
    "connect": "make connects to a robot, and reset begins an episode",
    "disconnect": "close ends the connection",
}
"""Attributes of batches and of LeRobot's robots -> what does the same here."""

_NO_BEHAVIOUR = Spec("behaviour")

_KEPT = ("agents", "agent", "messages", "state", ACTION_MASK, "fields", "applied")
"""Entries of ``extra_info`` that the last table after a wrong output repeats, as it repeats the observation."""

_log = logging.getLogger(__name__)


class Observer(Protocol):
    """Observe every frame of an environment, as a recorder does."""

    def begin(self, env_id: str, timestep: TimeStep, info: JsonObject) -> None:
        """Record the first time step of an episode."""
        ...

    def frame(
        self, frame_no: int, action: Mapping[str, np.ndarray], timestep: TimeStep, extra_info: Mapping[str, object]
    ) -> None:
        """Record an action with the agent's ``extra_info``, and the time step after it."""
        ...

    def end(self, reason: str, info: JsonObject) -> None:
        """Record the end of the episode, with its reason."""
        ...

    def close(self) -> None:
        """Close the observer; no more frames follow."""
        ...


class Environment:
    """An environment according to the standard, with one world.

    Args:
        world: the world to reset and step.
        env_id: 1 to 36 characters; by default a new random one.
        observer: observes every frame.
        behaviour: the parameters of the distribution from which a policy draws its actions (such as the mean and the
            standard deviation of a Gaussian), which each step may then contain in ``extra_info["behaviour"]``.
        check_outputs: n, to compare every reward of the world, and the observation and the hidden state of every n-th
            frame and of the first and the last, with their descriptions (`rlenv_robot.tasks.output_check`). A wrong
            one ends the episode as a fault: the time step repeats the last observation that was found right, with
            reward 0, ``truncated`` 1 and ``extra_info["fault"]``. None is 1, or 16 for a simulated robot; 0 compares
            nothing.

    Attributes:
        hold_frames: most successive frames for which a robot is held where a chunk has ended and no other has come;
            None for `rlenv_robot.chunk_queue.HOLD_S`. Then the robot is stopped.

    Raises:
        ValueError: env_id has another length.
        TypeError: the world lacks a member of `World`, or has one whose name seems misspelt.
        SpecError: the world's extra information or ``behaviour`` can't be recorded.
    """

    def __init__(
        self,
        world: World,
        env_id: str | None = None,
        observer: Observer | None = None,
        behaviour: Spec = _NO_BEHAVIOUR,
        check_outputs: int | None = None,
    ) -> None:
        self.env_id = check_env_id(uuid.uuid4().hex if env_id is None else env_id)
        check_members(world, World, (TurnBasedWorld, OrderlyWorld, CheckingWorld, HasStepExtra))
        self.world, self._step_extra = world, step_extra_of(world)
        self._takes_fields = len(self._step_extra.fields) > 0
        self.behaviour = check_behaviour(behaviour)
        self._validate = world.action.validate
        self._observer = observer
        self._outputs: OutputCheck | None = None
        self._fault: JsonObject | None = None  # the wrong output that ended the episode
        self._phase: Phase = "new"
        self._frame_no = 0
        self._timestep: TimeStep | None = None
        self._error: JsonObject | None = None  # of the last step, if it was refused
        self.hold_frames: int | None = None
        self._chunks: ChunkSteps | None = None  # from the first chunk of an episode to its end
        self.check_outputs = check_outputs

    @property
    def observation(self) -> Spec:
        """The spec of ``observation`` in Table 1."""
        return self.world.observation

    @property
    def action(self) -> Spec:
        """The spec of ``action`` in Table 2."""
        return self.world.action

    @property
    def description(self) -> EnvDescription:
        """The description beyond the specs: purpose, reward, options, error codes."""
        return self.world.description

    @property
    def check_outputs(self) -> int | None:
        """The number of frames of which the outputs of one are checked, 0 for none; see the argument.

        Raises:
            ValueError: on setting: it is neither None nor a whole number of at least 0.
        """
        return 0 if self._outputs is None else self._outputs.every

    @check_outputs.setter
    def check_outputs(self, frames: int | None) -> None:
        checks = frames is None or check_every(frames) > 0
        self._outputs = OutputCheck(self.world, frames, self._timestep) if checks else None

    @property
    def is_recorded(self) -> bool:
        """Whether an observer observes the frames."""
        return self._observer is not None

    def __repr__(self) -> str:
        frame = f", frame {self._frame_no}" if self._phase == "running" else ""
        return f"<Environment {self.world.name!r}: {self._phase}{frame}, env_id {self.env_id!r}>"

    if not TYPE_CHECKING:  # a checker of types would take every misspelt name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse an unknown attribute; one of Gymnasium's environments with what stands in its place."""
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _GYMNASIUM:
                message += (
                    f": {_GYMNASIUM[name]}, and rlenv_robot.to_gymnasium(env) returns an environment of Gymnasium"
                )
            elif name in _ROBOTS:
                message += f": {_ROBOTS[name]}"
            raise AttributeError(message, name=name, obj=self)

    # -- the three interfaces ----------------------------------------------------------------------------

    def reset(self, options: Options = NOTHING, **keywords: object) -> ObservationTable:
        """Begin an episode (R1.3). A running episode ends, unless the world refuses an option (`CheckingWorld`).

        Args:
            options: those of the world, e.g. ``seed`` (int), which determines the random initial state.
            keywords: none is accepted; the error shows how to write them as options.

        Returns:
            Table 1 with ``frame_no`` 0.

        Raises:
            TypeError: there are keywords.
            EpisodeError: the environment is closed.
            ValueError: an option is unknown, or its value is wrong.
            IllegalAction: the value of an option does not fit its field, such as a part of a goal.
            RobotError: the start could not be reached; no episode was begun.
            WrongOutput: the first observation does not fit its description; no episode was begun.
        """
        if keywords:
            raise keywords_error("reset", keywords)
        if self._phase == "closed":
            raise EpisodeError("reset after close: make a new environment")
        check_options(options, "reset", '{"seed": 7}')
        check_reset(self.world, options)
        self._finish("abandoned")
        self._phase = "new"
        timestep = self.world.reset(options)
        if self._outputs is not None and (problem := self._outputs.first(timestep)) is not None:
            raise WrongOutput(f"{self.world.name!r} began with a wrong output: {problem}")
        self._timestep, self._frame_no, self._error, self._fault = timestep, 0, None, None
        self._chunks = None
        if self._observer is not None:
            self._observer.begin(self.env_id, timestep, self.world.episode_info())
        self._phase = "running"
        if timestep.terminated or timestep.truncated:
            self._end(timestep)
        return self._table(timestep, timestep.extra_info)

    def step(
        self, action: ActionTable | ActionChunkTable | Mapping[str, object], extra_info: Mapping[str, object] = NOTHING
    ) -> tuple[ObservationTable, RewardTable]:
        """Execute one action (R1.4).

        A table with ``first_frame`` is a chunk (`rlenv_robot.tables.ActionChunkTable`). It is merged into the queue of
        the episode, as `rlenv_robot.chunk_queue.ChunkQueue` describes, and the queue's action for the next frame is
        executed. If there is none, the robot is held, and after ``hold_frames`` frames it is stopped, which ends the
        episode. ``extra_info["chunk"]`` reports what was executed, see `rlenv_robot.chunk_steps.ChunkSteps.report`.

        An illegal action is not executed (R1.2): the answer is the current observation with the same
        ``frame_no``, reward 0 and ``extra_info["error"]`` = {code, field, index, message}.

        Args:
            action: Table 2, for one action or for a chunk.
            extra_info: further data for execution or recording: ``log_probability`` (of the action under the behaviour
                policy), ``behaviour`` (name -> value, the parameters of the distribution that the action was drawn
                from), ``intervention`` (whether a person chose it), ``answers`` (frame number of the observation that
                it answers, if that is not the present one), and entries of the world. It is checked as the
                action is: an unknown, missing or out-of-range entry causes the step to be refused.

        Returns:
            Table 1 and Table 3.

        Raises:
            EpisodeError: the call came before a reset, after the end, or after close. Nothing moves.
        """
        if self._phase != "running":
            raise EpisodeError(self._out_of_turn())
        chunks = self._chunks
        if chunks is None and (action.__class__ is dict or isinstance(action, Mapping)) and "first_frame" in action:
            chunks = ChunkSteps(self.env_id, self.world, self.hold_frames)
        try:
            if chunks is None:
                values = self._validate(check_action_table(action, self.env_id, self._frame_no), "action")
            else:
                if extra_info is not NOTHING:
                    self._read_extra(extra_info)  # before an action leaves the queue
                values = chunks.action(action, self._frame_no)
            if extra_info is not NOTHING or self._takes_fields:
                extra_info = self._read_extra(extra_info)
            timestep = self.world.step(values, extra_info)
        except IllegalAction as refused:
            return self._refuse(refused.violation)
        except BaseException as error:
            self._finish(_reason(error))
            raise
        self._frame_no = frame_no = self._frame_no + 1
        outputs = self._outputs
        if outputs is not None:
            reward = timestep.reward
            is_right = reward.__class__ is float and outputs.low <= reward <= outputs.high
            if (not is_right or not frame_no % outputs.every or timestep.terminated or timestep.truncated) and (
                problem := outputs.next(timestep)
            ) is not None:
                timestep = self._end_by_fault(problem, timestep)
        self._timestep, self._error = timestep, None
        if chunks is not None:
            self._chunks = chunks
            timestep.extra_info["chunk"] = chunks.report()
            extra_info = {**extra_info, "answers": chunks.answers}
        if self._observer is not None:
            self._observer.frame(frame_no, values, timestep, extra_info)
        if timestep.terminated or timestep.truncated:
            self._end(timestep)
        return self._table(timestep, timestep.extra_info), {
            "env_id": self.env_id,
            "frame_no": frame_no,
            "reward": timestep.reward,
        }

    def end(self, reason: str) -> ObservationTable:
        """End the running episode in an orderly way: nothing has to be cleared, and a reset begins the next one.

        The robot keeps its last command, as after a time limit. The record contains ``ended: <reason>``.

        Args:
            reason: one sentence, for the record.

        Returns:
            Table 1 of the newest frame, with ``truncated`` 1 and ``extra_info["truncated_by"]``, and with the episode's
            result (``success``, ``metrics``) if the world knows it.

        Raises:
            EpisodeError: no episode is running.
            ValueError: the reason is not a string, or is empty.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(
                f"end got the reason {reason!r:.80}, expected a text such as env.end('the operator is done')"
            )
        if self._phase != "running" or self._timestep is None:
            raise EpisodeError(self._out_of_turn().replace("step", "end", 1))
        outcome = self.world.end(reason) if is_orderly(self.world) else {}
        extra_info = {**self._timestep.extra_info, **outcome, "truncated_by": f"ended: {reason}"}
        self._timestep = timestep = self._timestep._replace(truncated=True, extra_info=extra_info)
        self._end(timestep)
        return self._table(timestep, extra_info)

    def refuse(self, violation: Violation) -> tuple[ObservationTable, RewardTable]:
        """Answer an action, as `step` does, that an adapter found illegal before it made a Table 2 from it.

        Raises:
            EpisodeError: as for `step`.
        """
        if self._phase != "running":
            raise EpisodeError(self._out_of_turn())
        return self._refuse(violation)

    def render(self, options: Options = NOTHING, **keywords: object) -> None:
        """Show the present state or its history (R1.5), without any effect on the simulation.

        Args:
            options: see `rlenv_robot.rendering.show.show`; ``{"mode": "window"}`` by default.
            keywords: none is accepted; the error shows how to write them as options.

        Raises:
            TypeError: there are keywords.
            ValueError: an option or mode is unknown.
            RobotError: no image can be made on this machine; the message says why.
        """
        from rlenv_robot.rendering.show import show

        if keywords:
            raise keywords_error("render", keywords)
        check_options(options, "render", '{"mode": "file", "path": "state.png"}')
        show(self.env_id, self._frame_no, self.world, self._timestep, options, self._error)

    def _repr_html_(self) -> str | None:
        """Return the environment as HTML; Jupyter calls it."""
        from rlenv_robot.rendering.notebook import notebook_html

        return notebook_html("environment", self)

    # -- life --------------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Stop all motion immediately, from any thread. The running episode ends with its next step."""
        self.world.stop(reason)

    def close(self) -> None:
        """End a running episode, and close the world. Safe to call more than once."""
        self._close("closed")

    def _close(self, reason: str) -> None:
        if self._phase == "closed":
            return
        with ExitStack() as closing:  # each of the three, whichever fails
            if self._observer is not None:
                closing.callback(self._observer.close)
            closing.callback(self.world.close)
            closing.callback(setattr, self, "_phase", "closed")
            self._finish(reason)

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close("closed" if error is None else _reason(error))

    # -- inside ------------------------------------------------------------------------------------------

    def _table(self, timestep: TimeStep, extra_info: ExtraInfo) -> ObservationTable:
        # A copy: what an agent does to its observation must reach neither the reward nor the guard.
        observation = {}
        for name, value in timestep.observation.items():  # a comprehension is a call more
            observation[name] = value.copy()
        return {
            "env_id": self.env_id,
            "frame_no": self._frame_no,
            "observation": observation,
            "extra_info": copied(extra_info),  # likewise: a refused step repeats it
            "terminated": 1 if timestep.terminated else 0,
            "truncated": 1 if timestep.truncated else 0,
        }

    def _read_extra(self, extra_info: Mapping[str, object]) -> dict[str, object]:
        """Return the extra information of a step, checked, with the world's defaults.

        Raises:
            IllegalAction: naming the entry.
        """
        values = self._step_extra.read(extra_info)
        if "behaviour" in values:
            if not len(self.behaviour):
                message = (
                    "extra_info.behaviour is unknown: this environment was made without a description of it; "
                    "make(..., behaviour=Spec(...)) gives one"
                )
                raise IllegalAction(Violation("unknown", "extra_info.behaviour", (), message))
            values["behaviour"] = self.behaviour.validate(values["behaviour"], "extra_info.behaviour")
        if cast("int", values.get("answers", 0)) > self._frame_no:
            message = (
                f"extra_info.answers is {values['answers']}, allowed are -1 to the present frame, {self._frame_no}"
            )
            raise IllegalAction(Violation("range", "extra_info.answers", (), message))
        return values

    def _refuse(self, violation: Violation) -> tuple[ObservationTable, RewardTable]:
        timestep = self._timestep
        assert timestep is not None  # the phase is running
        nothing = _no_reward(timestep.reward)
        self._error = violation.to_dict()
        table = self._table(timestep, {**timestep.extra_info, "error": violation.to_dict()})
        return table, {"env_id": self.env_id, "frame_no": self._frame_no, "reward": nothing}

    def _end_by_fault(self, problem: str, wrong: TimeStep) -> TimeStep:
        """Return the last time step of an episode that a wrong output ends; it repeats the last right observation."""
        assert self._outputs is not None  # it found the problem
        last = self._outputs.right
        right = wrong._replace(observation=last.observation, reward=_no_reward(last.reward), acted=False)
        if wrong.extra_info.keys() & {"fault", "faults"}:  # the world tells of a fault that explains its values
            return right
        reason = f"fault: the environment returned a wrong output: {problem}"
        _log.error("%s: %s", self.world.name, reason)
        outcome = wrong.extra_info
        if not (wrong.terminated or wrong.truncated) and is_orderly(self.world):
            try:  # so that a robot holds now, and not only when its watchdog expires
                outcome = self.world.end(reason)
            except Exception:
                _log.exception("%s could not end its episode in an orderly way", self.world.name)
        self._fault = {"kind": WrongOutput.__name__, "message": problem}
        told = {"fault": dict(self._fault), "truncated_by": reason}
        verdict = {"verdict": outcome["verdict"]} if "verdict" in outcome else {}
        kept = {name: last.extra_info[name] for name in _KEPT if name in last.extra_info}
        extra_info: ExtraInfo = {**kept, **told, **verdict, "success": verdict.get("verdict") == "success"}
        return right._replace(
            terminated=False, truncated=True, extra_info=extra_info, applied=last.applied, sensors=last.sensors
        )

    def _out_of_turn(self) -> str:
        return {
            "new": "step before reset: call reset first",
            "ended": "step after the end of the episode: call reset first; nothing moved",
            "closed": "step after close: make a new environment",
        }[self._phase]

    def _end(self, timestep: TimeStep) -> None:
        reason = "terminated" if timestep.terminated else str(timestep.extra_info.get("truncated_by", "truncated"))
        self._finish(reason)

    def _finish(self, reason: str) -> None:
        """End the running episode, if there is one."""
        if self._phase != "running":
            return
        self._phase = "ended"
        if self._observer is not None:
            info = self.world.episode_info()
            if self._fault is not None:
                verdict = info.get("verdict")
                info = {**info, "fault": self._fault, "success": verdict == "success"}
            self._observer.end(reason, info)


def _no_reward(reward: Reward) -> Reward:
    return dict.fromkeys(reward, 0.0) if isinstance(reward, Mapping) else type(reward)(0)


def _reason(error: BaseException) -> str:
    return "interrupted" if isinstance(error, KeyboardInterrupt) else f"error: {error or type(error).__name__}"
