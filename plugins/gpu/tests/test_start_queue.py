"""Episodes that are made ahead of time are those of their seed and number, whichever process makes them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from hal import SpecError
from rlenv_robot.registry import task as make_task
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.tasks.episode_rules import EpisodeRules
from sim.batch import SimBatch
from sim.model import SimModel
from sim.randomize.randomise import Randomise

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra train)")

from rlenv_gpu.packed import PackedRows, PackedTables, copy_all  # noqa: E402
from rlenv_gpu.start_queue import StartQueue  # noqa: E402
from rlenv_gpu.starts import EpisodeMaker, StartWriter  # noqa: E402
from rlenv_gpu.tensor_array import TensorArray  # noqa: E402

NUM = 5
DRAWN = Randomise.from_dict({"body.*.mass": {"uniform": [0.5, 2.0], "scale": True}})


class Mirror:
    """The counters themselves: on the CPU the host reads what the device writes."""

    def __init__(self, tensor: Any) -> None:
        self.values = tensor.numpy()

    def send(self) -> None:
        pass


def maker_of(name: str = "so101-push", randomise: Randomise | None = None) -> EpisodeMaker:
    task = make_task(name)
    model: SimModel = robot_model_of(task).make_sim_model(looks=False)
    writer = StartWriter(model, NUM, randomise)
    return EpisodeMaker(EpisodeRules(task, writer.host.spec, "training"), np.arange(NUM), writer)


def queue_of(maker: EpisodeMaker, workers: int) -> StartQueue:
    return StartQueue(maker, NUM, torch.device("cpu"), Mirror, workers)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_episodes_come_in_order_for_each_environment(workers: int) -> None:
    """Random environments begin their next episodes in 30 steps, twice as many as the queue holds for each."""
    maker, rng = maker_of(), np.random.default_rng(0)
    queue, begun = queue_of(maker, workers), np.zeros(NUM, int)
    for seed in (3, 4):
        queue.restart(seed)
        begun[:] = 0
        for _ in range(30):
            queue.refill()
            expected = maker.rows(seed, np.arange(NUM), begun)
            np.testing.assert_array_equal(queue.next().numpy(), expected)
            mask = rng.random(NUM) < 0.7
            queue.counters.copy_(queue.taken(torch.from_numpy(mask)))
            queue.report()
            begun += mask
    assert begun.max() > 16
    queue.close()


@pytest.mark.process
def test_an_error_of_a_task_reaches_who_steps() -> None:
    maker = maker_of()
    maker._rules.draw = refuse  # type: ignore[method-assign]
    queue = queue_of(maker, 1)
    queue.restart(0)
    with pytest.raises(SpecError, match="no goal today"):
        queue.refill()
    queue.close()


def refuse(*args: object) -> Any:
    raise SpecError("no goal today")


@pytest.mark.process
def test_a_process_that_ended_is_reported() -> None:
    queue = queue_of(maker_of(), 1)
    assert queue._workers is not None
    for process in queue._workers._processes:
        process.kill()
        process.join()
    queue.restart(0)
    with pytest.raises(RuntimeError, match=r"ended with code -9.*workers=0"):
        queue.refill()
    queue.close()


def test_a_host_that_is_ahead_waits_until_no_environment_can_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device has reported no step, so that each environment may have begun an episode in each of them."""
    queue = queue_of(maker_of(), 0)
    queue.restart(0)
    for _ in range(queue._depth):
        queue.refill()
    assert queue.waits == queue.pauses == 0
    assert (queue._made == queue._depth).all()
    monkeypatch.setattr(time, "sleep", lambda seconds: queue._steps.fill_(4))
    queue.refill()
    assert queue.pauses == 1
    queue.close()


def test_starts_and_models_are_those_of_the_batch_on_the_host() -> None:
    maker = maker_of(randomise=DRAWN)
    seeds = np.arange(7, 7 + NUM)
    writer = maker._writer
    theirs = SimBatch(writer._sim_model, NUM, randomise=DRAWN)
    state = theirs.reset(seeds=seeds)
    values = writer.layout.views(torch.from_numpy(writer.rows(seeds, {})))
    for name, sensor in state.sensors.items():
        np.testing.assert_array_equal(values[f"sensor.{name}"], sensor)
    mass = np.asarray(theirs.models["body_mass"], np.float32).reshape(NUM, -1)
    np.testing.assert_array_equal(values["model.body_mass"], mass)
    assert len(set(mass[:, -1].tolist())) == NUM
    theirs.close()
    writer.close()


# -- Packed ----------------------------------------------------------------------------------------------------------

FIELDS = {
    "flags": (np.dtype(bool), (3,)), "number": (np.dtype(np.int32), ()), "none": (np.dtype(np.float32), (0,)),
    "pose": (np.dtype(np.float64), (2, 2)), "angles": (np.dtype(np.float32), (5,)), "code": (np.dtype(np.int8), ()),
}  # fmt: skip


def drawn(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {name: rng.integers(0, 100, (rows, *shape)).astype(dtype) for name, (dtype, shape) in FIELDS.items()}


def test_packed_rows_give_back_what_was_packed() -> None:
    layout, values = PackedRows(FIELDS), drawn(4)
    views = layout.views(torch.from_numpy(layout.pack(values, 4)))
    for name, value in values.items():
        assert views[name].numpy().dtype == value.dtype
        np.testing.assert_array_equal(views[name].numpy(), value)


def test_tables_are_the_callers_own_and_contiguous() -> None:
    values = {name: torch.from_numpy(value) for name, value in drawn(4).items()}
    results = {"a": TensorArray(values["pose"]), "b": {"c": values["flags"], "d": {}}, "e": values["angles"].T}
    tables = PackedTables()
    tables.put(results)
    first = tables.take()
    tables.put({**results, "e": values["angles"].T + 1})
    second = tables.take()
    assert (first["a"] == values["pose"]).all()
    assert (first["b"]["c"] == values["flags"]).all()
    assert first["b"]["d"] == {}
    assert (first["e"] == values["angles"].T).all()
    assert (second["e"] == values["angles"].T + 1).all()
    assert second["e"].is_contiguous()


def test_all_are_copied_in_their_own_types() -> None:
    values = [torch.from_numpy(value) for value in drawn(4).values()]
    targets = [torch.zeros_like(value) for value in values]
    copy_all(zip(targets, values, strict=True))
    assert all((target == value).all() for target, value in zip(targets, values, strict=True))
    whole = torch.zeros(3, dtype=torch.int32)
    copy_all([(whole, torch.tensor([1, 2, 3], dtype=torch.int64))])
    assert whole.tolist() == [1, 2, 3]
