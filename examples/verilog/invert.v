// SPDX-License-Identifier: BSD-2-Clause
// User logic: inverts bits of every byte. The register at byte 0 says which, the one at byte 4
// counts the beats since the streams were reset. What the ports are is in docs/integration.md.

module invert (
    input  wire        clk,
    input  wire        axis_aresetn,
    input  wire [63:0] s_axis_h2c_tdata,
    input  wire [7:0]  s_axis_h2c_tkeep,
    input  wire        s_axis_h2c_tlast,
    input  wire        s_axis_h2c_tvalid,
    output wire        s_axis_h2c_tready,
    output reg  [63:0] m_axis_c2h_tdata,
    output reg  [7:0]  m_axis_c2h_tkeep,
    output reg         m_axis_c2h_tlast,
    output reg         m_axis_c2h_tvalid,
    input  wire        m_axis_c2h_tready,
    input  wire        reg_aresetn,
    input  wire [7:0]  reg_waddr,
    input  wire [63:0] reg_wdata,
    input  wire [7:0]  reg_wstrb,
    input  wire [7:0]  reg_raddr,
    input  wire [7:0]  reg_rstrb,
    output reg  [63:0] reg_rdata
);
    reg [7:0]  mask;
    reg [31:0] beats;

    // The output register is free, or becomes free.
    assign s_axis_h2c_tready = !m_axis_c2h_tvalid || m_axis_c2h_tready;

    always @(posedge clk) begin
        if (s_axis_h2c_tready) begin
            m_axis_c2h_tvalid <= s_axis_h2c_tvalid;
            m_axis_c2h_tdata  <= s_axis_h2c_tdata ^ {8{mask}};
            m_axis_c2h_tkeep  <= s_axis_h2c_tkeep;
            m_axis_c2h_tlast  <= s_axis_h2c_tlast;
            beats             <= beats + {31'd0, s_axis_h2c_tvalid};
        end
        if (!axis_aresetn) {m_axis_c2h_tvalid, beats} <= 0;

        if (reg_waddr == 0 && reg_wstrb[0]) mask <= reg_wdata[7:0];
        if (!reg_aresetn) mask <= 8'hff;
        reg_rdata <= reg_raddr == 0 ? {beats, 24'd0, mask} : 64'd0;
    end
endmodule
