# SPDX-License-Identifier: BSD-2-Clause
"""The transaction, configuration and interrupt ports of the 7-series PCIe block: one table.

Names and polarity are those of the PCIE_2_1 primitive in lower case (UG477; a trailing "n" on a
`cfg...` name is active low), directions are the core's: "o" drives the hard block. The adapter, the
ports of the generated Verilog, the native model of the hard block and the cocotb model all follow
this table. It is plain data, which imports no Amaranth: machines without it compile the native
model, too.

64-bit TRN rules: a beat moves when source and destination are both ready at a rising clock edge.
`td`/`rd` hold the TLP's dwords big end first: the first dword of a beat in bits 63:32, and within
a dword the TLP's byte 0 in bits 31:24 (so payload bytes of a dword appear byte-reversed against
memory order). `rem` = 1 says that both dwords are valid, 0 (on the last beat only) bits 63:32.
The block may drop `trntdstrdy` at any time; it takes whole packets in order into its transmit
buffer, of which `trntbufav` packets are free.
"""

from ..ports import Port, port_rows

__all__ = ["TRN_PORTS"]

TRN_PORTS: tuple[Port, ...] = (
    # Transmit
    *port_rows(
        "o",
        ("trntd", 64, "transmit data"),
        ("trntrem", 1, "1: both dwords valid; 0, on the last beat only: [63:32]"),
        ("trntsof", 1, "first beat of a TLP"),
        ("trnteof", 1, "last beat of a TLP"),
        ("trntsrcrdy", 1, "the transmit beat is valid"),
        ("trntsrcdsc", 1, "discontinue the TLP; 0"),
        ("trnterrfwd", 1, "mark the TLP poisoned; 0"),
        ("trntecrcgen", 1, "append an ECRC; 0"),
        ("trntstr", 1, "streamed TLP, no gaps; 0"),
        ("trntcfggnt", 1, "the block may send its own TLPs between ours; 1"),
    ),
    *port_rows(
        "i",
        ("trntdstrdy", 1, "the block takes the transmit beat"),
        ("trntbufav", 6, "free transmit buffers, in TLPs"),
        ("trnterrdrop", 1, "the block dropped a TLP"),
        ("trntcfgreq", 1, "the block wants to send a TLP of its own"),
    ),
    # Receive
    *port_rows(
        "i",
        ("trnrd", 64, "receive data"),
        ("trnrrem", 1, "1: both dwords valid; 0, on the last beat only: [63:32]"),
        ("trnrsof", 1, "first beat of a TLP"),
        ("trnreof", 1, "last beat of a TLP"),
        ("trnrsrcrdy", 1, "the receive beat is valid"),
        ("trnrsrcdsc", 1, "the TLP is cut off (link down)"),
        ("trnrerrfwd", 1, "the TLP is poisoned"),
        ("trnrecrcerr", 1, "the TLP's ECRC is wrong"),
        ("trnrbarhit", 8, "bit n: the request hits BAR n"),
    ),
    *port_rows(
        "o",
        ("trnrdstrdy", 1, "we take the receive beat; always 1"),
        ("trnrnpok", 1, "0: hold back non-posted requests; up to two more may follow"),
        ("trnrnpreq", 1, "request mode of non-posted flow control; 0"),
        ("trnrfcpret", 1, "return posted credits as TLPs are taken; 1"),
    ),
    # Flow control
    *port_rows("o", ("trnfcsel", 3, "which credits are shown; 4: transmit credits available")),
    *port_rows(
        "i",
        ("trnfcph", 8, "posted header credits"),
        ("trnfcpd", 12, "posted data credits"),
        ("trnfcnph", 8, "non-posted header credits"),
        ("trnfcnpd", 12, "non-posted data credits"),
        ("trnfccplh", 8, "completion header credits"),
        ("trnfccpld", 12, "completion data credits"),
    ),
    # Link and configuration state
    *port_rows(
        "i",
        ("trnlnkup", 1, "the data link is up"),
        ("cfgcommandbusmasterenable", 1, "Command, Bus Master Enable"),
        ("cfgcommandinterruptdisable", 1, "Command, Interrupt Disable"),
        ("cfgdevcontrolmaxpayload", 3, "Device Control, Max_Payload_Size"),
        ("cfgdevcontrolmaxreadreq", 3, "Device Control, Max_Read_Request_Size"),
        ("cfgdevcontrolexttagen", 1, "Device Control, Extended Tag Field Enable"),
        ("cfgdevcontrolenablero", 1, "Device Control, Enable Relaxed Ordering"),
        ("cfglinkcontrolrcb", 1, "Link Control, RCB: 1 is 128 bytes"),
        ("cfglinkstatuscurrentspeed", 2, "Link Status, Current Link Speed"),
        ("cfglinkstatusnegotiatedwidth", 4, "Link Status, Negotiated Link Width"),
        ("cfgmsgreceived", 1, "a message was received; cfgmsgdata is its"),
        ("cfgmsgdata", 16, "while cfgmsgreceived is 0: bus [15:8], device [7:3], function [2:0]"),
    ),
    # Interrupts
    *port_rows(
        "i",
        ("cfginterruptmsienable", 1, "MSI Enable"),
        ("cfginterruptmsixenable", 1, "MSI-X Enable"),
        ("cfginterruptmsixfm", 1, "MSI-X Function Mask"),
        ("cfginterruptmmenable", 3, "MSI Multiple Message Enable: log2 of the messages granted"),
        ("cfginterruptrdyn", 1, "0: the block takes the interrupt request"),
    ),
    *port_rows(
        "o",
        ("cfginterruptn", 1, "0: interrupt request, held until cfginterruptrdyn is 0"),
        ("cfginterruptassertn", 1, "INTx: 0 asserts, 1 deasserts"),
        ("cfginterruptdi", 8, "MSI: message number; INTx: 0 is INTA"),
        ("cfginterruptstatn", 1, "Status, Interrupt Status by hand; 1"),
        ("cfgtrnpendingn", 1, "0: requests of ours are unanswered"),
        ("cfgerrcpltimeoutn", 1, "0 for a cycle: a completion timed out"),
        ("cfgerrcplunexpectn", 1, "0 for a cycle: an unexpected completion came"),
    ),
)
