# SPDX-License-Identifier: BSD-2-Clause
"""What differs between the UltraScale and the UltraScale+ blocks, and what the engine has to know.

It is plain data, which imports no Amaranth but for `Family.block`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .parameters import PARAMETERS

if TYPE_CHECKING:
    from ...seam import Block

__all__ = ["FAMILIES", "ULTRASCALE", "ULTRASCALE_PLUS", "ULTRASCALE_PLUS_PCIE4C", "Family"]

#: Bytes of a unit of data credit.
_CREDIT_BYTES = 16
#: Cycles until a read that the adapter has taken is in what it shows as room (`credits.ReadRoom`).
_CREDIT_LAG = 1
#: Client tags: UltraScale has these, UltraScale+ 256, of which the engine has no use for more.
_MAX_TAGS = 64


@dataclass(frozen=True)
class Family:
    """One kind of block.

    Attributes
    ----------
    name : str
    completion_headers, completion_bytes : int
        What its product guide says that the receive buffer holds of completions.
    sequence_bits : int
        Bits of the sequence number of a request.
    sequence_ports : tuple of str
        Suffixes of the ports that give sequence numbers back.
    rq_user, cq_user : int
        Bits of `tuser` of requests, at up to 256 bits of data.
    np_req : int
        Bits of `pcie_cq_np_req`.
    max_payload, speed, lanes : int
        Bits of these fields of its configuration status.
    msix : int
        Functions of which it shows the MSI-X control bits.
    one_hot_speed : bool
        Speed is one-hot and the lanes are a number, else both are log2.
    bus_number : bool
        It shows its bus number.
    management_address : int
        Bits of `cfg_mgmt_addr`.
    rest : int
        Cycles without a request of the host's after which none of before a reset of the function
        is left in the block. No document has the number.
    """

    name: str
    completion_headers: int
    completion_bytes: int
    sequence_bits: int
    sequence_ports: tuple[str, ...]
    rq_user: int
    cq_user: int
    np_req: int
    max_payload: int
    speed: int
    lanes: int
    msix: int
    one_hot_speed: bool
    bus_number: bool
    management_address: int
    rest: int = 256

    @property
    def device_control(self) -> int:
        """Offset in bytes of Device Control in its configuration space."""
        return int(PARAMETERS[self.name]["PCIE_BASE_PTR"]) + 8

    @property
    def completion_credits(self) -> int:
        """As `hw.seam.Block` has it."""
        return self.completion_bytes // _CREDIT_BYTES

    @property
    def writes(self) -> int:
        """Writes that may be under way: half of the sequence numbers, the others are for reads."""
        return 1 << self.sequence_bits - 1

    def block(self, width: int) -> Block:
        """The block at one width, of `hw.seam.WIDTHS`; it never drops a TLP of ours."""
        from ...seam import Block

        return Block(
            width=width,
            transmit_buffers=self.writes,
            completion_headers=self.completion_headers,
            completion_credits=self.completion_credits,
            credit_lag=_CREDIT_LAG,
            drop_lag=0,
            max_tags=_MAX_TAGS,
        )


ULTRASCALE = Family(
    name="ultrascale",
    completion_headers=64,
    completion_bytes=15_872,
    sequence_bits=4,
    sequence_ports=("",),
    rq_user=60,
    cq_user=85,
    np_req=1,
    max_payload=3,
    speed=3,
    lanes=4,
    msix=2,
    one_hot_speed=True,
    bus_number=False,
    management_address=19,
)
ULTRASCALE_PLUS = Family(
    name="ultrascale_plus",
    completion_headers=128,
    completion_bytes=32_768,
    sequence_bits=6,
    sequence_ports=("0", "1"),
    rq_user=62,
    cq_user=88,
    np_req=2,
    max_payload=2,
    speed=2,
    lanes=3,
    msix=4,
    one_hot_speed=False,
    bus_number=True,
    management_address=10,
)
#: The block of UltraScale+ with HBM and of newer parts. PG213, the guide of both, has one table of
#: ports and one of completion space: it calls PCIE4C functionally equivalent to PCIE4, with Gen4 of
#: up to eight lanes, which the code of the link's speed has room for. It has neither scaled flow
#: control nor tags of ten bits, so `cfg_fc_nph` counts single headers, as in PCIE4. Public designs
#: for both (taxi, Corundum) differ in the name of the IP only.
ULTRASCALE_PLUS_PCIE4C = replace(ULTRASCALE_PLUS, name="ultrascale_plus_pcie4c")
FAMILIES = {family.name: family for family in (ULTRASCALE, ULTRASCALE_PLUS, ULTRASCALE_PLUS_PCIE4C)}
