"""PPO in plain PyTorch on a native batch: `python launch/train_torch.py --out policy.onnx` (extras: train, onnx)."""

import argparse

import torch
from torch import nn
from torch.distributions import Normal

import rlenv_robot
from rlenv_robot import FlatPolicy, LearningCurve, flat_for, to_gymnasium_vector
from rlenv_robot.policies.deployment import robot_of_training

HORIZON, GAMMA, LAMBDA, CLIP = 60, 0.9, 0.95, 0.2


def network(inputs, outputs):
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


@torch.no_grad()
def collect(envs, obs, actor, width, critic):
    """Observations, actions, their log-probabilities, advantages and returns of ``HORIZON`` steps of all."""
    rows = []
    for _ in range(HORIZON):
        now = torch.from_numpy(obs)
        chosen = Normal(actor(now), width.exp())
        action = chosen.sample()
        obs, reward, terminated, truncated, info = envs.step(action.numpy())
        after = obs.copy()
        for env in (terminated | truncated).nonzero()[0]:
            after[env] = info["final_obs"][env]
        value, following = critic(now)[:, 0], critic(torch.from_numpy(after))[:, 0]
        error = torch.from_numpy(reward).float() + GAMMA * torch.from_numpy(~terminated) * following - value
        unbroken = torch.from_numpy(~(terminated | truncated))
        rows.append((now, action, chosen.log_prob(action).sum(-1), value, error, unbroken))
    advantage, advantages = 0.0, []
    for *_, error, unbroken in reversed(rows):
        advantages.insert(0, advantage := error + GAMMA * LAMBDA * unbroken * advantage)
    now, action, chance, value = (torch.stack(column).flatten(0, 1) for column in list(zip(*rows, strict=True))[:4])
    advantages = torch.cat(advantages)
    return obs, (now, action, chance, advantages, advantages + value)


def train(name="so101-reach", steps=60_000, seed=0, num_envs=16, quiet=False):
    """A policy after so many steps, and how it came about."""
    torch.manual_seed(seed), torch.set_num_threads(1)
    envs = rlenv_robot.make_vector(name, num_envs, seed=seed)
    flat, curve = flat_for(envs.task), LearningCurve(name, quiet=quiet)
    envs = to_gymnasium_vector(envs, flat=flat, out_of_range="clip")  # a Gaussian has no ends
    actor, critic = network(flat.size, flat.action_size), network(flat.size, 1)
    actor[-1].load_state_dict({name: 0.01 * value for name, value in actor[-1].state_dict().items()})
    width, policy = nn.Parameter(torch.full((flat.action_size,), -0.7)), FlatPolicy(actor, flat)
    weights = [*actor.parameters(), width, *critic.parameters()]
    optimizer, (obs, _), batch = torch.optim.Adam(weights, 1e-3), envs.reset(seed=seed), num_envs * HORIZON
    for update in range(1, steps // batch + 1):
        obs, data = collect(envs, obs, actor, width, critic)
        for rows in (rows for _ in range(10) for rows in torch.randperm(batch).split(120)):
            now, action, chance, advantage, goal = (column[rows] for column in data)
            ratio = (Normal(actor(now), width.exp()).log_prob(action).sum(-1) - chance).exp()
            gain = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            loss = -torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
            optimizer.zero_grad(), (loss + 0.5 * (critic(now)[:, 0] - goal).square().mean()).backward()
            nn.utils.clip_grad_norm_(weights, 0.5), optimizer.step()
        if update % 2 == 0 or (update + 1) * batch > steps:
            curve.add(update * batch, policy)
    curve.close(), envs.close()
    return policy, curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"task": "so101-reach", "steps": 60_000, "seed": 0, "out": "policy.onnx"}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    given = parser.parse_args()
    policy, _ = train(given.task, given.steps, given.seed)
    about = {"trainer": "PyTorch PPO", "steps": given.steps, "seed": given.seed}
    policy.save_onnx(given.out, given.task, about, robot_of_training(given.task))
