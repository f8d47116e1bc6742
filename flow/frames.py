# SPDX-License-Identifier: BSD-2-Clause
"""Features to configuration frames, and back."""

from __future__ import annotations

from collections.abc import Iterable

from .database import FRAME_WORDS, Bit, Database, Place

__all__ = ["FrameError", "Frames", "assemble", "bits_of", "disassemble", "sets_bits"]

#: Frame address -> its words.
Frames = dict[int, list[int]]


class FrameError(Exception):
    """The database does not know a feature, or features contradict each other."""


def assemble(database: Database, features: Iterable[str]) -> Frames:
    """The frames that configure all of `features`; empty frames are left out.

    Raises
    ------
    FrameError
        Names every feature that is missing in the database, or two features that need different
        values of one bit.
    """
    wanted: dict[Bit, tuple[bool, str]] = {}
    unknown = []
    for feature in sorted(features):
        tile, _, name = feature.partition(".")
        if tile not in database.grid:
            unknown.append(feature)
            continue
        found = _find(database, tile, name)
        if found is None:
            types = {database.grid[tile]["type"], *(p.type for p in database.places(tile))}
            if not any(name in database.pseudo(tile_type) for tile_type in types):
                unknown.append(feature)
            continue
        place, (ones, zeros) = found
        for value, pairs in ((True, ones), (False, zeros)):
            for pair in pairs:
                bit = place.bit(*pair)
                before = wanted.setdefault(bit, (value, feature))
                if before[0] != value:
                    raise FrameError(f"{before[1]} and {feature} need different values of one bit")
    if unknown:
        raise FrameError(
            f"{len(unknown)} features are not in the database:\n  " + "\n  ".join(unknown)
        )
    frames: Frames = {}
    for (address, word, bit), (value, _) in wanted.items():
        if value:
            frames.setdefault(address, [0] * FRAME_WORDS)[word] |= 1 << bit
    return frames


def _find(database: Database, tile: str, name: str):
    for place in database.places(tile):
        first, dot, rest = name.partition(".")
        there = place.sites.get(first, first) + dot + rest
        feature = database.features(place.type, place.kind).get(there)
        if feature is not None:
            return place, (feature.ones, feature.zeros)
    return None


def sets_bits(database: Database, feature: str) -> bool:
    """Whether a feature sets a bit; some only clear bits, and some connections have no bit."""
    tile, _, name = feature.partition(".")
    found = _find(database, tile, name)
    return found is not None and bool(found[1][0])


def bits_of(frames: Frames) -> set[Bit]:
    """Every bit that is set, except those of the frames' ECC word."""
    return {
        (address, word, bit)
        for address, words in frames.items()
        for word, value in enumerate(words)
        if value
        for bit in range(32)
        if value >> bit & 1 and not (word == 50 and bit < 13)
    }


def disassemble(database: Database, frames: Frames) -> tuple[set[str], set[Bit]]:
    """The features that frames configure, and the set bits that belong to none."""
    bits = bits_of(frames)
    known: set[Bit] = set()
    found: set[str] = set()
    for tile in database.grid:
        for place in database.places(tile):
            here = _bits_in(place, bits, frames)
            if not here:
                continue
            names = {there: here_name for here_name, there in place.sites.items()}
            for name, feature in database.features(place.type, place.kind).items():
                if not feature.ones or not here.issuperset(feature.ones):
                    continue
                if here.isdisjoint(feature.zeros):
                    first, dot, rest = name.partition(".")
                    if place.start and first not in names:
                        continue  # a feature of the other half of a tile of which this is one half
                    found.add(f"{tile}.{names.get(first, first)}{dot}{rest}")
                    known.update(place.bit(*pair) for pair in feature.ones)
    return found, bits - known


def _bits_in(place: Place, bits: set[Bit], frames: Frames) -> set[tuple[int, int]]:
    """The bits that are set in a tile, as (frame, bit) of the database."""
    found = set()
    for frame in range(place.frames):
        words = frames.get(place.base + frame)
        if words is None:
            continue
        for index in range(place.words):
            value = words[place.offset + index]
            while value:
                low = value & -value
                bit = low.bit_length() - 1
                value ^= low
                if (place.base + frame, place.offset + index, bit) in bits:
                    found.add((frame, (index + place.start) * 32 + bit))
    return found
