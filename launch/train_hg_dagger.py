"""Imitate demonstrations and corrections on an arm: an actor with the robot, and a learner beside it.

`python launch/train_hg_dagger.py --demos demos --robot tcp://10.0.0.7:5555 --keys keys`: HG-DAgger (Kelly et al. 2019).
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

import rlenv_robot
from hal import Terminal
from rlenv_learn.online.actor import OnlineActor, take_turns
from rlenv_learn.online.learner import LOGS, Learner
from rlenv_learn.online.learner_process import LearnerProcess
from rlenv_learn.online.scripted_operator import ScriptedOperator
from rlenv_learn.online.session import OnlineSession, can_intervene, simulated
from rlenv_learn.online.settings import OnlineSettings
from rlenv_operate.teleop.keyboard import Keyboard
from rlenv_robot import LearningCurve, flat_for
from rlenv_robot.training.rollout import run_episode
from rlenv_robot.training.trials import twin_vector
from rlenv_tabletop.scripted import SCRIPTS

RULES = {"so101-pick-place": {"release": False, "steps": 240}}  # time for people, and for an arm behind a guard
QUICK, TRIAL = {"so101-pick-place": {"steps": 100}}, {"so101-pick-place": {"steps": 180}}  # in train, and its trials
DEMONSTRATIONS, TRIALS, EPISODES, ARM = 30, 9, 100, 0  # the last is the twin's seed
OPERATOR = partial(ScriptedOperator, difference=0.02, patience=70, hand_back=8)  # corrects early and briefly
IMITATION = {"critics": 0, "ratio": 2 / 3, "batch": 128, "rate": 1e-3, "cloning": 2000, "noise": 0.15, "average": 0.005}
SETTINGS = OnlineSettings(view="gripper", **IMITATION)


def train(name="so101-pick-place", steps=54_000, seed=0, quiet=False):
    """Train in simulation with scripted demonstrations and corrections; return policy and learning curve."""
    torch.set_num_threads(1)
    rule = {"rewards": "sparse", **RULES.get(name, {}), **QUICK.get(name, {})}
    task, test = rlenv_robot.task(name, **rule), twin_vector(name, EPISODES, ARM, **rule | TRIAL.get(name, {}))
    curve = LearningCurve(name, quiet=quiet, envs=test)
    with tempfile.TemporaryDirectory() as made:
        folder, options = Path(made), {"seed": seed}
        with simulated(task, folder / "demos", arm=ARM, policy="script") as env:
            for _ in range(DEMONSTRATIONS):
                list(run_episode(env, SCRIPTS[name](), options)), options.clear()
        curve.add(0, (learner := Learner(folder, task, [folder / "demos"], SETTINGS, seed)).policy())
        operator = OPERATOR(SCRIPTS[name]()) if can_intervene(task) else None
        with simulated(task, folder / LOGS, operator, ARM, SETTINGS.method) as env:
            actor = OnlineActor(env, flat_for(task), folder, SETTINGS, seed)
            for _ in take_turns(actor, learner, steps, seed + 1):
                if actor.frames * TRIALS >= len(curve.points) * steps:
                    curve.add(actor.frames, learner.policy())
    curve.close()
    return learner.policy(), curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demos", nargs="*", type=Path, default=[], help="folders of recorded demonstrations")
    parser.add_argument("--intervene", choices=("keys", "script"), help="corrections: the terminal's keys, or a script")
    parser.add_argument("--role", choices=("both", "actor", "learner"), default="both")
    parser.add_argument("--reward", choices=("task", "verdict"), default="task", help="verdict: asked for at the end")
    parser.add_argument("--folder", type=Path, default=Path("hg_dagger"), help="logs, weights, the learner's state")
    for name, value in {"task": "so101-pick-place", "robot": "sim", "keys": "", "steps": 54_000, "seed": 0}.items():
        parser.add_argument(f"--{name}", default=value, type=type(value))
    args = parser.parse_args()
    task = rlenv_robot.task(args.task, rewards="sparse", **RULES.get(args.task, {}))
    session = OnlineSession(args.folder, task, args.demos, SETTINGS, args.seed, args.reward)
    if args.role == "learner":
        sys.exit(print(f"the policy is {session.learn()}"))
    learner = LearnerProcess([sys.executable, *sys.argv, "--role", "learner"]) if args.role == "both" else None
    operators = {"keys": lambda: Keyboard(task.action), "script": lambda: OPERATOR(SCRIPTS[args.task]())}
    operator, judge = operators.get(args.intervene, lambda: None)(), Terminal() if args.reward == "verdict" else None
    by_person = {"keys": args.keys or None, "operator": operator, "judge": judge}
    for outcome in session.act(args.robot, args.steps, learner, **by_person):
        print(f"success {outcome.success!s:5}   {outcome.frames} steps   {outcome.end}", flush=True)
    if learner:
        learner.close()
