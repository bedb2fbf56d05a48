"""Read the settings of a Kaiwu project from ``configure_app.toml``, and refuse keys without support by name."""

from __future__ import annotations

import difflib
import logging
import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

__all__ = ["HONOURED", "WITHOUT_EFFECT", "AppSettings", "check_settings", "read_settings"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AppSettings:
    """The settings of ``[app]`` that change how a project is run.

    Attributes:
        capacity: capacity of the sample pool in samples (``replay_buffer_capacity``).
        preload_ratio: the project's ``preload_ratio``. Up to 1, it is the share of the capacity that must be filled
            before the learner begins; above 1 (projects before 2025), the capacity is divided by it.
        remover: ``Fifo`` or ``Lifo``, which selects the sample to remove from a full pool (``reverb_remover``).
        sampler: ``Uniform`` or ``Fifo`` (``reverb_sampler``).
        rate_limiter: ``MinSize`` or ``SampleToInsertRatio`` (``reverb_rate_limiter``).
        samples_per_insert: mean number of times that a sample is drawn (``reverb_samples_per_insert``, or
            ``production_consume_ratio`` before 2026).
        error_buffer: number of samples by which drawing may run ahead or behind (``reverb_error_buffer``).
        train_batch_size: samples that one call of ``learn`` gets.
        dump_model_freq: calls of ``learn`` between two models that the learner saves.
        model_file_sync_per_minutes: minutes between two checks for a newer model; 0 checks every time.
        modelpool_max_save_model_count: number of models that the model pool keeps, 1 to 50.
        preload_model: whether to begin with a saved model.
        preload_model_dir: folder of the saved model; ``{agent_name}`` stands for the agent's folder.
        preload_model_id: number of the saved model.
        learner_train_sleep_seconds: pause after each call of ``learn``, seconds.
        on_policy: whether samples are used once and discarded (``algorithm_on_policy_or_off_policy``).
        predict_remotely: whether actors predict instead of the workflow's process (``predict_local_or_remote``).
        send_sample_size: samples that a workflow sends at once.
        torch_num_threads: threads of PyTorch in each process.
        algorithm: the project's algorithm (``algo``); empty if the file does not name it.
    """

    capacity: int = 4096
    preload_ratio: float = 1.0
    remover: str = "Fifo"
    sampler: str = "Uniform"
    rate_limiter: str = "MinSize"
    samples_per_insert: float = 8.0
    error_buffer: float = 8.0
    train_batch_size: int = 256
    dump_model_freq: int = 1000
    model_file_sync_per_minutes: float = 1.0
    modelpool_max_save_model_count: int = 1
    preload_model: bool = False
    preload_model_dir: str = "{agent_name}/ckpt"
    preload_model_id: int = 1000
    learner_train_sleep_seconds: float = 0.0
    on_policy: bool = False
    predict_remotely: bool = False
    send_sample_size: int = 320
    torch_num_threads: int = 1
    algorithm: str = ""

    @property
    def preload(self) -> int:
        """The number of samples that the pool must receive before the learner begins."""
        ratio = self.preload_ratio
        return max(1, math.ceil(self.capacity * ratio - 1e-9) if ratio <= 1 else int(self.capacity / ratio))


_Parser = Callable[[object], object]


def _whole(low: int, high: int | None = None) -> _Parser:
    def parse(value: object) -> int:
        number = int(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int) or number < low or (high and number > high):
            raise ValueError(f"a whole number from {low}" + (f" to {high}" if high else ""))
        return number

    return parse


def _number(low: float, above: bool = False) -> _Parser:
    def parse(value: object) -> float:
        number = float(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int | float) or number < low or (above and number == low):
            raise ValueError(f"a number {'above' if above else 'from'} {low:g}")
        return float(number)

    return parse


def _flag(value: object) -> bool:
    flags: dict[object, bool] = {True: True, False: False, "true": True, "false": False, "True": True, "False": False}
    if value not in flags or isinstance(value, int | float) is not isinstance(value, bool):
        raise ValueError("true or false")
    return flags[value]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text")
    return value


def _word(words: Mapping[str, object]) -> _Parser:
    def parse(value: object) -> object:
        if not isinstance(value, str) or value not in words:
            raise ValueError(" or ".join(map(repr, words)))
        return words[value]

    return parse


def _selector(*names: str) -> _Parser:
    return _word({f"reverb.selectors.{name}": name for name in names})


HONOURED: Mapping[str, tuple[str, _Parser]] = {
    "replay_buffer_capacity": ("capacity", _whole(1)),
    "preload_ratio": ("preload_ratio", _number(0.0, above=True)),
    "reverb_remover": ("remover", _selector("Fifo", "Lifo")),
    "reverb_sampler": ("sampler", _selector("Uniform", "Fifo")),
    "reverb_rate_limiter": (
        "rate_limiter", _word({name: name for name in ("MinSize", "SampleToInsertRatio")}),
    ),
    "reverb_samples_per_insert": ("samples_per_insert", _number(0.0, above=True)),
    "production_consume_ratio": ("samples_per_insert", _number(0.0, above=True)),
    "reverb_error_buffer": ("error_buffer", _number(0.0)),
    "train_batch_size": ("train_batch_size", _whole(1)),
    "dump_model_freq": ("dump_model_freq", _whole(1)),
    "model_file_sync_per_minutes": ("model_file_sync_per_minutes", _number(0.0)),
    "modelpool_max_save_model_count": ("modelpool_max_save_model_count", _whole(1, 50)),
    "preload_model": ("preload_model", _flag),
    "preload_model_dir": ("preload_model_dir", _text),
    "preload_model_id": ("preload_model_id", _whole(0)),
    "learner_train_sleep_seconds": ("learner_train_sleep_seconds", _number(0.0)),
    "algorithm_on_policy_or_off_policy": (
        "on_policy", _word({"on-policy": True, "on_policy": True, "off-policy": False, "off_policy": False}),
    ),
    "predict_local_or_remote": ("predict_remotely", _word({"local": False, "remote": True})),
    "send_sample_size": ("send_sample_size", _whole(1)),
    "torch_num_threads": ("torch_num_threads", _whole(1)),
    "algo": ("algorithm", _text),
}  # fmt: skip
"""Key of ``[app]`` -> the attribute of `AppSettings`, and the function that checks its value."""

WITHOUT_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(
        ("app", "set_name", "self_play_set_name", "rainbow_env_name"),
        "names the platform's own project or configuration service",
    ),
    **dict.fromkeys(
        ("selfplay_app_conf", "noselfplay_app_conf", "algo_conf"), "the files are found by their names in conf/"
    ),
    **dict.fromkeys(("actor_addrs", "learner_addrs"), "Ray connects the processes"),
    **dict.fromkeys(("log_dir", "level", "tensorflow_log_level"), "--out names the folder of logs"),
    **dict.fromkeys(("eval_model_dir", "eval_model_id"), "evaluation has a command of its own"),
    **dict.fromkeys(("need_to_sync", "user_save_mode_max_count", "use_ckpt_sync"), "there is no platform to upload to"),
    "copy_dir": "the zip of a model holds the whole project",
    "sample_dim": "rows have the length that the project's own functions give them",
    "predict_batch_size": "a workflow asks for one prediction at a time",
    "model_file_load_per_minutes": "a model is loaded when the workflow calls load_model",
    "learner_train_by_while_true": "the learner always runs in a loop of its own",
    "aisrv_connect_to_kaiwu_env_count": "--workflows says how many environments run",
    "use_prometheus": "metrics are written to monitor.jsonl",
}
"""Key of ``[app]`` that is allowed but has no effect here -> the reason."""

_ONLY: Mapping[str, tuple[object, ...]] = {
    "self_play": (False,),
    "run_mode": ("train",),
    "use_which_deep_learning_framework": ("pytorch",),
    "framework_integration_patterns": ("standard",),
    "aisrv_framework": ("kaiwu_env",),
    "wrapper_type": ("local", "remote", "none"),
}
"""Key of ``[app]`` that describes the platform -> the values under which a project runs here."""


def check_settings(section: Mapping[str, object], file: str) -> AppSettings:
    """Return the settings of an ``[app]`` table.

    Raises:
        ValueError: a key is unknown or its value is not allowed; the message names the file and the key.
    """
    values: dict[str, object] = {}
    for key, value in section.items():
        if key in WITHOUT_EFFECT:
            _log.info("%s: app.%s changes nothing here: %s", file, key, WITHOUT_EFFECT[key])
        elif key in _ONLY:
            if value not in _ONLY[key]:
                allowed = " or ".join(map(repr, _ONLY[key]))
                raise ValueError(f"{file}: app.{key} is {value!r}, only {allowed} is supported here")
        elif key in HONOURED:
            name, parse = HONOURED[key]
            values[name] = _parsed(parse, value, f"{file}: app.{key}")
        else:
            raise ValueError(f"{file}: app.{key} is unknown{_hint(key)}; rlenv-robot honours {', '.join(HONOURED)}")
    settings = AppSettings(**cast("dict[str, Any]", values))  # each parser returns its field's type
    if settings.preload > settings.capacity:
        raise ValueError(f"{file}: app.preload_ratio asks for {settings.preload} of {settings.capacity} samples")
    return settings


def _parsed(parse: _Parser, value: object, where: str) -> object:
    try:
        return parse(value)
    except (ValueError, TypeError) as error:
        allowed = str(error) if "invalid literal" not in str(error) else "a number"
        raise ValueError(f"{where} is {value!r}, allowed is {allowed}") from None


def _hint(key: str) -> str:
    near = difflib.get_close_matches(key, [*HONOURED, *WITHOUT_EFFECT, *_ONLY], 1)
    return f", did you mean {near[0]!r}?" if near else ""


def read_settings(file: Path, overrides: Mapping[str, object] | None = None) -> AppSettings:
    """Return the settings of a file, with some keys replaced.

    Args:
        file: ``configure_app.toml``; if it is missing, every setting has its default.
        overrides: key of ``[app]`` -> value, which the platform takes from environment variables.

    Raises:
        ValueError: the file is not TOML, or a key or value is refused.
    """
    section: dict[str, object] = {}
    if file.is_file():
        try:
            plain = tomllib.loads(file.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{file}: {error}") from error
        for name, value in plain.items():
            if name != "app" or not isinstance(value, dict):
                raise ValueError(f"{file}: [{name}] is unknown, the settings are in [app]")
            section = value
    if overrides:
        section = section | dict(overrides)
    return check_settings(section, os.fspath(file))
