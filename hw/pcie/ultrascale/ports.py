# SPDX-License-Identifier: BSD-2-Clause
"""The ports of the UltraScale and the UltraScale+ blocks that the core uses: one table of each.

Names are those of Xilinx' IP for the block (PG156, PG213); directions are the core's: "o" drives
the block. Of a port with a bit for each function, function 0 counts. All other inputs of the IP are
0, but `cfg_config_space_enable` and `cfg_link_training_enable`, which are 1. The IP is configured
for client tags, DWORD alignment, no parity, and an MSI-X table outside of it. At 256 bits it may
straddle completions of our requests, and should; no other packets. Where it has several bits of
`tready` they are all alike.
"""

from ..ports import Port, port_rows
from .family import Family

__all__ = [
    "CC_USER",
    "CQ_BYTE_ENABLES",
    "CQ_DISCONTINUE",
    "RC_DISCONTINUE",
    "RC_FLAGS",
    "RC_USER",
    "ports_of_block",
]

#: Bits of `tuser` of the completions, at up to 256 bits of data.
RC_USER, CC_USER = 75, 33
#: Bit of `tuser` that cuts a packet off.
RC_DISCONTINUE, CQ_DISCONTINUE = 42, 41
#: Bits of `tuser` with beginnings and ends of packets, and with byte enables of dwords.
RC_FLAGS, CQ_BYTE_ENABLES = slice(32, 42), slice(0, 8)


def ports_of_block(family: Family, width: int) -> tuple[Port, ...]:
    """The table for streams of `width` bits of data."""
    return (
        *_stream("s_axis_rq", "o", width, family.rq_user, "requests of ours"),
        *_stream("m_axis_rc", "i", width, RC_USER, "completions of our requests"),
        *_stream("m_axis_cq", "i", width, family.cq_user, "requests of the host"),
        *_stream("s_axis_cc", "o", width, CC_USER, "completions of the host's requests"),
        *port_rows(
            "i",
            *(
                row
                for suffix in family.sequence_ports
                for row in (
                    (
                        f"pcie_rq_seq_num{suffix}",
                        family.sequence_bits,
                        "nothing passes this request of ours any more",
                    ),
                    (f"pcie_rq_seq_num_vld{suffix}", 1, "there is such a number"),
                )
            ),
        ),
        *port_rows(
            "o",
            ("pcie_cq_np_req", family.np_req, "1: another non-posted request may come"),
            ("cfg_fc_sel", 3, "which credits are shown; 4: transmit credits available"),
            ("cfg_mgmt_addr", family.management_address, "dword of configuration space to read"),
            ("cfg_mgmt_read", 1, "read it, until this is done"),
            ("cfg_flr_done", 4, "the function is reset"),
        ),
        *port_rows(
            "i",
            ("cfg_mgmt_read_data", 32, "what is there"),
            ("cfg_mgmt_read_write_done", 1, "for a cycle: it is read"),
            ("cfg_fc_nph", 8, "non-posted header credits"),
            ("user_lnk_up", 1, "the link is up"),
            ("cfg_flr_in_process", 4, "the host resets the function"),
            ("cfg_max_payload", family.max_payload, "Device Control, Max_Payload_Size"),
            ("cfg_max_read_req", 3, "Device Control, Max_Read_Request_Size"),
            ("cfg_function_status", 16, "Command: [2] Bus Master Enable, [3] Interrupt Disable"),
            ("cfg_rcb_status", 4, "Link Control, RCB: 1 is 128 bytes"),
            ("cfg_current_speed", family.speed, "speed of the link"),
            ("cfg_negotiated_width", family.lanes, "lanes of the link"),
            *((("cfg_bus_number", 8, "our bus number"),) if family.bus_number else ()),
        ),
        *port_rows(
            "o",
            ("cfg_interrupt_int", 4, "INTx: 1 asserts INTA"),
            ("cfg_interrupt_pending", 4, "Status, Interrupt Status"),
            ("cfg_interrupt_msi_int", 32, "MSI: for a cycle, the bit of a message"),
        ),
        *port_rows(
            "i",
            ("cfg_interrupt_sent", 1, "the block has sent the change of INTA"),
            ("cfg_interrupt_msi_enable", 4, "MSI Enable"),
            ("cfg_interrupt_msi_mmenable", 12, "MSI Multiple Message Enable"),
            ("cfg_interrupt_msi_sent", 1, "the block has sent the message"),
            ("cfg_interrupt_msi_fail", 1, "the message is lost and has to be asked for again"),
            ("cfg_interrupt_msix_enable", family.msix, "MSI-X Enable"),
            ("cfg_interrupt_msix_mask", family.msix, "MSI-X Function Mask"),
        ),
    )


def _stream(name: str, direction: str, width: int, user: int, doc: str) -> tuple[Port, ...]:
    """An AXI4-Stream; `direction` is that of its data."""
    back = {"i": "o", "o": "i"}[direction]
    return (
        *port_rows(
            direction,
            (f"{name}_tdata", width, f"{doc}: descriptor, then payload"),
            (f"{name}_tkeep", width // 32, "bit n: dword n counts"),
            (f"{name}_tlast", 1, "last beat of a packet"),
            (f"{name}_tuser", user, "what is not in the descriptor"),
            (f"{name}_tvalid", 1, "there is a beat"),
        ),
        *port_rows(back, (f"{name}_tready", 1, "it is taken")),
    )
