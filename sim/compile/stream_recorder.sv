// SPDX-License-Identifier: BSD-2-Clause
// Writes a line with each payload of a stream that is taken, in hexadecimal.

module stream_recorder #(
    parameter WIDTH = 1,
    parameter FILE = ""
) (
    input wire clk,
    input wire taken,
    input wire [WIDTH-1:0] payload
);
    int file;

    initial file = $fopen(FILE, "w");
    always @(posedge clk) if (taken) $fdisplay(file, "%h", payload);
    final $fclose(file);
endmodule
