"""How our kernels are compiled: once, cached on disk, one copy per plugged-in rule.

`kernel` is the decorator of every hot function. `specialise` makes a compiled copy of a function in which some names
mean the functions of one rule, so the rule is inlined and the copy still loads from the disk cache: numba can neither
cache a closure over a compiled function nor inline a function pointer.
"""

from __future__ import annotations

import functools
import hashlib
import types as python_types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import types as numba_types
from numba.extending import intrinsic

OPTIONS: dict[str, Any] = {"error_model": "numpy", "forceinline": True, "_nrt": False, "nogil": True}
"""Kernels allocate nothing, so numba's reference counting (`_nrt`) would only cost time, as would calls: every call
hands over the whole state. Without the interpreter's lock, threads can run a day each."""

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile on first call, keep the result on disk."""
    return cast(F, numba.njit(cache=True, **OPTIONS)(function))


def called_kernel(function: F) -> F:
    """The same for the few functions with small arguments and many callers: a call costs less than a copy in each."""
    return cast(F, numba.njit(cache=True, **{**OPTIONS, "forceinline": False})(function))


@functools.cache
def source_fingerprint() -> str:
    """A short hash of every source file a kernel may be built from: a changed rule must not load an old kernel."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for folder in ("policy", "sim"):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:12]


def specialise(function: Callable[..., Any], name: str, cached: bool, inline: bool = True, **bindings: Any) -> Any:
    """Compile a copy of the plain `function` in which each name of `bindings` means the given compiled function.

    Only what Python calls is worth a cache file; what is called by kernels ends up inside theirs. Large functions with
    several callers compile much faster when they are not copied into each (`inline`).
    """
    copy = python_types.FunctionType(function.__code__, {**function.__globals__, **bindings}, function.__name__)
    # numba names the cache file after the qualified name, and looks at nothing else that differs between copies.
    fingerprint = hashlib.sha256((source_fingerprint() + _files_fingerprint(bindings)).encode()).hexdigest()[:12]
    copy.__qualname__ = f"{function.__qualname__}-{name}-{fingerprint}"
    copy.__module__ = function.__module__
    options = {**OPTIONS, "forceinline": inline}
    if not cached:
        options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # Python never calls it
    return numba.njit(cache=cached, **options)(copy)


def _files_fingerprint(bindings: dict[str, Any]) -> str:
    """Hashes of the files that the bound functions stand in: a user's own rule lives outside this package."""
    paths = {Path(bound.py_func.__code__.co_filename) for bound in bindings.values() if hasattr(bound, "py_func")}
    outside = sorted(path for path in paths if path.is_file() and not path.is_relative_to(Path(__file__).parent))
    return "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in outside)


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
