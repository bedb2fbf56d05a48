"""Observation and reward code of the legged track, over the part of Isaac Lab's environment that go2-walk measures."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rlenv_kaiwu.batch import Go2Batch  # noqa: E402
from rlenv_kaiwu.lab import MissingSignalError, Processors, SceneEntityCfg  # noqa: E402


class Rewards:
    """Terms as a project writes them."""

    env: Any

    def _reward_lin_vel_z(self) -> torch.Tensor:
        return torch.square(self.env.scene["robot"].data.root_lin_vel_b[:, 2])

    def _reward_alive(self, bonus: float = 1.0) -> torch.Tensor:
        return torch.full((self.env.num_envs,), bonus)

    def _reward_air(self) -> torch.Tensor:
        feet = SceneEntityCfg("contact_forces", body_names=".*_foot")
        feet.resolve(self.env.scene)
        data = self.env.scene.sensors[feet.name].data
        assert (data.net_forces_w[:, feet.body_ids, 2] >= 0).all()
        return data.current_air_time[:, feet.body_ids].sum(dim=1)

    def _reward_rate(self) -> torch.Tensor:
        return torch.sum(torch.square(self.env.action_manager.action - self.env.action_manager.prev_action), dim=1)

    def _reward_slide(self) -> torch.Tensor:
        return self.env.scene["robot"].data.body_lin_vel_w[:, :, 0].sum(dim=1)

    def _reward_far(self) -> torch.Tensor:
        return self.env.scene["robot"].data.root_pos_w[:, 0]


class Goal:
    """An observation with four numbers behind the track's."""

    env: Any

    def process(self) -> torch.Tensor:
        assert not hasattr(self.env, "goal_positions")
        scan = self.env.scene.sensors["height_scanner"].data
        height = scan.pos_w[:, 2:3] - scan.ray_hits_w[..., 2]
        default = self._default_compute_observations()  # type: ignore[attr-defined]
        torch.testing.assert_close(2.5 * (height - 0.5), default[:, -256:], atol=1e-5, rtol=1e-5)
        return torch.cat([default, torch.ones(self.env.num_envs, 4)], dim=-1)


def stepped(rewards: dict[str, Any], steps: int = 3) -> tuple[Any, list[torch.Tensor]]:
    env = Go2Batch(processors=lambda: Processors(policy=Goal(), reward=Rewards()))
    conf: dict[str, Any] = {
        "env": {"num_envs": 2, "episode_length_s": 1.0},
        "env_conf": {"seed": 4},
        "rewards": rewards,
    }
    policy, critic = env.reset(conf)
    assert (policy.shape, critic.shape) == ((2, 305), (2, 316))
    answers = []
    for number in range(steps):
        answer: Any = env.step(torch.full((2, 12), 0.1 * number))
        answers.append(answer[2])
    env.close()
    return answer, answers


def test_a_project_s_terms_and_weights_make_the_reward() -> None:
    (_, one) = stepped({"alive": {"weight": 2.0, "params": {"bonus": 3.0}}})
    torch.testing.assert_close(one[0], torch.full((2,), 2.0 * 3.0 * 0.02))
    (_, rate) = stepped({"rate": {"weight": -1.0}, "lin_vel_z": {"weight": 0.0}, "air": {"weight": 0.0}})
    torch.testing.assert_close(rate[1], torch.full((2,), -12 * 0.01 * 0.02))
    (_, own) = stepped({})
    assert not torch.allclose(own[0], one[0]), "without the table the reward is that of go2-walk"


def test_a_term_that_reads_what_is_not_measured_is_left_out_by_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        (_, rewards) = stepped({"alive": {"weight": 1.0}, "slide": {"weight": 1.0}, "far": {"weight": 1.0}})
    torch.testing.assert_close(rewards[2], torch.full((2,), 0.02))
    said = [record.getMessage() for record in caplog.records]
    assert sum("term slide is left out: go2-walk has no body_lin_vel_w" in text for text in said) == 1
    assert sum("term far is left out: it is not finite" in text for text in said) == 1


@pytest.mark.parametrize("rewards", [{"none": {"weight": 1.0}}, {"alive": {"weight": "much"}}])
def test_a_wrong_table_is_refused(rewards: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"usr_conf: rewards\."):
        stepped(rewards)


def test_bodies_without_a_contact_are_refused() -> None:
    with pytest.raises(MissingSignalError, match="FL_foot"):
        SceneEntityCfg("contact_forces", body_names=[".*_thigh"]).resolve(None)
