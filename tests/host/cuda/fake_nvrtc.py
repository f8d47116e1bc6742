# SPDX-License-Identifier: BSD-2-Clause
"""A stand-in for NVRTC, CUDA's compiler, as its bindings have it."""

# ruff: noqa: N802 - the names are CUDA's

from __future__ import annotations

import enum


def names(kind: str, *members: str) -> type[enum.IntEnum]:
    """An enumeration of CUDA's: its members are numbered from 0."""
    return enum.IntEnum(kind, {name: number for number, name in enumerate(members)})


class FakeNvrtc:
    """Acts like ``cuda.bindings.nvrtc``: "compiles" to a text that names the options."""

    def __init__(self, version=(13, 0), error: str | None = None):
        self.version = version
        self.error = error
        self.compiled: list[tuple[bytes, list[bytes]]] = []
        self.programs: set[int] = set()
        self._options: list[bytes] = []
        codes = names("nvrtcResult", "NVRTC_SUCCESS", *([error] if error else []))
        self._ok, self._bad = codes(0), codes(len(codes) - 1)

    def nvrtcVersion(self):
        return (self._ok, *self.version)

    def nvrtcCreateProgram(self, source, name, count, headers, names):
        self.programs.add(1)
        self._source = source
        return self._ok, 1

    def nvrtcCompileProgram(self, program, count, options):
        assert count == len(options)
        self._options = options
        self.compiled.append((self._source, options))
        return (self._bad,)

    def nvrtcGetProgramLogSize(self, program):
        return self._ok, 8

    def nvrtcGetProgramLog(self, program, log):
        log[:] = b"the log\0"
        return (self._ok,)

    def nvrtcGetCUBINSize(self, program):
        return self._ok, len(self._code())

    def nvrtcGetCUBIN(self, program, code):
        code[:] = self._code()
        return (self._ok,)

    def nvrtcDestroyProgram(self, program):
        self.programs.remove(program)
        return (self._ok,)

    def _code(self) -> bytes:
        return b"machine code " + b" ".join(self._options)
