"""Calls that show each fault of an environment in its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from plugins.kit.faults.fault_set_f import auction_faults as af
from plugins.kit.faults.fault_set_f import cistern_faults as cf
from plugins.kit.faults.fault_set_f.environments import AGENTS, Auction
from plugins.kit.faults.fault_set_f.plain import plain, tried

Calls = Callable[[Callable[[], Any]], list[Any]]


def acted(env: Any, frame: int, **values: Any) -> dict[str, Any]:
    """Return Table 2 with the values of its fields that differ from those of a usual step."""
    if isinstance(env, Auction):
        usual: dict[str, Any] = {f"{a}_bid": int(n == frame % 3) for n, a in enumerate(AGENTS)}
        usual |= {f"{a}_says": f"{a} has it all" for a in AGENTS} | {f"{a}_to": n - 1 for n, a in enumerate(AGENTS)}
    else:
        usual = {"valve": [0.5, 0.4], "pump": frame % 2}
    return {"env_id": env.env_id, "frame_no": frame, "action": {**usual, **values}}


def walk(env: Any, steps: int, options: Any = None, **values: Any) -> Iterator[Any]:
    table = env.reset({"seed": 3, **(options or {})})
    yield plain(table, env.env_id)
    for _ in range(steps):
        answer = tried(env.step, acted(env, table["frame_no"], **values))
        yield plain(answer, env.env_id)
        if isinstance(answer, dict):
            return
        table = answer[0]


def episode(make: Any) -> list[Any]:
    return list(walk(make(), 45))


def two_episodes(make: Any) -> list[Any]:
    env = make()
    return [*walk(env, 8, {"limit": 5} if not isinstance(env, Auction) else {"left": 2}), *walk(env, 40)]


def idle(make: Any) -> list[Any]:
    return list(walk(make(), 6, **{f"{a}_bid": 0 for a in AGENTS}))


def refusals(make: Any) -> list[Any]:
    env, frame = make(), 0
    answers = [plain(env.reset({"seed": 3}), env.env_id)]
    wrong: list[dict[str, Any]] = [{"valve": [0.5, 1.5]}, {"pump": 2}]
    idle = {}
    if isinstance(env, Auction):
        idle = {f"{a}_bid": 0 for a in AGENTS} | {f"{a}_to": -1 for a in AGENTS}
        for frame, bid in enumerate((5, 2)):
            answers.append(plain(env.step(acted(env, frame, **(idle | {"red_bid": bid}))), env.env_id))
        frame, wrong = 2, [idle | {"red_bid": 5}, idle | {"red_bid": 5, "green_bid": 9}]
    answers += [plain(env.step(acted(env, frame, **values)), env.env_id) for values in wrong]
    return answers + [plain(tried(env.step, acted(env, frame + n, **idle)), env.env_id) for n in range(4)]


def wrong_resets(make: Any) -> list[Any]:
    env = make()
    table = env.reset({"seed": 3})
    answers = [plain(tried(env.reset, wrong), env.env_id) for wrong in ({"limit": 99}, {"level": 12}, {"left": 9})]
    return [*answers, plain(tried(env.step, acted(env, table["frame_no"])), env.env_id)]


def kept(make: Any) -> list[Any]:
    env = make()
    table = env.reset({"seed": 3})
    env.step(acted(env, 0))
    return [plain(table, env.env_id)]


def rendered(make: Any) -> list[Any]:
    env, pictures = make(), list[Any]()
    answers = [*walk(env, 2), env.render(), env.render({"mode": "call", "to": pictures.append})]
    return [*answers, plain(pictures, env.env_id), plain(env.step(acted(env, 2)), env.env_id)]


def zero(make: Any) -> list[Any]:
    env = make()
    return [plain(env.reset({"seed": 0}), env.env_id) == plain(env.reset({"seed": 0}), env.env_id) for _ in range(4)]


def names(make: Any) -> list[Any]:
    return [make().env_id == make().env_id]


def closed(make: Any) -> list[Any]:
    env = make()
    env.close()
    return [plain(tried(env.reset, {"seed": 1}), env.env_id)]


def mode(make: Any) -> list[Any]:
    return [make().mode]


def addressed(make: Any) -> list[Any]:
    env = make()
    env.reset({"seed": 3})
    first = acted(env, 0)
    answers = [plain(env.step(first), env.env_id), plain(tried(env.step, first), env.env_id)]
    answers.append(plain(tried(env.step, {**acted(env, 1), "env_id": "another"}), env.env_id))
    return [*answers, plain(tried(env.step, acted(env, 1), {"gust": 7.0}), env.env_id)]


def overwritten(make: Any) -> list[Any]:
    env, valve = make(), np.array([0.5, 0.5])
    env.reset({"seed": 3})
    table, _ = env.step(acted(env, 0, valve=valve))
    valve[:] = 0
    return [plain(table, env.env_id)]


CALLS: dict[type, Calls] = {
    cf.FrameByPump: episode, cf.ValveIsClipped: refusals, cf.ErrorsOfValvesAlone: refusals, cf.LimitIsLate: episode,
    cf.RainOfTheProcess: episode, cf.PumpRunsOn: two_episodes, cf.LevelOptionIsClipped: wrong_resets,
    cf.RefusedResetBegins: wrong_resets, cf.RefusalDrawsRain: refusals, cf.LevelIsShared: kept,
    cf.LastIsNewFirst: episode, cf.LimitTerminates: episode, cf.LimitStays: two_episodes, cf.RenderDraws: rendered,
    cf.RenderReturns: rendered, af.RewardOfWinnersAlone: episode, af.MappingOfResetAlone: episode,
    af.MappingToAnotherName: episode, af.MessagesOneStepLate: episode, af.MessagesAreCut: episode,
    af.FirstReceiverHearsAll: episode, af.RefusedMessagesArrive: refusals, af.MaskIsOld: episode,
    af.PoorBidIsLowered: refusals, af.CodeIsUnknown: refusals, af.SeedZeroIsNone: zero, af.StateInInference: mode,
    af.StepsAfterTheEnd: idle, af.RewardFrameIsOld: episode, af.PictureFrameIsOld: rendered, af.OneIdForAll: names,
    af.RefusalCountsAsIdle: refusals, af.ClosedGoesOn: closed, af.LastItemStays: episode,
    cf.OldFramesAreTaken: addressed, cf.GustIsBounded: addressed, cf.AppliedIsCallers: overwritten,
    af.AnyNameIsTaken: addressed,
}  # fmt: skip
