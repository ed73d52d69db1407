"""How our kernels are compiled: once, cached on disk, one copy per plugged-in rule.

`kernel` is the decorator of every hot function. Most are called by other kernels only, so what lets Python call one,
which takes as long to compile as the kernel itself, is made when Python does.

`specialise` makes a compiled copy of a function in which some names mean the functions of one rule, so the rule is
inlined and the copy still loads from the disk cache: numba can neither cache a closure over a compiled function nor
inline a function pointer.
"""

from __future__ import annotations

import functools
import hashlib
import re
import types as python_types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import types as numba_types
from numba.extending import intrinsic, typeof_impl

OPTIONS: dict[str, Any] = {"error_model": "numpy", "forceinline": True, "_nrt": False, "nogil": True}
"""Kernels allocate nothing, so numba's reference counting (`_nrt`) would only cost time, as would calls: every call
hands over the whole state. Without the interpreter's lock, threads can run a day each."""

FOR_KERNELS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
FOR_PYTHON: dict[str, Any] = {"no_cfunc_wrapper": True}
"""Who can call it."""

F = TypeVar("F", bound=Callable[..., Any])


class Kernel:
    """A compiled function; kernels take it for the one numba made for them, Python for another one."""

    def __init__(self, function: Callable[..., Any], inline: bool) -> None:
        self.options = {**OPTIONS, "forceinline": inline}
        self._twin = _copy(function, function.__globals__)
        self.py_func = _renamed(function)
        self.for_kernels = numba.njit(cache=True, **self.options, **FOR_KERNELS)(self.py_func)

    @functools.cached_property
    def for_python(self) -> Any:
        return numba.njit(cache=True, **self.options, **FOR_PYTHON)(_renamed(self._twin, "-python"))

    def __call__(self, *arguments: Any) -> Any:
        return self.for_python(*arguments)


@typeof_impl.register(Kernel)
def _typeof_kernel(one: Kernel, context: Any) -> Any:
    del context
    return numba_types.Dispatcher(one.for_kernels)


def kernel(function: F) -> F:
    """Compile on first call, keep the result on disk."""
    return cast(F, Kernel(function, inline=True))


def called_kernel(function: F) -> F:
    """The same for the few functions with small arguments and many callers: a call costs less than a copy in each."""
    return cast(F, Kernel(function, inline=False))


def _copy(function: Callable[..., Any], scope: dict[str, Any]) -> Any:
    copy = python_types.FunctionType(function.__code__, scope, function.__name__)
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    return copy


def _renamed(function: F, copy: str = "") -> F:
    """numba names the cache file after the qualified name, and looks at nothing else that differs between copies, nor
    at what the functions that are called were built from."""
    function.__qualname__ += f"{copy}-{source_fingerprint(_files(function))}"
    return function


def _files(function: Any) -> frozenset[Path]:
    """The file a function stands in; of a copy that `specialise` made, also those of what was bound into it."""
    return frozenset((Path(function.__code__.co_filename), *function.__dict__.get("bound_files", ())))


@functools.cache
def source_fingerprint(files: frozenset[Path]) -> str:
    """A short hash of these files, a user's own among them, of what they import from this package, and so on: a kernel
    that was built from any of them before a change must not be loaded after it."""
    left, found = set(files), set[Path]()
    while left:
        path = left.pop()
        if path.is_file() and path not in found:
            found.add(path)
            left.update(imported_files(path))
    return hashlib.sha256(b"".join(map(_digest, sorted(found)))).hexdigest()[:12]


@functools.cache
def imported_files(path: Path) -> tuple[Path, ...]:
    """The files of this package that a file imports from."""
    package = Path(__file__).parent
    modules = list[str]()
    for module, names, plain in _IMPORT.findall(path.read_text(encoding="utf-8")):
        modules += [plain or module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))]
    paths = (package.joinpath(*module.split(".")[1:]) for module in modules)
    found = (source for path in paths for source in (path.with_suffix(".py"), path / "__init__.py"))
    return tuple(source for source in found if source.is_file())


_IMPORT = re.compile(r"^from (smartmig[\w.]*) import (\([^)]*\)|[^\n]*)|^import (smartmig[\w.]*)", re.MULTILINE)


@functools.cache
def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def specialise(function: Callable[..., Any], name: str, cached: bool, inline: bool = True, **bindings: Any) -> Any:
    """Compile a copy of the plain `function` in which each name of `bindings` means the given compiled function.

    Only what Python calls is worth a cache file; what is called by kernels ends up inside theirs. Large functions with
    several callers compile much faster when they are not copied into each (`inline`).
    """
    copy = _copy(function, {**function.__globals__, **bindings})
    bound = [one.py_func for one in bindings.values() if hasattr(one, "py_func")]
    copy.__dict__["bound_files"] = frozenset[Path]().union(*map(_files, bound))
    options = {**OPTIONS, "forceinline": inline, **(FOR_PYTHON if cached else FOR_KERNELS)}
    return numba.njit(cache=cached, **options)(_renamed(copy, f"-{name}"))


def is_cached(compiled: Any) -> bool:
    """Whether a specialised function has been compiled for some types before, by any process."""
    folder = Path(compiled.stats.cache_path)
    return any(folder.glob(f"*{compiled.py_func.__qualname__}*.nbi"))


def _count_trailing_zeros(typing_context: Any, word: Any) -> Any:  # noqa: ARG001
    if not isinstance(word, numba_types.Integer):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        undefined_for_zero = context.get_constant(numba_types.boolean, True)
        return builder.cttz(arguments[0], undefined_for_zero)

    return numba_types.int64(numba_types.int64), generate


lowest_bit = cast(Callable[[Any], int], intrinsic(_count_trailing_zeros))
"""Position of the lowest set bit of a non-zero int64 word, for kernels only (one machine instruction)."""
