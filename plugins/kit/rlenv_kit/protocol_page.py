"""Write the protocol of an environment as a page, using its description (clause 6.4 a and b; R4.1, R4.2)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from hal import Field, Spec
from rlenv_robot.adapters.json_messages import ERROR_CODES
from rlenv_robot.data.options import FILTERS
from rlenv_robot.env import Environment
from rlenv_robot.source import SourceData
from rlenv_robot.tables import RECORDED, step_extra_of
from rlenv_robot.world import ACTION_MASK, masks_of

__all__ = ["protocol_document", "protocol_html", "source_document"]

_TABLES = """\
| table | keys |
|---|---|
| 1, observation | `env_id` string of 1 to 36 characters · `frame_no` int32 · `observation` · `extra_info` · \
`terminated` int32, 0 or 1 · `truncated` int32, 0 or 1 |
| 2, action | `env_id` · `frame_no` of the newest observation · `action` |
| 3, reward | `env_id` · `frame_no` of the frame that the action led to · `reward` |"""

_INTERFACES = (
    ("reset(options={})", "Begin an episode. Returns Table 1 with `frame_no` 0."),
    ("step(action, extra_info={})", "Carry out the action of Table 2. Returns Tables 1 and 3."),
    ("render(options={})", "Show the state without changing it. Returns nothing."),
    ("end(reason)", "End the episode in good order. Returns Table 1 with `truncated` 1; no `clear_stop` is needed."),
    ("close()", "End the episode and release the robot. Calling it twice is allowed."),
)
_ERRORS = {
    "missing": "a field or key is missing",
    "unknown": "a field or key is unknown",
    "dtype": "the type of the elements is wrong, or a structure is expected",
    "shape": "the shape is wrong",
    "not_finite": "a value is NaN or infinite",
    "range": "a value is below or above the allowed range",
    "env_id": "the table is of another environment",
    "frame_no": "it is not that of the newest observation",
}
_BY_ELEMENT = "by element, see below"
_EXTRA_INFO = {"error": "{code, field, index, message}: why the action was not carried out; absent if it was"}


def protocol_document(env: Environment, name: str = "") -> str:
    """Return the protocol of an environment as Markdown: its specs, options, reward and rules.

    Args:
        env: an environment, of which only the description is read.
        name: the name of the environment for `rlenv_robot.make`; by default the name of its world.
    """
    name = name or env.world.name
    description = env.description
    draws = (f"## Drawn for each episode\n\n{_conditions(description.conditions)}",) if description.conditions else ()
    described = masks_of(env.world)
    masks = (f"Fields of `{ACTION_MASK}`:\n\n{_fields(described)}",) if len(described) else ()
    return "\n\n".join(
        (
            f"# {name}\n\nThis page is generated from the environment's description by "
            f"`rlenv-robot protocol {name}`. To change the page, change the description.",
            "\n".join(description.about.replace("``", "`").splitlines()),
            f"## Calls\n\n{_calls(env, name)}",
            f"## Tables\n\nThe tables are dictionaries (T/CCF 0002-2025, 6.2.3).\n\n{_TABLES}",
            f"## Observation\n\n{_fields(env.observation)}",
            f"## Action\n\n{_fields(env.action)}",
            f"## Reward\n\n{_field_table([description.reward])}",
            *draws,
            f"## Options of `reset`\n\n{_named('option', description.reset_options)}",
            f"## Keys of `extra_info` for `step`\n\n{_step_extra(env)}",
            f"## Keys of `extra_info` in Table 1\n\n{_named('key', {**_EXTRA_INFO, **description.extra_info})}",
            *masks,
            f"## Errors\n\n{_errors(description.error_codes)}",
            f"## From another language\n\n{_messages(name)}",
        )
    ) + "\n"  # fmt: skip


def _step_extra(env: Environment) -> str:
    takes = step_extra_of(env.world)
    structures = {**RECORDED, **takes.structures}
    if len(env.behaviour):
        structures["behaviour"] = "for the record: parameters of the distribution that the action was drawn from"
    text = _named("key", structures)
    if len(takes.fields):
        text += f"\n\nFields, checked as those of an action:\n\n{_fields(takes.fields)}"
        defaults = {name: str(np.asarray(value).tolist()) for name, value in takes.defaults.items()}
        rows = ((f"`{name}`", defaults.get(name, "none: it must be given")) for name in takes.fields.names)
        text += "\n\n" + _table(("field", "value where it is left out"), rows)
    if len(env.behaviour):
        text += f"\n\nFields of `behaviour`:\n\n{_fields(env.behaviour)}"
    return text


def _calls(env: Environment, name: str) -> str:
    interfaces = _table(("call", "effect"), ((f"`{call}`", text) for call, text in _INTERFACES))
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


def _messages(name: str) -> str:
    rows = (
        ('`{"call": "describe"}`',
         '`{"env_id": ..., "calls": [...], "observation": {...}, "action": {...}, "reward": {...}, "schema": ...}`: '
         "specs as lists of fields, and the JSON Schema of everything on this page"),
        ('`{"call": "reset", "options": {...}}`', '`{"observation": Table 1}`'),
        ('`{"call": "step", "action": Table 2, "extra_info": {...}}`',
         '`{"observation": Table 1, "reward": Table 3}`'),
        ('`{"call": "render", "options": {...}}`',
         '`{"frame": Table 4}`: the picture in `frame_data`; options are `camera`, `width`, `height`, `fine`'),
        ('`{"call": "end", "reason": "..."}`', '`{"observation": Table 1}`'),
        ('`{"call": "close"}`', '`{"closed": true}`; the program that serves ends'),
    )  # fmt: skip
    return (
        f"`rlenv-robot dev tables {name}` serves the tables as JSON to programs of the same machine: one JSON text in "
        "UTF-8 as the only frame of a ZeroMQ message, from a REQ socket to `tcp://127.0.0.1:5650`; or with "
        "`--listen -` one JSON text a line on standard input and output. Arrays are nested lists in C order; a whole "
        "number is accepted where a float is described; images are left out, and a number that is not finite is null. "
        f"`rlenv-robot protocol {name} --format json` prints the JSON Schema.\n\n"
        + _table(("request", "answer"), rows)
        + _border_errors()
    )


def _border_errors() -> str:
    return (
        "\n\n`options` and `extra_info` are optional. A request may have a whole number as `id`, which its answer "
        "repeats. A request that can't be carried out (unknown keys, wrong options, a step before a reset) is answered "
        'with `{"error": {"code": ..., "message": ...}}`, and nothing moves:\n\n' + _named("code", ERROR_CODES)
    )


def _source_messages(origin: str) -> str:
    rows = (
        ('`{"call": "describe"}`',
         '`{"env_id": ..., "calls": [...], "observation": {...}, "action": {...}, "schema": ...}`'),
        ('`{"call": "init", "options": {"seed": 7}}`', '`{"initialised": true}`'),
        ('`{"call": "sample_steps", "batch_size": 64, "extra_info": {...}}`', '`{"steps": Table 5}`'),
        ('`{"call": "sample_trajectories", "trajectory_size": 2, "extra_info": {...}}`',
         '`{"trajectories": [Table 6]}`'),
        ('`{"call": "get_all_actions", "extra_info": {...}}`', '`{"actions": Table 2}`'),
        ('`{"call": "statistics", "extra_info": {...}}`', '`{"statistics": ...}`'),
        ('`{"call": "close"}`', '`{"closed": true}`; the program that serves ends'),
    )  # fmt: skip
    return (
        f"`rlenv-robot dev tables {origin}` serves these data as JSON, as it serves an environment's tables: from a "
        "REQ socket of ZeroMQ to `tcp://127.0.0.1:5650`, or with `--listen -` a message a line on standard input and "
        "output.\n\n" + _table(("request", "answer"), rows) + _border_errors()
    )


def protocol_html(markdown: str) -> str:
    """Convert a protocol page to HTML with the same headings, paragraphs, tables and code.

    Args:
        markdown: as `protocol_document` returned it.
    """
    title, body, code = "", list[str](), False
    rows: list[str] = []
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("```"):
            code = not code
            body.append("<pre>" if code else "</pre>")
        elif code:
            body.append(html.escape(line, quote=False))
        elif line.startswith("|"):
            if not line.startswith("|---"):
                tag = "td" if rows else "th"
                cells = re.split(r"(?<!\\)\|", line.strip("|"))
                rows.append("<tr>" + "".join(f"<{tag}>{_inline(cell)}</{tag}>" for cell in cells) + "</tr>")
        else:
            if rows:
                body += ["<table>", *rows, "</table>"]
                rows = []
            head = re.match(r"(#+) (.*)", line)
            if head:
                title = title or head[2]
                body.append(f"<h{len(head[1])}>{_inline(head[2])}</h{len(head[1])}>")
            elif line:
                body.append(f"<p>{_inline(line)}</p>")
    first = f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{html.escape(title)}</title></head>'
    return "\n".join([first, "<body>", *body, "</body>", "</html>"]) + "\n"


def _inline(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text.strip().replace("\\|", "|"), quote=False))


def source_document(source: SourceData) -> str:
    """Return the protocol of recorded data as Markdown: its specs, options and statistics.

    Args:
        source: recorded data, of which only the description is read.
    """
    layout = source.table.layout
    reward = Field("reward", (), "float64", meaning="of the step" + (f", for each of {', '.join(layout.agents)}"
                                                                     if layout.agents else ""))  # fmt: skip
    calls = (
        (
            "`init(options={})`",
            "Set the data to the first state or to that of `episode` and `frame`; `seed` fixes draws.",
        ),
        ("`sample_steps(batch_size, extra_info={})`", "Draw a batch of Table 5."),
        ("`sample_trajectories(trajectory_size, extra_info={})`", "Draw a list of Tables 6."),
        ("`get_all_actions(extra_info={})`", "Return Table 2 with all actions of the current state."),
        ("`statistics(extra_info={})`", "Describe the data by figures."),
    )
    tables = (
        ("5, step", "`env_id` string · `frame_no` int32 · `observation` · `action` · `reward` · `next_observation` · "
                    "`done` int32, 0 or 1 · `extra_info`; every value has a leading axis of `batch_size`"),
        ("6, trajectory", "`env_id` · `trajectory_id` int32 · `steps_set`, a Table 5 along time · `extra_info`"),
    )  # fmt: skip
    filters = _table(("option", "allowed"), ((f"`{name}`", f"{check(object())}") for name, check in FILTERS.items()))
    return "\n\n".join(
        (
            f"# {source.table.origin}",
            f"{len(source.table.episodes)} episodes with {len(source)} steps.",
            f"## Calls\n\n{_table(('call', 'effect'), calls)}",
            f"## Tables\n\n{_table(('table', 'keys'), tables)}",
            f"## Observation\n\n{_fields(layout.observation)}",
            f"## Action\n\n{_fields(layout.action)}",
            f"## Reward\n\n{_field_table([reward])}",
            f"## Options that select\n\n{filters}",
            f"## From another language\n\n{_source_messages(source.table.origin)}",
        )
    ) + "\n"  # fmt: skip


def _literal(field: Field) -> str:
    """Return a legal value as source text: the one closest to zero, or empty texts."""
    value = field.nothing
    if field.is_text:
        return repr(value.tolist())
    if not value.any():
        return f"np.zeros({field.shape}, np.{field.dtype})"
    return f"np.array({value.tolist()}, np.{field.dtype})"


def _errors(codes_of_world: Mapping[str, str]) -> str:
    text = (
        'An illegal action is not carried out. `step` returns the same frame with reward 0, and `extra_info["error"]` '
        "holds a `code`, the dotted name of the `field`, the `index` of the element as a list (empty for the whole "
        "field), and a `message`.\n\n"
    )
    text += _named("code", {**_ERRORS, **codes_of_world})
    return text + (
        "\n\nA call in the wrong state (a step before a reset, after the end of an episode, or after `close`) raises "
        "`EpisodeError`. A wrong option of `reset` raises `ValueError`. Neither moves the robot."
    )


# -- tables ----------------------------------------------------------------------------------------------------


def _fields(spec: Spec) -> str:
    return _field_table(spec.fields) + "".join(_elements(field) for field in spec)


def _field_table(fields: Sequence[Field]) -> str:
    rows = (
        (f"`{field.name}`", f"{field.dtype}{list(field.shape) or ''}", _range(field), field.unit, _meaning(field))
        for field in fields
    )
    return _table(("name", "type and shape", "range", "unit", "meaning"), rows)


def _meaning(field: Field) -> str:
    counted = f"`{field.counted_by}` entries count, those behind are {'empty' if field.is_text else '0'}"
    return "; ".join(part for part in (field.meaning, counted if field.counted_by else "") if part)


def _elements(field: Field) -> str:
    """Return the named elements of a field, with their ranges if these differ."""
    if not field.elements:
        return ""
    if field.is_text or _range(field) != _BY_ELEMENT:
        return f"\n\nElements of `{field.name}`: " + ", ".join(f"`{name}`" for name in field.elements) + "."
    low, high = field.bounds
    rows = (
        (str(index), f"`{name}`", _interval(field, low[..., index].min(), high[..., index].max()))
        for index, name in enumerate(field.elements)
    )
    return f"\n\nElements of `{field.name}`:\n\n" + _table(("index", "name", "range"), rows)


def _range(field: Field) -> str:
    if field.is_text:
        return f"up to {field.characters} characters"
    low, high = (bound.ravel() for bound in field.bounds)
    if (low != low[0]).any() or (high != high[0]).any():
        return _BY_ELEMENT if field.elements else f"{low.tolist()} to {high.tolist()}"
    return _interval(field, low[0], high[0])


def _interval(field: Field, low: np.generic, high: np.generic) -> str:
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
        "The draws depend on the seed, the number of the environment and the number of the episode. In training, the "
        'drawn values are in `extra_info["randomisation"]` of the episode\'s first table; a record always holds them. '
        "Fixed values are listed, too.\n\n"
    )
    rows = ((f"`{kind}.{path}`", drawn, unit) for kind, lines in kinds.items() for path, drawn, unit in lines)
    return text + _table(("value", "drawn from", "unit"), rows)


def _named(kind: str, entries: Mapping[str, str]) -> str:
    return _table((kind, "meaning"), ((f"`{name}`", text) for name, text in entries.items())) if entries else "None."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(_lines(head, rows))


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _line(head)
    yield "|" + "---|" * len(head)
    for row in rows:
        yield _line(row)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
