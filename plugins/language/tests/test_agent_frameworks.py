"""Our environments in language, played by the trainers and runners of other frameworks, where those are installed."""

from __future__ import annotations

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from rlenv_language.agent_frameworks import ToolEnvironment, nemo_gym_server, register_with_skyrl
from rlenv_language.gem import GemEnv

LAKE = {"slippery": False, "ice": 1.0, "size": 2, "steps": 5}
"""A lake without holes: right and down, or down and right, lead to the goal."""


def test_a_tool_environment_gives_texts_and_the_episode_s_return() -> None:
    env = ToolEnvironment("frozen-lake", **LAKE)
    first = env.reset(seed=4, prompt="ignored")
    assert first == ToolEnvironment("frozen-lake", **LAKE).reset(seed=4)
    assert "Right" in first, "the task names its commands"
    assert "over" not in env.act("Right")
    assert env.act("Down").endswith("The episode is over.")
    assert env.get_reward() == pytest.approx(1.0)
    assert env.act("Down") == "The episode is over."
    assert env.get_reward() == pytest.approx(1.0)
    env.reset(seed=4)
    assert env.get_reward() == 0.0
    env.act("fly")
    assert env.get_reward() < 0, "an illegal command has the format penalty"


@pytest.mark.slow
def test_skyrl_gym_makes_and_steps_our_environment() -> None:
    skyrl_gym = pytest.importorskip("skyrl_gym", reason="skyrl-gym is not installed")
    from skyrl_gym.metrics import aggregate_for_environment

    env_id = register_with_skyrl("frozen-lake", **LAKE)
    assert env_id == register_with_skyrl("frozen-lake", **LAKE), "registering again is allowed"
    gem, metrics = GemEnv("frozen-lake", **LAKE), []
    for seed, answers in ((4, ("Right", "Down")), (4, ("Left",) * 5)):
        env = skyrl_gym.make(env_id, env_config={}, extras={"seed": seed})
        chat, _ = env.init([{"role": "system", "content": "Be brief."}])
        text, info = gem.reset(seed=seed)
        assert chat[0] == {"role": "system", "content": "Be brief."}
        assert chat[1]["content"] == f"{info['env_instruction']}\n{text}"
        for number, answer in enumerate(answers):
            out = env.step(f"<answer>{answer}</answer>")
            text, reward, terminated, truncated, _ = gem.step(f"<answer>{answer}</answer>")
            assert (out["reward"], out["done"]) == (reward, terminated or truncated)
            assert out["done"] == (number == len(answers) - 1)
            assert out["observations"] == ([] if out["done"] else [{"role": "user", "content": text}])
        assert out["metadata"] == {"terminated": terminated, "truncated": truncated}
        metrics.append(env.get_metrics())
        env.close()
    assert aggregate_for_environment(env_id, metrics)["success"] == 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_nemo_gym_s_gymnasium_server_plays_our_environment_over_http() -> None:
    pytest.importorskip("nemo_gym", reason="nemo-gym is not installed")
    from unittest.mock import MagicMock

    from fastapi.testclient import TestClient
    from nemo_gym.base_resources_server import BaseResourcesServerConfig
    from nemo_gym.server_utils import ServerClient

    config = BaseResourcesServerConfig(host="", port=0, entrypoint="", name="lake")
    server = nemo_gym_server("frozen-lake", **LAKE)(config=config, server_client=MagicMock(spec=ServerClient))
    gem = GemEnv("frozen-lake", **LAKE)
    with TestClient(server.setup_webserver()) as client:
        row = {"responses_create_params": {"input": []}, "seed": 4}
        first, cookies = client.post("/reset", json=row), client.cookies
        text, info = gem.reset(seed=4)
        assert first.json() == {"observation": f"{info['env_instruction']}\n{text}", "info": {}}
        for command in ("Right", "Down"):
            said = {"type": "output_text", "text": f"<answer>{command}</answer>", "annotations": []}
            message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [said]}
            response = {
                "id": "r", "created_at": 0.0, "model": "m", "object": "response", "output": [message],
                "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
            }  # fmt: skip
            answer = client.post("/step", json={**row, "response": response}, cookies=cookies).json()
            text, reward, terminated, truncated, info = gem.step(f"<answer>{command}</answer>")
            assert answer == {
                "observation": text, "reward": reward, "terminated": terminated, "truncated": truncated,
                "info": info["metrics"],
            }  # fmt: skip
        assert answer["terminated"]
        assert server.session_state == {}, "a session that is over is closed"


class Scripted(BaseHTTPRequestHandler):
    """A server of OpenAI's chat interface whose model says Right to the first message and then Down."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answered = sum(message["role"] == "assistant" for message in body["messages"])
        text = f"<answer>{('Right', 'Down')[min(answered, 1)]}</answer>"
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {
            "id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage
        }  # fmt: skip
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_verifiers_runner_plays_our_environment_without_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    vf = pytest.importorskip("verifiers", reason="verifiers is not installed")
    if not hasattr(vf, "GymEnv"):
        pytest.skip("verifiers since 0.2 has no GymEnv")
    from verifiers.types import ClientConfig

    monkeypatch.setenv("NO_KEY", "none")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        env = vf.GymEnv(
            env_cls=GemEnv, env_kwargs={"name": "frozen-lake", **LAKE}, num_train_episodes=1, num_eval_episodes=3,
            max_episode_steps=5, seed=4, system_prompt=GemEnv("frozen-lake", **LAKE).get_instructions(),
        )  # fmt: skip
        client = ClientConfig(api_base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key_var="NO_KEY")
        results = env.evaluate_sync(client=client, model="m", num_examples=3, state_columns=["trajectory"])
    finally:
        server.shutdown()
        server.server_close()
    assert [output["reward"] for output in results["outputs"]] == [1.0] * 3
    for output in results["outputs"]:
        # GymEnv asks the model once more after the end, and takes that answer for no step of the environment
        assert [step["reward"] for step in output["trajectory"][:2]] == [0.0, 1.0]
        assert output["trajectory"][1]["extras"]["gym_info"]["metrics"]["success"] is True


# -- TRL: a tiny Qwen3 of random weights with a tokenizer trained here ---------------------------------------


@pytest.fixture
def trl(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return pytest.importorskip("trl", reason="trl is not installed")


def tiny(trl: Any, texts: list[str]) -> tuple[Any, Any]:
    """Return a model, and a tokenizer with the chat template of Qwen 2.5."""
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    from rlenv_language.chat.learner import train_tokenizer

    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(texts, 600), eos_token="<|im_end|>", pad_token="<|pad|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
    template = Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja"
    tokenizer.chat_template = template.read_text(encoding="utf-8")
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=1024, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None, tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen3ForCausalLM(config), tokenizer


def call(command: str) -> dict[str, Any]:
    function = {"name": "act", "arguments": {"command": command}}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


@pytest.mark.slow
@pytest.mark.tier("learning")
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
def test_trl_s_grpo_trainer_plays_our_environment_and_is_paid_by_it(trl: Any, tmp_path: Path) -> None:
    from datasets import Dataset
    from transformers.utils import get_json_schema

    made: list[ToolEnvironment] = []

    def factory() -> ToolEnvironment:
        made.append(ToolEnvironment("frozen-lake", **LAKE))
        return made[-1]

    env = factory()
    schema, chats = get_json_schema(env.act), []
    for commands in (("Right", "Down"), ("Left", "Down", "Right")):
        chat: list[dict[str, Any]] = [{"role": "user", "content": env.reset(seed=4)}]
        for command in commands:
            chat += [call(command), {"role": "tool", "name": "act", "content": env.act(command)}]
        chats.append([*chat, {"role": "assistant", "content": "Done."}])
    plain = [json.dumps(chat) + json.dumps(schema) for chat in chats]
    model, tokenizer = tiny(trl, plain)
    shared: dict[str, Any] = {
        "report_to": "none", "use_cpu": True, "bf16": False, "logging_steps": 1, "save_strategy": "no",
        "learning_rate": 5e-3, "disable_tqdm": True, "dataloader_pin_memory": False, "gradient_checkpointing": False,
    }  # fmt: skip
    rows = Dataset.from_list([{"messages": chat, "tools": json.dumps([schema])} for chat in chats] * 8)
    imitated = trl.SFTTrainer(
        model, processing_class=tokenizer, train_dataset=rows,
        args=trl.SFTConfig(str(tmp_path / "sft"), max_steps=120, per_device_train_batch_size=4, max_length=900,
            lr_scheduler_type="constant", assistant_only_loss=True, **shared),
    )  # fmt: skip
    imitated.train()
    settings = trl.GRPOConfig(
        str(tmp_path / "grpo"), max_steps=3, per_device_train_batch_size=8, num_generations=8, beta=0.0,
        max_completion_length=250, max_tool_calling_iterations=5, **{**shared, "learning_rate": 1e-4},
    )  # fmt: skip
    seeds = Dataset.from_list([{"prompt": [{"role": "user", "content": ""}], "seed": 4} for _ in range(8)])
    trainer = trl.GRPOTrainer(
        model, args=settings, train_dataset=seeds, processing_class=tokenizer, environment_factory=factory
    )
    trainer.train()
    lines = [line for line in trainer.state.log_history if "rewards/ToolEnvironment/mean" in line]
    assert len(lines) == 3
    assert all(line["tools/call_frequency"] > 0 for line in lines), "the model calls our tool"
    paid = [each.get_reward() for each in made[-8:]]
    assert lines[-1]["rewards/ToolEnvironment/mean"] == pytest.approx(sum(paid) / 8, abs=1e-4)
    assert max(paid) == pytest.approx(1.0), "some rollout reached the goal"


os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
