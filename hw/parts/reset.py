# SPDX-License-Identifier: BSD-2-Clause
"""A reset of one block."""

from amaranth.hdl import ResetInserter

__all__ = ["Resets"]


class Resets(ResetInserter):
    """As `ResetInserter`, but it keeps the state machines, whose states `hw.build` names."""

    def on_fragment(self, fragment):
        """Called by Amaranth for each block inside, too."""
        reset = super().on_fragment(fragment)
        reset.generated.update(fragment.generated)
        return reset
