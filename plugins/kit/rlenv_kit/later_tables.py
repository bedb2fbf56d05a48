"""Check episodes that nothing distinguishes but what came before them, and every table that came in any check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from rlenv_kit.described import illegal_options, option_values
from rlenv_kit.episodes import at_highest, at_lowest
from rlenv_kit.probe import Probe, Table, draws, is_over
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import PlannedCheck

__all__ = ["later_checks"]

_COMPARED = 16
"""Frames of an episode that is compared after other calls."""

_RESETS = 13
"""Resets after which an episode is compared."""

_FRAMES = 90
"""Longest episode that is walked to see its end."""

_WANDERED_S = 3.0
"""Longest time of an episode without a seed, by the probe's clock."""


def later_checks(probe: Probe, others: Iterable[PlannedCheck]) -> list[PlannedCheck]:
    """Return the checks that say something while all others pass.

    Args:
        probe: drives the environment, and has judged its tables.
        others: the other checks.
    """
    keys = tuple(planned.key for planned in others)
    return [
        PlannedCheck("histories", "nothing that came before an episode matters to its frames", "6.2.2.1-1 6.2.2.1-3",
                     partial(_histories, probe), keys),
        PlannedCheck("every table", "each table of every call keeps its form, and follows from the one before",
                     "6.2.3.1-T1 6.2.3.3-T3 6.2.3.1-7", partial(_every_table, probe), (*keys, "histories")),
    ]  # fmt: skip


def _histories(probe: Probe) -> None:
    if not probe.repeatable:
        raise NotTried("equal seeds need not give equal episodes here")
    first = probe.walk(_COMPARED)
    histories: dict[str, Callable[[], object]] = {
        "illegal actions in an episode": partial(_wander, probe, 6, probe.seed_option()),
        "resets that were refused": partial(_refused, probe),
        "episodes of the smallest and the largest actions": lambda: [
            probe.walk(_FRAMES, choose=choose, budget_s=2) for choose in (at_lowest, at_highest)],
        "an episode without a seed": partial(_wander, probe, 6, {}),
        "resets with other options": partial(_options, probe),
        "renderings": partial(_rendered, probe),
        f"{_RESETS} resets": lambda: [probe.reset(probe.seed + n) for n in range(_RESETS)],
    }  # fmt: skip
    for words, history in histories.items():
        history()
        try:
            probe.compare(first, probe.repeat(first), f"after {words}", probe.steady)
        except Failed as finding:
            raise Failed(
                f"{finding.found} (after {words})", "an episode of the same seed and actions is the same"
            ) from (finding)


def _every_table(probe: Probe) -> None:
    probe.audit.active = True
    try:
        _walks(probe)
    finally:
        probe.audit.active = False
    if probe.audit.problem is not None:
        raise probe.audit.problem


def _walks(probe: Probe) -> None:
    """Walk episodes with and without a seed, with illegal actions, to their ends."""
    seeded = probe.seed_option(probe.seed + 3)
    for frames, options in ((_FRAMES, {}), (_FRAMES // 2, seeded), (_FRAMES // 6, {})):
        _wander(probe, frames, options)
    spec = probe.env.observation, probe.env.action
    probe.reset_with({})
    if (probe.env.observation, probe.env.action) != spec or probe.env.env_id != probe.env_id:
        raise Failed("the description or the env_id changed with a reset", "they stay")


def _wander(probe: Probe, frames: int, options: dict[str, object]) -> None:
    """Walk an episode with an illegal action before each of its first frames, and before some later ones."""
    end = probe.clock() + _WANDERED_S
    rng, table = draws(probe.seed), probe.reset_with(options)
    for number in range(frames):
        if is_over(table) or probe.clock() > end:
            return
        if number < 5 or number % 9 == 0:
            _refuse(probe, table)
        table = probe.legal_step(table, rng, number).table


def _refuse(probe: Probe, table: Table) -> None:
    request = {"env_id": probe.env.env_id, "frame_no": table["frame_no"]}
    with suppress(Exception):  # how it is refused, other checks look at
        probe.step(request)


def _refused(probe: Probe) -> None:
    probe.walk(3)
    for options in illegal_options(probe):
        with suppress(Exception):
            probe.reset_with(options)


def _options(probe: Probe) -> None:
    """Begin an episode with each described option, with a value that is taken."""
    for name, text in probe.described("reset_options").items():
        for value in option_values(probe, name, str(text)) if name != "seed" else ():
            try:
                table = probe.reset_with({name: value})
            except Exception:
                continue
            if not is_over(table):
                probe.legal_step(table, draws(probe.seed))
            break


def _rendered(probe: Probe) -> None:
    show = getattr(probe.env, "render", None)
    table, rng = probe.reset(), draws(probe.seed)
    for number in range(3):
        if is_over(table) or not callable(show):
            return
        with suppress(Exception):  # another check renders
            probe.log.call("render", show, {"mode": "call", "to": lambda shown: None})
        table = probe.legal_step(table, rng, number).table
