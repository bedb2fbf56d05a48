"""Present a program in any language as an environment or source data, so that every check applies (6.4 a; R4.3).

The program answers the requests of `rlenv_robot.adapters.json_messages`, one a line, as docs/conformance.md describes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np

from hal import EpisodeError, Field, RobotStopped, Spec, SpecError
from hal.field import JsonDict
from rlenv_kit.program import Dialogue, open_program
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import PlannedCheck, SubjectLost, WrongAnswer
from rlenv_kit.tables import Noter, Unchecked
from rlenv_robot.adapters.json_messages import CALLS
from rlenv_robot.tables import StepExtra
from rlenv_robot.world import EnvDescription

__all__ = ["JsonEnvironment", "JsonSource", "JsonSubject", "not_on_the_border", "request_checks"]

_LEFT_OUT = object()
"""Default of an argument that the request then leaves out too."""

_TRIED = 20
"""Actions of which one is legal by the rules of most worlds."""

_OWN = "the program has copies of its own: no array is shared with it"
_GENERATORS = "the program has random generators of its own process"


def not_on_the_border(subject: object) -> Mapping[str, str]:
    """Return the keys of the checks that show nothing of a subject, and why; empty for an object of this process."""
    if isinstance(subject, JsonSource):
        return {"ownership": _OWN, "generators": _GENERATORS}
    if not isinstance(subject, JsonEnvironment):
        return {}
    return {
        **dict.fromkeys(("kept tables", "kept refusals", "overwritten tables", "actions", "options"), _OWN),
        "generators": _GENERATORS,
        "process": "each instance is a process of its own, so check 'two instances' compares them",
    }


def request_checks(subject: object, note: Noter) -> list[PlannedCheck]:
    """Return the check of the lines that a program is sent; it isn't tried of an object of this process."""
    return [PlannedCheck(
        "requests", "a line that is no request is answered so, and a whole number may be written as 3.0", "contract",
        partial(_check_requests, subject, note), ("reset",) if hasattr(subject, "reset") else ("steps",),
    )]  # fmt: skip


def _check_requests(subject: Unchecked, note: Noter) -> None:
    if not isinstance(subject, _JsonClient):
        raise NotTried("it is an object of this process, and reads no lines")
    subject.check_requests(note)
    subject.check_numbers()


class JsonSubject:
    """Make environments or source data of a program; each instance is a process, or a connection, of its own.

    ``check_environment(JsonSubject(["node", "cart.js"]))`` checks a program.

    Args:
        program: a command and its arguments, as words or as one text; or ``tcp://HOST:PORT``, where it listens.
        part: ``environment`` or ``source``; by default the environment if the program offers ``step``.
    """

    def __init__(self, program: Sequence[str] | str, part: Literal["", "environment", "source"] = "") -> None:
        self.program, self._part = program, part

    def __call__(self) -> Unchecked:
        """Start the program, and return it as an environment or as source data.

        Raises:
            OSError: the program can't be started or reached.
            WrongAnswer: it describes itself by something else than the messages' rules allow.
            SubjectLost: it ended before it described itself.
        """
        dialogue = Dialogue(open_program(self.program))
        try:
            answer = dialogue.ask("describe")
            calls = _calls_of(answer)
            kind = (
                JsonEnvironment if self._part == "environment" or (not self._part and "step" in calls) else JsonSource
            )
            return kind(dialogue, answer)
        except BaseException:
            dialogue.has_ended = True
            dialogue.channel.kill()
            raise

    def calls(self) -> tuple[str, ...]:
        """Return the calls that the program says it offers; empty if it does not answer as it should.

        Raises:
            OSError: the program can't be started or reached.
        """
        dialogue = Dialogue(open_program(self.program), patience_s=60.0)
        try:
            return _calls_of(dialogue.ask("describe"))
        except (WrongAnswer, SubjectLost):
            return ()  # the check finds it again, and says it in a report
        finally:
            dialogue.has_ended = True
            dialogue.channel.kill()


def _calls_of(answer: JsonDict) -> tuple[str, ...]:
    if "error" in answer:
        raise WrongAnswer(f"describe was refused: {answer['error']['message']}", "every program describes itself")
    calls = answer.get("calls")
    if not isinstance(calls, list) or "close" not in calls or any(call not in [*CALLS] for call in calls):
        raise WrongAnswer(f"calls in the answer of describe is {calls!r:.120}",
                          f"it lists close and what else the program offers of {', '.join(CALLS)}")  # fmt: skip
    return tuple(calls)


class _JsonClient:
    """Make calls to a program, and turn its error answers into exceptions."""

    def __init__(self, dialogue: Dialogue, answer: JsonDict) -> None:
        self._dialogue, self._calls = dialogue, _calls_of(answer)
        self._after_close: dict[str, Callable[[], Unchecked]] = {}
        self._problem: WrongAnswer | None = None
        self.env_id = answer["env_id"]
        self.mode = str(answer.get("mode", "training"))
        self.observation, self.action = (_spec_of(answer, name) for name in ("observation", "action"))
        if not answer.get("simulated", True):
            raise WrongAnswer("the program says that it is not simulated", "a real machine is checked as a hal.Robot, "
                              "whose motions the kit can bound")  # fmt: skip

    def describe_again(self) -> None:
        """Ask the program for its description once more, and take the specs from it."""
        answer = self._ask("describe")
        self.observation, self.action = (_spec_of(answer, name) for name in ("observation", "action"))

    def spent_s(self) -> float:
        """Return the time that the program has spent, as `rlenv_kit.program.Channel.spent_s`."""
        return self._dialogue.channel.spent_s()

    def check_numbers(self) -> None:
        """Check that whole numbers may be written with a fraction of 0."""

    def check_requests(self, note: Noter) -> None:
        """Check the answers to lines that are no requests.

        Raises:
            Failed: one has another code than ``request``, or another id.
        """
        if not self._dialogue.is_in_step:
            return
        lines = {
            "a line that is not JSON": ('{"id": 900001, "call": ', None, True),
            "an unknown call": ('{"id": 900002, "call": "no_such_call"}', 900002, True),
            "a request without a call": ('{"id": 900003}', 900003, True),
            "an unknown key": ('{"id": 900004, "call": "describe", "no_such_key": 1}', 900004, False),
        }
        for words, (line, number, is_due) in lines.items():
            answer = self._dialogue.ask_odd(line.encode())
            error = answer.get("error")
            code = error.get("code") if isinstance(error, Mapping) else None
            if code == "request" and answer.get("id") == number:
                continue
            found = f"{words} was answered {answer!s:.120}"
            if is_due:
                raise Failed(
                    found, f'the answer has "id": {number or "null or none"} and an error with the code request'
                )
            note("contract", f"{found}; here it is an error with the code request")

    def _ask(self, call: str, **content: object) -> JsonDict:
        if call in self._after_close:
            answer: JsonDict = self._after_close[call]()
            return answer
        if call not in self._calls:
            raise NotImplementedError(f"the program offers {', '.join(self._calls)}, not {call}")
        answer = self._dialogue.ask(call, **content)
        if "error" in answer:
            raise _exception(answer["error"])
        return answer

    def close(self) -> None:
        """Close the subject, ask at once what it answers after that, and end the program.

        A program ends with its input, so a call after `close` gets the answer that the program gave here. Safe to call
        more than once.

        Raises:
            WrongAnswer: the program did not end as it should. The second call raises it, or the only one of a source,
                so that one check says it.
            Exception: the program refused to close.
        """
        if self._after_close:
            self._ask("close")
            problem, self._problem = self._problem, None
            if problem is not None:
                raise problem
            return
        if not self._dialogue.is_in_step:
            self._after_close = dict.fromkeys(CALLS, partial(_raised, EpisodeError("the program has ended")))
            self._dialogue.close()
            return
        try:
            self._ask("close")
        finally:
            calls = self._calls
            self._after_close = {call: self._later(call) for call in ("close", *self._probes())}
            self._after_close |= {call: partial(_raised, EpisodeError("it is closed")) for call in calls
                                  if call not in self._after_close}  # fmt: skip
            try:
                self._dialogue.close()
            except WrongAnswer as wrong:
                self._problem = wrong

    def _probes(self) -> Iterable[str]:
        return ()

    def _request_after_close(self, call: str) -> JsonDict:
        return {}

    def _later(self, call: str) -> Callable[[], Unchecked]:
        """Make a call after the close, and return what gives its answer again."""
        ended = partial(_raised, EpisodeError("the program ended with close")) if call != "close" else dict
        if self._dialogue.has_ended:
            return ended
        try:
            answer = self._ask(call, **self._request_after_close(call))
        except SubjectLost as lost:
            if not lost.orderly:
                raise
            return ended
        except Exception as error:
            return partial(_raised, error)
        return lambda: answer


def _raised(error: Exception) -> Unchecked:
    raise error


def _exception(error: Mapping[str, str]) -> Exception:
    """Return the exception that stands for an error answer."""
    code, message = error["code"], error["message"]
    kinds: dict[str, Callable[[str], Exception]] = {
        "state": EpisodeError, "option": ValueError, "stopped": RobotStopped, "unavailable": NotImplementedError,
    }  # fmt: skip
    return kinds.get(code, RuntimeError)(message if code in kinds else f"error {code!r}: {message}")


class JsonEnvironment(_JsonClient):
    """A program as an environment with the interfaces of clause 6.2.

    Attributes:
        env_id: as the program says.
        observation: spec of ``observation`` in Table 1.
        action: spec of ``action`` in Table 2.
        description: reward, reset options and further descriptions; None if the program describes no reward.
        mode: ``training``, or ``inference``.
        step_extra: fields that a step takes beside the action.
        render: shows the state (6.2.2.3); None if the program does not offer it.
    """

    def __init__(self, dialogue: Dialogue, answer: JsonDict) -> None:
        super().__init__(dialogue, answer)
        self.description = _description_of(answer)
        self.render = self._render if "render" in self._calls else None
        self.step_extra = _step_extra_of(answer)
        self._frame_no: object = 0

    def reset(self, *options: object) -> Unchecked:
        """Begin an episode, with the options if there are any; return Table 1."""
        return self._table(self._ask("reset", **({"options": options[0]} if options else {})))

    def step(self, action: object, *extra_info: object) -> tuple[Unchecked, Unchecked]:
        """Send Table 2; return Tables 1 and 3."""
        answer = self._ask("step", action=action, **({"extra_info": extra_info[0]} if extra_info else {}))
        return self._table(answer), _with_whole(answer.get("reward"), "frame_no")

    def _render(self, options: Mapping[str, Unchecked] | None = None) -> None:
        """Ask for the picture of the state, and give Table 4 to the option ``to``, if there is one."""
        content = {key: value for key, value in (options or {}).items() if key != "to"}
        frame = _with_whole(
            self._ask("render", **({} if options is None else {"options": content}))["frame"], "frame_no"
        )
        if frame is not None and (not isinstance(frame, Mapping) or set(frame) != {"env_id", "frame_no", "frame_data"}):
            shown = sorted(frame) if isinstance(frame, Mapping) else type(frame).__name__
            raise WrongAnswer(f"frame in the answer of render is {shown}",
                              "it is null, or Table 4 with env_id, frame_no and frame_data")  # fmt: skip
        if options and callable(options.get("to")) and frame is not None:
            options["to"](frame)

    def check_numbers(self) -> None:
        """Check that whole numbers in Table 2 and in the options may be written with a fraction of 0, such as 3.0.

        Raises:
            Failed: they are refused.
        """
        seeded = self.description is None or "seed" in self.description.reset_options
        rng = np.random.default_rng(0)
        for _ in range(_TRIED):  # the rules of a world may refuse some actions
            answers = []
            action = self.action.sample(rng)
            for kind in (int, float):
                try:
                    table = self.reset({"seed": kind(3)} if seeded else {})
                    values = {name: _written(value, kind) for name, value in action.items()}
                    request = {"env_id": self.env_id, "frame_no": kind(table["frame_no"]), "action": values}
                    required = self.step_extra.required
                    extra = (required.sample(np.random.default_rng(0)),) if len(required) else ()
                    answers.append(self.step(request, *extra)[0].get("extra_info", {}).get("error"))
                except (ValueError, EpisodeError) as error:
                    answers.append(error)
            if answers[0] is None:
                if answers[1] is not None:
                    raise Failed(f"whole numbers that were written as 3.0 were refused: {answers[1]!s:.120}",
                                 "JSON has one type of number")  # fmt: skip
                return

    def _table(self, answer: JsonDict) -> Unchecked:
        """Return Table 1 with arrays in the types of the spec."""
        table = _with_whole(answer.get("observation"), "frame_no", "terminated", "truncated")
        if isinstance(table, dict):
            self._frame_no = table.get("frame_no")
            if isinstance(table.get("observation"), Mapping):
                table["observation"] = _typed(table["observation"], self.observation)
            extra = table.get("extra_info")
            if isinstance(extra, Mapping) and isinstance(extra.get("agents"), Mapping):
                agents = {name: _with_nan(own) if own else own for name, own in extra["agents"].items()}
                table["extra_info"] = {**extra, "agents": agents}
        return table

    def _probes(self) -> Iterable[str]:
        return ("step", "reset")

    def _request_after_close(self, call: str) -> JsonDict:
        if call != "step":
            return {}
        action = self.action.sample(np.random.default_rng(0))
        return {"action": {"env_id": self.env_id, "frame_no": self._frame_no, "action": action}}


class JsonSource(_JsonClient):
    """A program as source data with the interfaces of clause 6.3.

    Attributes:
        env_id: the name of the data, as the program says.
        observation: spec of ``observation`` in Table 5.
        action: spec of ``action`` in Tables 2 and 5.
        mode: ``training``, or ``inference``.
    """

    def close(self) -> None:
        """Close the source, and end the program.

        Raises:
            WrongAnswer: the program did not end as it should.
        """
        super().close()
        super().close()

    def init(self, options: object = _LEFT_OUT) -> None:
        """Set the data to their first state, or to the one that the options give."""
        self._ask("init", **({} if options is _LEFT_OUT else {"options": options}))

    def sample_steps(self, batch_size: object, extra_info: object = _LEFT_OUT) -> Unchecked:
        """Return a batch of Table 5."""
        return self._steps(self._ask("sample_steps", batch_size=batch_size, **_extra(extra_info))["steps"])

    def sample_trajectories(self, trajectory_size: object, extra_info: object = _LEFT_OUT) -> Unchecked:
        """Return a batch of Table 6."""
        answer = self._ask("sample_trajectories", trajectory_size=trajectory_size, **_extra(extra_info))
        return self._trajectories(answer["trajectories"])

    def check_numbers(self) -> None:
        """Check that sizes may be written with a fraction of 0, such as 2.0.

        Raises:
            Failed: they are refused.
        """
        for name, call in (("sample_steps", self.sample_steps), ("sample_trajectories", self.sample_trajectories)):
            self.init({"seed": 3.0})
            try:
                call(1.0)
            except ValueError as error:
                raise Failed(f"{name} refused the size 1.0: {error}", "JSON has one type of number") from error

    def get_all_actions(self, extra_info: object = _LEFT_OUT) -> Unchecked:
        """Return Table 2 with all actions of the current state."""
        table = _with_whole(self._ask("get_all_actions", **_extra(extra_info))["actions"], "frame_no")
        if isinstance(table, dict):
            actions = table.get("action")
            if isinstance(actions, Mapping):
                table["action"] = _typed(actions, self.action)
            elif isinstance(actions, list):
                table["action"] = [_typed(one, self.action) if isinstance(one, Mapping) else one for one in actions]
        return table

    def statistics(self, extra_info: object = _LEFT_OUT) -> Unchecked:
        """Return trajectories or numbers."""
        told = self._ask("statistics", **_extra(extra_info))["statistics"]
        return self._trajectories(told) if isinstance(told, list) else told

    def _trajectories(self, tables: Unchecked) -> Unchecked:
        if not isinstance(tables, list):
            return tables
        return [
            {**_with_whole(table, "trajectory_id"), "steps_set": self._steps(table["steps_set"])}
            if isinstance(table, dict) and "steps_set" in table else table
            for table in tables
        ]  # fmt: skip

    def _steps(self, table: Unchecked) -> Unchecked:
        """Return Table 5 with arrays in the types of the specs; its values have a leading axis, or it is a list."""
        if isinstance(table, list):
            return [self._step(one, False) for one in table]
        return self._step(table, True)

    def _step(self, table: Unchecked, leading: bool) -> Unchecked:
        if not isinstance(table, dict):
            return table
        typed = dict(table)
        for name, spec in (
            ("observation", self.observation), ("next_observation", self.observation), ("action", self.action),
        ):  # fmt: skip
            if isinstance(typed.get(name), Mapping):
                typed[name] = _typed(typed[name], spec)
        for name in ("frame_no", "done"):
            if name in typed:
                typed[name] = _array(typed[name], _INT32) if leading else _whole(typed[name])
        return typed


_INT32 = Field("whole_number", (), "int32")


def _extra(extra_info: object) -> dict[str, object]:
    return {} if extra_info is _LEFT_OUT else {"extra_info": extra_info}


def _spec_of(answer: JsonDict, name: str) -> Spec:
    try:
        return Spec.from_dict(answer[name])
    except (KeyError, TypeError, AttributeError, SpecError) as error:
        raise WrongAnswer(
            f"{name} in the answer of describe is no description: {error}",
            "it is an object with name and fields, each of them with name, shape, dtype, low, high, unit, meaning",
        ) from error


def _description_of(answer: JsonDict) -> EnvDescription | None:
    if answer.get("reward") is None:
        return None
    names = ("reset_options", "extra_info", "error_codes")
    for name in names:
        if not isinstance(answer.get(name, {}), Mapping):
            raise WrongAnswer(f"{name} in the answer of describe is {answer[name]!r:.80}", "it maps names to sentences")
    try:
        reward = Field.from_dict(answer["reward"])
    except (TypeError, AttributeError, ValueError) as error:
        raise WrongAnswer(f"reward in the answer of describe is no description: {error}",
                          "it is an object with name, shape, dtype, low, high, unit, meaning") from error  # fmt: skip
    return EnvDescription(str(answer.get("about", "")), reward, **{name: answer.get(name, {}) for name in names})


def _step_extra_of(answer: JsonDict) -> StepExtra:
    if "step_extra" not in answer:
        return StepExtra()
    spec, defaults = _spec_of(answer, "step_extra"), answer["step_extra"].get("defaults", {})
    try:
        return StepExtra(spec, defaults)
    except (TypeError, ValueError) as error:
        raise WrongAnswer(f"defaults of step_extra in the answer of describe are wrong: {error}") from error


# -- values ----------------------------------------------------------------------------------------------------


def _with_whole(table: Unchecked, *keys: str) -> Unchecked:
    """Return a table whose entries under the keys are integers where they are whole numbers."""
    if not isinstance(table, dict):
        return table
    return {key: _whole(value) if key in keys else value for key, value in table.items()}


def _with_nan(value: Unchecked) -> Unchecked:
    """Return an agent's own observation with NaN in place of null, which stands for a number that is not finite."""
    if isinstance(value, Mapping):
        return {name: _with_nan(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_nan(part) for part in value]
    return float("nan") if value is None else value


def _written(value: np.ndarray, kind: Callable[[int], object]) -> Unchecked:
    """Return a value as JSON data, whose whole numbers are of a kind."""
    if value.dtype.kind not in "iu":
        return value

    def of(part: Unchecked) -> Unchecked:
        return [of(one) for one in part] if isinstance(part, list) else kind(part)

    return of(value.tolist())


def _whole(value: Unchecked) -> Unchecked:
    """Return a number without a fraction as an integer, however it was written: JSON has one type of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _typed(values: Mapping[str, Unchecked], spec: Spec) -> dict[str, Unchecked]:
    """Return a structure in the order of its spec, with arrays where nothing is lost by the spec's types."""
    known = {name: _array(values[name], spec[name]) for name in spec.names if name in values}
    return {**known, **{name: value for name, value in values.items() if name not in known}}


def _array(value: Unchecked, field: Field) -> Unchecked:
    """Return a value as an array of the field's type, or as it came if that would lose or change something.

    A null in a field of numbers with a fraction becomes NaN.
    """
    leaves, level = [value], value
    depth = 0
    while isinstance(level, list):
        depth, level = depth + 1, level[0] if level else None
    for _ in range(depth):
        if not all(isinstance(leaf, list) for leaf in leaves):
            return value
        leaves = [*itertools.chain.from_iterable(leaves)]
    kinds, kind = set(map(type, leaves)), field.numpy_dtype.kind
    if field.is_text:
        fits = kinds <= {str} and all(len(leaf) <= field.characters for leaf in leaves)
    elif kind == "f":
        fits = kinds <= {int, float, type(None)}
    else:
        fits = kinds <= {int, float} and all(isinstance(leaf, int) or leaf.is_integer() for leaf in leaves)
    if not fits:
        return value
    try:
        with np.errstate(over="ignore"):
            if kind == "f" or float not in kinds:
                return np.array(value, np.float64 if kind == "f" else field.numpy_dtype).astype(field.numpy_dtype)
            array = np.array(value, np.float64)
            return array.astype(field.numpy_dtype) if (abs(array) < 2**53).all() and _holds(field, array) else value
    except (ValueError, OverflowError, TypeError):
        return value


def _holds(field: Field, array: np.ndarray) -> bool:
    limits = np.iinfo(field.numpy_dtype)
    return bool(((array >= limits.min) & (array <= limits.max)).all())
