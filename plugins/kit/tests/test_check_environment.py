"""The environment's checks have teeth: each of these broken environments is caught, by the check that should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import EpisodeError, Spec
from plugins.kit.tests.subjects_that_end import ExitsInClose, KeepsStateInSqlite
from rlenv_kit import EnvironmentContract, check_environment
from rlenv_robot.env import Environment

pytestmark = pytest.mark.requirement("R4.3", "R1.2")


@pytest.fixture
def make(slider_class: type) -> Callable[..., Environment]:
    """A mutant: an environment of this kind around a slider."""
    return lambda kind=Environment: kind(slider_class())


def test_a_good_environment_passes(make: Callable[..., Environment]) -> None:
    report = check_environment(make())
    report.raise_if_failed()
    assert {check.key for check in report.checks if check.passed is None} == {
        "process",
        "inference",
        "masks",
        "messages",
        "step extra",
    }
    assert not [note for note in report.notes if "environment variables" not in note.text]  # set as libraries load


class _Frame(Environment):
    """Answers as it should; mutants change the answer."""

    def changed(self, table: Any) -> Any:
        return table

    def rewarded(self, reward: Any) -> Any:
        return reward

    def reset(self, options: Any = {}) -> Any:  # noqa: B006  (as the standard writes it)
        return self.changed(super().reset(options))

    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        table, reward = super().step(action, extra_info)
        return self.changed(table), self.rewarded(reward)


class CountsByTwo(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "frame_no": table["frame_no"] * 2}


class FrameAsFloat(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "frame_no": float(table["frame_no"])}


class FlagAsBool(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "terminated": bool(table["terminated"])}


class FlagIsTwo(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "truncated": table["truncated"] * 2}


class NoTruncated(_Frame):
    def changed(self, table: Any) -> Any:
        return {key: value for key, value in table.items() if key != "truncated"}


class OneKeyMore(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "info": {}}


class ExtraIsAList(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "extra_info": []}


class LongName(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "env_id": "x" * 37}


class OtherName(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "env_id": "x"}


class NarrowObservation(_Frame):
    def changed(self, table: Any) -> Any:
        observation = {**table["observation"], "position": table["observation"]["position"].astype(np.float32)}
        return {**table, "observation": observation}


class FarObservation(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "observation": {**table["observation"], "moves": np.array(1001, np.int32)}}


class MissingObservation(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "observation": {"position": table["observation"]["position"]}}


class RewardNaN(_Frame):
    def rewarded(self, reward: Any) -> Any:
        return {**reward, "reward": float("nan")}


class RewardArray(_Frame):
    def rewarded(self, reward: Any) -> Any:
        return {**reward, "reward": np.zeros(1)}


class RewardOfAnotherFrame(_Frame):
    def rewarded(self, reward: Any) -> Any:
        return {**reward, "frame_no": reward["frame_no"] - 1}


class RewardForNothing(_Frame):
    def rewarded(self, reward: Any) -> Any:
        return {**reward, "reward": reward["reward"] or -1.0}


class _Error(_Frame):
    def changed(self, table: Any) -> Any:
        error = table["extra_info"].get("error")
        return {**table, "extra_info": {"error": self.told(dict(error))}} if error else table

    def told(self, error: dict[str, Any]) -> Any:
        return error


class ErrorWithoutIndex(_Error):
    def told(self, error: dict[str, Any]) -> Any:
        del error["index"]
        return error


class ErrorNamesNoElement(_Error):
    def told(self, error: dict[str, Any]) -> Any:
        return {**error, "index": []}


class ErrorNamesNoField(_Error):
    def told(self, error: dict[str, Any]) -> Any:
        return {**error, "field": "action"}


class ErrorWithoutMessage(_Error):
    def told(self, error: dict[str, Any]) -> Any:
        return {**error, "message": ""}


class SilentRefusal(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "extra_info": {}}


class _Takes(Environment):
    """Repairs what it should refuse, then carries it out."""

    def repaired(self, action: Any) -> Any:
        return action

    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        return super().step(self.repaired(action), extra_info)


class Clips(_Takes):
    def repaired(self, action: Any) -> Any:
        try:
            push = np.clip(action["action"]["push"], *self.action["push"].bounds)
            return {**action, "action": {**action["action"], "push": push}}
        except Exception:
            return action


class TakesNaN(_Takes):
    def repaired(self, action: Any) -> Any:
        try:
            return {**action, "action": {**action["action"], "push": np.nan_to_num(action["action"]["push"], posinf=9)}}
        except Exception:
            return action


class TakesStaleFrames(_Takes):
    def repaired(self, action: Any) -> Any:
        return {**action, "frame_no": self._frame_no} if isinstance(action, dict) and "frame_no" in action else action


class TakesAnyName(_Takes):
    def repaired(self, action: Any) -> Any:
        return {**action, "env_id": self.env_id} if isinstance(action, dict) and "env_id" in action else action


class TakesMore(_Takes):
    def repaired(self, action: Any) -> Any:
        try:
            return {**action, "action": {name: action["action"][name] for name in self.action.names}}
        except Exception:
            return action


class Rounds(_Takes):
    def repaired(self, action: Any) -> Any:
        try:
            return {**action, "action": {**action["action"], "gear": np.int8(action["action"]["gear"])}}
        except Exception:
            return action


class RaisesOnIllegal(Environment):
    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        table, reward = super().step(action, extra_info)
        if "error" in table["extra_info"]:
            raise ValueError("illegal")
        return table, reward


class IllegalMovesSomethingHidden(Environment):
    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        table, reward = super().step(action, extra_info)
        if "error" in table["extra_info"]:
            self.world.rng.normal()  # the observation stays, the episode does not
        return table, reward


class IgnoresSeeds(Environment):
    def reset(self, options: Any = {}) -> Any:  # noqa: B006
        return super().reset({} if "seed" in options else options)


class RandomSteps(Environment):
    def reset(self, options: Any = {}) -> Any:  # noqa: B006
        table = super().reset(options)
        self.world.rng = np.random.default_rng()
        return table


class TakesAnyOption(Environment):
    def reset(self, options: Any = {}) -> Any:  # noqa: B006
        return super().reset({key: value for key, value in options.items() if key == "seed"})


class NeedsOptions(Environment):
    def reset(self, options: Any = {}) -> Any:  # noqa: B006
        return super().reset({**options, "seed": options["seed"]})


class ReusesItsBuffer(_Frame):
    def changed(self, table: Any) -> Any:
        if not hasattr(self, "buffer"):
            self.buffer = np.zeros(2)
        self.buffer[:] = table["observation"]["position"]
        return {**table, "observation": {**table["observation"], "position": self.buffer}}


class HandsOutItsState(_Frame):
    def changed(self, table: Any) -> Any:
        return {**table, "observation": {**table["observation"], "position": self.world.position}}


class ResetsBySurprise(Environment):
    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        try:
            return super().step(action, extra_info)
        except EpisodeError:
            if self._phase == "closed":
                raise
            self.reset()
            return super().step({**action, "frame_no": 0}, extra_info)


class NeverCloses(Environment):
    def close(self) -> None:
        """Forgets to."""


class ClosesOnce(Environment):
    def close(self) -> None:
        if self._phase == "closed":
            raise RuntimeError("closed already")
        super().close()


class Unexplained(Environment):
    @property
    def observation(self) -> Spec:
        spec = super().observation
        return Spec(spec.name, (replace(spec.fields[0], meaning=""), *spec.fields[1:]))


MUTANTS: dict[type[Environment], str] = {
    CountsByTwo: "frames",
    FrameAsFloat: "reset",
    FlagAsBool: "reset",
    FlagIsTwo: "frames",
    NoTruncated: "reset",
    OneKeyMore: "reset",
    ExtraIsAList: "reset",
    LongName: "reset",
    OtherName: "reset",
    NarrowObservation: "reset",
    FarObservation: "reset",
    MissingObservation: "reset",
    RewardNaN: "frames",
    RewardArray: "frames",
    RewardOfAnotherFrame: "frames",
    RewardForNothing: "refusals",
    ErrorWithoutIndex: "refusals",
    ErrorNamesNoElement: "refusals",
    ErrorNamesNoField: "refusals",
    ErrorWithoutMessage: "refusals",
    SilentRefusal: "frames",
    Clips: "refusals",
    TakesNaN: "refusals",
    TakesStaleFrames: "refusals",
    TakesAnyName: "refusals",
    TakesMore: "refusals",
    Rounds: "refusals",
    RaisesOnIllegal: "frames",
    IllegalMovesSomethingHidden: "equal episodes",
    IgnoresSeeds: "equal starts",
    RandomSteps: "equal episodes",
    TakesAnyOption: "unknown option",
    NeedsOptions: "plain reset",
    ReusesItsBuffer: "kept tables",
    HandsOutItsState: "overwritten tables",
    ResetsBySurprise: "too early",
    NeverCloses: "closed",
    ClosesOnce: "closed",
    Unexplained: "described",
}


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(mutant, marks=[pytest.mark.slow] if number % 4 else []) for number, mutant in enumerate(MUTANTS)],
    ids=lambda mutant: mutant.__name__,
)  # every fourth is checked while one works
def test_a_broken_environment_is_caught(make: Callable[..., Environment], mutant: type[Environment]) -> None:
    report = check_environment(make(mutant))
    assert MUTANTS[mutant] in {check.key for check in report.failures}, report
    assert not report.passed
    with pytest.raises(AssertionError, match="breaks its contract"):
        report.raise_if_failed()


def test_a_surprise_reset_is_caught_before_the_first_reset_too(make: Callable[..., Environment]) -> None:
    failures = {check.key for check in check_environment(make(ResetsBySurprise)).failures}
    assert "too early" in failures


@pytest.mark.slow
def test_what_can_not_be_tried_says_so(slider_class: type) -> None:
    class Endless(slider_class):  # type: ignore[misc, valid-type]
        length = 10**9

        def step(self, action: Any, extra_info: Any) -> Any:
            self.moves = min(self.moves, 999)  # its description ends at 1000
            self.position = np.zeros(2)
            return super().step(action, extra_info)

    report = check_environment(Environment(Endless()), repeatable=False)
    untried = {check.key for check in report.checks if check.passed is None}
    assert "after the end" in untried
    assert "equal episodes" in untried
    assert report.passed, report


def test_an_environment_that_can_not_even_begin_is_reported_not_raised(make: Callable[..., Environment]) -> None:
    class Broken(Environment):
        def reset(self, options: Any = {}) -> Any:  # noqa: B006
            raise RuntimeError("the motor is gone")

    report = check_environment(make(Broken))
    assert not report.passed
    assert "the motor is gone" in str(report)


def test_the_contract_class_needs_a_make() -> None:
    with pytest.raises(NotImplementedError, match="make"):
        EnvironmentContract().test_it_keeps_the_contract()


def test_the_report_can_be_read(make: Callable[..., Environment]) -> None:
    report = check_environment(make(Clips), name="mine")
    lines = str(report).splitlines()
    assert lines[-1].startswith("environment mine: ")
    (finding,) = report.failures
    assert any(line.startswith(f"FAILED    #{finding.number:<3} R1.2  every kind of illegal action") for line in lines)
    assert "step" in finding.how
    assert any(line.startswith("step(") for line in finding.calls)


def test_one_check_can_be_made_again_by_its_number(make: Callable[..., Environment]) -> None:
    (finding,) = check_environment(make(Clips)).failures
    again = check_environment(make(Clips), only=finding.number)
    assert [(check.number, check.message) for check in again.checks] == [(finding.number, finding.message)]


def test_a_subject_is_made_used_and_closed_on_one_thread() -> None:
    """State in SQLite, as graphics contexts and serial ports, belongs to the thread that made it."""
    check_environment(KeepsStateInSqlite).raise_if_failed()


def test_an_exit_of_a_subject_in_this_process_is_a_finding() -> None:
    report = check_environment(ExitsInClose)
    assert not report.passed
    assert "raised SystemExit(0), which would have ended the process" in str(report)
