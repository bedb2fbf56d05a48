from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from rlenv_vision.vulkan import DeviceKind, devices


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    devices.cache_clear()
    yield
    devices.cache_clear()


def test_a_machine_without_vulkan_has_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert devices() == ()


def test_devices_have_names_and_kinds() -> None:
    found = devices()
    if not found:
        pytest.skip("Vulkan offers no device: apt-get install libvulkan1 mesa-vulkan-drivers")
    for device in found:
        assert device.name.isprintable()
        assert device.name
        assert (device.kind is DeviceKind.CPU) == ("llvmpipe" in device.name)
