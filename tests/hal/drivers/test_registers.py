"""Numbers go into a servo's registers and come back, in both makers' notations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.drivers.registers import Register


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_complement_comes_back(value: int) -> None:
    register = Register(116, 4, negative="complement")
    assert register.unpack(register.pack(value)) == value
    assert register.pack(value) == value.to_bytes(4, "little", signed=True)


@given(st.integers(-2047, 2047))
def test_a_sign_and_magnitude_comes_back(value: int) -> None:
    register = Register(31, 2, negative=11)
    assert register.unpack(register.pack(value)) == value


@pytest.mark.parametrize(
    ("register", "value"),
    [(Register(5), 256), (Register(5), -1), (Register(20, 4, negative="complement"), -(1 << 31) - 1),
     (Register(31, 2, negative=11), 2048)],
)  # fmt: skip
def test_a_number_that_does_not_fit_is_refused(register: Register, value: int) -> None:
    with pytest.raises(ValueError, match="fit"):
        register.pack(value)
