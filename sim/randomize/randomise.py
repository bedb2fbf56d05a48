"""Models that differ from episode to episode: the declaration of the random numbers, and their drawing."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np
from mujoco.batch import Batch

from hal.errors import SpecError
from sim.randomize.distribution import Distribution, distribution
from sim.randomize.seeds import Purpose, SeedStreams, uniform
from sim.randomize.targets import Target, changes_constants, targets

__all__ = ["Draw", "Randomise", "Randomised"]

How = Literal["set", "scale", "add"]
"""The way in which a drawn number changes the number of the model."""


@dataclass(frozen=True)
class Draw:
    """One line of a randomisation.

    Attributes:
        path: the numbers of the model that change, see `sim.randomize.targets.targets`.
        values: the distribution to draw from.
        how: ``set`` replaces the model's number by the drawn one, ``scale`` multiplies it, ``add`` adds to it.
        unit: the unit of the drawn number; ``1`` for a factor.
        together: whether all objects that the path names share one draw, rather than having one each.
    """

    path: str
    values: Distribution
    how: How
    unit: str
    together: bool = False


@dataclass(frozen=True)
class Randomise:
    """The declaration of the numbers of a model that are drawn anew for each episode of each simulation.

    Attributes:
        draws: the lines, in the order of the declaration.
    """

    draws: tuple[Draw, ...]

    @staticmethod
    def from_dict(plain: Mapping[str, object]) -> Randomise:
        """Make a randomisation from plain data, such as the ``[randomise]`` of a profile.

        Args:
            plain: path -> a table with one distribution (such as ``uniform = [low, high]``, see
                `sim.randomize.distribution.distribution`), ``scale = true`` or ``add = true`` unless the number is to
                be set, ``unit`` (text; left out for a factor), and ``together = true`` for one draw for all objects
                that match.

        Raises:
            SpecError: a table has an unknown key, no distribution, or no unit.
        """
        return Randomise(tuple(_draw(path, line) for path, line in plain.items()))

    def lines(self) -> list[tuple[str, str, str]]:
        """Return path, change and unit of every line, for people."""
        words = {"set": "", "scale": "times ", "add": "plus "}
        suffix = {True: ", one for all", False: ""}
        return [
            (draw.path, words[draw.how] + str(draw.values) + suffix[draw.together], draw.unit) for draw in self.draws
        ]

    def check_fit(self, model: mujoco.MjModel) -> None:
        """Refuse paths that the model does not have or that can't change, and draws that could be impossible.

        Raises:
            SpecError: the message names the path and the reason.
        """
        _resolved(self, model)


def _draw(path: str, line: object) -> Draw:
    def wrong(problem: str) -> SpecError:
        return SpecError(f"randomise.{path}: {problem}")

    if not isinstance(line, Mapping):
        raise wrong(f"is {line!r}, it must be a table such as {{uniform = [0.8, 1.2], scale = true}}")
    rest: dict[str, object] = dict(line)
    flags = {key: rest.pop(key, False) for key in ("scale", "add", "together")}
    unit = rest.pop("unit", None)
    if not all(isinstance(flag, bool) for flag in flags.values()) or (flags["scale"] and flags["add"]):
        raise wrong("scale, add and together are true or false, and not both of scale and add")
    how: How = "scale" if flags["scale"] else "add" if flags["add"] else "set"
    if how == "scale" and unit is None:
        unit = "1"
    if not isinstance(unit, str) or not unit:
        raise wrong("unit is missing: that of the drawn number, such as 'kg' (a factor, with scale = true, has none)")
    try:
        return Draw(path, distribution(rest), how, unit, bool(flags["together"]))
    except ValueError as error:
        raise wrong(str(error)) from error


def _resolved(declared: Randomise, model: mujoco.MjModel) -> list[tuple[Draw, list[Target]]]:
    taken: dict[tuple[str, int], str] = {}
    resolved = []
    for draw in declared.draws:
        drawn = targets(model, draw.path)
        for target in drawn:
            _check_values(model, draw, target)
            for field, index in ((target.field, target.index), *target.followers):
                for element in index.tolist():
                    if (field, element) in taken:
                        raise SpecError(f"randomise.{draw.path}: {taken[field, element]!r} changes the same number")
                    taken[field, element] = draw.path
        resolved.append((draw, drawn))
    return resolved


def _check_values(model: mujoco.MjModel, draw: Draw, target: Target) -> None:
    def wrong(problem: str) -> SpecError:
        return SpecError(f"randomise.{draw.path}: {problem}")

    if draw.how != "scale" and len(target.index) > 1:
        raise wrong(f"{target.name} has {len(target.index)} numbers: scale them together, or name one, {draw.path}[0]")
    nominal = _nominal(model, target.field)[target.index] * target.sign
    if target.followers and not nominal.all():
        raise wrong(f"{target.name} is 0 in the model, so nothing can keep its ratio to it")
    ends = np.array([_changed(nominal, draw.how, end) for end in (draw.values.low, draw.values.high)])
    if ends.min() < target.lowest or (target.field == "body_mass" and ends.min() <= 0):
        least = "above" if target.followers else "at least"
        raise wrong(f"{target.name} could become {ends.min():g}, it must be {least} 0")
    if ends.max() > target.highest + 1e-12:
        raise wrong(
            f"{target.name} could become {ends.max():g} s, but the engine's buffer holds {target.highest:g} s; "
            "give it more samples (nsample) in the MJCF"
        )


def _nominal(model: mujoco.MjModel, field: str) -> np.ndarray:
    owner, name = (model.opt, field[4:]) if field.startswith("opt.") else (model, field)
    return np.asarray(getattr(owner, name), np.float64).ravel()


def _changed(nominal: np.ndarray, how: str, value: float) -> np.ndarray:
    if how == "scale":
        return nominal * value
    return nominal + value if how == "add" else np.full_like(nominal, value)


class Randomised:
    """Draw the models of a batch's simulations.

    Args:
        declared: the declaration of the numbers to draw.
        batch: the simulations, which get fields of their own.
        model: the nominal model.

    Raises:
        SpecError: the declaration does not fit the model.
    """

    def __init__(self, declared: Randomise, batch: Batch, model: mujoco.MjModel) -> None:
        self._batch = batch
        self._lines = _resolved(declared, model)
        self._constants = False
        self._nominal: dict[str, np.ndarray] = {}
        self.fields: dict[str, np.ndarray] = {}
        """The fields in which the models differ: name -> (num, size), live."""
        self.drawn: dict[str, np.ndarray] = {}
        """The numbers drawn for the present episode: path with the object's name -> (num,)."""
        for _, drawn_targets in self._lines:
            for target in drawn_targets:
                self.drawn[target.name] = np.zeros(batch.nsim)
                for field in (target.field, *(follower for follower, _ in target.followers)):
                    self._open(field, model)

    def _open(self, field: str, model: mujoco.MjModel) -> None:
        if field in self.fields:
            return
        self._nominal[field] = _nominal(model, field)
        live = self._batch.expand(field)
        self.fields[field] = live.reshape(len(live), -1)
        assert np.shares_memory(self.fields[field], live)
        self._constants |= changes_constants(field)

    def begin(self, rows: np.ndarray, draws: SeedStreams) -> None:
        """Draw the models of the next episode of these simulations, before their reset.

        Every number is drawn by its name, so another line of the declaration, or an object that another version of the
        model lacks, changes no other number.
        """
        for row in rows.tolist():
            key = draws.generator(row, Purpose.MODEL).integers(2**64, size=1, dtype=np.uint64)
            for draw, drawn_targets in self._lines:
                for target in drawn_targets:
                    name = zlib.crc32((draw.path if draw.together else target.name).encode())
                    share = uniform(key, np.array([name]), 0)
                    self._write(row, draw.how, target, float(draw.values.quantile(share)[0]))
        self._recompute(rows)

    def _write(self, row: int, how: str, target: Target, value: float) -> None:
        nominal = self._nominal[target.field][target.index] * target.sign
        changed = _changed(nominal, how, value)
        self.drawn[target.name][row] = value
        self.fields[target.field][row, target.index] = changed * target.sign
        for field, index in target.followers:
            self.fields[field][row, index] = self._nominal[field][index] * (changed[0] / nominal[0])

    def _recompute(self, rows: np.ndarray) -> None:
        if self._constants:
            self._batch.set_const(rows)

    def restore(self, rows: np.ndarray, fields: Mapping[str, np.ndarray], drawn: Mapping[str, np.ndarray]) -> None:
        """Put back the models of an earlier moment: values of `fields` and `drawn`, (n, ...) each."""
        for name, value in fields.items():
            self.fields[name][rows] = value
        for name, value in drawn.items():
            self.drawn[name][rows] = value
        self._recompute(rows)
