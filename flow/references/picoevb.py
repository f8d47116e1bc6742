# SPDX-License-Identifier: BSD-2-Clause
"""The differences that are allowed between our image for the PicoEVB and NVIDIA's, and why.

Keys are regular expressions for lines of `picoevb.txt`. A key that matches no difference makes the
check fail.
"""

__all__ = ["CLOCK_DIFFERENCES", "DIFFERENCES"]

_BLOCK = r"feature PCIE_BOT_X71Y115\.PCIE\."

DIFFERENCES = {
    # Identity and capabilities of the function.
    r"input PCIE_X0Y0\.CFG(VEND|DEV|SUBSYSVEND|SUBSYS)ID": "our IDs are Xilinx' XDMA's",
    r"input PCIE_X0Y0\.CFGDSN": "we have a serial number, the reference's is 0",
    _BLOCK + "BAR0": "BAR 0 has 16 KiB: registers, mailbox, doorbells; the reference's 4 KiB",
    _BLOCK + "CPL_TIMEOUT_RANGES_SUPPORTED": "software cannot set the core's completion timeout",
    _BLOCK + "MSIX_CAP_.*": "the core has MSI-X, the reference has none",
    _BLOCK + "PCIE_CAP_NEXTPTR": "MSI-X follows in the list of capabilities",
    _BLOCK + "PM_CAP_PMESUPPORT": "the core sends no PME, and the reference's wakes nothing",
    _BLOCK + "LINK_CAP_ASPM_(OPTIONALITY|SUPPORT)": "no ASPM until L0s has been tried on a board",
    # Features of the PCIe block that the core uses.
    r"input PCIE_X0Y0\.CFGERRCPL(TIMEOUT|UNEXPECT)N": "the core reports these errors",
    r"input PCIE_X0Y0\.CFGTRNPENDINGN": "the core reports outstanding requests",
    r"input PCIE_X0Y0\.TRNFCSEL": "the core reads available credits, not the limit",
    r"input PCIE_X0Y0\.TRNRDSTRDY": "the core always accepts received TLPs",
    r"input PCIE_X0Y0\.TRNTCFGGNT": "the block may always send its own TLPs",
    # Clocks and pins.
    r"input MMCM\.RST": "the clock manager is reset when it has lost its lock",
    r"feature MMCM\.ZINV_RST": "that reset is active high, the reference's a constant 0, inverted",
    r"feature MMCM\.CLKOUT[34]_.*": "outputs that nothing uses, nor in the reference",
    r"feature LIOB33_X0Y8[35]\.IOB_Y[01]\.\w+\.(IN_ONLY|SLEW\.SLOW|DRIVE\.I12_I16)": (
        "GPIO are inputs, in the reference inputs and outputs"
    ),
    r"pad LIOB33_X0Y43\.IOB_Y0": "PUDC_B, which Vivado makes an input by itself",
    # Inputs that the reference's wrapper drives for test modes and for rates that are not used.
    r"input GTPE2_CHANNEL_X0Y3\.(EYESCANRESET|RESETOVRD|RX(BUF|PCS|PMA|CDR|CDRFREQ)RESET)": (
        "resets that only the wrapper's test mode uses"
    ),
    r"input GTPE2_CHANNEL_X0Y3\.TX(MAIN|POST|PRE)CURSOR": (
        "the wrapper drives 0 from logic; PIPE's de-emphasis codes select the drive"
    ),
    r"input GTPE2_CHANNEL_X0Y3\.[RT]XSYNC(ALLIN|IN)": (
        "automatic alignment is off (SYNC_OVRD); the wrapper connects its outputs in a ring"
    ),
    r"input GTPE2_CHANNEL_X0Y3\.DRPADDR": "only one register is used, so its address is constant",
    r"input GTPE2_COMMON_X0Y0\.(DRP(ADDR|DI|EN|WE)|PLL0PD)": (
        "the PLL is neither reconfigured nor powered down"
    ),
}

#: Differences that are allowed if the user clock is not the reference's, 125 MHz.
CLOCK_DIFFERENCES = {
    _BLOCK + "USER_CLK_FREQ": "the user clock differs",
    r"feature MMCM\.CLKOUT2_.*": "the user clock differs",
}
