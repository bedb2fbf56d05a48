"""Join the two directions of a mapping, and make the mapping whose keys are the names of our fields."""

from __future__ import annotations

from collections.abc import Sequence

from hal import Spec, SpecMismatch
from rlenv_policy_servers.answer_mapping import AnswerMapping
from rlenv_policy_servers.part import ActionPart, ObservationPart
from rlenv_policy_servers.policy_file import PolicyFile
from rlenv_policy_servers.request_mapping import RequestMapping

__all__ = ["KeyMapping", "own_names"]


class KeyMapping:
    """The mapping between one task and the keys of a server.

    Args:
        settings: the policy file, for the file's ``prompt_field``, ``observation`` and ``action``.
        observation: the spec of observations.
        action: the spec of actions.
        serving: whether requests are to be converted back to whole observations.

    Attributes:
        requests: the mapping of observations.
        answers: the mapping of actions.
        prompt_field: the observation's text field that is sent as the instruction; empty for none.

    Raises:
        SpecMismatch: the parts don't fit the specs; the error lists every difference.
    """

    def __init__(self, settings: PolicyFile, observation: Spec, action: Spec, serving: bool = False) -> None:
        self.requests = RequestMapping(settings.observation, observation)
        self.answers = AnswerMapping(settings.action, observation, action)
        self.prompt_field = settings.prompt_field
        problems = [*self.requests.problems, *self.answers.problems]
        texts = [field.name for field in observation if field.is_text and not field.shape]
        if self.prompt_field and self.prompt_field not in texts:
            problems.append(f"prompt_field: the observation has no text {self.prompt_field!r}, it has {texts}")
        if serving and not problems:
            problems += self.requests.uncovered()
            problems += [
                f"observation: {field.name} is a text that no client can send; one of shape () can be the prompt_field"
                for field in observation
                if field.is_text and field.name != self.prompt_field
            ]
        if problems:
            raise SpecMismatch("the policy file does not fit the task", problems)


def own_names(
    observation: Spec, action: Spec, dialect: str
) -> tuple[Sequence[ObservationPart], Sequence[ActionPart], str]:
    """Return the parts and the prompt's field of the mapping whose keys are our fields' names.

    Images are sent in full size, other fields as vectors in their units. openpi and LeRobot have one key for all
    actions, ``actions`` and ``action``; GR00T has one for each field.

    Args:
        observation: the spec of observations.
        action: the spec of actions.
        dialect: ``openpi``, ``groot`` or ``lerobot``.
    """
    prefixes = {"groot": ("video.", "state.")}.get(dialect, ("", ""))
    sent = [
        ObservationPart(key=f"{prefixes[not field.is_image]}{field.name}", field=field.name)
        for field in observation
        if not field.is_text
    ]
    common = {"openpi": "actions", "lerobot": "action"}.get(dialect)
    received = [ActionPart(key=common or f"action.{field.name}", field=field.name) for field in action]
    texts = [field.name for field in observation if field.is_text and not field.shape]
    return sent, received, texts[0] if len(texts) == 1 else ""
