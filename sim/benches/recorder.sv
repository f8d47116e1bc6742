// SPDX-License-Identifier: BSD-2-Clause
// Bound to the core in the benches' simulators: hashes the core's ports at every rising clock edge,
// from the first one in reset on. Its file gets a line "CYCLE:HASH" after each INTERVAL cycles and
// after the last one. The hash is cumulative: two runs that differ in a cycle differ from there on.

module port_recorder #(
    parameter WIDTH = 1,
    parameter FILE = ""
) (
    input wire clk,
    input wire rst,
    input wire [WIDTH-1:0] ports
);
    localparam INTERVAL = 256;
    localparam WORDS = (WIDTH + 63) / 64;

    // Each step is a bijection of the hash, so a single word that differs always shows.
    function automatic [63:0] extend(input [63:0] from, input [64*WORDS-1:0] words);
        extend = from;
        for (int n = 0; n < WORDS; n++) begin
            extend = (extend ^ words[64*n +: 64]) * 64'h9e37_79b9_7f4a_7c15;
            extend = extend ^ (extend >> 32);
        end
    endfunction

    reg [63:0] hash = 0;
    int cycle = 0;
    int file;

    initial file = $fopen(FILE, "w");

    always @(posedge clk)
        if (rst || cycle != 0) begin
            hash = extend(hash, {{(64 * WORDS - WIDTH) {1'b0}}, ports});
            cycle = cycle + 1;
            if (cycle % INTERVAL == 0) $fdisplay(file, "%0d:%h", cycle, hash);
        end

    final begin
        if (cycle % INTERVAL != 0) $fdisplay(file, "%0d:%h", cycle, hash);
        $fclose(file);
    end
endmodule
