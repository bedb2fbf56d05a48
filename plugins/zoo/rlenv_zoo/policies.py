"""The policies of this package, which its entry points name."""

from __future__ import annotations

from pathlib import Path

from rlenv_robot.policies.zoo import ZooPolicy

__all__ = ["SO101_PICK_PLACE", "SO101_PUSH", "SO101_REACH", "SO101_REACH_DRAWN"]


def _read(name: str) -> ZooPolicy:
    return ZooPolicy.read(Path(__file__).with_name("cards") / f"{name}.json")


SO101_PICK_PLACE = _read("so101-pick-place")
SO101_PUSH = _read("so101-push")
SO101_REACH = _read("so101-reach")
SO101_REACH_DRAWN = _read("so101-reach-drawn")
