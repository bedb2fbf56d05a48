"""Make an OpenGL context without a screen from EGL alone, without a window system or a further Python package.

Mesa's software renderer loads LLVM and makes its symbols global. Triton, PyTorch's compiler, contains another LLVM. If
Triton is loaded after Mesa, Triton's calls reach Mesa's LLVM, and the process dies with a segmentation fault in the
first ``torch.optim`` optimizer, since making one imports ``torch._dynamo``, which imports Triton. If Triton is loaded
first, both keep their own LLVM. `load_triton_first` therefore loads Triton's library, if it is installed, before any
part of OpenGL; it does not import Triton or PyTorch. TensorFlow has a similar fault
(github.com/tensorflow/tensorflow/issues/124205).

Mesa 22.3 (Debian 12) fills pixels in its own threads, with a fault: a drawing thread searches the textures of an
earlier part of the image (``lp_setup_is_resource_referenced``) while such a thread frees their list, and the process
dies with a segmentation fault. Newer versions lock the list. With textures and 16 contexts on a busy machine, the fault
occurred in four of nine runs of 10 to 20 s. `drawn_by_callers` therefore makes Mesa start no such threads
(``LP_NUM_THREADS=0``, unless the user set another number): each context draws in the thread that calls it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from hal.errors import RobotError

__all__ = ["PACKAGES", "EglContext", "drawn_by_callers", "load_triton_first", "triton_libraries"]

PACKAGES = "libegl1 libgl1 libgl1-mesa-dri"
"""The packages of Debian and Ubuntu for EGL and OpenGL; the last one draws in software if there is no GPU driver."""

# Names and numbers from the Khronos registry: EGL 1.5, EXT_platform_device, MESA_platform_surfaceless.
_OPENGL_API, _NONE = 0x30A2, 0x3038
_PLATFORM_DEVICE, _PLATFORM_SURFACELESS = 0x313F, 0x31DD
_CONFIG = (
    0x3033, 0x0001,  # SURFACE_TYPE: PBUFFER_BIT
    0x3040, 0x0008,  # RENDERABLE_TYPE: OPENGL_BIT
    0x3024, 8, 0x3023, 8, 0x3022, 8,  # RED, GREEN, BLUE_SIZE
    0x3025, 24,  # DEPTH_SIZE
    _NONE,
)  # fmt: skip
_MAX_DEVICES = 16

_MESA_THREADS = "LP_NUM_THREADS"
"""Mesa's setting for the number of threads of its software renderer, read when a display is initialised."""


def triton_libraries() -> list[Path]:
    """Return the files of Triton's shared library; an empty list if Triton is not installed."""
    triton = importlib.util.find_spec("triton")
    folders = (triton.submodule_search_locations or ()) if triton else ()
    return [library for folder in folders for library in Path(folder).glob("_C/libtriton*.so")]


@functools.cache
def load_triton_first() -> None:
    """Load Triton's shared library, if Triton is installed, so that it binds its own LLVM (see the module)."""
    for library in triton_libraries():
        with contextlib.suppress(OSError):  # a damaged Triton fails when it is imported, with its own message
            ctypes.CDLL(str(library))


@contextlib.contextmanager
def drawn_by_callers() -> Iterator[None]:
    """Make a software renderer of Mesa that starts within the block draw in the calling threads (see the module)."""
    if _MESA_THREADS in os.environ:
        yield
        return
    os.environ[_MESA_THREADS] = "0"
    try:
        yield
    finally:
        os.environ.pop(_MESA_THREADS, None)


class EglContext:
    """Make an OpenGL context on the first device that provides one: a GPU if its driver works, otherwise software.

    The new context is current. It belongs to the thread on which it is current until that thread releases it.

    Raises:
        RobotError: there is no EGL, or none of its devices can draw; the message names the packages to install.
    """

    def __init__(self) -> None:
        self._egl = _load()
        self._context: int | None
        with drawn_by_callers():
            for display in _displays(self._egl):
                context = _context(self._egl, display)
                if context:
                    self._display, self._context = display, context
                    self.make_current()
                    return
        raise _missing("no EGL device gives an OpenGL context")

    def make_current(self) -> None:
        """Make the context current on this thread, which may then draw into it.

        Raises:
            RobotError: the context is current on another thread.
        """
        if not self._egl.eglMakeCurrent(self._display, None, None, self._context):
            raise RobotError(
                f"the OpenGL context can't be used here (EGL error {self._egl.eglGetError():#x}); "
                "another thread is drawing with the same camera"
            )

    def release(self) -> None:
        """Release the context, so that another thread can make it current."""
        self._egl.eglMakeCurrent(self._display, None, None, None)

    def free(self) -> None:
        """Destroy the context. Safe to call more than once."""
        if self._context:
            self.release()
            self._egl.eglDestroyContext(self._display, self._context)
            self._context = None


def _missing(problem: str) -> RobotError:
    return RobotError(
        f"images can't be drawn: {problem}. On Debian or Ubuntu: apt-get install {PACKAGES}. "
        "Everything but cameras and videos works without."
    )


def _load() -> ctypes.CDLL:
    load_triton_first()
    try:
        egl = ctypes.CDLL("libEGL.so.1")
        ctypes.CDLL("libGL.so.1")  # MuJoCo loads it by itself, but crashes where it is missing
    except OSError as error:
        raise _missing(str(error)) from None
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    for name, result, arguments in (
        ("eglGetProcAddress", pointer, (ctypes.c_char_p,)),
        ("eglGetError", integer, ()),
        ("eglGetDisplay", pointer, (pointer,)),
        ("eglInitialize", ctypes.c_uint, (pointer, pointer, pointer)),
        ("eglBindAPI", ctypes.c_uint, (ctypes.c_uint,)),
        ("eglChooseConfig", ctypes.c_uint, (pointer, pointer, pointer, integer, pointer)),
        ("eglCreateContext", pointer, (pointer, pointer, pointer, pointer)),
        ("eglDestroyContext", ctypes.c_uint, (pointer, pointer)),
        ("eglMakeCurrent", ctypes.c_uint, (pointer, pointer, pointer, pointer)),
    ):
        function = getattr(egl, name)
        function.restype, function.argtypes = result, arguments
    return egl


def _displays(egl: ctypes.CDLL) -> Iterator[int]:
    """Yield initialised displays: those of all devices, then Mesa's surfaceless one, then the default one."""
    address = egl.eglGetProcAddress(b"eglGetPlatformDisplayEXT")
    candidates: list[int] = []
    if address:
        void = ctypes.c_void_p
        of_platform = ctypes.CFUNCTYPE(void, ctypes.c_uint, void, void)(address)
        candidates += [of_platform(_PLATFORM_DEVICE, device, None) for device in _devices(egl)]
        candidates.append(of_platform(_PLATFORM_SURFACELESS, None, None))
    candidates.append(egl.eglGetDisplay(None))
    for display in candidates:
        if display and egl.eglInitialize(display, None, None):
            yield display


def _devices(egl: ctypes.CDLL) -> list[int]:
    address = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    if not address:
        return []
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(address)
    devices, count = (ctypes.c_void_p * _MAX_DEVICES)(), ctypes.c_int()
    if not query(_MAX_DEVICES, devices, ctypes.byref(count)):
        return []
    return [device for device in devices[: count.value] if device]


def _context(egl: ctypes.CDLL, display: int) -> int | None:
    config, count = ctypes.c_void_p(), ctypes.c_int()
    attributes = (ctypes.c_int * len(_CONFIG))(*_CONFIG)
    if not egl.eglBindAPI(_OPENGL_API):
        return None
    if not egl.eglChooseConfig(display, attributes, ctypes.byref(config), 1, ctypes.byref(count)) or not count.value:
        return None
    context: int | None = egl.eglCreateContext(display, config, None, None)
    if context and not egl.eglMakeCurrent(display, None, None, context):
        egl.eglDestroyContext(display, context)
        return None
    return context
