// SPDX-License-Identifier: BSD-2-Clause
// RAMB36E1 (UG473) as far as synthesis of the core uses it, for simulating its netlist: Yosys' own
// library has this primitive's ports only. All ports in use are equally wide, read before they
// write (READ_FIRST), share one clock, and have no output registers; what is not so stops the
// simulation when it starts.
module RAMB36E1 #(
    parameter RAM_MODE = "TDP",
    parameter integer DOA_REG = 0, DOB_REG = 0,
    parameter integer READ_WIDTH_A = 0, READ_WIDTH_B = 0, WRITE_WIDTH_A = 0, WRITE_WIDTH_B = 0,
    parameter WRITE_MODE_A = "WRITE_FIRST", WRITE_MODE_B = "WRITE_FIRST",
    parameter RAM_EXTENSION_A = "NONE", RAM_EXTENSION_B = "NONE",
    parameter [35:0] SRVAL_A = 0, SRVAL_B = 0, INIT_A = 0, INIT_B = 0
) (
    input CLKARDCLK, CLKBWRCLK, ENARDEN, ENBWREN, REGCEAREGCE, REGCEB,
    input RSTRAMARSTRAM, RSTRAMB, RSTREGARSTREG, RSTREGB,
    input [15:0] ADDRARDADDR, ADDRBWRADDR,
    input [31:0] DIADI, DIBDI,
    input [3:0] DIPADIP, DIPBDIP, WEA,
    input [7:0] WEBWE,
    output [31:0] DOADO, DOBDO,
    output [3:0] DOPADOP, DOPBDOP
);
    function automatic integer larger(input integer a, input integer b);
        larger = a > b ? a : b;
    endfunction
    localparam integer WIDTH = larger(larger(READ_WIDTH_A, READ_WIDTH_B),
                                      larger(WRITE_WIDTH_A, WRITE_WIDTH_B));
    // Address bits below a word, and bytes in one.
    localparam integer SHIFT = WIDTH == 72 ? 6 : WIDTH == 36 ? 5 : WIDTH == 18 ? 4 :
                               WIDTH == 9 ? 3 : WIDTH == 4 ? 2 : WIDTH == 2 ? 1 : 0;
    localparam integer BYTES = WIDTH >= 9 ? WIDTH / 9 : 1;
    localparam WIDE = RAM_MODE == "SDP";

    reg [71:0] mem [0:(32768 >> SHIFT) - 1];
    integer each;
    initial begin
        for (each = 0; each < 32768 >> SHIFT; each = each + 1) mem[each] = 0;
        if ((READ_WIDTH_A != 0 && READ_WIDTH_A != WIDTH) || (READ_WIDTH_B != 0 && READ_WIDTH_B != WIDTH)
            || (WRITE_WIDTH_A != 0 && WRITE_WIDTH_A != WIDTH)
            || (WRITE_WIDTH_B != 0 && WRITE_WIDTH_B != WIDTH)
            || WRITE_MODE_A != "READ_FIRST" || WRITE_MODE_B != "READ_FIRST"
            || DOA_REG != 0 || DOB_REG != 0 || WIDE != (WIDTH == 72)
            || RAM_EXTENSION_A != "NONE" || RAM_EXTENSION_B != "NONE") begin
            $display("RAMB36E1: a use of this block that its model does not know");
            $finish;
        end
    end

    wire [14:0] at_a = ADDRARDADDR[14:0] >> SHIFT, at_b = ADDRBWRADDR[14:0] >> SHIFT;
    // Byte by byte with its parity bit in front.
    wire [71:0] in_a = {36'b0, DIPADIP[3], DIADI[31:24], DIPADIP[2], DIADI[23:16],
                        DIPADIP[1], DIADI[15:8], DIPADIP[0], DIADI[7:0]};
    wire [35:0] low_b = {DIPBDIP[3], DIBDI[31:24], DIPBDIP[2], DIBDI[23:16],
                         DIPBDIP[1], DIBDI[15:8], DIPBDIP[0], DIBDI[7:0]};
    wire [71:0] in_b = WIDE ? {low_b, in_a[35:0]} : {36'b0, low_b};
    reg [71:0] out_a = 0, out_b = 0;
    integer lane;
    always @(posedge CLKARDCLK) begin
        if (ENARDEN) out_a <= RSTRAMARSTRAM ? {36'b0, SRVAL_A} : mem[at_a];
        if (ENBWREN) out_b <= RSTRAMB ? {36'b0, SRVAL_B} : mem[at_b];
        for (lane = 0; lane < BYTES; lane = lane + 1) begin
            if (!WIDE && ENARDEN && WRITE_WIDTH_A != 0 && WEA[lane])
                mem[at_a][9 * lane +: 9] <= in_a[9 * lane +: 9];
            if (ENBWREN && WRITE_WIDTH_B != 0 && WEBWE[lane])
                mem[at_b][9 * lane +: 9] <= in_b[9 * lane +: 9];
        end
    end

    assign {DOPADOP[3], DOADO[31:24], DOPADOP[2], DOADO[23:16],
            DOPADOP[1], DOADO[15:8], DOPADOP[0], DOADO[7:0]} = out_a[35:0];
    assign {DOPBDOP[3], DOBDO[31:24], DOPBDOP[2], DOBDO[23:16],
            DOPBDOP[1], DOBDO[15:8], DOPBDOP[0], DOBDO[7:0]} = WIDE ? out_a[71:36] : out_b[35:0];
endmodule
