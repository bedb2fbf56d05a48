"""Declare and draw the random numbers by which models differ from episode to episode."""

from __future__ import annotations

import difflib
import fnmatch
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np
from mujoco.batch import MODEL_FIELDS, Batch

from hal.errors import SpecError
from sim.randomize.distribution import Distribution, Rows, distribution
from sim.randomize.load_friction import BASE, FRICTION, TERMS, LoadFriction
from sim.randomize.seeds import Purpose, SeedStreams, uniform

__all__ = ["Draw", "Randomise", "Randomised", "Target", "changes_constants", "targets", "with_own_draws"]

_TERMS = {term.field: term for term in TERMS.values()}

How = Literal["set", "scale", "add"]
"""The change of the model's number by a drawn one: replace it, scale it, or add to it."""


@dataclass(frozen=True)
class Draw:
    """Declare one random number of a model, as a line of a randomisation.

    Attributes:
        path: path of the numbers of the model that change (`sim.randomize.randomise.targets`).
        values: the distribution to draw from.
        how: ``set`` replaces the model's number by the drawn one, ``scale`` multiplies it, ``add`` adds to it.
        unit: the unit of the drawn number; ``1`` for a factor.
        together: whether all objects that the path names share one draw; if not, each has its own.
    """

    path: str
    values: Distribution
    how: How
    unit: str
    together: bool = False


@dataclass(frozen=True)
class Randomise:
    """Declare the numbers of a model that are drawn for each episode of each simulation.

    Attributes:
        draws: the lines, in the order of the declaration.
        own: the lines of the model itself (`sim.model.SimModel.draws`). They come first, and other lines do not
            draw the same numbers again.
    """

    draws: tuple[Draw, ...]
    own: tuple[Draw, ...] = ()

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

    def values(self) -> Iterator[tuple[str, Distribution]]:
        """Yield path and distribution of every line."""
        yield from ((draw.path, draw.values) for draw in (*self.own, *self.draws))

    def lines(self) -> list[tuple[str, str, str]]:
        """Return path, change and unit of every line, for people."""
        words = {"set": "", "scale": "times ", "add": "plus "}
        suffix = {True: ", one for all", False: ""}
        return [
            (draw.path, words[draw.how] + str(draw.values) + suffix[draw.together], draw.unit)
            for draw in (*self.own, *self.draws)
        ]

    def check_fit(self, model: mujoco.MjModel) -> None:
        """Check that the model has all paths, that they can change, and that every possible draw is physical.

        Raises:
            SpecError: a check fails; the message names the path and the reason.
        """
        _resolved(self, model)


def with_own_draws(own: Mapping[str, object], randomise: Randomise | None) -> Randomise | None:
    """Return a randomisation with the model's own lines added; None if neither draws anything."""
    if not own:
        return randomise
    return Randomise(() if randomise is None else randomise.draws, Randomise.from_dict(own).draws)


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
    taken: dict[tuple[str, int], tuple[str, bool]] = {}
    resolved = []
    own: set[tuple[str, int]] = set()
    for number, draw in enumerate((*declared.own, *declared.draws)):
        if number == len(declared.own):
            own = set(taken)
        drawn = [target for target in targets(model, draw.path) if not own & set(_elements(target.field, target.index))]
        for target in drawn:
            _check_values(model, draw, target)
            for field, index in ((target.field, target.index), *target.followers):
                follows = field != target.field
                for element in _elements(field, index):
                    other, followed = taken.setdefault(element, (draw.path, follows))
                    # Two ratios may be kept at once, as that of an inertia to its mass and to the size.
                    if other != draw.path and not (follows and followed):
                        raise SpecError(f"randomise.{draw.path}: {other!r} changes the same number")
        if drawn:
            resolved.append((draw, drawn))
    return resolved


def _elements(field: str, index: np.ndarray) -> list[tuple[str, int]]:
    return [(field, element) for element in index.tolist()]


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
        least = "above 0" if target.followers else f"at least {max(target.lowest, 0.0):g}"
        raise wrong(f"{target.name} could become {ends.min():g}, it must be {least}")
    if target.field in _TERMS and ends.max() > target.highest:
        raise wrong(f"{target.name} could become {ends.max():g}, {_TERMS[target.field].problem}")
    if ends.max() > target.highest + 1e-12:
        raise wrong(
            f"{target.name} could become {ends.max():g} s, but the engine's buffer holds {target.highest:g} s; "
            "give it more samples (nsample) in the MJCF"
        )


def _nominal(model: mujoco.MjModel, field: str) -> np.ndarray:
    if field in _TERMS:
        return np.full(model.nv, _TERMS[field].default)
    owner, name = (model.opt, field[4:]) if field.startswith("opt.") else (model, field)
    return np.asarray(getattr(owner, name), np.float64).ravel()


def _changed(nominal: np.ndarray, how: str, value: float) -> np.ndarray:
    if how == "scale":
        return nominal * value
    return nominal + value if how == "add" else np.full_like(nominal, value)


@dataclass(frozen=True)
class _Group:
    """Targets of one line that have the same field and as many numbers each, so that one assignment writes them.

    Attributes:
        places: which of the line's targets they are, (t,).
        field: the field of the model.
        index: indices into the flattened field, (t, k).
        sign: as `Target.sign`, (t, 1).
        followers: field, and indices of the numbers that keep their ratio to a target's first one, (t, f).
    """

    places: np.ndarray
    field: str
    index: np.ndarray
    sign: np.ndarray
    followers: tuple[tuple[str, np.ndarray], ...]


@dataclass(frozen=True)
class _Line:
    """A line of the declaration, resolved.

    Attributes:
        draw: the line.
        names: checksums of the paths that are drawn, uint64: one for each target, or one for all.
        drawn: rows of the targets in the table of drawn numbers, (T,).
        groups: the targets.
    """

    draw: Draw
    names: np.ndarray
    drawn: np.ndarray
    groups: list[_Group]


def _groups(targets: list[Target]) -> list[_Group]:
    kinds: dict[tuple[object, ...], list[int]] = {}
    for place, target in enumerate(targets):
        followers = tuple((field, len(index)) for field, index in target.followers)
        kinds.setdefault((target.field, len(target.index), followers), []).append(place)
    groups = []
    for places in kinds.values():
        members = [targets[place] for place in places]
        following = tuple(
            (field, np.stack([member.followers[number][1] for member in members]))
            for number, (field, _) in enumerate(members[0].followers)
        )
        index, sign = np.stack([member.index for member in members]), np.array([[member.sign] for member in members])
        groups.append(_Group(np.array(places), members[0].field, index, sign, following))
    return groups


class Randomised:
    """Draw the models of a batch's simulations.

    Args:
        declared: the declaration of the numbers to draw.
        batch: the simulations; each gets its own copy of the drawn fields.
        model: the nominal model.

    Raises:
        SpecError: the declaration does not fit the model.
    """

    def __init__(self, declared: Randomise, batch: Batch, model: mujoco.MjModel) -> None:
        self._batch = batch
        resolved = _resolved(declared, model)
        self._constants = False
        self._nominal: dict[str, np.ndarray] = {}
        self.fields: dict[str, np.ndarray] = {}
        """The fields in which the models differ: name -> (num, size), live."""
        self._following: dict[str, np.ndarray] = {}
        """Numbers of the model that keep their ratio to drawn ones, by field; set to nominal before they are scaled."""
        self._values = np.zeros((sum(len(targets) for _, targets in resolved), batch.nsim))
        self.drawn: dict[str, np.ndarray] = {}
        """The numbers drawn for the present episode: path with the object's name -> (num,)."""
        self._lines: list[_Line] = []
        for draw, drawn_targets in resolved:
            first = len(self.drawn)
            for target in drawn_targets:
                self.drawn[target.name] = self._values[len(self.drawn)]
                for field in (target.field, *(follower for follower, _ in target.followers)):
                    self._open(field, model)
            paths = [draw.path] if draw.together else [target.name for target in drawn_targets]
            names = np.array([zlib.crc32(path.encode()) for path in paths], np.uint64)
            self._lines.append(_Line(draw, names, np.arange(first, len(self.drawn)), _groups(drawn_targets)))
            for follower, index in (pair for target in drawn_targets for pair in target.followers):
                self._following[follower] = np.union1d(self._following.get(follower, index), index)
        self._rows: dict[str, Rows] = {}
        for line in self._lines:
            if isinstance(line.draw.values, Rows):
                self._rows[line.draw.values.group] = line.draw.values
                self.drawn.setdefault(line.draw.values.name, np.zeros(batch.nsim))
        dofs = [target.index for _, drawn_targets in resolved for target in drawn_targets if target.field in _TERMS]
        self.load = LoadFriction(model, np.unique(np.concatenate(dofs)), self.fields) if dofs else None
        """The friction that grows with the load; None where none is drawn."""

    def _open(self, field: str, model: mujoco.MjModel) -> None:
        if field in self.fields:
            return
        if field in _TERMS:
            self._open(FRICTION, model)
            self._nominal[field] = _nominal(model, field)
            self.fields[field] = np.tile(self._nominal[field], (self._batch.nsim, 1))
            self.fields.setdefault(BASE, np.zeros((self._batch.nsim, model.nv)))
            return
        self._nominal[field] = _nominal(model, field)
        live = self._batch.expand(field)
        self.fields[field] = live.reshape(len(live), -1)
        assert np.shares_memory(self.fields[field], live)
        self._constants |= changes_constants(field)

    def begin(self, rows: np.ndarray, draws: SeedStreams) -> None:
        """Draw the models of the next episode of these simulations, before their reset.

        Every number is drawn by its name, so another line of the declaration, or an object that another version of the
        model lacks, changes no other number. `Rows` are drawn by the name of their group.
        """
        keys = [draws.generator(row, Purpose.MODEL).integers(2**64, dtype=np.uint64) for row in rows.tolist()]
        key = np.array(keys, np.uint64)[:, None]
        if self.load is not None:
            self.fields[FRICTION][rows] = self._nominal[FRICTION]
        for field, index in self._following.items():
            self.fields[field][rows[:, None], index] = self._nominal[field][index]
        shares = draws.shares(rows, self._rows)
        for name, share in shares.items():
            self.drawn[self._rows[name].name][rows] = self._rows[name].place(share)
        for line in self._lines:
            drawn = line.draw.values
            share = shares[drawn.group][:, None] if isinstance(drawn, Rows) else uniform(key, line.names, 0)
            values = drawn.quantile(share)
            values = np.broadcast_to(values, (len(rows), len(line.drawn)))
            self._values[line.drawn[:, None], rows] = values.T
            for group in line.groups:
                self._write(rows, line.draw.how, group, values[:, group.places, None])
        if self.load is not None:
            self.fields[BASE][rows] = self.fields[FRICTION][rows]
            self.load.take_up()
        self._recompute(rows)

    def _write(self, rows: np.ndarray, how: How, group: _Group, values: np.ndarray) -> None:
        """Write drawn numbers, shape (n, t, 1), into the models of these simulations."""
        nominal = self._nominal[group.field][group.index] * group.sign
        changed = values * nominal if how == "scale" else values + (nominal if how == "add" else np.zeros_like(nominal))
        each = rows[:, None, None]
        self.fields[group.field][each, group.index] = changed * group.sign
        for field, index in group.followers:
            ratio = changed[..., :1] / nominal[:, :1]
            if group.field == "geom_size" and field == "body_inertia":
                ratio = ratio * ratio
            self.fields[field][each, index] *= ratio

    def _recompute(self, rows: np.ndarray) -> None:
        if self._constants:
            self._batch.set_const(rows)

    def restore(self, rows: np.ndarray, fields: Mapping[str, np.ndarray], drawn: Mapping[str, np.ndarray]) -> None:
        """Restore the models of an earlier moment from the values of `fields` and `drawn`, (n, ...) each."""
        for name, value in fields.items():
            self.fields[name][rows] = value
        for name, value in drawn.items():
            self.drawn[name][rows] = value
        if self.load is not None:
            self.load.take_up()
        self._recompute(rows)


# -- targets ---------------------------------------------------------------------------------------------------------


_KINDS = {
    "body": ("body_",), "joint": ("jnt_", "dof_"), "geom": ("geom_",), "site": ("site_",), "camera": ("cam_",),
    "light": ("light_",), "actuator": ("actuator_",), "sensor": ("sensor_",), "tendon": ("tendon_",),
    "equality": ("eq_",), "material": ("mat_",), "pair": ("pair_",),
}  # fmt: skip
_OBJECTS = {kind: getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}") for kind in _KINDS}

_REFUSED = {
    "geom_size": "mass, inertia and bounding volumes would stay those of the old size, but for a sphere, capsule, "
    "ellipsoid, cylinder or box that is scaled as a whole and is the only part of its body that collides",
    "geom_pos": "the bounding volume of its body would stay where it was; move the body",
    "geom_quat": "the bounding volume of its body would stay as it was; turn the body",
    "geom_aabb": "it is computed from the shape",
    "geom_rbound": "it is computed from the shape",
    "opt.timestep": "a control period would no longer be a whole number of steps",
}
_COMPUTED = frozenset({
    "actuator_acc0", "actuator_length0", "body_invweight0", "body_margin", "body_subtreemass", "bvh_aabb", "cam_mat0",
    "cam_pos0", "cam_poscom0", "dof_M0", "dof_invweight0", "dof_length", "efm0_L", "eq_data", "flexedge_invweight0",
    "flexedge_length0", "geom_fluid", "light_dir0", "light_pos0", "light_poscom0", "tendon_invweight0",
    "tendon_length0",
})  # fmt: skip
"""Quantities that ``mj_setConst`` computes from other fields. MuJoCo has no public list; a test compares this one with
the private list of the installed release."""

_BELOW_ZERO = re.compile(
    r"mass|inertia|armature|damping|frictionloss|stiffness|friction|delay|density|viscosity|gear|kp|kv|margin|rgba"
)
"""Fields that make no sense below 0, except ``gear``."""


@dataclass(frozen=True)
class Target:
    """The numbers of one object that one draw changes.

    Attributes:
        name: the path with the object's own name, ``body.cube.mass``.
        field: field of the model, or ``opt.<name>``.
        index: indices into the flattened field.
        sign: -1 if the model holds the negative of the number that the path names, otherwise 1.
        followers: (field, indices) of numbers that keep their ratio to the target, such as an inertia to its mass.
        lowest: lower end of the range in which the numbers must stay.
        highest: upper end of that range.
    """

    name: str
    field: str
    index: np.ndarray
    sign: float = 1.0
    followers: tuple[tuple[str, np.ndarray], ...] = ()
    lowest: float = -np.inf
    highest: float = np.inf


def changes_constants(field: str) -> bool:
    """Return whether ``mj_setConst`` must run after a change of this field; True if that is unknown.

    MuJoCo's own list of the fields that the constants depend on is private. Without it every change recomputes them,
    which takes longer and gives the same numbers.
    """
    inputs = getattr(mujoco.MjModel, "_setconst_inputs", None)
    return inputs is None or field in inputs or field.startswith("opt.")


def targets(model: mujoco.MjModel, path: str) -> list[Target]:
    """Return the targets that a path names.

    Args:
        model: the compiled model.
        path: ``<kind>.<name>.<field>`` or ``opt.<field>``; ``*`` and ``?`` in the name match several objects, and
            ``[i]`` at the end selects one number of several.

    Raises:
        SpecError: the model has no such object or field, or the field can't differ between simulations.
    """
    match = re.fullmatch(r"(\w+)\.(?:(.+)\.)?(\w+)(?:\[(\d+)\])?", path)
    if match is None:
        raise _wrong(path, "a path is <kind>.<name>.<field> or opt.<field>, such as 'body.cube.mass'")
    kind, pattern, attribute, element = match.groups()
    if kind == "opt" and pattern is None:
        matches = [_option(model, path, attribute)]
    elif kind in _KINDS and pattern is not None:
        objects = _objects(model, kind, pattern)
        matches = [_target(model, path, kind, number, name, attribute) for number, name in objects]
        if not matches:
            names = [name for _, name in _objects(model, kind, "*")]
            similar = difflib.get_close_matches(pattern, names, 1)
            hint = f", did you mean {similar[0]!r}?" if similar else "."
            raise _wrong(path, f"no {kind} is called {pattern!r}{hint} There are {', '.join(names) or 'none'}")
    else:
        raise _wrong(path, f"kinds are {', '.join(_KINDS)} with a name, and opt without")
    return [_element(path, target, element) for target in matches]


def _wrong(path: str, problem: str) -> SpecError:
    return SpecError(f"randomise.{path}: {problem}")


def _element(path: str, target: Target, element: str | None) -> Target:
    if element is None:
        return target
    if target.field == "geom_size":
        raise _wrong(path, f"can't be drawn: {_REFUSED[target.field]}")
    if int(element) >= len(target.index):
        raise _wrong(path, f"it has {len(target.index)} numbers, counted from 0")
    return Target(
        f"{target.name}[{element}]", target.field, target.index[[int(element)]], target.sign, (), target.lowest,
        target.highest,
    )  # fmt: skip


def _objects(model: mujoco.MjModel, kind: str, pattern: str) -> list[tuple[int, str]]:
    counts = {"joint": "njnt", "camera": "ncam", "equality": "neq", "material": "nmat", "actuator": "nactuator"}
    count = getattr(model, counts.get(kind, f"n{kind}"))
    first = 1 if kind == "body" else 0  # the world has no mass and does not move
    names = {
        index: mujoco.mj_id2name(model, _OBJECTS[kind], index) or f"{kind}{index}" for index in range(first, count)
    }
    return [(index, name) for index, name in names.items() if fnmatch.fnmatchcase(name, pattern)]


def _option(model: mujoco.MjModel, path: str, attribute: str) -> Target:
    value = np.asarray(getattr(model.opt, attribute, None))
    field = f"opt.{attribute}"
    _check(path, field, value.dtype)
    return Target(path.partition("[")[0], field, np.arange(value.size), lowest=_lowest(attribute))


def _target(model: mujoco.MjModel, path: str, kind: str, number: int, name: str, attribute: str) -> Target:
    full_name = f"{kind}.{name}.{attribute}"
    if kind == "actuator" and attribute in ("kp", "kv"):
        return _gain(model, path, full_name, number, attribute)
    if kind == "joint" and attribute in TERMS:
        term, index = TERMS[attribute], _indices(model, FRICTION, number, model.dof_frictionloss)
        return Target(full_name, term.field, index, 1.0, (), term.lowest, term.highest)
    if kind == "geom" and attribute == "size":
        return _size(model, path, full_name, number)
    for prefix in _KINDS[kind]:
        field = prefix + attribute
        values = getattr(model, field, None)
        if isinstance(values, np.ndarray):
            _check(path, field, values.dtype)
            index = _indices(model, field, number, values)
            lowest, highest = _lowest(attribute), np.inf
            if attribute == "delay":
                highest = float(getattr(model, f"{kind}_history")[number, 0]) * model.opt.timestep
            followers = ((("body_inertia", _rows(model.body_inertia, [number]))),) if field == "body_mass" else ()
            return Target(full_name, field, index, 1.0, followers, lowest, highest)
    fields = [(prefix, field) for prefix in _KINDS[kind] for field in MODEL_FIELDS if field.startswith(prefix)]
    similar = difflib.get_close_matches(attribute, [field.removeprefix(prefix) for prefix, field in fields])
    hint = f", did you mean {' or '.join(similar)}?" if similar else ""
    raise _wrong(path, f"a {kind} has no {attribute!r}{hint}")


def _indices(model: mujoco.MjModel, field: str, number: int, values: np.ndarray) -> np.ndarray:
    if not field.startswith("dof_"):
        return _rows(values, [number])
    first = int(model.jnt_dofadr[number])
    return _rows(values, list(range(first, first + int(np.count_nonzero(model.dof_jntid == number)))))


def _rows(values: np.ndarray, rows: list[int]) -> np.ndarray:
    return np.arange(values.size).reshape(values.shape)[rows].ravel()


_SCALABLE = tuple(
    getattr(mujoco.mjtGeom, f"mjGEOM_{name}").value for name in ("SPHERE", "CAPSULE", "ELLIPSOID", "CYLINDER", "BOX")
)


def _size(model: mujoco.MjModel, path: str, name: str, number: int) -> Target:
    """Return the target of a body's shape: its bounding volumes follow, and its inertia by the square."""
    body = int(model.geom_bodyid[number])
    of_body = model.geom_bodyid == body
    alone = np.count_nonzero(of_body & ((model.geom_contype | model.geom_conaffinity) != 0)) == 1
    if int(model.geom_type[number]) not in _SCALABLE or not alone or body == 0:
        raise _wrong(path, f"can't be drawn: {_REFUSED['geom_size']}")
    sizes = _rows(model.geom_size, [number])
    followers = (
        ("geom_rbound", np.array([number])), ("geom_aabb", _rows(model.geom_aabb, [number])[3:]),
        ("body_inertia", _rows(model.body_inertia, [body])),
    )  # fmt: skip
    return Target(name, "geom_size", sizes[model.geom_size[number] > 0], 1.0, followers, 0.0)


def _gain(model: mujoco.MjModel, path: str, name: str, number: int, attribute: str) -> Target:
    """Return the target of a position servo's kp or kv: force = kp (ctrl - length) - kv velocity, and its offset."""
    gain, bias = model.actuator_gainprm[number], model.actuator_biasprm[number]
    affine = model.actuator_biastype[number] == mujoco.mjtBias.mjBIAS_AFFINE.value
    if not affine or gain[0] == 0 or bias[1] != -gain[0]:
        raise _wrong(path, f"{name!r} is of no position servo; draw gainprm or biasprm")
    biases = _rows(model.actuator_biasprm, [number])
    if attribute == "kv":
        return Target(name, "actuator_biasprm", biases[[2]], -1.0, lowest=0.0)
    gains = _rows(model.actuator_gainprm, [number])
    following = biases[:2][bias[:2] != 0]  # a constant torque of 0 follows nothing, and may be named beside the gain
    return Target(name, "actuator_gainprm", gains[[0]], 1.0, (("actuator_biasprm", following),), 0.0)


def _check(path: str, field: str, dtype: np.dtype) -> None:
    if field in _REFUSED:
        raise _wrong(path, f"can't be drawn: {_REFUSED[field]}")
    if field not in MODEL_FIELDS:
        raise _wrong(path, "all simulations of a batch share it, MuJoCo can't make it differ")
    if dtype.kind != "f":
        raise _wrong(path, "it is a whole number that says how the model is built, no quantity")
    if field in _COMPUTED:
        raise _wrong(path, "MuJoCo computes it from other fields, which would overwrite it; draw those")


def _lowest(attribute: str) -> float:
    return 0.0 if attribute != "gear" and _BELOW_ZERO.search(attribute) else -np.inf
