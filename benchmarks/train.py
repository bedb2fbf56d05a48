"""The recipes of launch/ run to the end, for several seeds, with their learning curves.

    pip install 'rlenv-robot[train,sb3,onnx]' matplotlib
    python benchmarks/train.py run tianshou async sb3 torch --steps 38400   # the four side by side, five seeds
    python benchmarks/train.py run sac --steps 30000      # writes benchmarks/curves/sac-so101-reach-0.json ...
    python benchmarks/train.py run ray --steps 60000 --seeds 1
    python benchmarks/train.py run walk --task go2-walk --steps 10000000 --seeds 1
    python benchmarks/train.py run clone --task so101-push --steps 128000 --seeds 3
    python benchmarks/train.py run hg_dagger --task so101-pick-place --steps 54000 --seeds 1
    python benchmarks/train.py run ppo ppo-demos --task so101-push --steps 300000 --seeds 3   # `rlenv-robot train`
    python benchmarks/train.py table                      # steps and seconds until 95 % of 100 episodes succeed
    python benchmarks/train.py plot                       # docs/curves/*.png

Each policy is left in the system's folder for temporary files, as ONNX or (of ``ppo...``) as ``.npz``, for
`rlenv-robot run` and `benchmarks/tasks.py --policy`. Success is that of 100 episodes of a seed that training never
sees; trying the policy is not counted as time. Several recipes take turns, seed by seed, so that what else the machine
does falls on all of them. ``ppo`` is `rlenv-robot train --nominal`, ``ppo-demos`` likewise with ``--demos`` of 50
scripted demonstrations that succeeded, and ``ppo-demos-drawn`` the same on robots that are drawn for each episode, in
demonstrations, training and trials. A run of ``async`` steps one environment a process, as many as the native batch
has, through the same Tianshou recipe.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recorder.figures.style import QUIET, heading, saved, series, sheet
from rlenv_robot.training.rollout import LearningCurve
from rlenv_robot.training.trials import conditions
from rlenv_tabletop.scripted import SCRIPTS

ROOT = Path(__file__).resolve().parents[1]
RESULTS, IMAGES = ROOT / "benchmarks" / "curves", ROOT / "docs" / "curves"
GOAL = 0.95
NUM = 16
RECIPES = ("tianshou", "async", "sb3", "torch", "sac", "ray", "walk", "clone", "hg_dagger", "rlpd")
LABELS = {
    "tianshou": "Tianshou", "async": "asynchronous workers", "sb3": "Stable-Baselines3", "torch": "plain PyTorch",
    "sac": "SAC", "ray": "RLlib", "walk": "recipe for walking", "clone": "cloning", "hg_dagger": "HG-DAgger",
    "rlpd": "RLPD", "ppo": "PPO", "ppo-demos": "PPO with demonstrations", "ppo-demos-drawn": "the same, drawn robots",
}  # fmt: skip
"""Recipe -> its name in pictures."""
COMMANDS = ("ppo", "ppo-demos", "ppo-demos-drawn")
DEMONSTRATIONS, TRIALS = 50, 5


class Command:
    """`rlenv-robot train` with the face of a recipe."""

    def __init__(self, what: str) -> None:
        self.what, self.demonstrated, self.nominal = what, "demos" in what, "drawn" not in what

    def train(self, name: str, steps: int, seed: int, quiet: bool = False) -> tuple[Any, LearningCurve]:
        """The best policy that was tried, and how it came about."""
        import rlenv_robot
        from rlenv_learn.imitation.demonstrations import record_demonstrations
        from rlenv_learn.trainer import train_network

        task, source = rlenv_robot.task(name), None
        with tempfile.TemporaryDirectory() as folder:
            if self.demonstrated:
                drawn = conditions(name, self.nominal, {})[0]
                record_demonstrations(task, SCRIPTS[name](), folder, DEMONSTRATIONS, seed=seed, **drawn)
                source = rlenv_robot.open_source(folder, task=task)
            out, told = Path(tempfile.gettempdir()) / f"{self.what}-{name}-{seed}.npz", list[Any]()

            def progress(done: int, total: int, point: Any) -> None:
                if point is not None and point not in told:
                    told.append(point)
                    print(f"{point.steps:9,} steps {point.seconds:7.1f} s   success {point.success:5.0%}", flush=True)

            trained = train_network(
                name, out, steps=steps, seed=seed, nominal=self.nominal, demonstrations=source, trials=TRIALS,
                progress=progress,
            )  # fmt: skip
        curve = LearningCurve(name, episodes=1, quiet=True)
        curve.points = trained.points
        curve.close()
        return trained.policy, curve


def recipe(name: str) -> Any:
    """A file of launch/ as a module, or the command that trains."""
    if name in COMMANDS:
        return Command(name)
    spec = importlib.util.spec_from_file_location(f"train_{name}", ROOT / "launch" / f"train_{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def single(task: str) -> Any:
    """One environment of vectors."""
    import rlenv_robot
    from rlenv_robot.adapters.flat import flat_for
    from rlenv_robot.adapters.gymnasium import to_gymnasium
    from rlenv_robot.registry import task as task_of

    return to_gymnasium(rlenv_robot.make(task), flat=flat_for(task_of(task)))


def over_async(task: str) -> Any:
    """Gymnasium's own `AsyncVectorEnv` as Tianshou's vector environment: a process for every environment."""
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode
    from tianshou.env import BaseVectorEnv

    class Processes(BaseVectorEnv):
        def __init__(self) -> None:
            make = functools.partial(single, task)
            self.envs = AsyncVectorEnv([make] * NUM, context="spawn", autoreset_mode=AutoresetMode.DISABLED)
            self.env_num, self.is_async, self.is_closed = NUM, False, False

        def get_env_attr(self, key: str, id: Any = None) -> list[Any]:
            return [getattr(self.envs, f"single_{key}")] * NUM

        def reset(self, env_id: Any = None, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
            if env_id is None:
                return self.envs.reset(seed=0)[0].copy(), np.array([{}] * NUM)
            mask = np.isin(np.arange(NUM), env_id)
            return self.envs.reset(options={"reset_mask": mask})[0][mask], np.array([{}] * int(mask.sum()))

        def step(self, action: Any, id: Any = None) -> tuple[np.ndarray, ...]:
            assert len(action) == NUM
            *arrays, _ = self.envs.step(np.asarray(action, np.float32))
            return *arrays, np.array([{"env_id": env} for env in range(NUM)])

        def close(self) -> None:
            if not self.is_closed:
                self.envs.close()
            self.is_closed = True

    return Processes()


def run(recipes: Sequence[str], task: str, seeds: range, steps: int) -> None:
    RESULTS.mkdir(exist_ok=True)
    modules = {what: recipe("tianshou" if what == "async" else what) for what in recipes}
    for what, module in modules.items():
        if what != "ray" and what not in COMMANDS:
            module.train(task, 960, 0, quiet=True)  # what is compiled and loaded once is no one's learning
    for seed in seeds:
        for what, module in modules.items():
            run_one(what, module, task, seed, steps)


def run_one(what: str, module: Any, task: str, seed: int, steps: int) -> None:
    options: dict[str, Any] = {"envs": over_async(task)} if what == "async" else {}
    if what == "walk":
        options = conditions(task, False, {})[0]
    policy, curve = module.train(profile_of(task) if what == "ray" else task, steps, seed, **options)
    first = curve.first(GOAL)
    about, file = {"recipe": what, "seed": seed}, Path(tempfile.gettempdir()) / f"{what}-{task}-{seed}.onnx"
    if what not in COMMANDS:
        policy.save_onnx(file, task, about)
    curve.save(RESULTS / f"{what}-{task}-{seed}.json", about)
    reached = f"{first.steps:,} steps, {first.seconds:.1f} s" if first else "never"
    print(f"{what} {task} seed {seed}: {GOAL:.0%} at {reached}; at the end {curve.points[-1].success:.0%}", flush=True)


def profile_of(task: str) -> Any:
    """Return the profile that the recipe for Ray takes."""
    from rlenv_robot.config.profile import Profile, TaskSection

    return Profile(task=TaskSection(name=task))


def curves() -> dict[tuple[str, str], list[list[dict[str, Any]]]]:
    """(task, recipe) -> the points of every seed."""
    found: dict[tuple[str, str], list[list[dict[str, Any]]]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        plain = json.loads(path.read_text())
        found.setdefault((plain["task"], plain["recipe"]), []).append(plain["points"])
    return found


def table() -> None:
    print(f"{'task':<16}{'recipe':<12}{'seeds':>6}{'reached':>9}   steps, median (all)   seconds, median (all)   end")
    for (task, what), runs in curves().items():
        firsts = [next((p for p in points if p["success"] >= GOAL), None) for points in runs]
        reached = [first for first in firsts if first]
        texts = []
        for key, form in (("steps", ",.0f"), ("seconds", ",.1f")):
            values = sorted(first[key] for first in reached)
            median = format(float(np.median(values)), form) if values else "-"
            texts.append(f"{median} ({', '.join(format(value, form) for value in values)})")
        end = np.median([points[-1]["success"] for points in runs])
        print(f"{task:<16}{what:<12}{len(runs):>6}{len(reached):>9}   {texts[0]}   {texts[1]}   {end:.0%}")


def _aligned(runs: list[list[dict[str, Any]]], keys: tuple[str, ...]) -> list[np.ndarray]:
    """For each key (runs, points); what some runs have more of is left out."""
    shortest = min(len(points) for points in runs)
    return [np.array([[point[key] for point in points[:shortest]] for points in runs]) for key in keys]


def plot() -> None:
    """Draw success against steps; seconds are in the table alone, since not all were measured on a quiet machine."""
    IMAGES.mkdir(exist_ok=True)
    found = curves()
    for task in sorted({task for task, _ in found}):
        figure, (axis,) = sheet(1, 1, 8, 3.6)
        for index, what in enumerate(sorted(name for of, name in found if of == task)):
            runs, style = found[task, what], series(index)
            for points in runs:
                x, y = ([point[name] for point in points] for name in ("steps", "success"))
                axis.plot(x, [100 * value for value in y], color=style["color"], alpha=0.25, lw=0.8)
            x, y = (np.median(rows, axis=0) for rows in _aligned(runs, ("steps", "success")))
            if len(runs) > 2:
                all_x, all_y = _aligned(runs, ("steps", "success"))
                low, high = all_y.min(axis=0), all_y.max(axis=0)
                axis.fill_between(
                    np.median(all_x, axis=0), 100 * low, 100 * high, color=style["color"], alpha=0.15, lw=0
                )
            label = f"{LABELS.get(what, what)}, {'one seed' if len(runs) == 1 else f'{len(runs)} seeds'}"
            axis.plot(x, 100 * y, lw=1.8, label=label, **style)
        axis.axhline(100 * GOAL, color=QUIET, lw=0.8, ls=":")
        axis.set(xlabel="control steps", ylabel="success, % of 100 episodes", ylim=(-2, 102))
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
        heading(figure, task)
        saved(figure, IMAGES / f"{task}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run")
    running.add_argument("recipes", nargs="+", choices=(*RECIPES, *COMMANDS))
    running.add_argument("--task", default="so101-reach")
    running.add_argument("--seeds", type=int, default=5)
    running.add_argument("--first", type=int, default=0, help="the first of these seeds")
    running.add_argument("--steps", type=int, default=60_000)
    for verb in ("table", "plot"):
        verbs.add_parser(verb)
    given = parser.parse_args()
    if given.verb == "run":
        run(given.recipes, given.task, range(given.first, given.first + given.seeds), given.steps)
    else:
        {"table": table, "plot": plot}[given.verb]()


if __name__ == "__main__":
    main()
