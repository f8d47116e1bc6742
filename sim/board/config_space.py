# SPDX-License-Identifier: BSD-2-Clause
"""A PCI configuration space as data: a compiled model brings one, the board's options change it."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["EXPRESS", "MSI", "MSIX", "SIZE", "ConfigSpace"]

#: Bytes of a PCI Express configuration space.
SIZE = 4096
#: Capability IDs.
MSI, EXPRESS, MSIX = 0x05, 0x10, 0x11

#: The pointer to the first capability, and where the extended ones begin, which are another list.
_LIST, _EXTENDED = 0x34, 0x100


@dataclass(frozen=True)
class ConfigSpace:
    """Three images of `SIZE` bytes: reset values; bits a write sets; bits that writing 1 clears."""

    image: bytes
    writable: bytes
    clearable: bytes

    @property
    def capabilities(self) -> dict[int, int]:
        """Offset by capability ID, in the order of the list."""
        found, at = {}, self.image[_LIST]
        while at:
            found[self.image[at]] = at
            at = self.image[at + 1]
        return found

    @property
    def fastest(self) -> tuple[int, int]:
        """Link Capabilities: greatest speed, as Link Status has it, and number of lanes."""
        at = self.capabilities[EXPRESS] + 0xC
        found = int.from_bytes(self.image[at : at + 4], "little")
        return found & 0xF, found >> 4 & 0x3F

    def changed(self, offset: int, nbytes: int, value: int, mask: int = -1) -> ConfigSpace:
        """The same, but `value` in the bits of `mask` of `nbytes` at `offset` after reset."""
        end = offset + nbytes
        kept = int.from_bytes(self.image[offset:end], "little") & ~mask
        new = (kept | value & mask).to_bytes(nbytes, "little")
        return replace(self, image=self.image[:offset] + new + self.image[end:])

    def without(self, capability: int) -> ConfigSpace:
        """The same without a capability: it is not in the list, and its bytes are zero."""
        # The byte after each place points to the next one.
        places = [_LIST - 1, *self.capabilities.values()]
        at = self.capabilities[capability]
        end = min((place for place in places if place > at), default=_EXTENDED)
        images = (self.image, self.writable, self.clearable)
        cleared = ConfigSpace(*(each[:at] + bytes(end - at) + each[end:] for each in images))
        return cleared.changed(places[places.index(at) - 1] + 1, 1, self.image[at + 1])
