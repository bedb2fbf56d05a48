"""PPO whose critic sees more than its actor, for a walking quadruped: `python launch/train_walk.py` (extra: train)."""

import argparse
from itertools import pairwise

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from rlenv_gpu.environment import for_tensors
from rlenv_learn.ppo import with_advantages
from rlenv_robot import FlatPolicy, LearningCurve, flat_for, load_profile, make_vector
from rlenv_robot.policies.deployment import robot_of_training
from rlenv_robot.training.trials import conditions

HORIZON, GAMMA, LAMBDA, CLIP, KL, SMALL = 24, 0.99, 0.95, 0.2, 0.01, 0.05  # small rewards: a new critic is soon right


def network(inputs, outputs):
    """Three hidden layers."""
    pairs = pairwise((inputs, 256, 128, 64, outputs))
    return nn.Sequential(*(part for pair in pairs for part in (nn.Linear(*pair), nn.ELU())))[:-1]


def observed(table, flat):
    """Return the inputs of the actor, and of the critic, which also sees hidden state (speed, height, load on feet)."""
    own, more = torch.as_tensor(for_tensors(flat.observe)(table["observation"])), table["extra_info"]["state"]
    scales = {"linear_velocity": 2, "height": 3, "foot_force": 1 / 50, "height_scan": 2}
    return own, torch.cat([own, *(k * torch.as_tensor(more[n]).flatten(1) for n, k in scales.items() if n in more)], 1)


def train(name="go2-walk", steps=8_000_000, seed=0, num_envs=256, quiet=False, device="cpu", keep=None, **settings):
    """A policy, and how it came about; each trial writes the checkpoint ``keep``. Settings are those of make_vector."""
    torch.manual_seed(seed), torch.set_num_threads(1)
    where = {} if device == "cpu" else {"device": device, "arrays": "torch"}  # all on a GPU: device="warp"
    to = getattr(envs := make_vector(name, num_envs, seed=seed, **where, **settings), "device", "cpu")
    flat, curve, table = flat_for(envs.task), LearningCurve(name, quiet=quiet, **settings), envs.reset()
    actor, critic = network(flat.size, flat.action_size).to(to), network(observed(table, flat)[1].shape[1], 1).to(to)
    actor[-1].load_state_dict({name: 0.01 * value for name, value in actor[-1].state_dict().items()})
    (both := nn.ModuleList([actor, critic])).width = width = nn.Parameter(actor[-1].bias.detach() * 0 - 0.7)
    optimizer = torch.optim.Adam(weights := list(both.parameters()), 1e-3)
    done = curve.load_checkpoint(keep, both, optimizer)
    for update in range(done + 1, steps // (batch := num_envs * HORIZON) + 1):
        rows = []
        with torch.no_grad():
            for _ in range(HORIZON):
                action = Normal(actor((sight := observed(table, flat))[0]), width.exp()).sample()
                act = for_tensors(flat.act)(action, table["observation"])
                table, paid = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": act})
                late, over = (torch.as_tensor(table[end]) > 0 for end in ("truncated", "terminated"))
                value, reward = critic(sight[1])[:, 0], torch.as_tensor(paid["reward"]).float() * SMALL
                rows.append((*sight, action, value, reward + GAMMA * late * value, (~(late | over)).float()))
            following = critic(observed(table, flat)[1])[:, 0]
            own, whole, action, value, gain, _ = with_advantages(rows, following, GAMMA, LAMBDA)
            before = Normal(actor(own), width.exp())
        goal, gain = gain + value, (gain - gain.mean()) / (gain.std() + 1e-8)
        for at in (at for _ in range(4) for at in torch.randperm(batch, device=to).split(batch // 4)):
            old, now = Normal(before.loc[at], before.scale[at]), Normal(actor(own[at]), width.exp())
            change, group = kl_divergence(old, now).sum(-1).mean().item(), optimizer.param_groups[0]
            group["lr"] *= 1.5 if change < KL / 2 and group["lr"] < 7e-3 else 1 / 1.5 if change > KL * 2 else 1
            ratio = (now.log_prob(action[at]) - old.log_prob(action[at])).sum(-1).exp()
            loss = -torch.minimum(ratio * gain[at], ratio.clamp(1 - CLIP, 1 + CLIP) * gain[at]).mean()
            loss += (critic(whole[at])[:, 0] - goal[at]).square().mean() / 2 - 0.002 * now.entropy().sum(-1).mean()
            optimizer.zero_grad(), loss.backward(), nn.utils.clip_grad_norm_(weights, 1.0), optimizer.step()
        if update % 60 == 0 or (update + 1) * batch > steps:
            curve.add(update * batch, FlatPolicy(actor.cpu(), flat)), actor.to(to)
            curve.save_checkpoint(keep, update, both, optimizer)
    curve.close(), envs.close()
    return FlatPolicy(actor.cpu(), flat), curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"steps": 8_000_000, "seed": 0, "out": "walk.onnx", "profile": "", "device": "cpu"}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    profile = load_profile(given.profile) if (given := parser.parse_args()).profile else None
    settings = conditions("go2-walk", False, {**profile.task.options, "profile": profile} if profile else {})[0]
    policy = train(steps=given.steps, seed=given.seed, device=given.device, keep=given.out, **settings)[0]
    policy.save_onnx(given.out, "go2-walk", {"trainer": "PPO"}, robot_of_training("go2-walk", **settings))
