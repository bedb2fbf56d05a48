"""A user's world must have the members of `World`, and a class that wraps a world passes them on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlenv_robot.env import Environment
from rlenv_robot.tasks.go import Go
from rlenv_robot.world import TurnBasedWorld, WorldWrapper, check_members, first_part


def test_a_world_without_a_member_is_refused_by_its_name() -> None:
    class Half:
        name = "half"

        def reset(self, options: Any) -> None: ...

    with pytest.raises(TypeError, match=r"'Half' is not a World: it has no .*step.*episode_info"):
        Environment(Half())  # type: ignore[arg-type]


def test_a_slip_in_the_name_of_an_optional_method_is_told() -> None:
    class Slip(WorldWrapper):
        def seen_bye(self, player: str) -> None: ...

    with pytest.raises(TypeError, match=r"Slip.seen_bye is unknown, did you mean 'seen_by'"):
        Environment(Slip(Go(3)))


def test_no_property_is_asked_for_its_value_while_members_are_checked() -> None:
    class Lazy(WorldWrapper):
        @property
        def description(self) -> Any:
            raise AssertionError("not yet")

    Environment(Lazy(Go(3)))


def test_a_turn_based_world_needs_no_more_than_its_players() -> None:
    class Duel(WorldWrapper, TurnBasedWorld):
        players = ("a", "b")

    duel = Duel(Go(3))
    assert isinstance(duel, TurnBasedWorld)
    assert (duel.zero_sum, duel.legal(), duel.seen_by("a")) == (False, None, None)
    assert isinstance(Go(3), TurnBasedWorld)
    assert not isinstance(WorldWrapper(Go(3)), TurnBasedWorld)


def test_a_wrapper_passes_everything_on() -> None:
    inner = Go(3)
    wrapped = WorldWrapper(WorldWrapper(inner))
    assert wrapped.unwrapped is inner
    assert (wrapped.name, wrapped.observation, wrapped.action) == (inner.name, inner.observation, inner.action)
    assert (wrapped.description, wrapped.layout, wrapped.streams) == (inner.description, inner.layout, ())
    wrapped.reset({})
    timestep = wrapped.step({"move": np.array(4, np.int32)}, {})
    assert timestep.observation["board"][1, 1] == -1
    assert wrapped.episode_info() == inner.episode_info()
    wrapped.stream_to({})
    wrapped.stop("enough")
    wrapped.close()


def test_the_first_part_of_a_docstring_ends_at_its_first_section() -> None:
    assert first_part(Go(3)).startswith("Play Go.")
    assert "Args:" not in first_part(Go(3))


def test_members_of_a_contract_include_those_of_its_bases() -> None:
    class Nothing: ...

    with pytest.raises(TypeError, match=r"name.*observation.*players.*zero_sum.*legal"):
        check_members(Nothing(), TurnBasedWorld)
