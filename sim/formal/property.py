# SPDX-License-Identifier: BSD-2-Clause
"""What properties are made of: a block that can be looked into, and what is asked of it."""

from __future__ import annotations

from amaranth import *
from amaranth.hdl import Cover, Fragment, MemoryInstance
from amaranth.lib import wiring

__all__ = ["Opened", "Property"]


class Opened(Elaboratable):
    """A block whose inner signals and memories a property can look at.

    An induction starts from any state that the assertions so far allow: for a proof they have to
    say how inner registers belong together.
    """

    def __init__(self, block: Elaboratable):
        self._fragment = Fragment.get(block, None)

    def elaborate(self, platform):
        return self._fragment

    def _inside(self, path: str) -> Fragment:
        fragment = self._fragment
        for name in filter(None, path.split(".")):
            fragment = fragment.find_subfragment(name)
        return fragment

    def __call__(self, path: str) -> Signal:
        """The signal that a block drives, by its path: ``"queue.level"``.

        Raises
        ------
        KeyError
            If there is not exactly one of that name.
        """
        where, _, name = path.rpartition(".")
        driven = {
            id(signal): signal
            for statements in self._inside(where).statements.values()
            for statement in statements
            for signal in statement._lhs_signals()
            if signal.name == name
        }
        if len(driven) != 1:
            raise KeyError(f"{len(driven)} signals are called {path}")
        return next(iter(driven.values()))

    def state(self, path: str, *names: str) -> Value:
        """Whether the state machine of the block with this path is in one of these states, or any.

        An induction begins in codes that mean no state, too, unless that is ruled out.
        """
        machine = self._inside(path).find_generated("fsm")
        wanted = names or machine.encoding
        return Cat(machine.state == machine.encoding[name] for name in wanted).any()

    def part(self, path: str) -> Elaboratable:
        """The block within, by its path."""
        made = [one for one in self._inside(path).origins if not isinstance(one, Module)]
        return made[-1]

    def word(self, path: str, address: Value) -> Signal:
        """What the memory with this path holds at an address."""
        instance = self._inside(path)
        assert isinstance(instance, MemoryInstance)
        shape = Shape.cast(instance._data.shape)
        data = Signal(shape, name=f"peek_{path.replace('.', '_')}")
        at = Signal(range(instance._data.depth), name=f"{data.name}_at{len(instance._read_ports)}")
        instance.read_port(domain="comb", addr=at, data=data, en=Const(1), transparent_for=())
        self._fragment.add_statements("comb", at.eq(address))
        return data


class Property(Elaboratable):
    """A block between assumptions and assertions; its inputs, and what `free` makes, are free.

    The first line of the docstring says what holds, the rest what is assumed.

    Attributes
    ----------
    block : amaranth.lib.wiring.Component
    inside : Opened
        The same.
    """

    #: cycles of the base case; with `forever`, of the induction step, too
    depth = 2
    #: proven by induction for any number of cycles; otherwise for `depth` cycles after reset
    forever = True
    #: cycles in which all covers must have been reached
    reach = 20
    #: a bug is looked for: what finds none, and takes long, need not be asserted
    finding = False

    def __init__(self, block: wiring.Component):
        self.block = block
        self.inside = Opened(block)
        self._sync = ClockDomain("sync", reset_less=True)
        members = [
            Value.cast(member)
            for _, flow, member in block.signature.flatten(block)
            if flow.flow == wiring.In
        ]
        # What is always ready is a constant.
        self.inputs = [self._sync.clk, *(one for one in members if isinstance(one, Signal))]

    def free(self, shape, name: str) -> Signal:
        """A signal that may be anything in each cycle."""
        signal = Signal(shape, name=name)
        self.inputs.append(signal)
        return signal

    def any(self, m: Module, shape, name: str) -> Signal:
        """A value that may be anything, and stays."""
        kept = Signal(shape, name=name)
        started = Signal(name=f"{name}_chosen")
        choice = self.free(shape, f"{name}_choice")
        m.d.sync += [started.eq(1), kept.eq(Mux(started, kept, choice))]
        chosen = Signal(shape, name=f"any_{name}")
        m.d.comb += chosen.eq(Mux(started, kept, choice))
        return chosen

    def elaborate(self, platform):
        m = Module()
        m.domains += self._sync
        m.submodules.block = self.inside
        self._state(m)
        return m

    def _state(self, m: Module) -> None:
        """Add assumptions, assertions, and covers."""
        raise NotImplementedError

    @staticmethod
    def past(m: Module, value) -> Signal:
        """What `value` was in the cycle before; 0 in the first. Not within an `m.If`."""
        before = Signal.like(Value.cast(value), init=0)
        m.d.sync += before.eq(value)
        return before

    @staticmethod
    def started(m: Module) -> Signal:
        """Low in the first cycle."""
        started = Signal()
        m.d.sync += started.eq(1)
        return started

    @staticmethod
    def waiting(m: Module, while_, most: int) -> Signal:
        """For how many cycles in a row `while_` has been true, up to `most`. Not in an `m.If`."""
        count = Signal(range(most + 1))
        m.d.sync += count.eq(Mux(while_, Mux(count == most, most, count + 1), 0))
        return count

    @staticmethod
    def cover(m: Module, *conditions) -> None:
        """Each of these must be possible."""
        m.d.comb += [Cover(condition) for condition in conditions]
