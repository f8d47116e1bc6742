# SPDX-License-Identifier: BSD-2-Clause
"""What the PCIe block is given: every parameter, with the reason for it, and the function's IDs.

"The reference" is the decoded configuration of NVIDIA's image for the PicoEVB, which is known to
work there. Codes are those of UG477. This is plain data, which imports no Amaranth: the simulated
board derives its configuration space from it, on machines without Amaranth too.
"""

from dataclasses import dataclass

from peerdma import regs

__all__ = [
    "BUFFER_DEPTH",
    "BUFFER_READ_LATENCY",
    "PARAMETERS",
    "SERIAL_NUMBER",
    "TRANSMIT_BUFFERS",
    "USER_CLOCK_CODES",
    "Identity",
]

#: TLPs that the transmit buffer holds.
TRANSMIT_BUFFERS = 30
#: Words of 64 bits and their flags in each buffer: 16 KiB in each direction, as MPS 512 requires
#: with the reference's credits and so many TLPs (UG477, memory requirements).
BUFFER_DEPTH = 2048
#: Cycles from address to data of a buffer.
BUFFER_READ_LATENCY = 2

#: Device Serial Number: an EUI-64 of no registered vendor, the same on all boards. Software tells
#: boards apart by their bus address.
SERIAL_NUMBER = 0x0000_0001_0100_0A35

#: USER_CLK_FREQ by frequency of the user clock in kHz.
USER_CLOCK_CODES = {62_500: 1, 125_000: 2}


@dataclass(frozen=True)
class Identity:
    """Vendor, device and subsystem IDs of the function, 16 bits each, and its revision, 8 bits."""

    vendor: int = 0x10EE
    device: int = 0x7021
    subsystem_vendor: int = 0x10EE
    subsystem: int = 0x5045
    revision: int = 0


def _bar(bar: tuple[int, int]) -> int:
    """The register of a 32-bit memory BAR: ones where the address can be written."""
    return -bar[1] & 0xFFFF_FFFF


PARAMETERS = {
    # Header: type 0, INTA, capabilities from 0x40.
    "CAPABILITIES_PTR": 0x40,
    "CARDBUS_CIS_POINTER": 0,
    "CLASS_CODE": 0x58000,
    "HEADER_TYPE": 0,
    "INTERRUPT_PIN": 1,
    # BARs: 32-bit; not prefetchable, as register reads have side effects. No expansion ROM.
    "BAR0": _bar(regs.BAR_USER),
    "BAR1": _bar(regs.BAR_DMA),
    "BAR2": 0,
    "BAR3": 0,
    "BAR4": 0,
    "BAR5": 0,
    "EXPANSION_ROM": 0,
    # INTx is implemented; the block sets its status bit from CFGINTERRUPT.
    "CMD_INTX_IMPLEMENTED": "TRUE",
    "INTERRUPT_STAT_AUTO": "TRUE",
    # Power management: version 3, no PME, which the core never asks for (CFGPMWAKEN), no D1 and
    # D2, no soft reset on leaving D3hot, no data register.
    "PM_BASE_PTR": 0x40,
    "PM_CAP_AUXCURRENT": 0,
    "PM_CAP_D1SUPPORT": "FALSE",
    "PM_CAP_D2SUPPORT": "FALSE",
    "PM_CAP_DSI": "FALSE",
    "PM_CAP_ID": 0x1,
    "PM_CAP_NEXTPTR": 0x48,
    "PM_CAP_ON": "TRUE",
    "PM_CAP_PMESUPPORT": 0,
    "PM_CAP_PME_CLOCK": "FALSE",
    "PM_CAP_RSVD_04": 0,
    "PM_CAP_VERSION": 3,
    "PM_CSR_B2B3": "FALSE",
    "PM_CSR_BPCCEN": "FALSE",
    "PM_CSR_NOSOFTRST": "TRUE",
    "PM_DATA0": 0,
    "PM_DATA1": 0,
    "PM_DATA2": 0,
    "PM_DATA3": 0,
    "PM_DATA4": 0,
    "PM_DATA5": 0,
    "PM_DATA6": 0,
    "PM_DATA7": 0,
    "PM_DATA_SCALE0": 0,
    "PM_DATA_SCALE1": 0,
    "PM_DATA_SCALE2": 0,
    "PM_DATA_SCALE3": 0,
    "PM_DATA_SCALE4": 0,
    "PM_DATA_SCALE5": 0,
    "PM_DATA_SCALE6": 0,
    "PM_DATA_SCALE7": 0,
    "PM_MF": "FALSE",
    # MSI: 64-bit address, no mask bits.
    "MSI_BASE_PTR": 0x48,
    "MSI_CAP_64_BIT_ADDR_CAPABLE": "TRUE",
    "MSI_CAP_ID": 0x5,
    "MSI_CAP_MULTIMSGCAP": 0,
    "MSI_CAP_MULTIMSG_EXTENSION": 0,
    "MSI_CAP_NEXTPTR": 0x60,
    "MSI_CAP_ON": "TRUE",
    "MSI_CAP_PER_VECTOR_MASKING_CAPABLE": "FALSE",
    # MSI-X: the core implements table and pending bits, in BAR 1; offsets in units of 8 bytes.
    "MSIX_BASE_PTR": 0x9C,
    "MSIX_CAP_ID": 0x11,
    "MSIX_CAP_NEXTPTR": 0x0,
    "MSIX_CAP_ON": "TRUE",
    "MSIX_CAP_PBA_BIR": regs.BAR_DMA[0],
    "MSIX_CAP_PBA_OFFSET": regs.MSIX_PBA_OFFSET // 8,
    "MSIX_CAP_TABLE_BIR": regs.BAR_DMA[0],
    "MSIX_CAP_TABLE_OFFSET": regs.MSIX_TABLE_OFFSET // 8,
    "MSIX_CAP_TABLE_SIZE": regs.MSIX_ENTRIES - 1,
    # PCI Express capability: version 2, endpoint.
    "PCIE_BASE_PTR": 0x60,
    "PCIE_CAP_CAPABILITY_ID": 0x10,
    "PCIE_CAP_CAPABILITY_VERSION": 2,
    "PCIE_CAP_DEVICE_PORT_TYPE": 0,
    "PCIE_CAP_NEXTPTR": 0x9C,
    "PCIE_CAP_ON": "TRUE",
    "PCIE_CAP_RSVD_15_14": 0,
    "PCIE_CAP_SLOT_IMPLEMENTED": "FALSE",
    "PCIE_REVISION": 2,
    # Device capabilities: MPS, extended tags, role-based errors, the slot's power limit. No
    # function level reset, which the core does not implement.
    "DEV_CAP_ENABLE_SLOT_PWR_LIMIT_SCALE": "TRUE",
    "DEV_CAP_ENABLE_SLOT_PWR_LIMIT_VALUE": "TRUE",
    "DEV_CAP_ENDPOINT_L0S_LATENCY": 0,
    "DEV_CAP_ENDPOINT_L1_LATENCY": 7,
    "DEV_CAP_EXT_TAG_SUPPORTED": "TRUE",
    "DEV_CAP_FUNCTION_LEVEL_RESET_CAPABLE": "FALSE",
    "DEV_CAP_MAX_PAYLOAD_SUPPORTED": 2,
    "DEV_CAP_PHANTOM_FUNCTIONS_SUPPORT": 0,
    "DEV_CAP_ROLE_BASED_ERROR": "TRUE",
    "DEV_CAP_RSVD_14_12": 0,
    "DEV_CAP_RSVD_17_16": 0,
    "DEV_CAP_RSVD_31_29": 0,
    "DEV_CONTROL_AUX_POWER_SUPPORTED": "FALSE",
    "DEV_CONTROL_EXT_TAG_DEFAULT": "FALSE",
    "MPS_FORCE": "FALSE",
    # Device capabilities 2: nothing. The core's completion timeout is fixed (CoreConfig), in the
    # default range.
    "CPL_TIMEOUT_DISABLE_SUPPORTED": "FALSE",
    "CPL_TIMEOUT_RANGES_SUPPORTED": 0,
    "DEV_CAP2_ARI_FORWARDING_SUPPORTED": "FALSE",
    "DEV_CAP2_ATOMICOP32_COMPLETER_SUPPORTED": "FALSE",
    "DEV_CAP2_ATOMICOP64_COMPLETER_SUPPORTED": "FALSE",
    "DEV_CAP2_ATOMICOP_ROUTING_SUPPORTED": "FALSE",
    "DEV_CAP2_CAS128_COMPLETER_SUPPORTED": "FALSE",
    "DEV_CAP2_ENDEND_TLP_PREFIX_SUPPORTED": "FALSE",
    "DEV_CAP2_EXTENDED_FMT_FIELD_SUPPORTED": "FALSE",
    "DEV_CAP2_LTR_MECHANISM_SUPPORTED": "FALSE",
    "DEV_CAP2_MAX_ENDEND_TLP_PREFIXES": 0,
    "DEV_CAP2_NO_RO_ENABLED_PRPR_PASSING": "FALSE",
    "DEV_CAP2_TPH_COMPLETER_SUPPORTED": 0,
    "ENDEND_TLP_PREFIX_FORWARDING_SUPPORTED": "FALSE",
    # Link: Gen2 x1, largest exit latencies, reference clock of the slot. No ASPM, which the
    # optionality bit permits: waking from L0s is the receiver's analog part, which no model shows
    # (docs/picoevb.md).
    "LINK_CAP_ASPM_OPTIONALITY": "TRUE",
    "LINK_CAP_ASPM_SUPPORT": 0,
    "LINK_CAP_CLOCK_POWER_MANAGEMENT": "FALSE",
    "LINK_CAP_DLL_LINK_ACTIVE_REPORTING_CAP": "FALSE",
    "LINK_CAP_L0S_EXIT_LATENCY_COMCLK_GEN1": 7,
    "LINK_CAP_L0S_EXIT_LATENCY_COMCLK_GEN2": 7,
    "LINK_CAP_L0S_EXIT_LATENCY_GEN1": 7,
    "LINK_CAP_L0S_EXIT_LATENCY_GEN2": 7,
    "LINK_CAP_L1_EXIT_LATENCY_COMCLK_GEN1": 7,
    "LINK_CAP_L1_EXIT_LATENCY_COMCLK_GEN2": 7,
    "LINK_CAP_L1_EXIT_LATENCY_GEN1": 7,
    "LINK_CAP_L1_EXIT_LATENCY_GEN2": 7,
    "LINK_CAP_LINK_BANDWIDTH_NOTIFICATION_CAP": "FALSE",
    "LINK_CAP_MAX_LINK_SPEED": 2,
    "LINK_CAP_MAX_LINK_WIDTH": 1,
    "LINK_CAP_RSVD_23": 0,
    "LINK_CAP_SURPRISE_DOWN_ERROR_CAPABLE": "FALSE",
    "LINK_CONTROL_RCB": 0,
    "LINK_CTRL2_DEEMPHASIS": "FALSE",
    "LINK_CTRL2_HW_AUTONOMOUS_SPEED_DISABLE": "FALSE",
    "LINK_CTRL2_TARGET_LINK_SPEED": 2,
    "LINK_STATUS_SLOT_CLOCK_CONFIG": "TRUE",
    "ROOT_CAP_CRS_SW_VISIBILITY": "FALSE",
    # No slot registers: for ports only.
    "SLOT_CAP_ATT_BUTTON_PRESENT": "FALSE",
    "SLOT_CAP_ATT_INDICATOR_PRESENT": "FALSE",
    "SLOT_CAP_ELEC_INTERLOCK_PRESENT": "FALSE",
    "SLOT_CAP_HOTPLUG_CAPABLE": "FALSE",
    "SLOT_CAP_HOTPLUG_SURPRISE": "FALSE",
    "SLOT_CAP_MRL_SENSOR_PRESENT": "FALSE",
    "SLOT_CAP_NO_CMD_COMPLETED_SUPPORT": "FALSE",
    "SLOT_CAP_PHYSICAL_SLOT_NUM": 0,
    "SLOT_CAP_POWER_CONTROLLER_PRESENT": "FALSE",
    "SLOT_CAP_POWER_INDICATOR_PRESENT": "FALSE",
    "SLOT_CAP_SLOT_POWER_LIMIT_SCALE": 0,
    "SLOT_CAP_SLOT_POWER_LIMIT_VALUE": 0,
    # Device Serial Number: first and last of the extended capabilities.
    "DSN_BASE_PTR": 0x100,
    "DSN_CAP_ID": 0x3,
    "DSN_CAP_NEXTPTR": 0x0,
    "DSN_CAP_ON": "TRUE",
    "DSN_CAP_VERSION": 1,
    # Extended capabilities that are off. IDs and versions are as in the reference, without effect.
    # AER: docs/picoevb.md says why.
    "AER_BASE_PTR": 0x0,
    "AER_CAP_ECRC_CHECK_CAPABLE": "FALSE",
    "AER_CAP_ECRC_GEN_CAPABLE": "FALSE",
    "AER_CAP_ID": 0x1,
    "AER_CAP_MULTIHEADER": "FALSE",
    "AER_CAP_NEXTPTR": 0x0,
    "AER_CAP_ON": "FALSE",
    "AER_CAP_OPTIONAL_ERR_SUPPORT": 0,
    "AER_CAP_PERMIT_ROOTERR_UPDATE": "FALSE",
    "AER_CAP_VERSION": 1,
    "RBAR_BASE_PTR": 0x0,
    "RBAR_CAP_CONTROL_ENCODEDBAR0": 0,
    "RBAR_CAP_CONTROL_ENCODEDBAR1": 0,
    "RBAR_CAP_CONTROL_ENCODEDBAR2": 0,
    "RBAR_CAP_CONTROL_ENCODEDBAR3": 0,
    "RBAR_CAP_CONTROL_ENCODEDBAR4": 0,
    "RBAR_CAP_CONTROL_ENCODEDBAR5": 0,
    "RBAR_CAP_ID": 0x15,
    "RBAR_CAP_INDEX0": 0,
    "RBAR_CAP_INDEX1": 0,
    "RBAR_CAP_INDEX2": 0,
    "RBAR_CAP_INDEX3": 0,
    "RBAR_CAP_INDEX4": 0,
    "RBAR_CAP_INDEX5": 0,
    "RBAR_CAP_NEXTPTR": 0x0,
    "RBAR_CAP_ON": "FALSE",
    "RBAR_CAP_SUP0": 1,
    "RBAR_CAP_SUP1": 1,
    "RBAR_CAP_SUP2": 1,
    "RBAR_CAP_SUP3": 1,
    "RBAR_CAP_SUP4": 1,
    "RBAR_CAP_SUP5": 1,
    "RBAR_CAP_VERSION": 1,
    "RBAR_NUM": 0,
    "VC_BASE_PTR": 0x0,
    "VC_CAP_ID": 0x2,
    "VC_CAP_NEXTPTR": 0x0,
    "VC_CAP_ON": "FALSE",
    "VC_CAP_REJECT_SNOOP_TRANSACTIONS": "FALSE",
    "VC_CAP_VERSION": 1,
    "VSEC_BASE_PTR": 0x0,
    "VSEC_CAP_HDR_ID": 0x1234,
    "VSEC_CAP_HDR_LENGTH": 24,
    "VSEC_CAP_HDR_REVISION": 1,
    "VSEC_CAP_ID": 0xB,
    "VSEC_CAP_IS_LINK_VISIBLE": "TRUE",
    "VSEC_CAP_NEXTPTR": 0x0,
    "VSEC_CAP_ON": "FALSE",
    "VSEC_CAP_VERSION": 1,
    # No user configuration space: the block answers all configuration requests.
    "EXT_CFG_CAP_PTR": 0x3F,
    "EXT_CFG_XP_CAP_PTR": 0x3FF,
    "LAST_CONFIG_DWORD": 0x3FF,
    # Requests that the transaction layer filters and answers itself: UR for those that hit no BAR,
    # all others as specified.
    "CFG_ECRC_ERR_CPLSTAT": 0,
    "DISABLE_BAR_FILTERING": "FALSE",
    "DISABLE_ERR_MSG": "FALSE",
    "DISABLE_ID_CHECK": "FALSE",
    "DISABLE_LOCKED_FILTER": "FALSE",
    "DISABLE_PPM_FILTER": "FALSE",
    "DISABLE_RX_POISONED_RESP": "FALSE",
    "DISABLE_RX_TC_FILTER": "FALSE",
    "ENABLE_MSG_ROUTE": 0,
    "SSL_MESSAGE_AUTO": "FALSE",
    "UR_ATOMIC": "FALSE",
    "UR_CFG1": "TRUE",
    "UR_INV_REQ": "TRUE",
    "UR_PRS_RESPONSE": "TRUE",
    "USE_RID_PINS": "FALSE",
    # No ECRC: not generated, not checked, and not removed from received TLPs.
    "ENABLE_RX_TD_ECRC_TRIM": "FALSE",
    "RECRC_CHK": 0,
    "RECRC_CHK_TRIM": "FALSE",
    "TECRC_EP_INV": "FALSE",
    # Transaction interface: 64 bits, checks on, flow control of non-posted requests by
    # TRNRNPOK.
    "TL_RBYPASS": "FALSE",
    "TL_TFC_DISABLE": "FALSE",
    "TL_TX_CHECKS_DISABLE": "FALSE",
    "TRN_DW": "FALSE",
    "TRN_NP_FC": "FALSE",
    # Credits and buffers: 16 KiB in each direction (`BUFFER_DEPTH`), divided as in the reference.
    # Completion credits are infinite, as an endpoint's must be; the core never requests more than
    # fits (hw.read.completion_space).
    "VC0_CPL_INFINITE": "TRUE",
    "VC0_RX_RAM_LIMIT": BUFFER_DEPTH - 1,
    "VC0_TOTAL_CREDITS_CD": 0x1CD,
    "VC0_TOTAL_CREDITS_CH": 36,
    "VC0_TOTAL_CREDITS_NPD": 24,
    "VC0_TOTAL_CREDITS_NPH": 12,
    "VC0_TOTAL_CREDITS_PD": 0x1B5,
    "VC0_TOTAL_CREDITS_PH": 32,
    "VC0_TX_LASTPACKET": TRANSMIT_BUFFERS - 1,
    # The buffers' read latency is two cycles, with their output register.
    "TL_RX_RAM_RADDR_LATENCY": 0,
    "TL_RX_RAM_RDATA_LATENCY": BUFFER_READ_LATENCY,
    "TL_RX_RAM_WRITE_LATENCY": 0,
    "TL_TX_RAM_RADDR_LATENCY": 0,
    "TL_TX_RAM_RDATA_LATENCY": BUFFER_READ_LATENCY,
    "TL_TX_RAM_WRITE_LATENCY": 0,
    # Data link layer: ACK latency as specified; the replay timer has the reference's addition for
    # the transceiver's latency.
    "LL_ACK_TIMEOUT": 0,
    "LL_ACK_TIMEOUT_EN": "FALSE",
    "LL_ACK_TIMEOUT_FUNC": 0,
    "LL_REPLAY_TIMEOUT": 0,
    "LL_REPLAY_TIMEOUT_EN": "FALSE",
    "LL_REPLAY_TIMEOUT_FUNC": 1,
    "SELECT_DLL_IF": "FALSE",
    # Physical layer: one lane without lane reversal; Gen2 if both ends support it; timers and
    # training as specified, not shortened for simulation.
    "ALLOW_X8_GEN2": "FALSE",
    "DISABLE_LANE_REVERSAL": "TRUE",
    "DISABLE_SCRAMBLING": "FALSE",
    "DNSTREAM_LINK_NUM": 0,
    "ENTER_RVRY_EI_L0": "TRUE",
    "EXIT_LOOPBACK_ON_EI": "TRUE",
    "INFER_EI": 0,
    "IS_SWITCH": "FALSE",
    "LTSSM_MAX_LINK_WIDTH": 1,
    "N_FTS_COMCLK_GEN1": 0xFF,
    "N_FTS_COMCLK_GEN2": 0xFF,
    "N_FTS_GEN1": 0xFF,
    "N_FTS_GEN2": 0xFF,
    "PL_AUTO_CONFIG": 0,
    "PL_FAST_TRAIN": "FALSE",
    "RP_AUTO_SPD": 1,
    "RP_AUTO_SPD_LOOPCNT": 31,
    "UPCONFIG_CAPABLE": "TRUE",
    "UPSTREAM_FACING": "TRUE",
    # ASPM L0s timers at their defaults.
    "DISABLE_ASPM_L1_TIMER": "FALSE",
    "PM_ASPML0S_TIMEOUT": 0,
    "PM_ASPML0S_TIMEOUT_EN": "FALSE",
    "PM_ASPML0S_TIMEOUT_FUNC": 0,
    "PM_ASPM_FASTEXIT": "FALSE",
    # Clocks: USER_CLK_FREQ is set per build; both user clocks are the same.
    "USER_CLK2_DIV2": "FALSE",
    "USER_CLK_FREQ": 1,
    # Resets: defaults. Spare bits: no function.
    "CRM_MODULE_RSTS": 0,
    "SPARE_BIT0": 0,
    "SPARE_BIT1": 0,
    "SPARE_BIT2": 0,
    "SPARE_BIT3": 0,
    "SPARE_BIT4": 0,
    "SPARE_BIT5": 0,
    "SPARE_BIT6": 0,
    "SPARE_BIT7": 0,
    "SPARE_BIT8": 0,
    "SPARE_BYTE0": 0,
    "SPARE_BYTE1": 0,
    "SPARE_BYTE2": 0,
    "SPARE_BYTE3": 0,
    "SPARE_WORD0": 0,
    "SPARE_WORD1": 0,
    "SPARE_WORD2": 0,
    "SPARE_WORD3": 0,
}
