# SPDX-License-Identifier: BSD-2-Clause
"""Memory for the descriptors of all channels, between their arrival and their use."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from peerdma import regs

from ..records import PushedWord, placement
from ..seam import BUS_WIDTH

__all__ = ["DescriptorSlots", "DescriptorStore"]

_WORDS = regs.DESCRIPTOR.itemsize // 8


class DescriptorSlots(wiring.Component):
    """`rings` times `slots` descriptors, written and read by words of 64 bits.

    A beat of a read may be the upper dwords of a word of the memory and the lower ones of the next.
    So the dwords of the words are columns, with an address each.

    Parameters
    ----------
    rings, slots : int
        `slots` is a power of two.
    width : int
        Bits of a word of the memory, and of a placement: up to a descriptor's.
    block : bool
        In block RAM, however small it is. Half of it is never written, for what reads 0.

    Members
    -------
    placement : In(stream of placement, always ready)
        Into ring `client`, rows from that of slot 0 on, modulo its size; enabled by whole dwords.
        What is written in one cycle can be read in the next.
    ring : In(range(rings)), slot : In(range(slots)), word : In(range(4))
    none : In(1)
        Read 0 instead. Only with `block`.
    data : Out(64)
        That word, one cycle later.
    """

    def __init__(self, rings: int, slots: int, *, width: int, block: bool = False):
        self._rings, self._slots, self._width, self._block = rings, slots, width, block
        self._attrs = {"ram_style": "block"} if block else {}
        super().__init__(
            {
                "placement": In(stream.Signature(placement(width), always_ready=True)),
                "ring": In(range(rings)),
                "slot": In(range(slots)),
                "word": In(range(_WORDS)),
                **({"none": In(1)} if block else {}),
                "data": Out(64),
            }
        )

    def elaborate(self, platform):
        m = Module()
        placed = self.placement.payload
        words = self._slots * regs.DESCRIPTOR.itemsize // (self._width // 8)
        row_bits = exact_log2(words) - 1
        within = exact_log2(self._width // 64)
        read_data = Signal(self._width)
        rows, address = words << ceil_log2(self._rings), Cat(self.word, self.slot, self.ring)
        if self._block:
            rows, address = 2 * rows, Cat(address, self.none)
        for column in range(self._width // 32):
            m.submodules[f"column{column}"] = memory = Memory(
                shape=32, depth=rows, init=[], attrs=self._attrs
            )
            write, read = memory.write_port(), memory.read_port()
            even, odd = (placed.enable[bank][4 * column] for bank in range(2))
            row = Mux(odd, placed.rows[1], placed.rows[0])[:row_bits]
            m.d.comb += [
                write.addr.eq(Cat(odd, row, placed.client)),
                write.data.eq(placed.data.word_select(column, 32)),
                write.en.eq(self.placement.valid & (even | odd)),
                read.addr.eq(address[within:]),
                read_data.word_select(column, 32).eq(read.data),
            ]
        which = Signal(within)
        m.d.sync += which.eq(self.word)
        m.d.comb += self.data.eq(read_data.word_select(which, 64) if within else read_data)
        return m


class DescriptorStore(wiring.Component):
    """All descriptors of all channels: what reads bring, and what is pushed, apart from each other.

    Parameters
    ----------
    channels, slots : int
        Slots for what each channel's reads bring, a power of two.
    width : int
        Bits of a word of what reads bring.
    shared : bool
        Another owner has descriptors, too: a ring of its own, and a memory for those that it
        pushes. That and the host's are block RAM then: in one of LUTs for both, a choice of what to
        write takes as many again.

    Members
    -------
    placement : In(stream of placement, always ready)
        What reads bring; `client` is the channel, if `shared` the number of the list as at
        `hw.channel.lists.Lists`.
    push : array of In(stream of PushedWord, always ready)
        What the host pushes, for one channel at a time.
    owned_push : array of In(stream of PushedWord)
        What the owner pushes; waits for channels with lower numbers. Only if `shared`.
    channel, slot, pushed_slot, word, pushed, owned : In
        Which word to read: of what is pushed, if so; of what is the owner's, or else the host's.
    data : Out(64)
        It, one cycle later.
    """

    def __init__(self, channels: int, slots: int, *, width: int, shared: bool = False):
        self._channels, self._slots, self._shared = channels, slots, shared
        self._width = width
        push, owned_push = (
            stream.Signature(PushedWord, always_ready=True),
            stream.Signature(PushedWord),
        )
        super().__init__(
            {
                "placement": In(stream.Signature(placement(width), always_ready=True)),
                "push": In(push).array(channels),
                **({"owned_push": In(owned_push).array(channels)} if shared else {}),
                "channel": In(range(channels)),
                "slot": In(range(slots)),
                "pushed_slot": In(range(regs.PUSH_DESCRIPTORS)),
                "word": In(range(_WORDS)),
                "pushed": In(1),
                "owned": In(1),
                "data": Out(64),
            }
        )

    def elaborate(self, platform):
        m = Module()
        channels = self._channels
        rings = 2 << ceil_log2(channels) if self._shared else channels
        m.submodules.ring = ring = DescriptorSlots(rings, self._slots, width=self._width)
        m.submodules.pushes = pushes = DescriptorSlots(
            channels, regs.PUSH_DESCRIPTORS, width=BUS_WIDTH, block=self._shared
        )
        wiring.connect(m, wiring.flipped(self.placement), ring.placement)
        from_push = Signal()
        m.d.sync += from_push.eq(self.pushed)
        its = Cat(self.channel, self.owned) if self._shared else self.channel
        m.d.comb += [ring.ring.eq(its), pushes.ring.eq(self.channel)]
        memories = [(ring, self.slot), (pushes, self.pushed_slot)]
        pushed = pushes.data
        if self._shared:
            m.submodules.owned = owned = DescriptorSlots(
                channels, regs.PUSH_DESCRIPTORS, width=BUS_WIDTH, block=True
            )
            memories.append((owned, self.pushed_slot))
            pushed = pushes.data | owned.data
            m.d.comb += [
                owned.ring.eq(self.channel),
                owned.none.eq(~self.owned),
                pushes.none.eq(self.owned),
            ]
        m.d.comb += self.data.eq(Mux(from_push, pushed, ring.data))
        for each, slot in memories:
            m.d.comb += [each.slot.eq(slot), each.word.eq(self.word)]

        if self._shared:
            both = (pushes.placement, self.push), (owned.placement, self.owned_push)
            for target, ports in both:
                m.d.comb += target.valid.eq(Cat(port.valid for port in ports).any())
                for number, port in reversed(list(enumerate(ports))):
                    # The last one's without asking: a choice of the same data is none.
                    with m.If(port.valid | (number == channels - 1)):
                        m.d.comb += target.payload.eq(port.payload)
                        m.d.comb += target.payload.client.eq(number)
            for number, port in enumerate(self.owned_push):
                earlier = Cat(each.valid for each in self.owned_push[:number])
                m.d.comb += port.ready.eq(~earlier.any())
        else:
            earlier, target = Const(0, 1), pushes.placement
            for number, port in enumerate(self.push):
                with m.If(port.valid & ~earlier):
                    m.d.comb += target.payload.eq(port.payload)
                    m.d.comb += target.payload.client.eq(number)
                earlier = earlier | port.valid
            m.d.comb += target.valid.eq(earlier)
        return m
