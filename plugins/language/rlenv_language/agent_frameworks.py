"""Adapt environments in language to the interfaces of TRL's trainers, SkyRL-Gym and NeMo-Gym.

None of these packages is needed to import this module: each function imports the package that it adapts to. All of them
wrap `rlenv_language.gem.GemEnv`, which verifiers accepts unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlenv_language.gem import NAMESPACE, GemEnv
from rlenv_robot.registry import TaskLike

__all__ = ["ToolEnvironment", "nemo_gym_server", "register_with_skyrl"]


class ToolEnvironment:
    """An environment that a model commands by calling the tool ``act``, for TRL's ``environment_factory``.

    TRL 1.16 makes an instance for each rollout, offers every public method except `reset` and `get_reward` as a tool,
    appends the text that `reset` returns to the prompt, and reads the reward of the whole episode.

    Args:
        name: as for `rlenv_language.gem.GemEnv`.
        settings: as for `rlenv_language.gem.GemEnv`.
    """

    def __init__(self, name: TaskLike, **settings: Any) -> None:
        self._env, self._return, self._over = GemEnv(name, **settings), 0.0, True

    def reset(self, seed: int | None = None, **row: object) -> str:
        """Begin an episode and return the task and the first observation.

        Args:
            seed: seed from the row of the data set.
            row: the row's other columns, which are ignored.
        """
        text, info = self._env.reset(seed=seed)
        self._return, self._over = 0.0, False
        return f"{info['env_instruction']}\n{text}"

    def act(self, command: str) -> str:
        """Carry out one command.

        Args:
            command: the command without tags.

        Returns:
            The next observation.
        """
        if self._over:
            return "The episode is over."
        text, reward, terminated, truncated, _ = self._env.step(f"<answer>{command}</answer>")
        self._return, self._over = self._return + reward, terminated or truncated
        return f"{text}\nThe episode is over." if self._over else text

    def get_reward(self) -> float:
        """Return the sum of the episode's rewards."""
        return self._return


def nemo_gym_server(name: TaskLike, **settings: Any) -> type:
    """Return a subclass of NeMo-Gym's ``GymnasiumServer`` with an environment in each session, for ``gymnasium_agent``.

    The row's ``seed`` is the seed of the episode. The first observation, with the task, is appended to the row's
    prompt.

    Args:
        name: as for `rlenv_language.gem.GemEnv`.
        settings: as for `rlenv_language.gem.GemEnv`.

    Raises:
        ImportError: NeMo-Gym is not installed (``pip install nemo-gym``, Python 3.12 or later).
    """
    from resources_servers.gymnasium import GymnasiumServer, extract_text

    class Server(GymnasiumServer):
        async def reset(self, metadata: dict[str, Any], session_id: str | None = None) -> tuple[str, dict[str, Any]]:
            await self.close_session(session_id)
            env = self.session_state[session_id] = GemEnv(name, **settings)
            text, info = env.reset(seed=metadata.get("seed"))
            return f"{info['env_instruction']}\n{text}", {}

        async def step(
            self, action: Any, metadata: dict[str, Any], session_id: str | None = None
        ) -> tuple[str, float, bool, bool, dict[str, Any]]:
            text, reward, terminated, truncated, info = self.session_state[session_id].step(extract_text(action))
            return text, reward, terminated, truncated, info["metrics"]

        async def close_session(self, session_id: str | None) -> None:
            env = self.session_state.pop(session_id, None)
            if env is not None:
                env.close()

    return Server


def register_with_skyrl(name: str, **settings: Any) -> str:
    """Register an environment with SkyRL-Gym and return its id, for the column ``env_class`` of SkyRL's data.

    The row's ``seed`` in SkyRL's ``extras`` is the seed of the episode. The first observation is appended to the row's
    prompt.

    Args:
        name: as for `rlenv_language.gem.GemEnv`.
        settings: as for `rlenv_language.gem.GemEnv`.

    Raises:
        ImportError: SkyRL-Gym is not installed (``pip install skyrl-gym``).
    """
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

    class SkyRLEnv(BaseTextEnv):
        def __init__(self, env_config: Any = None, extras: Any = None) -> None:
            super().__init__()
            self._env, self._seed = GemEnv(name, **settings), (extras or {}).get("seed")
            self._info: dict[str, Any] = {}

        def init(self, prompt: Sequence[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
            text, info = self._env.reset(seed=self._seed)
            first = {"role": "user", "content": f"{info['env_instruction']}\n{text}"}
            return [*prompt, first], {}

        def step(self, action: str) -> BaseTextEnvStepOutput:
            text, reward, terminated, truncated, self._info = self._env.step(action)
            self.turns += 1
            done = terminated or truncated
            following = [] if done else [{"role": "user", "content": text}]
            metadata = {"terminated": terminated, "truncated": truncated}
            return BaseTextEnvStepOutput(observations=following, reward=reward, done=done, metadata=metadata)

        def get_metrics(self) -> dict[str, Any]:
            return {"turns": self.turns, **self._info.get("metrics", {})}

        def close(self) -> None:
            self._env.close()

    env_id = f"{NAMESPACE}/{name}"
    if env_id in skyrl_gym.envs.registration.registry:
        skyrl_gym.envs.registration.deregister(env_id)
    skyrl_gym.register(id=env_id, entry_point=SkyRLEnv)
    return env_id
