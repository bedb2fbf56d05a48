"""List the graphics devices that Vulkan offers, without a window and without a Python package.

MuJoCo's Filament renderer ends the process if Vulkan is missing, so check `devices` before making the renderer.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

__all__ = ["Device", "DeviceKind", "devices"]

# Numbers and structures from the Khronos registry: Vulkan 1.0, vulkan_core.h.
_SUCCESS, _INCOMPLETE = 0, 5
_INSTANCE_CREATE_INFO = 1
_NAME_AT, _NAME_SIZE, _KIND_AT = 20, 256, 16
_PROPERTIES_SIZE = 4096  # VkPhysicalDeviceProperties has 824 bytes
_MAX_DEVICES = 16


class DeviceKind(Enum):
    """Kinds of devices, by the values of Vulkan's VkPhysicalDeviceType."""

    OTHER = 0
    INTEGRATED = 1
    DISCRETE = 2
    VIRTUAL = 3
    CPU = 4


class Device(NamedTuple):
    """A graphics device.

    Attributes:
        name: the driver's name of the device, such as ``llvmpipe (LLVM 15.0.6, 256 bits)``.
        kind: the device's kind; `DeviceKind.CPU` draws in software.
    """

    name: str
    kind: DeviceKind


class _CreateInfo(ctypes.Structure):
    _fields_ = (
        ("sType", ctypes.c_uint32), ("pNext", ctypes.c_void_p), ("flags", ctypes.c_uint32),
        ("pApplicationInfo", ctypes.c_void_p), ("enabledLayerCount", ctypes.c_uint32),
        ("ppEnabledLayerNames", ctypes.c_void_p), ("enabledExtensionCount", ctypes.c_uint32),
        ("ppEnabledExtensionNames", ctypes.c_void_p),
    )  # fmt: skip


@functools.cache
def devices() -> tuple[Device, ...]:
    """Return the devices of this machine, or none if Vulkan or its drivers are missing. The result is cached."""
    try:
        library = ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return ()
    instance = ctypes.c_void_p()
    asked = _CreateInfo(sType=_INSTANCE_CREATE_INFO)
    if library.vkCreateInstance(ctypes.byref(asked), None, ctypes.byref(instance)) != _SUCCESS:
        return ()
    try:
        return tuple(_device(library.vkGetPhysicalDeviceProperties, each) for each in _handles(library, instance))
    finally:
        library.vkDestroyInstance(instance, None)


def _handles(library: Any, instance: ctypes.c_void_p) -> list[ctypes.c_void_p]:
    number, handles = ctypes.c_uint32(_MAX_DEVICES), (ctypes.c_void_p * _MAX_DEVICES)()
    done = library.vkEnumeratePhysicalDevices(instance, ctypes.byref(number), handles)
    found = number.value if done in (_SUCCESS, _INCOMPLETE) else 0
    return [ctypes.c_void_p(handle) for handle in handles[:found]]


def _device(properties_of: Callable[..., object], handle: ctypes.c_void_p) -> Device:
    buffer = ctypes.create_string_buffer(_PROPERTIES_SIZE)
    properties_of(handle, buffer)
    name = buffer.raw[_NAME_AT : _NAME_AT + _NAME_SIZE].split(b"\0", 1)[0].decode(errors="replace")
    kind = int.from_bytes(buffer.raw[_KIND_AT : _KIND_AT + 4], "little")
    return Device(name, DeviceKind(kind if kind <= DeviceKind.CPU.value else 0))
