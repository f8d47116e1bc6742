# SPDX-License-Identifier: BSD-2-Clause
"""The core in a LiteX design: what H2C brings goes through a FIFO of LiteX to C2H.

    PYTHONPATH=. .venv/bin/python examples/litex/loop_back.py FILE.v

writes the design, which has all but the core: that is what `hw.build core --user axis` writes. The
ports towards the PCIe block become those of the design; clock and reset are LiteX' own.
"""

import argparse
from pathlib import Path

from litex.soc.interconnect import stream
from migen import (
    ClockDomain,
    ClockDomainsRenamer,
    ClockSignal,
    If,
    Instance,
    Module,
    ResetSignal,
    Signal,
)
from migen.fhdl import verilog

from hw.pcie.series7.ports import TRN_PORTS

#: A beat: eight bytes, and which of them count; `last` is the stream's own.
BEAT = [("data", 64), ("keep", 8)]


class PeerDma(Module):
    """The core, with the stream of its pair 0, in the clock domain `sys`.

    Attributes
    ----------
    source, sink : Endpoint
        H2C and C2H, in the domain `stream`, whose reset follows the pair's.
    ios : set of Signal
        Towards the PCIe block.
    """

    def __init__(self):
        self.source, self.sink = stream.Endpoint(BEAT), stream.Endpoint(BEAT)
        self.clock_domains.cd_stream = ClockDomain()
        resetn, scratch = Signal(reset=1), Signal(64)
        self.comb += [self.cd_stream.clk.eq(ClockSignal()), self.cd_stream.rst.eq(~resetn)]
        block = {port: Signal(port.width, name=port.name) for port in TRN_PORTS}
        self.ios = set(block.values())
        strobe, data = Signal(8), Signal(64)
        self.specials += Instance(
            "peerdma_core",
            i_clk=ClockSignal(),
            i_rst=ResetSignal(),
            i_gpio=0,
            i_user_irq=0,
            o_axis0_aresetn=resetn,
            o_m_axis_h2c0_tdata=self.source.data,
            o_m_axis_h2c0_tkeep=self.source.keep,
            o_m_axis_h2c0_tlast=self.source.last,
            o_m_axis_h2c0_tvalid=self.source.valid,
            i_m_axis_h2c0_tready=self.source.ready,
            i_s_axis_c2h0_tdata=self.sink.data,
            i_s_axis_c2h0_tkeep=self.sink.keep,
            i_s_axis_c2h0_tlast=self.sink.last,
            i_s_axis_c2h0_tvalid=self.sink.valid,
            o_s_axis_c2h0_tready=self.sink.ready,
            o_reg0_wstrb=strobe,
            o_reg0_wdata=data,
            i_reg0_rdata=scratch,
            **{f"{port.direction}_{port.name}": signal for port, signal in block.items()},
        )
        # A register of 64 bits, at every address of the pair's part of the BAR.
        for lane in range(8):
            part = slice(8 * lane, 8 * lane + 8)
            self.sync += If(strobe[lane], scratch[part].eq(data[part]))


class LoopBack(Module):
    """The whole design."""

    def __init__(self):
        self.submodules.core = core = PeerDma()
        fifo = stream.SyncFIFO(BEAT, 64)
        self.submodules.fifo = fifo = ClockDomainsRenamer("stream")(fifo)
        self.comb += [core.source.connect(fifo.sink), fifo.source.connect(core.sink)]
        self.ios = core.ios


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE.v", help="where to write the Verilog")
    arguments = parser.parse_args()
    design = LoopBack()
    text = str(verilog.convert(design, ios=design.ios, name="loop_back"))
    arguments.file.write_text(text)
