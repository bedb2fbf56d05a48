from __future__ import annotations

import mujoco
import numpy as np
import pytest
from mujoco.batch import MODEL_FIELDS

from hal import SpecError
from sim.randomize.targets import _COMPUTED, _REFUSED, changes_constants, targets


@pytest.fixture
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string("""
<mujoco><worldbody><body name="cube"><freejoint/><geom name="side" size="0.1"/></body></worldbody></mujoco>""")


@pytest.mark.skipif(not hasattr(mujoco.MjModel, "_setconst_outputs"), reason="this release of MuJoCo has no such list")
def test_the_computed_fields_are_those_of_this_release(model: mujoco.MjModel) -> None:
    quantities = {
        name for name in MODEL_FIELDS if getattr(getattr(model, name, None), "dtype", np.dtype(int)).kind == "f"
    }
    theirs = quantities.intersection(mujoco.MjModel._setconst_outputs)
    assert theirs - _REFUSED.keys() == _COMPUTED


def test_a_computed_field_is_refused(model: mujoco.MjModel) -> None:
    with pytest.raises(SpecError, match="computes"):
        targets(model, "body.cube.subtreemass")


def test_constants_are_recomputed_where_mujoco_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changes_constants("body_mass")
    assert not changes_constants("geom_friction")
    monkeypatch.delattr(mujoco.MjModel, "_setconst_inputs")
    assert changes_constants("geom_friction")
