"""Files of policies that would exhaust the memory are refused by name, with the figure and the way to allow more.

Each is opened in a process of its own, whose peak of memory is measured and whose addresses are limited.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import RobotError
from recorder.read.npz import read_npz
from rlenv_robot.policies.budget import VARIABLE, budget_bytes, read_within
from rlenv_robot.policies.feedback import FeedbackPolicy, load_arrays, save_arrays
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.training.learner import flat_for

ROOT = Path(__file__).parents[3]
PROGRAM = """
    import resource, sys
    import numpy, mujoco  # before the count begins
    from hal import RobotError
    from rlenv_robot.policies import feedback, policy
    from rlenv_robot.policies.policy import load_policy
    if sys.argv[1].endswith(".onnx"):
        import onnx, onnxruntime
        from rlenv_learn.policies import onnx as ours
        ours._TRIAL_S = float(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        load_policy(sys.argv[1])
        print("loaded")
    except RobotError as error:
        print(str(error).replace(chr(10), " "))
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
BUDGET_MIB = 64
MOST_MIB = 160
"""Peak above the start that a budget of 64 MiB may lead to: the file's arrays or arena, and what libraries load."""


def opened(path: Path, trial_s: float = 30.0) -> tuple[str, int]:
    """Load a policy in another process; return its message and how many MiB it took."""
    environment = {**os.environ, VARIABLE: str(BUDGET_MIB), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(path), str(trial_s)],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    message, peak = done.stdout.splitlines()[-2:]
    return message, int(peak)


def refused(path: Path, *words: str, trial_s: float = 30.0) -> None:
    message, peak = opened(path, trial_s)
    assert str(path) in message or "policy's file" in message, message
    assert all(word in message for word in words), message
    assert peak < MOST_MIB, (message, peak)


# -- .npz ------------------------------------------------------------------------------------------------------------


def saved(path: Path) -> Path:
    FeedbackPolicy.zeros(flat_for(Reach()), "so101-reach").save(path, {})
    return path


def member(shape: tuple[int, ...], size: int) -> bytes:
    """An array's file of NumPy that declares a shape, and holds so many bytes of zeros."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue() + bytes(size)


@pytest.mark.process
def test_a_small_file_of_large_arrays_is_refused_before_they_are_read(tmp_path: Path) -> None:
    """2 GB of zeros in 2 MB: the file that took 6.2 GB."""
    path = saved(tmp_path / "bomb.npz")
    header = load_arrays(path)[0]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        file = io.BytesIO()
        np.save(file, np.frombuffer(json.dumps(header).encode(), np.uint8))
        archive.writestr("header.npy", file.getvalue())
        with archive.open("parameters.npy", "w", force_zip64=True) as part:
            part.write(member((250_000_000,), 0))
            for _ in range(2000):
                part.write(bytes(1_000_000))
    assert path.stat().st_size < 3_000_000
    refused(path, "1908 MiB are needed for its arrays", "may take 64 MiB", VARIABLE)


@pytest.mark.process
@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 31, 1 << 31)])
def test_an_array_that_declares_more_than_it_has_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = saved(tmp_path / "lies.npz")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more.npy", member(shape, 800))
    refused(path, "not a policy file")


@pytest.mark.process
def test_a_spec_of_huge_fields_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "spec.npz")
    header, arrays = load_arrays(path)
    for name in ("observation", "action"):
        field = header[name]["fields"][0]
        field["shape"], field["elements"] = [1 << 33], []
        field["low"], field["high"] = -1.0, 1.0
    save_arrays(path, header, arrays)
    message, peak = opened(path)
    assert message != "loaded"
    assert peak < MOST_MIB, (message, peak)


def test_a_deep_header_is_damage_and_no_crash(tmp_path: Path) -> None:
    path = saved(tmp_path / "deep.npz")
    arrays = load_arrays(path)[1]
    np.savez(path, header=np.frombuffer(b"[" * 100_000, np.uint8), **arrays)
    with pytest.raises(RobotError, match="not a policy file"):
        load_arrays(path)


def test_a_compressed_policy_within_the_budget_loads(tmp_path: Path) -> None:
    path = saved(tmp_path / "small.npz")
    header, arrays = load_arrays(path)
    np.savez_compressed(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    assert FeedbackPolicy.load(path).task == "so101-reach"


def test_the_budget_is_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "policy.npz")
    monkeypatch.setenv(VARIABLE, "1")
    assert budget_bytes() == 1 << 20
    save_arrays(path, *[{**load_arrays(path)[0]}, {"parameters": np.zeros(200_000)}])
    with pytest.raises(RobotError, match=rf"2 MiB are needed for its arrays; a policy may take 1 MiB.*{VARIABLE}"):
        load_arrays(path)
    with pytest.raises(RobotError, match="2 MiB are needed for the file"):
        read_within(path)
    monkeypatch.setenv(VARIABLE, "2")
    assert len(load_arrays(path)[1]["parameters"]) == 200_000
    for wrong in ("0", "-1", "much", ""):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(RobotError, match=VARIABLE):
            budget_bytes()


def test_a_pipe_is_no_policy(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "policy.onnx")
    with pytest.raises(RobotError, match="not a regular file"):
        read_within(tmp_path / "policy.onnx")


def test_an_index_beside_data_is_not_expanded(tmp_path: Path) -> None:
    """Without a budget the arrays have at most the bytes of their file."""
    path = tmp_path / "index.npz"
    np.savez_compressed(path, zeros=np.zeros(1_000_000))
    with path.open("rb") as file, pytest.raises(ValueError, match="bytes, allowed are"):
        read_npz(file)
    np.savez(path, zeros=np.zeros(1000))
    with path.open("rb") as file:
        assert read_npz(file)["zeros"].shape == (1000,)


# -- ONNX ------------------------------------------------------------------------------------------------------------


def graph(kind: str) -> Any:
    """A policy of ours in ONNX, whose answer depends on an array of 2 GB that the graph makes in this way."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    from rlenv_learn.policies.onnx import METADATA, metadata

    task, count = Reach(), 1 << 29
    inputs = [helper.make_tensor_value_info(f.name, TensorProto.FLOAT, ["b", *f.shape]) for f in task.observation]
    outputs = [helper.make_tensor_value_info(f.name, TensorProto.FLOAT, ["b", *f.shape]) for f in task.action]
    first, answer = inputs[0].name, outputs[0].name

    def constant(name: str, value: object, dtype: str) -> Any:
        return numpy_helper.from_array(np.array(value, dtype), name)

    one, size = constant("one", [1.0], "float32"), constant("size", [count], "int64")
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("big", TensorProto.FLOAT, [1], [1.0]),
        helper.make_tensor("at", TensorProto.INT64, [1], [3]), [count],
    )  # fmt: skip
    made: dict[str, list[Any]] = {
        "none": [helper.make_node("Identity", ["one"], ["big"])],
        "ConstantOfShape": [helper.make_node("ConstantOfShape", ["size"], ["big"])],
        "Expand": [helper.make_node("Expand", ["one", "size"], ["big"])],
        "Tile": [helper.make_node("Tile", ["one", "size"], ["big"])],
        "RandomUniform": [helper.make_node("RandomUniform", [], ["big"], shape=[count])],
        "Concat": [
            helper.make_node("Concat", [f"c{n}"] * 2 if n else ["one"] * 2, [f"c{n + 1}" if n < 28 else "big"], axis=0)
            for n in range(29)
        ],
        "of the input": [
            helper.make_node("ReduceSum", [first], ["sum"], keepdims=0),
            helper.make_node("Cast", ["sum"], ["whole"], to=TensorProto.INT64),
            helper.make_node("Add", ["whole", "size"], ["length"]),
            helper.make_node("ConstantOfShape", ["length"], ["big"]),
        ],
        "sparse constant": [helper.make_node("Constant", [], ["big"], sparse_value=sparse)],
        "sparse weights": [],
        "functions": [helper.make_node("f39", ["one"], ["big"], domain="d")],
        "loop": [helper.make_node("Loop", ["for ever", "", "one"], ["big"], body=_body(helper, TensorProto))],
    }
    functions = []
    for number in range(40 if kind == "functions" else 0):
        inner = ("Neg", "") if number == 0 else (f"f{number - 1}", "d")
        body = [helper.make_node(inner[0], [a], [b], domain=inner[1]) for a, b in (("a", "t"), ("t", "b"))]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
        functions.append(helper.make_function("d", f"f{number}", ["a"], ["b"], body, imports))
    nodes = [
        *made[kind],
        helper.make_node("ReduceSum", ["big"], ["r"], keepdims=0),
        helper.make_node("ReduceSum", [first, "axis"], ["row"], keepdims=1),
        helper.make_node("Add", ["row", "r"], ["column"]),
        helper.make_node("Expand", ["column", "shape"], [answer]),
    ]
    weights = [
        one, size, constant("axis", [1], "int64"), constant("shape", [1, *task.action.fields[0].shape], "int64"),
        constant("for ever", 1 << 40, "int64"),
    ]  # fmt: skip
    network = helper.make_graph(
        nodes, "g", inputs, outputs, weights, sparse_initializer=[sparse] if kind == "sparse weights" else []
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    model = helper.make_model(network, opset_imports=imports, ir_version=8, functions=functions)
    model.metadata_props.add(key=METADATA, value=metadata("so101-reach", task.observation, task.action, {}))
    assert isinstance(model, onnx.ModelProto)
    return model


def _body(helper: Any, kinds: Any) -> Any:
    nodes = [helper.make_node("Identity", ["c"], ["more"]), helper.make_node("Neg", ["v"], ["next"])]
    before = [("i", kinds.INT64, []), ("c", kinds.BOOL, []), ("v", kinds.FLOAT, [1])]
    after = [("more", kinds.BOOL, []), ("next", kinds.FLOAT, [1])]
    sides = [[helper.make_tensor_value_info(*part) for part in side] for side in (before, after)]
    return helper.make_graph(nodes, "body", *sides)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.tier("learning")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("ConstantOfShape", "more than 64 MiB are needed for its graph;"),
        ("Expand", "more than 64 MiB are needed for its graph;"),
        ("Tile", "more than 64 MiB are needed for its graph;"),
        ("RandomUniform", "more than 64 MiB are needed for its graph;"),
        ("Concat", "more than 64 MiB are needed for its graph;"),
        ("of the input", "more than 64 MiB are needed for its graph;"),
        ("sparse constant", "4096 MiB are needed for a dense copy"),
        ("sparse weights", "4096 MiB are needed for a dense copy"),
        ("functions", "copy of each function at each call"),
        ("loop", "did not end within 2 s"),
    ],
)
def test_a_small_graph_of_large_arrays_is_refused(tmp_path: Path, kind: str, words: str) -> None:
    path = tmp_path / "bomb.onnx"
    path.write_bytes(graph(kind).SerializeToString())
    assert path.stat().st_size < 30_000
    refused(path, words, *([] if kind == "loop" else [VARIABLE]), trial_s=2.0 if kind == "loop" else 60.0)


@pytest.mark.process
@pytest.mark.tier("learning")
def test_the_same_graph_without_the_array_loads(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(graph("none").SerializeToString())
    message, _ = opened(path)
    assert message == "loaded"


@pytest.mark.process
@pytest.mark.tier("learning")
def test_weights_outside_the_file_are_refused(tmp_path: Path) -> None:
    path, model = tmp_path / "policy.onnx", graph("none")
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    tensor.external_data.add(key="location", value="/etc/hostname")
    path.write_bytes(model.SerializeToString())
    refused(path, "lies outside the file")
