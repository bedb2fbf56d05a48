"""A cart on a table in wrappers: classes around `rr.Environment` that add a time limit, a filter, a sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.registry import fault, original
from fault_set_c.shell import SEED, Subject, WorldSubject
from rlenv_robot.world import NOTHING

F = rr.Field


class CartWorld(WorldSubject):
    observation = rr.Spec("cart_observation", (
        F("position", (2,), "float32", -5, 5, "m", "of the cart", ("x", "y")),
        F("velocity", (2,), "float32", -3, 3, "m/s", "of the cart", ("x", "y")),
    ))  # fmt: skip
    action = rr.Spec("cart_action", (F("push", (2,), "float32", -1, 1, "m/s", "change of the velocity", ("x", "y")),))
    description = rr.EnvDescription(
        "Stay near the origin. At a border the cart falls, which ends the episode; 20 steps are the limit.",
        F("reward", (), "float64", -8, 0, "m", "minus the distance from the origin"),
        {"seed": SEED},
        extra_info={"truncated_by": "time limit"},
    )

    def begin(self, options: Mapping[str, Any]) -> None:
        self.position, self.velocity = self.rng.uniform(-3, 3, 2), self.rng.uniform(-1, 1, 2)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        gust = self.rng.normal(0, 0.02, 2)
        self.velocity = np.clip(self.velocity + action["push"] + gust, -3, 3)
        self.position = np.clip(self.position + 0.2 * self.velocity, -5, 5)
        self.frame += 1
        return self.seen(-float(np.hypot(*self.position)))

    def seen(self, reward) -> rr.TimeStep:
        fell = bool((abs(self.position) >= 5).any())
        late = self.frame >= 20 and not fell
        seen = {"position": self.position.astype(np.float32), "velocity": self.velocity.astype(np.float32)}
        return rr.TimeStep(seen, reward, fell, late, {"truncated_by": "time limit"} if late else {})


@original
class Cart(rr.Environment, Subject):
    style = "wrapper around the project's environment, continuous vectors"

    def __init__(self) -> None:
        super().__init__(CartWorld())


@fault("contract", "ordinary", "the wrapper resets itself at the end: the last observation is the next episode's first")
class CartAutoreset(Cart):
    def step(self, action, extra_info=NOTHING):
        seen, paid = super().step(action, extra_info)
        if seen["terminated"] or seen["truncated"]:
            first = super().reset()
            seen = {**seen, "observation": first["observation"]}
        return seen, paid


@fault("6.2.3.1-T1.truncated", "ordinary", "the wrapper's time limit of 12 steps is never announced: truncated stays 0")
class CartSilentLimit(Cart):
    def step(self, action, extra_info=NOTHING):
        seen, paid = super().step(action, extra_info)
        if seen["frame_no"] == 12 and not seen["terminated"] and self._phase == "running":
            self.end("time limit")
        return seen, paid


@fault("6.2.3.1-T1.truncated", "subtle", "after the first time limit truncated stays 1 in the tables of later episodes")
class CartStaysTruncated(Cart):
    late = 0

    def reset(self, options=NOTHING, **keywords: object):
        return {**super().reset(options, **keywords), "truncated": self.late}

    def step(self, action, extra_info=NOTHING):
        seen, paid = super().step(action, extra_info)
        self.late |= seen["truncated"]
        return {**seen, "truncated": self.late}, paid


@fault("6.2.2.2-2", "ordinary", "step scales the arrays of the action that it was given in place")
class CartScalesInput(Cart):
    def step(self, action, extra_info=NOTHING):
        answer = super().step(action, extra_info)
        push = action["action"].get("push") if isinstance(action, dict) and "action" in action else None
        if isinstance(push, np.ndarray) and push.dtype.kind == "f" and push.flags.writeable:
            push *= 0.5
        return answer


@fault("contract", "ordinary", "the second close raises")
class CartClosesOnce(Cart):
    def close(self) -> None:
        if self._phase == "closed":
            raise RuntimeError("the environment is closed already")
        super().close()


@fault("6.2.2.2-3", "obvious", "step takes the action alone")
class CartActionAlone(Cart):
    def step(self, action):  # type: ignore[override]
        return super().step(action)


@fault("6.2.2.1-2", "obvious", "reset takes the seed as its first argument, and no dictionary of options")
class CartSeedArgument(Cart):
    def reset(self, seed=None):  # type: ignore[override]
        return super().reset({} if seed is None else {"seed": int(seed)})


@fault("6.4-a", "ordinary", "the description lists an option 'start', which every reset refuses")
class CartListsOption(Cart):
    @property
    def description(self) -> rr.EnvDescription:
        inner = super().description
        return replace(inner, reset_options={**inner.reset_options, "start": "two numbers: position at the start"})


@fault("5-c", "obvious", "the wrapper sends zeros to the world: no action has an effect")
class CartNoAction(Cart):
    def step(self, action, extra_info=NOTHING):
        if isinstance(action, Mapping) and isinstance(action.get("action"), Mapping):
            checked = action["action"].keys() == {"push"} and self._legal(action["action"]["push"])
            action = {**action, "action": {"push": np.zeros(2, np.float32)}} if checked else action
        return super().step(action, extra_info)

    def _legal(self, push) -> bool:
        try:
            self.action["push"].validate(push)
        except rr.IllegalAction:
            return False
        return True
