"""Describe the tables of an environment or of source data as JSON Schema (clause 6.4 b; R4.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hal import Field, Spec
from hal.field import JsonDict
from rlenv_robot.adapters.json_messages import CALLS, ERROR_CODES
from rlenv_robot.env import Environment
from rlenv_robot.tables import RECORDED, step_extra_of
from rlenv_robot.world import ACTION_MASK, masks_of

if TYPE_CHECKING:
    from rlenv_robot.source import SourceData

__all__ = ["describe_environment", "describe_source", "plain_json", "protocol_schema", "source_schema"]

_INT32 = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
_FLAG = {"type": "integer", "enum": [0, 1]}
_NAME = {"type": "string", "minLength": 1, "maxLength": 36}


def protocol_schema(env: Environment, name: str = "") -> JsonDict:
    """Return the JSON Schema (draft 2020-12) of an environment's tables, and of the messages that carry them.

    Args:
        env: an environment, of which only the description is read.
        name: the name of the environment; by default that of its world.

    Returns:
        ``$defs`` has ``table_1`` (observation), ``table_2`` (action), ``table_3`` (reward), ``request`` and ``answer``.
    """
    description, agents = env.description, env.world.layout.agents
    number = _field(description.reward, ())
    reward = _object(dict.fromkeys(agents, number)) if agents else number
    tables = {
        "table_1": _object(
            {
                "env_id": _NAME, "frame_no": _INT32, "observation": _spec(env.observation),
                "extra_info": _extra_info(env), "terminated": _FLAG, "truncated": _FLAG,
            },
            optional=("extra_info",),
        ),
        "table_2": _object({"env_id": _NAME, "frame_no": _INT32, "action": _spec(env.action)}),
        "table_3": _object({"env_id": _NAME, "frame_no": _INT32, "reward": reward}),
        "table_4": _object({"env_id": _NAME, "frame_no": _INT32, "frame_data": {"type": "object"}}),
    }  # fmt: skip
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name or env.world.name,
        "description": description.about.splitlines()[0] if description.about else "",
        "$defs": {**tables, **_messages(env)},
        "$ref": "#/$defs/table_1",
    }


def _messages(env: Environment) -> JsonDict:
    """Return the schemas of the messages of an environment (`rlenv_robot.adapters.json_messages`)."""
    extra = _step_extra(env)
    step = {"action": {"$ref": "#/$defs/table_2"}, "extra_info": extra}
    first = {"$ref": "#/$defs/table_1"}
    requests = [
        _request("reset", {"options": _named(env.description.reset_options, False)}),
        _request("step", step, optional=() if extra["required"] else ("extra_info",)),
        _request("render", {"options": {"type": "object"}}),
        _request("end", {"reason": {"type": "string", "minLength": 1}}, optional=()),
    ]
    answers = [
        _answer({"observation": first}),
        _answer({"observation": first, "reward": {"$ref": "#/$defs/table_3"}}),
        _answer({"frame": {"anyOf": [{"$ref": "#/$defs/table_4"}, {"type": "null"}]}}),
    ]
    return _any_of(requests, answers, ("observation", "action", "reward"))


def _any_of(requests: list[JsonDict], answers: list[JsonDict], specs: tuple[str, ...]) -> JsonDict:
    """Return the schemas of all requests and answers: those given, and those of every subject."""
    structures = {name: {"type": "object"} for name in specs}
    described = _answer({"env_id": _NAME, "calls": {"type": "array", "items": {"enum": list(CALLS)}}, **structures})
    described["additionalProperties"] = True
    error = _object({"code": {"enum": list(ERROR_CODES)}, "message": {"type": "string"}})
    every = [
        _answer({"error": error}),
        {**described, "additionalProperties": True},
        _answer({"closed": {"const": True}}),
    ]
    return {
        "request": {"oneOf": [_request("describe", {}), *requests, _request("close", {})]},
        "answer": {"oneOf": [*answers, *every]},
    }


def _request(call: str, takes: JsonDict, optional: tuple[str, ...] | None = None) -> JsonDict:
    """Return the schema of a request. All that the call takes is optional, unless ``optional`` says otherwise."""
    may = tuple(takes) if optional is None else optional
    return _object({"id": {"type": "integer"}, "call": {"const": call}, **takes}, optional=("id", *may))


def _answer(entries: JsonDict) -> JsonDict:
    return _object({"id": {"type": "integer"}, **entries}, optional=("id",))


def describe_environment(env: Environment) -> JsonDict:
    """Return the description of an environment as JSON data, which answers the call ``describe``.

    Args:
        env: an environment, of which only the description is read.

    Returns:
        ``env_id``; ``about``; ``observation`` and ``action``, each `Spec.to_dict`; ``reward``, `Field.to_dict`;
        ``reset_options``, ``extra_info`` and ``error_codes``, each name -> sentence; ``schema``, see `protocol_schema`;
        and, if a step takes fields beside the action, ``step_extra``, a spec with ``defaults``.
    """
    description, takes = env.description, step_extra_of(env.world)
    extra: JsonDict = {"defaults": plain_json(takes.defaults), **takes.fields.to_dict()}
    return {
        **({"step_extra": extra} if len(takes.fields) else {}),
        "env_id": env.env_id, "about": description.about, "observation": env.observation.to_dict(),
        "action": env.action.to_dict(), "reward": description.reward.to_dict(),
        "reset_options": dict(description.reset_options), "extra_info": dict(description.extra_info),
        "error_codes": dict(description.error_codes), "schema": protocol_schema(env),
    }  # fmt: skip


def _extra_info(env: Environment) -> JsonDict:
    schema, masks = _named(env.description.extra_info), masks_of(env.world)
    if len(masks):
        schema["properties"][ACTION_MASK] = _spec(masks)
    return schema


def _step_extra(env: Environment) -> JsonDict:
    """Return the schema of ``step``'s ``extra_info``."""
    takes = step_extra_of(env.world)
    properties: JsonDict = {name: {"description": text} for name, text in {**RECORDED, **takes.structures}.items()}
    for field in takes.fields:
        properties[field.name] = _field(field, field.shape)
        if field.name in takes.defaults:
            properties[field.name]["default"] = np.asarray(takes.defaults[field.name]).tolist()
    if len(env.behaviour):
        properties["behaviour"] = _spec(env.behaviour)
    required = {name for name in takes.fields.names if name not in takes.defaults}
    return _object(properties, optional=tuple(name for name in properties if name not in required))


def source_schema(source: SourceData) -> JsonDict:
    """Return the JSON Schema of Tables 5 and 6 of source data, and of the messages that carry them.

    Args:
        source: the source data to describe.

    Returns:
        ``$defs`` has ``table_5`` and ``table_6`` with one step per table, ``batch`` (Table 5 whose values have a
        leading axis, as `SourceData.sample_steps` returns it), ``request`` and ``answer``.
    """
    layout = source.table.layout
    number = {"type": "number"}
    reward = _object(dict.fromkeys(layout.agents, number)) if layout.agents else number
    observation = _spec(layout.observation)
    step = _object(
        {
            "env_id": _NAME, "frame_no": _INT32, "observation": observation, "action": _spec(layout.action),
            "reward": reward, "next_observation": observation, "done": _FLAG,
        },
        optional=("next_observation", "done"),
    )  # fmt: skip
    steps = {"type": "array", "items": {"$ref": "#/$defs/table_5"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": source.table.origin,
        "$defs": {
            "table_5": step,
            "table_6": _object({"env_id": _NAME, "trajectory_id": _INT32, "steps_set": steps}),
            **_source_messages(source, reward),
        },
        "$ref": "#/$defs/table_6",
    }


def _source_messages(source: SourceData, reward: JsonDict) -> JsonDict:
    layout, extra, size = source.table.layout, {"type": "object"}, {"type": "integer", "minimum": 1}
    leading: JsonDict = {"type": "array"}
    observation = _object(dict.fromkeys(layout.observation.names, leading))
    actions = _object(dict.fromkeys(layout.action.names, leading))
    column = {"type": "array", "items": reward} if not layout.agents else _object(dict.fromkeys(layout.agents, leading))
    batch = _object(
        {
            "env_id": {"type": "array", "items": _NAME}, "frame_no": {"type": "array", "items": _INT32},
            "observation": observation, "action": actions, "reward": column, "next_observation": observation,
            "done": {"type": "array", "items": _FLAG}, "extra_info": {"type": "object"},
        },
        optional=("next_observation", "done", "extra_info"),
    )  # fmt: skip
    trajectory = _object(
        {"env_id": _NAME, "trajectory_id": _INT32, "steps_set": {"$ref": "#/$defs/batch"}, "extra_info": extra},
        optional=("extra_info",),
    )
    requests = [
        _request("init", {"options": extra}),
        _request("sample_steps", {"batch_size": size, "extra_info": extra}, optional=("extra_info",)),
        _request("sample_trajectories", {"trajectory_size": size, "extra_info": extra}, optional=("extra_info",)),
        _request("get_all_actions", {"extra_info": extra}),
        _request("statistics", {"extra_info": extra}),
    ]
    answers = [
        _answer({"initialised": {"const": True}}),
        _answer({"steps": {"$ref": "#/$defs/batch"}}),
        _answer({"trajectories": {"type": "array", "items": trajectory}}),
        _answer({"actions": _object({"env_id": _NAME, "frame_no": _INT32, "action": actions})}),
        _answer({"statistics": {}}),
    ]
    return {"batch": batch, **_any_of(requests, answers, ("observation", "action"))}


def describe_source(source: SourceData) -> JsonDict:
    """Return the description of recorded data as JSON data, which answers the call ``describe``.

    Args:
        source: recorded data, of which only the description is read.

    Returns:
        ``env_id``, the name of the data; ``observation`` and ``action``, each `Spec.to_dict`; ``mode``; ``schema``, see
        `source_schema`.
    """
    layout = source.table.layout
    return {
        "env_id": source.table.origin[-36:] or "source", "observation": layout.observation.to_dict(),
        "action": layout.action.to_dict(), "mode": source.mode, "schema": source_schema(source),
    }  # fmt: skip


def plain_json(value: Any) -> Any:
    """Convert a table to JSON data.

    Arrays become nested lists, non-finite numbers become None, and values without a JSON form (images, objects) are
    omitted.
    """
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "biu":
            return value.tolist()
        return plain_json(value.tolist()) if value.dtype.kind in "fUO" else None
    if isinstance(value, Mapping):
        items = {str(key): plain_json(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item is not None or value.get(key) is None}
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else None


def _object(properties: Mapping[str, Any], optional: tuple[str, ...] = ()) -> JsonDict:
    required = [key for key in properties if key not in optional]
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


def _named(entries: Mapping[str, str], open_ended: bool = True) -> JsonDict:
    """Return the schema of a mapping whose entries are described by a sentence each."""
    described = {name: {"description": text} for name, text in entries.items()}
    return {"type": "object", "properties": described, "additionalProperties": open_ended}


def _spec(spec: Spec) -> JsonDict:
    return _object({field.name: _field(field, field.shape) for field in spec})


def _field(field: Field, shape: tuple[int, ...]) -> JsonDict:
    about = {"description": field.meaning, "x-unit": field.unit, "x-type": field.dtype, "x-shape": list(shape)}
    if field.elements:
        about["x-elements"] = list(field.elements)
    if field.counted_by:
        about["x-counted-by"] = field.counted_by
    if field.is_text:
        return {**about, **_texts(field, shape)}
    return {**about, **_values(field, *field.bounds)}


def _texts(field: Field, shape: tuple[int, ...]) -> JsonDict:
    if not shape:
        return {"type": "string", "maxLength": field.characters, "pattern": "^[^\\u0000]*$"}
    return {"type": "array", "minItems": shape[0], "maxItems": shape[0], "items": _texts(field, shape[1:])}


def _values(field: Field, low: np.ndarray, high: np.ndarray) -> JsonDict:
    """Return the schema of a value, or of a part of one, with these bounds."""
    if not low.shape:
        kind = "number" if field.numpy_dtype.kind == "f" else "integer"
        return {"type": kind, "minimum": low.item(), "maximum": high.item()}
    same = bool((low == low[0]).all() and (high == high[0]).all())
    if same:
        items: JsonDict = {"items": _values(field, low[0], high[0])}
    else:
        parts = [_values(field, *bounds) for bounds in zip(low, high, strict=True)]
        items = {"prefixItems": parts, "items": False}
    return {"type": "array", "minItems": len(low), "maxItems": len(low), **items}
