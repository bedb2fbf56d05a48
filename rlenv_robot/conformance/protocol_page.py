"""The protocol of an environment as a page, made from its description (clause 6.4 a and b; R4.1, R4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hal import Field, Spec
from rlenv_robot.env import Environment

__all__ = ["protocol_document"]

_TABLES = """\
| table | keys |
|---|---|
| 1, observation | `env_id` string of 1 to 36 characters · `frame_no` int32 · `observation` · `extra_info` · \
`terminated` int32, 0 or 1 · `truncated` int32, 0 or 1 |
| 2, action | `env_id` · `frame_no` (of the observation that is answered) · `action` |
| 3, reward | `env_id` · `frame_no` (of the frame that the action led to) · `reward` |"""

_INTERFACES = (
    ("reset(options={})", "begins an episode; returns Table 1 with `frame_no` 0"),
    ("step(action, extra_info={})", "carries out Table 2; returns Table 1 and Table 3"),
    ("render(options={})", "shows the state; takes no part in it; returns nothing"),
    ("close()", "ends the episode and lets go; twice is fine"),
)
_STEP_EXTRA = {
    "log_probability": "number: of the action under the policy that chose it; for the record (NaN: unknown)",
    "intervention": "True where a person chose the action; for the record",
}
_ERRORS = {
    "missing": "a field or key is not there",
    "unknown": "a field or key that nobody knows",
    "dtype": "another type of element, or no structure where one is wanted",
    "shape": "another shape",
    "not_finite": "NaN or infinite",
    "range": "below the lowest or above the highest allowed value",
    "env_id": "another environment's",
    "frame_no": "not that of the newest observation",
}
_BY_ELEMENT = "by element, below"
_EXTRA_INFO = {"error": "why the action was not carried out: {code, field, index, message}; absent if it was"}


def protocol_document(env: Environment, name: str = "") -> str:
    """Everything that a user of an environment must know, as Markdown.

    Args:
        env: not touched: only its description is read.
        name: what `rlenv_robot.make` calls it; by default the world's own name.
    """
    name = name or env.world.name
    description = env.description
    drawn = (f"## Drawn for each episode\n\n{_conditions(description.conditions)}",) if description.conditions else ()
    return "\n\n".join(
        (
            f"# {name}\n\nMade from the environment's own description by `rlenv-robot protocol {name}`; "
            "change the description, not this page.",
            "\n".join(description.about.replace("``", "`").splitlines()),
            f"## How it is called\n\n{_calls(env, name)}",
            f"## Tables\n\nPlain dictionaries (T/CCF 0002-2025, 6.2.3).\n\n{_TABLES}",
            f"## Observation\n\n{_fields(env.observation)}",
            f"## Action\n\n{_fields(env.action)}",
            f"## Reward\n\n{_field_table([description.reward])}",
            *drawn,
            f"## Options of reset\n\n{_named('option', description.reset_options)}",
            f"## What `step` takes in `extra_info`\n\n{_named('key', {**_STEP_EXTRA, **description.step_extra})}",
            f"## What Table 1 holds in `extra_info`\n\n{_named('key', {**_EXTRA_INFO, **description.extra_info})}",
            f"## Errors\n\n{_errors(description.error_codes)}",
        )
    ) + "\n"  # fmt: skip


def _calls(env: Environment, name: str) -> str:
    interfaces = _table(("interface", ""), ((f"`{call}`", text) for call, text in _INTERFACES))
    action = ", ".join(f'"{field.name}": {_literal(field)}' for field in env.action)
    return f"""{interfaces}

```python
import numpy as np
import rlenv_robot

env = rlenv_robot.make("{name}")
obs = env.reset({{"seed": 7}})
action = {{{action}}}
obs, reward = env.step({{"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action}})
print(obs["frame_no"], obs["terminated"], obs["truncated"], reward["reward"])
env.close()
```"""


def _literal(field: Field) -> str:
    """A legal value as source text: zero where that is allowed, else the lowest."""
    low, high = field.bounds
    value = np.clip(np.zeros(field.shape, field.numpy_dtype), low, high)
    if not value.any():
        return f"np.zeros({field.shape}, np.{field.dtype})"
    return f"np.array({value.tolist()}, np.{field.dtype})"


def _errors(own: Mapping[str, str]) -> str:
    text = (
        'An illegal action is not carried out. The answer is the same frame with reward 0, and `extra_info["error"]` '
        "says what was wrong: `code`, the dotted name of the `field`, the `index` of the element as a list (empty for "
        "the whole field), and a `message` for people.\n\n"
    )
    text += _named("code", {**_ERRORS, **own})
    return text + (
        "\n\nA call out of turn (a step before a reset, after the end of an episode or after `close`) raises "
        "`EpisodeError`; a wrong option of `reset` raises `ValueError`. Neither moves anything."
    )


# -- tables ----------------------------------------------------------------------------------------------------


def _fields(spec: Spec) -> str:
    return _field_table(spec.fields) + "".join(_elements(field) for field in spec)


def _field_table(fields: Sequence[Field]) -> str:
    rows = (
        (f"`{field.name}`", f"{field.dtype}{list(field.shape) or ''}", _range(field), field.unit, field.meaning)
        for field in fields
    )
    return _table(("name", "type and shape", "range", "unit", "meaning"), rows)


def _elements(field: Field) -> str:
    """The elements of a field that have names; with their ranges, where these differ."""
    if not field.elements:
        return ""
    low, high = field.bounds
    if _range(field) != _BY_ELEMENT:
        return f"\n\nElements of `{field.name}`: " + ", ".join(f"`{name}`" for name in field.elements) + "."
    rows = (
        (str(index), f"`{name}`", _interval(field, low[..., index].min(), high[..., index].max()))
        for index, name in enumerate(field.elements)
    )
    return f"\n\nElements of `{field.name}`:\n\n" + _table(("index", "name", "range"), rows)


def _range(field: Field) -> str:
    low, high = (bound.ravel() for bound in field.bounds)
    if (low != low[0]).any() or (high != high[0]).any():
        return _BY_ELEMENT if field.elements else f"{low.tolist()} to {high.tolist()}"
    return _interval(field, low[0], high[0])


def _interval(field: Field, low: Any, high: Any) -> str:
    if field.numpy_dtype.kind != "f":
        return f"{int(low)} to {int(high)}"
    limits = np.finfo(field.dtype)
    open_low, open_high = low == limits.min, high == limits.max
    if open_low and open_high:
        return "any finite number"
    if open_low or open_high:
        return f"up to {high:.7g}" if open_low else f"from {low:.7g}"
    return f"{low:.7g} to {high:.7g}"


def _conditions(kinds: Mapping[str, Sequence[tuple[str, str, str]]]) -> str:
    text = (
        "From the seed, the number of the environment and the number of the episode. What was drawn is in "
        '`extra_info["randomisation"]` of the episode\'s first table in training, and in its record. Fixed numbers are '
        "listed too.\n\n"
    )
    rows = ((f"`{kind}.{path}`", drawn, unit) for kind, lines in kinds.items() for path, drawn, unit in lines)
    return text + _table(("what", "drawn from", "unit"), rows)


def _named(what: str, entries: Mapping[str, str]) -> str:
    return _table((what, "meaning"), ((f"`{name}`", text) for name, text in entries.items())) if entries else "None."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(_lines(head, rows))


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _line(head)
    yield "|" + "---|" * len(head)
    for row in rows:
        yield _line(row)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
