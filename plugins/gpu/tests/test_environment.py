"""Environments on a device: the tables of `VectorEnvironment` with tensors, and the same episodes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import BatchState, EpisodeError, IllegalAction
from hal.guarding.command_limiter import CommandLimiter
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.registry import task as make_task
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.tasks.episode_rules import EpisodeRules
from rlenv_robot.vector.env import VectorEnvironment

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra train)")

from rlenv_gpu.environment import REFUSALS, for_tensors  # noqa: E402
from rlenv_gpu.fused import run_as_written  # noqa: E402
from rlenv_gpu.launches import CountedLaunches  # noqa: E402
from rlenv_gpu.packed import tensors_in  # noqa: E402
from rlenv_gpu.recording import Recorded, Recorder  # noqa: E402
from rlenv_gpu.tensor_array import TensorArray  # noqa: E402

needs_warp = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("warp", "mujoco_warp")),
    reason="MuJoCo Warp is not installed (extra gpu)",
)
TASKS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("go2-walk", {}), ("go2-walk", {"terrain": "rough", "height_scan": (3, 3), "command_hold_s": (0.5, 1.0)}),
    ("go2-walk", {"terrain": "stairs"}), ("so101-reach", {}), ("so101-push", {}), ("so101-pick-place", {}),
    ("so101-pair-lift", {}), ("so101-errand", {"cubes": 2}), ("so101-drawer", {}), ("so101-lid", {}),
    ("so101-insert", {}), ("so101-stack", {}), ("so101-sort", {}),
)  # fmt: skip


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every array of nested mappings and tuples, with its place."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from leaves(each, f"{path}.{name}")
    elif isinstance(value, tuple):
        for number, each in enumerate(value):
            yield from leaves(each, f"{path}.{number}")
    elif value is not None and not isinstance(value, list | str):
        yield path, value


def host(value: Any) -> np.ndarray:
    value = getattr(value, "tensor", value)
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def assert_same(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    pairs = dict(leaves(ours))
    assert pairs.keys() == dict(leaves(theirs)).keys()
    for path, value in leaves(theirs):
        assert host(pairs[path]).dtype == np.asarray(value).dtype, path
        np.testing.assert_allclose(host(pairs[path]), value, atol=tolerance, rtol=tolerance, err_msg=path)


def on_device(arrays: Mapping[str, np.ndarray]) -> Any:
    return {name: TensorArray(torch.from_numpy(np.array(value))) for name, value in arrays.items()}


@pytest.mark.parametrize(("name", "settings"), TASKS, ids=[f"{name} {list(kw)}" for name, kw in TASKS])
def test_a_tasks_functions_take_what_is_on_a_device(name: str, settings: dict[str, Any]) -> None:
    """Rewards, ends, commands, limits and flat vectors are those of NumPy's arrays, in their types."""
    task, rng = make_task(name, **settings), np.random.default_rng(0)
    with rr.make_vector(task, 3, seed=0) as envs:
        table = envs.reset()
        before = {n: np.array(v) for n, v in envs._batch_state.sensors.items()}  # type: ignore[union-attr]
        action = {f.name: rng.uniform(-0.1, 0.1, (3, *f.shape)).astype(f.numpy_dtype) for f in task.action}
        action = {n: np.clip(value, *task.action[n].bounds).astype(value.dtype) for n, value in action.items()}
        envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        after, goal, spec = dict(envs._batch_state.sensors), envs._goal, envs.batch.spec  # type: ignore[union-attr]
        applied = dict(envs._batch_state.applied)  # type: ignore[union-attr]
    rules, limiter, stamps = EpisodeRules(task, spec, "training"), CommandLimiter(spec), np.zeros(3, np.int64)
    host_args = (before, action, after, goal)
    device_args = tuple(map(on_device, host_args))
    none = TensorArray(torch.zeros(3, dtype=torch.bool))
    number = TensorArray(torch.tensor([1, 2, task.steps], dtype=torch.int32))
    judged = rules.judge(*device_args, number, none)  # type: ignore[call-overload]
    assert_same(tuple(judged), tuple(rules.judge(*host_args, number.tensor.numpy(), np.zeros(3, bool))))
    for function in (task.metrics, task.success, task.observe, task.privileged):
        assert_same(function(*device_args[2:]), function(*host_args[2:]))
    commands = limiter.apply(task.command(action, before), BatchState(before, applied, stamps))
    ours = task.command(*device_args[1::-1])
    assert_same(limiter.apply(ours, BatchState(device_args[0], on_device(applied), stamps)), commands)
    if name != "so101-errand":
        flat, seen = flat_for(task), task.observe(after, goal)
        assert_same(flat.observe(on_device(seen)), flat.observe(seen))
        vector = rng.uniform(-1.1, 1.1, (3, flat.action_size)).astype(np.float32)
        assert_same(flat.act(on_device({"v": vector})["v"], on_device(seen)), flat.act(vector, seen))


def in_fixed_memory(memory: Callable[[], list[Any]]) -> Recorder:
    """Return a recorder whose repetitions call the function and copy its results, as a CUDA graph leaves them."""

    def record(function: Callable[[], Any]) -> tuple[Callable[[], object], Any]:
        before = [tensor.clone() for tensor in memory()]
        results = fixed(function())
        for tensor, value in zip(memory(), before, strict=True):
            tensor.copy_(value)

        def repeat() -> None:
            for target, value in zip(tensors_in(results), tensors_in(function()), strict=True):
                target.copy_(value)

        return repeat, results

    return record


def no_pools(function: Callable[[], Any]) -> Any:
    raise RuntimeError("no memory pools")


def fixed(value: Any) -> Any:
    """Return results whose tensors have memory of their own."""
    if value is None:
        return None
    if isinstance(value, TensorArray):
        return value.copy()
    if isinstance(value, Mapping):
        return {name: fixed(part) for name, part in value.items()}
    return type(value)(*map(fixed, value))


@needs_warp
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["so101-reach", "go2-walk"])
@pytest.mark.parametrize("recorded", ["none", "parts", "whole"])
def test_episodes_are_those_of_the_batch_whose_tables_are_on_the_host(name: str, recorded: str) -> None:
    """Both on Warp's CPU device, whose kernels are the same: 20 steps, three episodes each, refused actions.

    Recorded, the parts of a step leave their results in the same memory in every step, as on a GPU.
    """
    from rlenv_gpu import WarpBatch

    task, num, rng = make_task(name, steps=8), 4, np.random.default_rng(1)
    theirs = VectorEnvironment(WarpBatch(robot_model_of(task).make_sim_model(looks=False), num, "cpu"), task, seed=3)
    ours = rr.make_vector(task, num, seed=3, device="warp:cpu", arrays="torch")
    if recorded != "none":
        for part in (ours._act, ours._judge, ours._whole):
            part._record = in_fixed_memory(ours._memory)
    if recorded == "parts":
        ours._whole._record = no_pools
    table, tensors = theirs.reset(), ours.reset()
    flat = flat_for(task)
    (field,) = task.action
    for step in range(20):
        for key in ("frame_no", "observation", "terminated", "truncated"):
            assert_same(tensors[key], dict(table)[key])
        np.testing.assert_allclose(
            host(for_tensors(flat.observe)(tensors["observation"])), flat.observe(table["observation"]), atol=1e-5
        )
        values = np.clip(rng.normal(0, 0.3, (num, *field.shape)), *field.bounds).astype(np.float32)
        frame_no = np.array(table["frame_no"])
        if step in (4, 5, 6):
            values[step - 4, 0] = {4: np.nan, 5: 99.0, 6: values[2, 0]}[step]
            frame_no[step - 4] += step == 6
        sent = {"env_id": table["env_id"], "frame_no": frame_no, "action": {field.name: values}}
        table, reward = theirs.step(sent)
        tensors, paid = ours.step({
            "env_id": tensors["env_id"], "frame_no": torch.from_numpy(frame_no.copy()),
            "action": {field.name: torch.from_numpy(values.copy())},
        })  # fmt: skip
        extra, more = table["extra_info"], tensors["extra_info"]
        assert_same(paid["reward"], reward["reward"])
        assert_same(more["applied"], extra["applied"])
        assert_same(more.get("state"), extra.get("state"), 1e-4)
        codes = {row: REFUSALS[code] for row, code in enumerate(more["refused"].tolist()) if code}
        assert codes == {row: error["code"] for row, error in extra.get("error", {}).items()}
        assert (step in (4, 5, 6)) == bool(codes)
        assert ("final" in extra) == bool(more["final"].mask.any())
        if "final" in extra:
            assert_same(more["final"], extra["final"])
            assert list(more["final"]["index"]) == np.flatnonzero(host(more["final"].mask)).tolist()
    assert ours.recording == ("parts: no memory pools" if recorded == "parts" else recorded)
    for options in ({}, {}, {"seed": 5}, {}):
        assert_same(ours.reset(options)["observation"], theirs.reset(options)["observation"])
    ours.close()
    theirs.close()


@needs_warp
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["so101-reach", "so101-pair-lift"])  # the second has two fields of an action
def test_a_recorded_step_is_five_launches_and_the_host_waits_for_none(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes end in each step, so that others are sent to the device in each step too."""
    envs = rr.make_vector(name, 4, seed=0, steps=1, device="warp:cpu", arrays="torch")
    for part in (envs._act, envs._judge, envs._whole):
        part._record = in_fixed_memory(envs._memory)
    table = envs.reset()
    action = {field.name: torch.zeros((4, *field.shape)) for field in envs.action}

    def step() -> None:
        nonlocal table
        table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})

    for _ in range(5):
        step()
    assert envs.recording == "whole"
    repeat, refused = envs._whole._repeat, unexpected("the host waits for the device")
    for waiting in ("synchronize", "Event.synchronize", "Stream.synchronize"):
        monkeypatch.setattr(f"torch.cuda.{waiting}", refused)
    monkeypatch.setattr(envs._whole, "_repeat", lambda: None)  # the graph, which is one launch
    for _ in range(3):
        with CountedLaunches() as counted:
            step()
        assert counted.launches.pop("index_copy_") == 1
        sent = 2  # the copy of the episodes to the device, which is none on the CPU, and that to their places
        assert counted.launches.total() + 1 + sent <= 5
        assert counted.waits.total() == 0
        assert repeat is not None
        repeat()
    assert envs.waits[0] == 0
    envs.close()


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")


def steps_on_gpu(
    task: Any, num: int, graph: bool, compiled: bool, physics: bool, count: int
) -> Iterator[dict[str, Any]]:
    """Tables of steps with random actions, on the host."""
    with rr.make_vector(task, num, seed=0, device="warp", arrays="torch") as envs:
        if not graph:
            for part in (envs._act, envs._judge, envs._whole):
                part._record = None
        if not compiled:
            envs._command._compiler = envs._end_step._compiler = None
        if not physics:
            envs.batch.physics._period = lambda: None
        table, rng = envs.reset(), torch.Generator().manual_seed(0)
        for _ in range(count):
            action = {
                field.name: (torch.rand((num, *field.shape), generator=rng) * 0.6 - 0.3).clamp(*map(float, span(field)))
                for field in envs.action
            }
            table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
            shown = {name: table[name] for name in ("frame_no", "observation", "terminated", "truncated")}
            final = table["extra_info"]["final"]
            last = {name: final[name] for name in ("index", "observation", "success", "metrics")}
            yield {path: host(value).copy() for path, value in leaves({**shown, "final": last, **reward_of(reward)})}
        assert envs.recording == ("whole" if graph else "none")
        assert envs.compiled == compiled


def span(field: Any) -> tuple[Any, Any]:
    return np.max(field.bounds[0]), np.min(field.bounds[1])


def reward_of(table: Any) -> dict[str, Any]:
    return {"reward": table["reward"]}


@needs_warp
@on_gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["so101-reach", "go2-walk"])
def test_on_a_gpu_the_graph_gives_the_bits_of_calls(name: str) -> None:
    """Without the physics, which repeats itself only approximately; three episodes in each of 64 environments."""
    task = make_task(name, steps=4)
    ours, theirs = (steps_on_gpu(task, 64, graph, False, False, 12) for graph in (True, False))
    for step, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        for path, value in other.items():
            np.testing.assert_array_equal(one[path], value, err_msg=f"{path} in step {step}")


@needs_warp
@on_gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["so101-reach", "go2-walk"])
def test_on_a_gpu_a_compiled_graph_with_physics_is_close_to_calls(name: str) -> None:
    task = make_task(name, steps=4)
    pytest.importorskip("triton")
    ours, theirs = (steps_on_gpu(task, 64, fast, fast, True, 12) for fast in (True, False))
    for step, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        for path, value in other.items():
            np.testing.assert_allclose(one[path], value, atol=2e-3, rtol=2e-3, err_msg=f"{path} in step {step}")


@needs_warp
@on_gpu
@pytest.mark.timeout(900)
def test_on_a_gpu_no_step_waits() -> None:
    """PyTorch raises where the host would wait for the device; the queue counts its own waits for episodes."""
    with rr.make_vector("so101-reach", 64, seed=0, steps=4, device="warp", arrays="torch") as envs:
        table, action = envs.reset(), {"joint_target": torch.zeros(64, 6, device=envs.device)}
        for step in range(40):
            if step == 20:
                assert envs.recording == "whole"
                torch.cuda.synchronize()
                torch.cuda.set_sync_debug_mode("error")
            try:
                table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
            finally:
                if step == 39:
                    torch.cuda.set_sync_debug_mode("default")


def unexpected(problem: str) -> Callable[..., None]:
    def refuse(*args: object) -> None:
        raise AssertionError(problem)

    return refuse


@needs_warp
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["so101-push", "go2-walk"])
def test_functions_that_are_written_down_give_the_same_tables(name: str) -> None:
    ours, theirs = (rr.make_vector(name, 3, seed=0, steps=4, device="warp:cpu", arrays="torch") for _ in range(2))
    for part in (ours._command, ours._end_step):
        part._compiler = run_as_written
    rng, tables = np.random.default_rng(0), [ours.reset(), theirs.reset()]
    for _ in range(10):
        action = {
            field.name: torch.from_numpy(
                np.clip(rng.normal(0, 0.3, (3, *field.shape)), *field.bounds).astype(np.float32)
            ) for field in ours.action
        }  # fmt: skip
        rewards = []
        for place, envs in enumerate((ours, theirs)):
            table = tables[place]
            tables[place], reward = envs.step({
                "env_id": table["env_id"], "frame_no": table["frame_no"], "action": action
            })  # fmt: skip
            rewards.append(reward["reward"])
        assert (rewards[0] == rewards[1]).all()
        for key in ("frame_no", "observation", "terminated", "truncated"):
            for (path, one), (_, other) in zip(leaves(tables[0][key]), leaves(tables[1][key]), strict=True):
                np.testing.assert_array_equal(host(one), host(other), err_msg=f"{key}{path}")
    assert ours.compiled
    assert not theirs.compiled
    for envs in (ours, theirs):
        envs.close()


@needs_warp
@pytest.mark.timeout(900)
def test_a_batch_that_is_malformed_is_refused_whole() -> None:
    envs = rr.make_vector("so101-reach", 2, seed=0, device="warp:cpu", arrays="torch")
    with pytest.raises(EpisodeError):
        envs.step({})
    table = envs.reset()
    good = {"env_id": table["env_id"], "frame_no": table["frame_no"], "action": {"joint_target": np.zeros((2, 6))}}
    malformed: tuple[dict[str, Any], ...] = (
        {"action": {}}, {"action": {"joint_target": np.zeros((2, 5))}}, {"env_id": ["a", "b"]}, {"extra": 1},
        {"action": {"joint_target": np.array([["x"] * 6] * 2)}}, {"frame_no": np.zeros(2)},
    )  # fmt: skip
    for changed in malformed:
        with pytest.raises(IllegalAction):
            envs.step({**good, **changed})
    assert (host(envs.step(good)[0]["frame_no"]) == 1).all()
    with pytest.raises(ValueError, match="arrays"):
        rr.make_vector("so101-reach", 2, arrays="torch")


# -- Recordings ------------------------------------------------------------------------------------------------------


class Counter:
    """A function that adds a number to memory, and a recorder whose repetitions always add the number of that time."""

    def __init__(self, pure: bool = True) -> None:
        self.memory, self.pure, self.calls, self.repeats = torch.zeros(3), pure, 0, 0

    def add(self) -> TensorArray:
        self.calls += 1
        self.memory += 1.0 if self.pure else float(self.calls)
        return TensorArray(self.memory * 2)

    def record(self, function: Callable[[], Any]) -> tuple[Callable[[], object], Any]:
        number, result = 1.0 if self.pure else float(self.calls), TensorArray(torch.zeros(3))

        def repeat() -> None:
            self.repeats += 1
            self.memory.add_(number)
            result.tensor.copy_(self.memory * 2)

        return repeat, result


def test_a_recording_that_does_the_same_takes_the_place_of_calls() -> None:
    counter = Counter()
    recorded = Recorded(counter.add, lambda: [counter.memory], counter.record)
    results = [recorded().tensor.tolist() for _ in range(6)]
    assert results == [[2.0 * n] * 3 for n in range(1, 7)]
    assert counter.calls == 3  # two before the recording, and one to compare it with
    assert counter.repeats == 4


def test_a_recording_of_a_function_that_is_not_pure_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    counter = Counter(pure=False)
    recorded = Recorded(counter.add, lambda: [counter.memory], counter.record)
    results = [recorded().tensor[0].item() for _ in range(5)]
    assert results == [2.0 * total for total in (1, 3, 6, 10, 15)]
    assert counter.repeats == 1
    assert "not pure" in caplog.text


def test_a_function_that_can_not_be_recorded_is_called(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(function: Callable[[], Any]) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    counter = Counter()
    recorded = Recorded(counter.add, lambda: [counter.memory], refuse)
    assert [recorded().tensor[0].item() for _ in range(4)] == [2.0, 4.0, 6.0, 8.0]
    assert "not permitted" in caplog.text
