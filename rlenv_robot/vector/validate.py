"""Check a batched Table 2, and select the rows that may be executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hal import Field, IllegalAction, Spec, Violation
from recorder.json_data import JsonDict
from rlenv_robot.tables import StepExtra

__all__ = ["check_batch", "check_extra", "check_ids", "check_keys", "check_names", "check_streams", "malformed"]

_KEYS = ("env_id", "frame_no", "action")


def check_batch(
    spec: Spec,
    table: object,
    env_ids: Sequence[str],
    frame_no: np.ndarray,
    over: np.ndarray,
    ignored: np.ndarray | None = None,
) -> tuple[dict[str, np.ndarray], dict[int, JsonDict]]:
    """Check a Table 2 with a leading axis of N.

    Args:
        spec: the spec of one action.
        table: as sent by the agent.
        env_ids: the required ids, N.
        frame_no: the required frame numbers, int, shape (N,).
        over: bool, shape (N,), True for an environment without a running episode.
        ignored: bool, shape (N,), True for a row that is not checked.

    Returns:
        The actions, name -> (N, ...) in the spec's dtypes, and row number -> violation.

    Raises:
        IllegalAction: the batch as a whole is malformed.
    """
    batch = check_keys(table, _KEYS, "")
    check_names(batch["env_id"], env_ids)
    sent = np.asarray(batch["frame_no"])
    if sent.shape != frame_no.shape or sent.dtype.kind not in "iu":
        raise malformed("frame_no", "frame_no", f"frame_no requires {len(frame_no)} whole numbers, one for each")
    action = check_keys(batch["action"], spec.names, "action")
    values = {field.name: _array(field, action[field.name], len(frame_no)) for field in spec}
    bad = over | (sent != frame_no)
    for field in spec:
        good = _fits(field, values[field.name])
        if not good.all():
            bad |= ~good
    if any(field.counted_by for field in spec):  # entries behind the last one that counts
        bad |= ~np.array([_is_legal(spec, values, env) for env in range(len(bad))])
    if ignored is not None:
        bad &= ~ignored
    errors = {}
    if bad.any():
        errors = {int(env): _violation(spec, values, sent, frame_no, over, int(env)) for env in np.flatnonzero(bad)}
    # Whole numbers only now: a narrower type would wrap around what the range has just refused.
    return {field.name: values[field.name].astype(field.numpy_dtype, copy=False) for field in spec}, errors


def check_extra(
    extra: StepExtra, extra_info: object, num: int, ignored: np.ndarray | None = None
) -> tuple[dict[str, np.ndarray], dict[int, JsonDict]]:
    """Check the ``extra_info`` of a step with a leading axis of N, and fill in defaults.

    Args:
        extra: describes the entries of one environment; a batch allows only entries that are fields.
        extra_info: as sent by the agent, name -> (N, ...).
        num: the number of environments, N.
        ignored: bool, shape (N,), True for a row that is not checked.

    Returns:
        The values, name -> (N, ...) in the fields' dtypes, and row number -> violation.

    Raises:
        IllegalAction: entries are unknown or missing, or have a wrong shape or dtype.
    """
    if not isinstance(extra_info, Mapping):
        raise malformed("dtype", "extra_info", f"extra_info is a {type(extra_info).__name__}, expected a mapping")
    for key in extra_info:
        if key not in extra.fields:
            allowed = ", ".join(extra.fields.names) or "none"
            raise malformed("unknown", f"extra_info.{key}", f"extra_info.{key} is unknown, allowed are {allowed}")
    values, errors = dict[str, np.ndarray](), dict[int, JsonDict]()
    for field in extra.fields:
        name = field.name
        if name not in extra_info and name not in extra.defaults:
            raise malformed("missing", f"extra_info.{name}", f"extra_info.{name} is missing and has no default")
        if name not in extra_info:
            values[name] = np.broadcast_to(extra.defaults[name], (num, *field.shape)).copy()
            continue
        array = np.array(_array(field, extra_info[name], num, "extra_info"))
        bad = ~_fits(field, array)
        if ignored is not None:
            bad &= ~ignored
        for env in np.flatnonzero(bad).tolist():
            errors.setdefault(env, _row_violation(field, array[env]))
        values[name] = array.astype(field.numpy_dtype, copy=False)
    return values, errors


def _row_violation(field: Field, value: np.ndarray) -> JsonDict:
    try:
        Spec("extra_info", (replace(field, counted_by=""),)).validate({field.name: value}, "extra_info")
    except IllegalAction as refused:
        return refused.violation.to_dict()
    raise AssertionError(f"{field.name} was refused without a reason")


def check_ids(ids: object, num: int) -> np.ndarray:
    """Return the numbers of environments as int64, after checking that they are ascending.

    Raises:
        ValueError: they are not such numbers, or out of range.
    """
    array = np.asarray(ids)
    whole = array.ndim == 1 and (array.dtype.kind in "iu" or not array.size)
    if not whole or np.any(np.diff(array.astype(np.int64)) <= 0) or np.any((array < 0) | (array >= num)):
        raise ValueError(f"ids are {ids!r}, expected ascending numbers from 0 to {num - 1}")
    return array.astype(np.int64)


def check_streams(streams: object, num: int) -> np.ndarray:
    """Return the number of each environment in draws, int64 (num,); None is 0 to num - 1.

    Raises:
        ValueError: there is not one number for each environment.
    """
    if streams is None:
        return np.arange(num)
    numbers = np.asarray(streams, np.int64)
    if numbers.shape != (num,):
        raise ValueError(f"streams has shape {numbers.shape}, expected one for each of {num}")
    return numbers


def check_keys(values: object, names: Sequence[str], what: str) -> Mapping[str, object]:
    """Return ``values`` if it is a mapping with exactly the keys ``names``.

    Args:
        values: the value to check.
        names: the required keys.
        what: the name of the value in messages; "" for the whole batch.

    Raises:
        IllegalAction: the value is not a mapping, a key is missing, or there is an unknown one.
    """
    name = what or "the batch (Table 2 with a leading axis)"
    if not isinstance(values, Mapping):
        raise malformed("dtype", what, f"{name} is a {type(values).__name__}, expected a mapping")
    for key in (*values, *names):
        if key not in names or key not in values:
            code = "missing" if key in names else "unknown"
            dotted = f"{what}.{key}" if what else str(key)
            raise malformed(code, dotted, f"{dotted} is {code}; {name} requires exactly {', '.join(names)}")
    return values


def check_names(names: object, env_ids: Sequence[str]) -> None:
    """Refuse environment ids that differ from those of the batch.

    Raises:
        IllegalAction: the ids differ.
    """
    if isinstance(names, list) and names == env_ids:  # as it comes back from reset and step
        return
    if not isinstance(names, Sequence | np.ndarray) or isinstance(names, str) or list(names) != list(env_ids):
        raise malformed("env_id", "env_id", "env_id is not this batch's: send back what reset and step return")


def _array(field: Field, value: object, num: int, where: str = "action") -> np.ndarray:
    dotted = f"{where}.{field.name}"
    try:
        array = np.asarray(value)
    except ValueError:
        raise malformed("shape", dotted, f"{dotted} is not a rectangular array") from None
    expected = (num, *field.shape)
    if field.is_text:
        if array.dtype.kind != "U":
            raise malformed("dtype", dotted, f"{dotted} has type {array.dtype}, expected texts")
        if array.shape != expected:
            raise malformed("shape", dotted, f"{dotted} has shape {array.shape}, expected {expected}")
        return array  # a text that is too long is refused before it would be cut off
    if array.dtype.kind not in ("fiu" if field.numpy_dtype.kind == "f" else "iu"):
        raise malformed("dtype", dotted, f"{dotted} has type {array.dtype}, expected {field.dtype}")
    if array.shape != expected:
        raise malformed("shape", dotted, f"{dotted} has shape {array.shape}, expected {expected}")
    if field.numpy_dtype.kind != "f" or array.dtype == field.numpy_dtype:
        return array
    with np.errstate(over="ignore"):  # becomes infinite, and is refused
        return array.astype(field.numpy_dtype, copy=False)


def _fits(field: Field, values: np.ndarray) -> np.ndarray:
    """Return which rows are within the field's range, bool (N,)."""
    if field.is_text:
        alone = Spec("texts", (replace(field, counted_by=""),))
        return np.array([_is_legal(alone, {field.name: values}, row) for row in range(len(values))])
    low, high = field.bounds
    good = (values >= low) & (values <= high)  # False for NaN too
    return np.asarray(good.reshape(len(good), -1).all(axis=1))


def _is_legal(spec: Spec, values: Mapping[str, np.ndarray], row: int) -> bool:
    try:
        spec.validate({field.name: values[field.name][row] for field in spec})
    except IllegalAction:
        return False
    return True


def _violation(
    spec: Spec, values: Mapping[str, np.ndarray], sent: np.ndarray, frame_no: np.ndarray, over: np.ndarray, env: int
) -> JsonDict:
    """Return what is wrong with one environment's action; slow, so only for one that was refused."""
    if over[env]:
        return Violation("ended", "", (), "the episode has ended: reset it first").to_dict()
    if sent[env] != frame_no[env]:
        message = f"frame_no is {sent[env]}, the current frame is {frame_no[env]}"
        return Violation("frame_no", "frame_no", (), message).to_dict()
    try:
        spec.validate({name: value[env] for name, value in values.items()}, "action")
    except IllegalAction as refused:
        return refused.violation.to_dict()
    raise AssertionError(f"environment {env} was refused without a reason")


def malformed(code: str, field: str, message: str) -> IllegalAction:
    """Return the error for a batch that is malformed as a whole."""
    return IllegalAction(Violation(code, field, (), message))
