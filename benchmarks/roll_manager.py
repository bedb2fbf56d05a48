"""Play environments in language through the rollout manager of ROLL (alibaba/ROLL), whose code stays unchanged.

    python benchmarks/roll_manager.py --roll FOLDER [--rollouts 20]

FOLDER is a checkout of https://github.com/alibaba/ROLL (tried: 8eb27cc2); its requirements have to be installed beside
rlenv-robot. Everything but the language model is ROLL's: configuration, queue of groups, ``TrajEnvManager``, masks,
metrics. In the model's place stands a policy that is registered as ROLL's ``llm_proxy``: it answers by scripted or
random commands, one answer in ten is no command, and one in ten has 6,000 characters of thought with a wrong answer in
it. The tokenizer has one token for each byte.

For each environment the table compares what ROLL collected with what this project recorded of the same episodes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

import rlenv_robot as rr
from rlenv_language.chat.tokens import CHAT_TEMPLATE
from rlenv_language.chat.transcripts import read_transcripts

NONSENSE, LONG = 0.1, 0.1
"""Shares of answers that are no command, and that have a long thought."""

THOUGHT = "<think>" + "perhaps <answer>nothing at all</answer> " * 150 + "</think>"

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "Sokoban": {
        "env_type": "rlenv_robot/sokoban", "max_steps": 20,
        "env_config": {"dim_room": [6, 6], "num_boxes": 1, "search_depth": 30, "max_steps": 10, "format_penalty": -0.15,
                       "action_pattern": "<answer>(.*?)</answer>",
                       "grid_lookup": {0: "W", 1: ".", 2: "G", 3: "C", 4: "B", 5: "A", 6: "@"},
                       "grid_vocab": {"W": "wall", ".": "empty", "G": "target", "C": "box on target", "B": "box",
                                      "A": "player", "@": "player on target"}},
    },
    "FrozenLake": {
        "env_type": "rlenv_robot/frozen-lake", "max_steps": 6,
        "env_config": {"size": 4, "p": 0.8, "is_slippery": False, "max_steps": 10, "format_penalty": -0.01},
    },
    "Reach": {"env_type": "rlenv_robot/so101-reach", "max_steps": 30, "env_config": {"steps": 12}},
    "Errand": {"env_type": "rlenv_robot/so101-errand-skills", "max_steps": 8,
               "env_config": {"cubes": 2, "max_steps": 5}},
    "Walk": {"env_type": "rlenv_robot/go2-walk", "max_steps": 10, "env_config": {"steps": 40}},
}  # fmt: skip
"""Tag -> ROLL's settings. ROLL's limit of turns is the smaller one for FrozenLake and Walk, ours for the others."""

BY_ROLL = ("FrozenLake", "Walk")


def tokenizer(folder: Path) -> Any:
    """Return a tokenizer of bytes with ChatML's marks."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"], chat_template=CHAT_TEMPLATE,
    )  # fmt: skip


def configuration(rollouts: int, record: Path) -> Any:
    """Return ROLL's configuration of the five environments, one of each."""
    from dacite import from_dict
    from roll.pipeline.agentic.agentic_config import AgenticConfig

    common = {
        "max_tokens_per_step": 8192, "env_manager_cls": "rlenv_language.roll.TrajEnvManager",
        "agent_system_template": "You play.", "agent_template": "Turn {turn_idx}:\n{observation}\n{actions_left} left.",
    }  # fmt: skip
    envs = {
        tag: {**common, **settings, "env_config": {**settings["env_config"], "record": str(record / tag)}}
        for tag, settings in ENVIRONMENTS.items()
    }
    tags, count = list(envs), len(envs)
    group = {
        "num_env_groups": count, "group_size": 1, "tags": tags, "num_groups_partition": [1] * count,
        "llm_proxy": {"proxy_type": "script"}, "max_env_num_per_worker": count, "max_traj_per_env": rollouts,
    }  # fmt: skip
    data = {
        "rollout_batch_size": count * rollouts, "val_batch_size": count * rollouts, "sequence_length": 1 << 18,
        "pretrain": "none", "custom_envs": envs, "train_env_manager": group, "val_env_manager": group,
        "actor_infer": {"generating_args": {"max_new_tokens": 8192}}, "max_steps": 1, "async_generation_ratio": 0,
    }  # fmt: skip
    return from_dict(data_class=AgenticConfig, data=data)


def register_script() -> dict[str, list[str]]:
    """Register the scripted policy with ROLL, and return the answers that it will give by the environment's id."""
    from roll.pipeline.agentic.llm_proxy import BaseLLMProxy, register_llm_proxy

    answers: dict[str, list[str]] = {}

    @register_llm_proxy("script")
    class Script(BaseLLMProxy):  # type: ignore[misc]
        """Answer by a script where there is one, and else by a random command."""

        def generate(self, messages: Any, lm_input: Any, generation_config: Any) -> Any:
            name = self.env.env_id
            said = answers.setdefault(name, [])
            rng = np.random.default_rng([len(name), len(said)])
            text = self.script(messages[-1]["content"], rng)
            dice = rng.random()
            text = "Let me see." if dice < NONSENSE else THOUGHT + text if dice < NONSENSE + LONG else text
            said.append(text)
            lm_input.batch["responses"] = self.tokenizer([text + "<|im_end|>"], return_tensors="pt")["input_ids"]
            return lm_input

        def script(self, seen: str, rng: np.random.Generator) -> str:
            if "Task: bring the " not in seen:
                return str(self.env.sample_random_action())
            words = seen.split("Task: bring the ")[-1].split()
            colour, place = words[0], words[4]
            return f"<answer>grasp({colour})</answer>" if "Gripper: empty" in seen else f"<answer>put({place})</answer>"

    return answers


def play(rollouts: int, record: Path) -> tuple[dict[str, list[Any]], dict[str, list[str]], list[str]]:
    """Return ROLL's rollouts by tag, the answers by environment, and the errors."""
    import ray
    from roll.distributed.scheduler.protocol import DataProto
    from roll.distributed.scheduler.rollout_scheduler import GroupQueueManager
    from roll.utils.import_utils import safe_import_class

    answers, errors = register_script(), list[str]()
    config = configuration(rollouts, record)
    worker = config.train_env_manager
    path = {"env_vars": {"PYTHONPATH": ":".join(sys.path)}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=path)
    queue = GroupQueueManager.remote(config=config, env_manager_config=worker, mode="train")
    ray.get(queue.advance_step.remote(0))
    managers = []
    for settings in worker.env_configs[0].values():
        manager = safe_import_class(settings["env_manager_cls"])(
            worker_config=worker, pipeline_config=config, env_config=settings, tokenizer=tokenizer(record),
            generate_scheduler=None, output_queue=queue, thread_lock=threading.Lock(), mode="train",
        )  # fmt: skip
        manager.update_step(global_step=0)
        managers.append(manager)

    def loop(manager: Any) -> None:
        try:
            manager.run_rollout_loop(DataProto(meta_info={"seed": 0}))
        except Exception as error:
            errors.append(f"{manager.env_config['tag']}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=loop, args=(manager,), daemon=True) for manager in managers]
    for thread in threads:
        thread.start()
    batch = ray.get(queue.get_batch.remote(batch_size=config.rollout_batch_size, current_step=0), timeout=1500)
    for manager in managers:
        manager.stop()
    ray.get(queue.shutdown.remote())
    for thread in threads:
        thread.join(60)
    for manager in managers:
        manager.env.close()
    ray.shutdown()
    by_tag: dict[str, list[Any]] = {}
    for one in batch:
        by_tag.setdefault(str(one.non_tensor_batch["tags"][0]), []).append(one)
    return by_tag, answers, errors


def row(tag: str, rollouts: list[Any], record: Path, said: list[str]) -> dict[str, Any]:
    """Return what ROLL collected of an environment, compared with what was recorded."""
    made = tokenizer(record)
    recorded = {tuple(np.round(one.rewards, 4)) for one in read_transcripts(rr.open_source(record / tag))}
    limits = 0
    scores, turns, equal, masks, valid = [], 0, 0, 0, []
    for one in rollouts:
        steps = tuple(round(float(score), 4) for score in one.non_tensor_batch["step_scores"][0])
        equal += steps in recorded
        turns += len(steps)
        total = float(one.non_tensor_batch["episode_scores"][0])
        scores.append(total)
        mask = one.batch["response_mask"][0].bool()
        answer = made.decode(one.batch["input_ids"][0][mask])
        masks += answer.count("<|im_end|>") == len(steps) and all(
            part in said for part in answer.split("<|im_end|>")[:-1]
        ) and abs(float(one.batch["scores"][0].sum()) - total) < 1e-3 * max(1, abs(total))  # fmt: skip
        valid += [float(one.meta_info["metrics"][f"env/{tag}/action_is_valid"])] * len(steps)
        limits += len(steps) == ENVIRONMENTS[tag]["max_steps"]
    wrong = sum(text == "Let me see." for text in said) / len(said)
    return {
        "tag": tag, "rollouts": len(rollouts), "turns": turns, "mean_score": round(float(np.mean(scores)), 3),
        "scores_as_recorded": equal, "masks_exact": masks, "valid": round(float(np.mean(valid)), 3),
        "nonsense_said": round(wrong, 3), "ended_by_ROLLs_limit": limits,
    }  # fmt: skip


def main() -> int:
    """Play, print a table as JSON lines, and return 1 after an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roll", type=Path, required=True, help="the checkout of ROLL")
    parser.add_argument("--rollouts", type=int, default=20, help="rollouts of each environment")
    args = parser.parse_args()
    sys.path[0] = str(args.roll.resolve())  # in place of this folder, whose modules would come before others'
    with tempfile.TemporaryDirectory() as folder:
        by_tag, answers, errors = play(args.rollouts, Path(folder))
        said = [text for texts in answers.values() for text in texts]
        for tag in ENVIRONMENTS:
            print(
                json.dumps(
                    row(tag, by_tag.get(tag, []), Path(folder), answers.get(ENVIRONMENTS[tag]["env_type"], said))
                )
            )
    print(json.dumps({"errors": len(errors), "first": errors[:3]}))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
