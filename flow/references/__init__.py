# SPDX-License-Identifier: BSD-2-Clause
"""Reference configurations that are known to work, by board; our images are compared with them.

For each board there is the record of an image (`flow.record`), and the differences from it that are
allowed, with reasons. The comparison is why an image can be trusted that has not run yet.
"""

from dataclasses import dataclass
from pathlib import Path

from . import picoevb

__all__ = ["REFERENCES", "Reference"]


@dataclass(frozen=True)
class Reference:
    """The reference that an image is compared with.

    Attributes
    ----------
    record : pathlib.Path
        Record (`flow.record`) of the configuration.
    clock_khz : int
        Its user clock.
    differences, clock_differences : dict of str to str
        Values that may differ from it -> why; the latter only if the user clock differs.
    """

    record: Path
    clock_khz: int
    differences: dict[str, str]
    clock_differences: dict[str, str]

    def allowed(self, clock_khz: int) -> dict[str, str]:
        """Values that may differ in an image with that user clock -> why."""
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
