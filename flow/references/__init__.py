# SPDX-License-Identifier: BSD-2-Clause
"""Configurations that are known to work on a board, by its name: what our images are compared with.

For each board there is the record of an image (`flow.record`), and where ours may differ from it,
with the reasons. Neither a read nor a write passes here: this is how an image is trusted before it
runs.
"""

from dataclasses import dataclass
from pathlib import Path

from . import picoevb

__all__ = ["REFERENCES", "Reference"]


@dataclass(frozen=True)
class Reference:
    """What an image is compared with.

    Attributes
    ----------
    record : pathlib.Path
        Record (`flow.record`) of the configuration.
    clock_khz : int
        Its user clock.
    differences, clock_differences : dict of str to str
        Where ours may differ from it -> why; the latter unless the user clock is the same.
    """

    record: Path
    clock_khz: int
    differences: dict[str, str]
    clock_differences: dict[str, str]

    def allowed(self, clock_khz: int) -> dict[str, str]:
        """Where an image with that user clock may differ -> why."""
        more = {} if clock_khz == self.clock_khz else self.clock_differences
        return self.differences | more


REFERENCES = {
    "picoevb": Reference(
        record=Path(__file__).with_name("picoevb.txt"),
        clock_khz=125_000,
        differences=picoevb.DIFFERENCES,
        clock_differences=picoevb.CLOCK_DIFFERENCES,
    )
}
