// SPDX-License-Identifier: BSD-2-Clause
// RAMB18E1 (UG473) as far as synthesis of the core uses it, for simulating its netlist: Yosys' own
// library has this primitive's ports only. 512 words of 36 bits, read through port A and written
// through port B (SDP) by one clock, read before they are written (READ_FIRST), without output
// registers; what is not so stops the simulation when it starts.
module RAMB18E1 #(
    parameter RAM_MODE = "TDP",
    parameter integer DOA_REG = 0, DOB_REG = 0,
    parameter integer READ_WIDTH_A = 0, READ_WIDTH_B = 0, WRITE_WIDTH_A = 0, WRITE_WIDTH_B = 0,
    parameter WRITE_MODE_A = "WRITE_FIRST", WRITE_MODE_B = "WRITE_FIRST",
    parameter [35:0] SRVAL_A = 0, SRVAL_B = 0, INIT_A = 0, INIT_B = 0
) (
    input CLKARDCLK, CLKBWRCLK, ENARDEN, ENBWREN, REGCEAREGCE, REGCEB,
    input RSTRAMARSTRAM, RSTRAMB, RSTREGARSTREG, RSTREGB,
    input [13:0] ADDRARDADDR, ADDRBWRADDR,
    input [15:0] DIADI, DIBDI,
    input [1:0] DIPADIP, DIPBDIP, WEA,
    input [3:0] WEBWE,
    output [15:0] DOADO, DOBDO,
    output [1:0] DOPADOP, DOPBDOP
);
    reg [35:0] mem [0:511];
    integer each;
    initial begin
        for (each = 0; each < 512; each = each + 1) mem[each] = 0;
        if (RAM_MODE != "SDP" || READ_WIDTH_A != 36 || WRITE_WIDTH_B != 36 || READ_WIDTH_B != 0
            || WRITE_WIDTH_A != 0 || WRITE_MODE_A != "READ_FIRST" || WRITE_MODE_B != "READ_FIRST"
            || DOA_REG != 0 || DOB_REG != 0) begin
            $display("RAMB18E1: a use of this block that its model does not know");
            $finish;
        end
    end

    // Byte by byte with its parity bit in front.
    wire [35:0] in = {DIPBDIP[1], DIBDI[15:8], DIPBDIP[0], DIBDI[7:0],
                      DIPADIP[1], DIADI[15:8], DIPADIP[0], DIADI[7:0]};
    reg [35:0] out = 0;
    integer lane;
    always @(posedge CLKARDCLK) begin
        if (ENARDEN) out <= RSTRAMARSTRAM ? SRVAL_A : mem[ADDRARDADDR[13:5]];
        for (lane = 0; lane < 4; lane = lane + 1)
            if (ENBWREN && WEBWE[lane]) mem[ADDRBWRADDR[13:5]][9 * lane +: 9] <= in[9 * lane +: 9];
    end

    assign {DOPBDOP[1], DOBDO[15:8], DOPBDOP[0], DOBDO[7:0],
            DOPADOP[1], DOADO[15:8], DOPADOP[0], DOADO[7:0]} = out;
endmodule
