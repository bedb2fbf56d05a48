"""Messages of agents are in Table 5 as they were in Table 1, for agents at once and in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from rlenv_bridges.turn_based import one_at_a_time

pytestmark = pytest.mark.requirement("B.3.2-2")

STEPS = 7


def _shown(messages: Any) -> dict[tuple[str, ...], np.ndarray]:
    """Return path -> message; no entry for a message of zeros, which a batch has where nobody sent one."""
    flat = {}
    for name, value in (messages or {}).items():
        nested = _shown(value) if isinstance(value, dict) else {(): np.asarray(value)}
        flat |= {(name, *path): message for path, message in nested.items() if np.any(message)}
    return flat


def _rows(messages: Any, place: int) -> Any:
    return {k: _rows(v, place) if isinstance(v, dict) else v[place] for k, v in messages.items()}


@pytest.mark.parametrize("in_turn", [False, True])
def test_sampled_steps_have_the_messages_that_the_agents_got(tmp_path: Path, in_turn: bool) -> None:
    joint = rr.make("so101-pair-lift", message_size=2, **({} if in_turn else {"record": tmp_path}))
    live: list[Any] = []
    with one_at_a_time(joint, record=tmp_path) if in_turn else joint as env:
        rng = np.random.default_rng(3)
        for seed in (1, 2):
            table = env.reset({"seed": seed})
            for _ in range(STEPS):
                before = table["extra_info"].get("messages")
                action = env.action.sample(rng)
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
                live.append((before, table["extra_info"].get("messages")))
    extra: Any = rr.open_source(tmp_path).steps_at(np.arange(2 * STEPS))["extra_info"]
    assert sum(bool(_shown(after)) for _, after in live) > STEPS, "many frames have messages"
    for place, (before, after) in enumerate(live):
        for key, expected in (("messages", before), ("next_messages", after)):
            found, sent = _shown(_rows(extra[key], place)), _shown(expected)
            assert found.keys() == sent.keys(), (place, key)
            for path, message in sent.items():
                np.testing.assert_array_equal(found[path], message, err_msg=f"{place} {key} {path}")


def test_steps_without_messages_have_no_such_entry(tmp_path: Path) -> None:
    with rr.make("so101-pair-lift", record=tmp_path) as env:
        env.reset({"seed": 1})
        env.step({"env_id": env.env_id, "frame_no": 0, "action": env.action.sample(np.random.default_rng(0))})
    assert "messages" not in rr.open_source(tmp_path).sample_steps(1)["extra_info"]
