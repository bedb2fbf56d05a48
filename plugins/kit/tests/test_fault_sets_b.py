"""The second set of planted faults: each differs from its base in the way that its description says.

The set was written from the contract alone, and this module does not use the kit.
"""

from __future__ import annotations

import importlib.util
import json
import random
import threading
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "faults"
STANDARD = FOLDER.parent / "rlenv_kit" / "t_ccf_0002.json"
PARTS = ("robot", "source")
ENTRIES = {part: json.loads((FOLDER / f"{part}.json").read_text(encoding="utf-8")) for part in PARTS}
FAULTS = {part: [entry for entry in entries if not entry["good"]] for part, entries in ENTRIES.items()}


@cache
def module(name):
    spec = importlib.util.spec_from_file_location(f"fault_set_b_{Path(name).stem}", FOLDER / name)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def factory(entry):
    file, name = entry["factory"].split(":")
    return getattr(module(file), name)


def plain(value):
    """Return a value as data that can be compared, types and shapes of arrays included."""
    if isinstance(value, np.ndarray | np.generic):
        return (value.dtype.str, value.shape, [plain(one) for one in np.asarray(value).ravel().tolist()])
    if isinstance(value, float):
        return "nan" if value != value else round(value, 6)
    if hasattr(value, "items"):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def told(call, *arguments, **named):
    """Return `done`, or the class of an error and the reason of a stop."""
    try:
        call(*arguments, **named)
    except Exception as error:
        return type(error).__name__, getattr(error, "reason", None)
    return "done"


# -- robots -------------------------------------------------------------------------------------------------------


def command(robot, share=0.8, **changes):
    """Return a legal command at a share of each range."""
    values = {}
    for field in type(robot).__mro__[-2].spec.commands:
        low, high = (bound.astype(float) for bound in field.bounds)
        values[field.name] = (
            np.array(low + share * (high - low)).round(3 if field.dtype == "float32" else 0).astype(field.numpy_dtype)
        )
    return {**values, **changes}


def gone(robot, steps=3, share=0.8):
    """Return the state after a reset and some steps."""
    state = robot.reset({"seed": 3})
    for _ in range(steps):
        state = robot.step(command(robot, share))
    return state


def stopped(robot, reason="a hand", steps=2):
    """Stop a robot in an episode, and return it."""
    gone(robot, steps)
    robot.stop(reason)
    return robot


def illegal(robot, **changes):
    """Return the answer to an illegal command in an episode, and the sensors after it."""
    gone(robot, 1)
    return told(robot.step, command(robot, **changes)), robot.read().sensors


def mid_call(robot, call):
    """Return the answers to a call during which a stop comes from another thread, and to a step after it."""
    robot.reset({"seed": 3})
    module_of_cup = module("robot_valve.py")
    move, moved = robot.move, []

    def noticed(seconds):
        move(seconds)
        moved.append(seconds)
        if len(moved) == 2:
            stop.start()

    stop = threading.Thread(target=robot.stop, args=("mid",))
    robot.move, period = noticed, module_of_cup.PERIOD_S
    module_of_cup.PERIOD_S = 0.5  # slices of 50 ms, so that the stop comes within the call on a busy machine too
    try:
        during = told(call, robot)
    finally:
        module_of_cup.PERIOD_S = period
    stop.join()
    return during, told(robot.step, command(robot))


def in_thread(call, seconds=10.0):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(told(call)), daemon=True)
    thread.start()
    thread.join(seconds)
    return answers


def step_far(robot):
    robot.step(command(robot, 1.0))


def reset_far(robot):
    robot.reset({"start": {"height_goal": 0.1}})


def kept_changes(robot, of):
    """Return whether a part of a kept state is as it was before a further step."""
    state = gone(robot, 1)
    before = plain(of(state))
    robot.step(command(robot, 0.1))
    return before == plain(of(state))


def second_stops(robot):
    other = type(robot)()
    robot.reset({}), other.reset({})
    robot.stop("only me")
    return told(other.step, command(other))


def options_kept(subject, call, options):
    call(subject, options)
    return sorted(options)


WRONG_START = {"clear_stop": "seen", "start": {"joint_target": [9.0] * 4}}


def is_seeded(robot, seed, sensor):
    """Return whether two resets with a seed begin equally, the second after an episode."""
    first = plain(robot.reset({"seed": seed}).sensors[sensor])
    robot.step(command(robot))
    return first == plain(robot.reset({"seed": seed}).sensors[sensor])


def episodes(robot):
    """Return whether two equal episodes are equal."""
    return plain(gone(robot, 20).sensors) == plain(gone(robot, 20).sensors)


ROBOTS = {
    "MeasuresBeforeMotion": lambda r: gone(r, 1).sensors["joint_position"],
    "MovesTwoPeriods": lambda r: gone(r, 1).sensors["joint_position"],
    "SwapsMeasuredJoints": lambda r: r.reset({}).sensors["joint_position"],
    "GripperStands": lambda r: gone(r, 5).sensors["gripper_opening"],
    "MeasuredByVelocity": lambda r: r.spec.measured_by,
    "FirstVelocityIsNan": lambda r: r.reset({}).sensors["joint_velocity"],
    "ReusesBuffers": lambda r: kept_changes(r, lambda state: state.sensors),
    "AppliedIsMeasured": lambda r: gone(r, 1).applied,
    "WritesIntoCommand": lambda r: (r.reset({}), given := command(r), r.step(given))[1],
    "HalfARefusal": lambda r: illegal(r, gripper_target=np.float32(9)),
    "IgnoresUnknownNames": lambda r: illegal(r, wrist=np.float32(0)),
    "FillsMissingGripper": lambda r: (r.reset({}), told(r.step, {"joint_target": command(r)["joint_target"]}))[1],
    "NanMeansHere": lambda r: illegal(r, joint_target=np.full(4, np.nan, np.float32)),
    "ClipsSilently": lambda r: illegal(r, joint_target=np.full(4, 9, np.float32)),
    "BroadcastsOneGoal": lambda r: illegal(r, joint_target=np.float32(0.1)),
    "RefusesByAssertion": lambda r: illegal(r, joint_target=np.full(4, 9, np.float32)),
    "RefusalTakesAPeriod": lambda r: illegal(r, joint_target=np.full(4, 9, np.float32)),
    "StopLastsOneStep": lambda r: [told(stopped(r).step, command(r)), told(r.step, command(r))],
    "AnyResetClears": lambda r: told(stopped(r).reset, {}),
    "TrueClears": lambda r: told(stopped(r).reset, {"clear_stop": True}),
    "KeepsLastReason": lambda r: (stopped(r).stop("later"), told(r.step, command(r)))[1],
    "RefusedResetClears": lambda r: [told(stopped(r).reset, WRONG_START), told(r.step, command(r))],
    "StopBeforeResetIsLost": lambda r: (r.stop("early"), told(r.reset, {}))[1],
    "SharesTheStop": second_stops,
    "RefusedResetMoves": lambda r: (gone(r), told(r.reset, WRONG_START), r.read().sensors)[1:],
    "PresentGoesHome": lambda r: (gone(r), r.reset({"start": "present"}).sensors["joint_position"])[1],
    "PartialStartIsZero": lambda r: r.reset({"start": {"gripper_target": 0.05}}).sensors,
    "ClipsStart": lambda r: told(r.reset, WRONG_START),
    "StepsAfterClose": lambda r: (gone(r), r.close(), told(r.step, command(r)))[2],
    "LeftWheelReversed": lambda r: gone(r, 1).sensors["wheel_speed"],
    "SpeedInTurns": lambda r: gone(r, 1).sensors["wheel_speed"],
    "CoastsAfterStop": lambda r: stopped(r).read().sensors["wheel_speed"],
    "ObeysZeroWhileStopped": lambda r: told(stopped(r).step, {"wheel_goal": np.zeros(2, np.float32)}),
    "EmptyReasonClears": lambda r: told(stopped(r).reset, {"clear_stop": ""}),
    "SeedZeroIsNone": lambda r: is_seeded(r, 0, "pose"),
    "PoseAddsUp": lambda r: is_seeded(r, 4, "pose"),
    "RefusesBorders": lambda r: (r.reset({}), told(r.step, command(r, 1.0)))[1],
    "ReturnsDictionary": lambda r: type(gone(r, 1)).__name__,
    "StampsThePeriodsBeginning": lambda r: gone(r, 1).stamp_ns,
    "BatteryAsFraction": lambda r: r.reset({}).sensors["battery"],
    "SpeedIsOld": lambda r: gone(r, 1).sensors,
    "WrongRate": lambda r: gone(r, 1).stamp_ns * r.spec.rate_hz,
    "SpecAfterReset": lambda r: told(lambda: r.spec),
    "HomeIsNoRest": lambda r: (r.spec.home, r.reset({}).applied),
    "StepsBeforeReset": lambda r: told(r.step, command(r)),
    "ReadMoves": lambda r: (gone(r, 1), r.read(), r.read().sensors)[2],
    "SecondStopRaises": lambda r: told(stopped(r).stop, "again"),
    "SecondCloseRaises": lambda r: (r.close(), told(r.close))[1],
    "ImageFrozen": lambda r: gone(r, 4).images["top"].data,
    "ImageTransposed": lambda r: r.reset({}).images["top"].data.shape,
    "ImageMissing": lambda r: sorted(gone(r, 2).images),
    "ImageCalledJpeg": lambda r: r.reset({}).images["top"].encoding,
    "ImageOfTheFuture": lambda r: [(state.images["top"].stamp_ns - state.stamp_ns) for state in [gone(r)]],
    "ImageBufferReused": lambda r: kept_changes(r, lambda state: state.images["top"].data),
    "ZoneTooLong": lambda r: r.reset({}).sensors["zone"],
    "AgeInMilliseconds": lambda r: gone(r, 1).age_ns,
    "FaultsAsTexts": lambda r: [type(fault).__name__ for fault in gone(r, 1).faults],
    "LampFieldOfOneElement": lambda r: r.reset({}).sensors["lamp_on"],
    "ZoneMissingAfterReset": lambda r: sorted(r.reset({}).sensors),
    "ExtraSensor": lambda r: sorted(r.reset({}).sensors),
    "AxesInMillimetres": lambda r: r.reset({}).sensors["axis_position"],
    "SensorRangeTooNarrow": lambda r: told(r.spec.sensors.validate, gone(r, 9, 1.0).sensors),
    "EndStopUntold": lambda r: [(s.applied["axis_target"], s.sensors["axis_position"]) for s in [gone(r, 30, 1.0)]],
    "ReturnsBeforeTheStart": lambda r: (gone(r, 9, 1.0), r.reset({}).sensors["axis_position"])[1],
    "StopDropsGoalsLate": lambda r: stopped(r, steps=1).reset({"clear_stop": "seen", "start": "present"}).sensors,
    "StopWaitsForStep": lambda r: mid_call(r, step_far),
    "StopFinishesThePeriod": lambda r: stopped(r, steps=1).read().sensors["height"],
    "StepEndsTheStop": lambda r: mid_call(r, step_far),
    "ResetEndsTheStop": lambda r: mid_call(r, reset_far),
    "StopOfOneThread": lambda r: (gone(r, 1), in_thread(lambda: r.stop("from outside")))[1],
    "StopRetracts": lambda r: stopped(r, steps=1).read().sensors["height"],
    "ValveObeysWhileStopped": lambda r: (told(stopped(r).step, command(r, 0.0)), r.read().sensors["valve_state"])[1],
    "StopExpires": lambda r: (stopped(r), time.sleep(0.6), told(r.step, command(r)))[2],
    "ShortReason": lambda r: told(stopped(r, "a long reason of more than 16 characters").step, command(r)),
    "EmptyReasonStopsNothing": lambda r: told(stopped(r, "").step, command(r)),
    "CloseHangs": lambda r: in_thread(r.close, 5.1),
    "ResetAfterCloseWorks": lambda r: (r.close(), told(r.reset, {}))[1],
    "SeedIgnored": lambda r: is_seeded(r, 4, "pressure"),
    "StampsCount": lambda r: gone(r, 2).stamp_ns - r.reset({}).stamp_ns < -1000,
    "ValveRounds": lambda r: illegal(r, valve=np.array(0.6))[0],
    "StopLeavesRightArm": lambda r: stopped(r).read().sensors["right_speed"],
    "StopLeavesTorque": lambda r: stopped(r).read().sensors["left_effort"],
    "SidesCrossed": lambda r: (r.reset({}), r.step(command(r, left_torque=np.ones(2, np.float32))).sensors)[1],
    "ResetKeepsMomentum": lambda r: (gone(r), r.reset({}).sensors["left_speed"])[1],
    "ResetForgetsRightArm": lambda r: (gone(r), r.reset({}).sensors["right_angle"])[1],
    "HeatOutlivesReset": episodes,
    "AddsTorques": lambda r: gone(r, 3, 0.6).sensors["left_effort"],
    "OneStepLate": lambda r: gone(r, 1).sensors["left_effort"],
    "IllegalCommandClears": lambda r: [
        told(stopped(r).step, command(r, left_torque=np.full(2, 9, np.float32))),
        told(r.step, command(r)),
    ],
    "TakesStartFromOptions": lambda r: options_kept(r, type(r).reset, {"start": {"left_torque": [0.5, 0.5]}}),
}

# -- sources ------------------------------------------------------------------------------------------------------


def batch(source, size=6, /, **options):
    source.init({"seed": 2})
    return source.sample_steps(size, options)


def episode(source, number=0):
    """Return the trajectory of an episode."""
    return next(table for table in trajectories(source) if int(table["trajectory_id"]) == number)


def trajectories(source, size=60, /, **options):
    source.init({"seed": 2})
    return source.sample_trajectories(size, options)


def twice(source):
    source.init({"seed": 2})
    first = plain(source.sample_steps(9))
    source.init({"seed": 2})
    return first == plain(source.sample_steps(9))


def disturbed(source):
    """Return whether a draw stays the same where others draw from NumPy's global generator."""
    state = np.random.get_state()
    source.init({"seed": 2})
    first = plain(source.sample_steps(9))
    source.init({"seed": 2})
    np.random.random(5)
    second = plain(source.sample_steps(9))
    np.random.set_state(state)
    return first == second


def after(source, call, then):
    call(source)
    return then(source)


def drawn_episodes(source, size=400, /, **options):
    return sorted(set(batch(source, size, **options)["extra_info"]["episode"].tolist()))


def td_share(source):
    source.init({"seed": 2})
    source.update_priorities(np.arange(50), np.r_[100.0, np.full(49, 0.01)])
    return int((source.sample_steps(100, {"priority": "td_error"})["extra_info"]["index"] == 0).sum()) > 90


def written(source):
    trajectory = episode(source)
    trajectory["steps_set"]["observation"]["place"][...] = 9.0
    return episode(source)["steps_set"]["observation"]["place"]


def states(source, episodes=(0, 1)):
    """Return all actions of each frame of some episodes."""
    answers = []
    for number in episodes:
        for frame in range(3):
            source.init({"episode": number, "frame": frame})
            answers.append(source.get_all_actions())
    return answers


SOURCES = {
    "EnvIdOfFortyCharacters": lambda s: max(map(len, batch(s)["env_id"])),
    "FrameNumbersOfBatch": lambda s: batch(s)["frame_no"],
    "DoneIsEarly": lambda s: episode(s)["steps_set"]["done"],
    "NextOfTheNextEpisode": lambda s: episode(s)["steps_set"]["next_observation"],
    "NextIsTheSame": lambda s: batch(s)["next_observation"],
    "ActionsOfTheNextFrame": lambda s: batch(s)["action"],
    "RewardsOfTheLastFrame": lambda s: episode(s)["steps_set"]["reward"],
    "RewardsAsColumn": lambda s: batch(s)["reward"].shape,
    "BatchAxisLast": lambda s: batch(s)["observation"]["place"].shape,
    "BatchOfOneLosesItsAxis": lambda s: batch(s, 1)["observation"]["place"].shape,
    "LastEpisodeIsNeverDrawn": lambda s: sorted(table["trajectory_id"] for table in trajectories(s))[-1],
    "GlobalGenerator": disturbed,
    "SameBatchAlways": lambda s: plain(batch(s)) == plain(s.sample_steps(6)),
    "InitGoesOn": twice,
    "InitReturnsItself": lambda s: s.init() is None,
    "InitKeepsTheState": lambda s: (s.init({"episode": 2, "frame": 1}), s.init(), s.get_all_actions())[2],
    "PriorityIgnored": lambda s: batch(s, 9, priority="reward", alpha=60.0)["reward"],
    "DuplicatesWithoutReplacement": lambda s: len(set(batch(s, 50, replace=False)["extra_info"]["index"].tolist())),
    "TdErrorsIgnored": td_share,
    "EmptyBatches": lambda s: told(s.sample_steps, 0),
    "UnknownOptionsPass": lambda s: told(s.sample_steps, 3, {"prioritty": "reward"}),
    "FiltersStick": lambda s: after(s, lambda s: batch(s, source="expert"), drawn_episodes),
    "TakesOptionsOut": lambda s: options_kept(s, lambda s, options: s.sample_steps(2, options), {"priority": "reward"}),
    "TopFractionIsLowest": lambda s: drawn_episodes(s, top_fraction=0.25),
    "EpisodesFromOne": lambda s: drawn_episodes(s, episodes=[2, 4]),
    "TimeRunsBackwards": lambda s: episode(s)["steps_set"]["frame_no"],
    "LastStepIsLost": lambda s: episode(s)["steps_set"]["frame_no"],
    "TrajectoryIdsOfTheDraw": lambda s: [(t["trajectory_id"], t["extra_info"]["start"]) for t in trajectories(s, 3)],
    "SourceIsAlwaysExpert": lambda s: [t["extra_info"]["source"] for t in trajectories(s, 3, source="random")],
    "AllTrajectories": lambda s: len(trajectories(s, 2)),
    "ToleranceExcluded": states,
    "ActionsOfFrameZero": lambda s: (s.init({"episode": 2, "frame": 1}), s.get_all_actions()["frame_no"])[1],
    "HistogramLosesTheEnd": lambda s: s.statistics({"kind": "histogram", "field": "reward", "bins": 4})["counts"],
    "SharesItsMemory": written,
    "RewardsFilledInTwoWays": lambda s: [
        t["steps_set"]["reward"].sum() - t["extra_info"]["return"] for t in trajectories(s)
    ],
    "DoneOnlyAtGoals": lambda s: episode(s, 1)["steps_set"]["done"],
    "NextOfTheSameRobot": lambda s: episode(s)["steps_set"]["next_observation"],
    "FramesInOrderOfText": lambda s: episode(s, 1)["steps_set"]["frame_no"],
    "ThresholdExcluded": lambda s: sorted({t["trajectory_id"] for t in trajectories(s, min_return=4.0)}),
    "OneStepEpisodesAreLost": lambda s: s.statistics()["episodes"],
    "RandomOrderOfTheDatabase": twice,
    "RepeatedDrawsCollapse": lambda s: len(batch(s, 100)["reward"]),
    "RoomsAreCutOff": lambda s: batch(s)["observation"]["room"],
    "DoorsAsFloats": lambda s: batch(s)["action"]["door"],
    "FrameNumbersOf64Bits": lambda s: batch(s)["frame_no"].dtype.str,
    "ActionsOfAnotherKey": lambda s: sorted(batch(s)),
    "ActionsRepeat": states,
    "ActionsOfTheRoom": lambda s: states(s, (1, 3, 4, 5)),
    "ActionsOfTheEpisode": states,
    "StatisticsOfEverything": lambda s: s.statistics({"source": "expert"}),
    "ReturnIsMean": lambda s: episode(s)["extra_info"]["return"],
    "TrajectoryIdsAreTexts": lambda s: type(trajectories(s)[0]["trajectory_id"]).__name__,
    "FrameOfAnyEpisode": lambda s: states(s, (1, 4)),
    "NothingLeftIsNoError": lambda s: told(s.sample_trajectories, 2, {"min_return": 1e9}),
    "ExtraInfoMustBeGiven": lambda s: told(s.sample_steps, 3),
    "OtherNameOfTheSize": lambda s: told(s.sample_trajectories, trajectory_size=2),
    "MinusOneIsEverything": lambda s: told(s.sample_steps, -1),
    "SourceLabelMissing": lambda s: sorted(episode(s)["extra_info"]),
    "StepsWithoutMissingRewards": lambda s: s.statistics()["steps"],
    "DrawsRunOut": lambda s: (s.sample_steps(40), told(s.sample_steps, 40))[1],
}

PROOFS = {"robot": ROBOTS, "source": SOURCES}


def base_of(subject):
    """Return the correct class that a fault changes."""
    return subject.__mro__[-2]


def idents(entries):
    return [pytest.param(entry, id=entry["id"]) for entry in entries]


def shown(part, name, subject):
    """Return the output of a fault's script; a difference in the random state of the process would be no proof."""
    random.seed(0)
    np.random.seed(0)
    return plain(PROOFS[part][name](subject()))


@pytest.mark.parametrize("entry", idents(FAULTS["robot"] + FAULTS["source"]))
def test_a_fault_differs_from_its_base(entry):
    part, subject = entry["part"], factory(entry)
    name = subject.__name__
    correct = shown(part, name, base_of(subject))
    assert correct == shown(part, name, base_of(subject)), "the script is no proof: the base itself differs"
    assert shown(part, name, subject) != correct


@pytest.mark.parametrize("entry", idents([entry for entry in ENTRIES["robot"] if entry["good"]]))
def test_a_good_robot_runs(entry):
    robot = factory(entry)()
    rng = np.random.default_rng(1)
    state = robot.reset({"seed": 1})
    for _ in range(5):
        robot.spec.sensors.validate(state.sensors, "sensors")
        robot.spec.commands.validate(state.applied, "applied")
        stamp = state.stamp_ns
        state = robot.step(robot.spec.commands.sample(rng))
        assert state.stamp_ns > stamp
    assert told(robot.step, {})[0] in ("IllegalAction", "BadGoal")
    robot.stop("a hand")
    assert told(robot.step, robot.spec.commands.sample(rng))[1] == "a hand"
    assert told(robot.reset, {})[1] == "a hand"
    stays = robot.reset({"clear_stop": "it is gone", "start": "present"})
    robot.spec.sensors.validate(stays.sensors, "sensors")
    robot.close()
    robot.close()
    assert told(robot.step, robot.spec.commands.sample(rng)) == ("EpisodeError", None)


@pytest.mark.parametrize("entry", idents([entry for entry in ENTRIES["source"] if entry["good"]]))
def test_a_good_source_runs(entry):
    source = factory(entry)()
    assert source.init({"seed": 1}) is None
    drawn = source.sample_steps(7)
    assert len(drawn["env_id"]) == len(drawn["reward"]) == 7
    source.init({"seed": 1})
    assert plain(source.sample_steps(7)) == plain(drawn)
    for trajectory in source.sample_trajectories(3):
        steps, extra = trajectory["steps_set"], trajectory["extra_info"]
        assert list(steps["frame_no"]) == list(range(extra["length"]))
        assert sum(steps["reward"]) == pytest.approx(extra["return"])
    assert set(source.get_all_actions()) == {"env_id", "frame_no", "action"}
    assert source.statistics() is not None
    assert told(source.sample_steps, 0)[0] in ("SourceError", "WrongRequest")
    assert told(source.sample_steps, 2, {"no_such_option": 1})[0] == "SourceError"


def test_the_manifests_are_whole():
    ids = {entry["id"] for entries in ENTRIES.values() for entry in entries}
    statements = {one["id"] for one in json.loads(STANDARD.read_text(encoding="utf-8"))["statements"]}
    assert len(ids) == sum(map(len, ENTRIES.values()))
    assert {part: len(entries) for part, entries in FAULTS.items()} == {"robot": 90, "source": 60}
    for part, entries in ENTRIES.items():
        proved = {factory(entry).__name__ for entry in FAULTS[part]}
        assert proved == set(PROOFS[part])
        for entry in entries:
            assert entry["part"] == part
            assert entry["statement"] in statements | {"contract", "robot"}
            assert entry["what"] == factory(entry).__doc__.split("\n")[0]


def test_the_open_third_is_drawn_from_the_ids():
    given = json.loads((FOLDER / "open_b.json").read_text(encoding="utf-8"))
    expected = []
    for part in PARTS:
        ids = sorted(entry["id"] for entry in FAULTS[part])
        expected += random.Random(31).sample(ids, len(ids) // 3)
    assert given == expected
