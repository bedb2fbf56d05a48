"""PPO whose critic sees more than its actor, for a walking quadruped: `python launch/train_walk.py` (extra: train)."""

import argparse
from itertools import pairwise

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from rlenv_robot import FlatPolicy, LearningCurve, flat_for, load_profile, make_vector
from rlenv_robot.policies.deployment import robot_of_training
from rlenv_robot.vector.tensors import for_tensors

HORIZON, GAMMA, LAMBDA, CLIP, KL, SMALL = 24, 0.99, 0.95, 0.2, 0.01, 0.05  # small rewards: a new critic is soon right


def network(inputs, outputs):
    """Three hidden layers."""
    pairs = (nn.Sequential(nn.Linear(*pair), nn.ELU()) for pair in pairwise((inputs, 256, 128, 64)))
    return nn.Sequential(*pairs, nn.Linear(64, outputs))


def observed(table, flat):
    """Return the inputs of the actor, and of the critic, which also sees hidden state (speed, height, load on feet)."""
    own, more = torch.as_tensor(for_tensors(flat.observe)(table["observation"])), table["extra_info"]["state"]
    scales = {"linear_velocity": 2, "height": 3, "foot_force": 1 / 50, "height_scan": 2}
    return own, torch.cat([own, *(k * torch.as_tensor(more[n]).flatten(1) for n, k in scales.items() if n in more)], 1)


def train(name="go2-walk", steps=8_000_000, seed=0, num_envs=1024, quiet=False, device="cpu", **settings):
    """A policy after so many steps, and how it came about; settings are the task's, and ``profile``."""
    torch.manual_seed(seed), torch.set_num_threads(1)
    where = {} if device == "cpu" else {"device": device, "arrays": "torch"}  # all on a GPU: device="warp"
    to = getattr(envs := make_vector(name, num_envs, seed=seed, **where, **settings), "device", "cpu")
    flat, curve, table, rate = flat_for(envs.task), LearningCurve(name, quiet=quiet, **settings), envs.reset(), 1e-3
    actor, critic = network(flat.size, flat.action_size).to(to), network(observed(table, flat)[1].shape[1], 1).to(to)
    actor[-1].load_state_dict({name: 0.01 * value for name, value in actor[-1].state_dict().items()})
    width = nn.Parameter(torch.full((flat.action_size,), -0.7, device=to))
    optimizer = torch.optim.Adam(weights := [*actor.parameters(), width, *critic.parameters()], rate)
    for update in range(1, steps // (batch := num_envs * HORIZON) + 1):
        rows, advantages, advantage = [], [], 0.0
        with torch.no_grad():
            for _ in range(HORIZON):
                action = Normal(actor((sight := observed(table, flat))[0]), width.exp()).sample()
                act = for_tensors(flat.act)(action, table["observation"])
                table, paid = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": act})
                late, over = (torch.as_tensor(table[end]) > 0 for end in ("truncated", "terminated"))
                value, reward = critic(sight[1])[:, 0], torch.as_tensor(paid["reward"]).float() * SMALL
                rows.append((*sight, action, value, reward + GAMMA * late * value, (late | over).float()))  # cut short
            following = critic(observed(table, flat)[1])[:, 0]
            for *_, value, reward, ended in reversed(rows):
                advantage = reward + (1 - ended) * (GAMMA * following + GAMMA * LAMBDA * advantage) - value
                advantages, following = [advantage, *advantages], value
            own, whole, action, value = (torch.cat(column) for column in list(zip(*rows, strict=True))[:4])
            gain, before = torch.cat(advantages), Normal(actor(own), width.exp())
        goal, gain = gain + value, (gain - gain.mean()) / (gain.std() + 1e-8)
        for at in (at for _ in range(4) for at in torch.randperm(batch, device=to).split(batch // 4)):
            old, now = Normal(before.loc[at], before.scale[at]), Normal(actor(own[at]), width.exp())
            change = kl_divergence(old, now).sum(-1).mean().item()
            rate = min(max(rate * (1.5 if change < KL / 2 else 1 / 1.5 if change > KL * 2 else 1), 1e-5), 1e-2)
            optimizer.param_groups[0]["lr"] = rate
            ratio = (now.log_prob(action[at]) - old.log_prob(action[at])).sum(-1).exp()
            loss = -torch.minimum(ratio * gain[at], ratio.clamp(1 - CLIP, 1 + CLIP) * gain[at]).mean()
            loss += (critic(whole[at])[:, 0] - goal[at]).square().mean() / 2 - 0.002 * now.entropy().sum(-1).mean()
            optimizer.zero_grad(), loss.backward(), nn.utils.clip_grad_norm_(weights, 1.0), optimizer.step()
        if update % 20 == 0 or (update + 1) * batch > steps:
            curve.add(update * batch, FlatPolicy(actor.cpu(), flat)), actor.to(to)
    curve.close(), envs.close()
    return FlatPolicy(actor.cpu(), flat), curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"steps": 8_000_000, "seed": 0, "out": "walk.onnx", "profile": "", "device": "cpu"}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    profile = load_profile(given.profile) if (given := parser.parse_args()).profile else None
    name, settings = (profile.task.name, profile.task.options) if profile else ("go2-walk", {})
    policy = train(name, given.steps, given.seed, device=given.device, profile=profile, **settings)[0]
    policy.save_onnx(given.out, name, {"trainer": "PPO"}, robot_of_training(name, profile=profile))
