/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Registers and descriptors of the peerdma board.
 *
 * Generated from host/peerdma/regs.py by "make regs"; do not edit. What a register does is
 * described there.
 *
 * A register is at the base of its block, plus n strides for channel n of a block that is
 * repeated, plus its own offset (_REG). All are 32 bits wide.
 */
#ifndef PEERDMA_REGS_H
#define PEERDMA_REGS_H

#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/types.h>

/* BARs, and what is at fixed places in them and on the card */
#define PEERDMA_BAR_USER			0
#define PEERDMA_BAR_USER_SIZE			0x4000
#define PEERDMA_BAR_DMA				1
#define PEERDMA_BAR_DMA_SIZE			0x10000
#define PEERDMA_USER_BLOCK_BASE			0x100
#define PEERDMA_USER_BLOCK_SIZE			0x100
#define PEERDMA_DOORBELL_BASE			0x2000
#define PEERDMA_DOORBELL_STRIDE			0x1000
#define PEERDMA_MSIX_TABLE_OFFSET		0x8000
#define PEERDMA_MSIX_PBA_OFFSET			0x8fe0
#define PEERDMA_H2C_PUSH_BASE			0x9400
#define PEERDMA_C2H_PUSH_BASE			0x9600
#define PEERDMA_PUSH_STRIDE			0x80
#define PEERDMA_PUSH_DESCRIPTORS		4
#define PEERDMA_LAUNCH_SLOTS			64
#define PEERDMA_LAUNCH_QUEUES			2
#define PEERDMA_LAUNCH_PLACES			8
#define PEERDMA_MSIX_ENTRIES			32
#define PEERDMA_CARD_RAM_SIZE			0x10000	/* default build */
#define PEERDMA_STREAM_WINDOW			0x8000000000000000ULL
#define PEERDMA_QUARANTINE_MS			60	/* of the board's time, at most */
#define PEERDMA_PASS_THROUGH			0x53534150	/* in register user_block */

/* One DMA channel. H2C channels at 0x0n00, C2H channels at 0x1n00 (PEERDMA_BAR_DMA) */
#define PEERDMA_CHANNEL_STRIDE			0x100
#define PEERDMA_H2C_CHANNEL_BASE		0x0000
#define PEERDMA_C2H_CHANNEL_BASE		0x1000
#define PEERDMA_CHANNEL_IDENTIFIER_REG		0x00	/* ro */
#define PEERDMA_H2C_CHANNEL_IDENTIFIER		0x1fc00006	/* channel 0 */
#define PEERDMA_C2H_CHANNEL_IDENTIFIER		0x1fc10006	/* channel 0 */
#define PEERDMA_CHANNEL_CONTROL_REG		0x04	/* rw */
#define PEERDMA_CHANNEL_CONTROL_RUN		BIT(0)
#define PEERDMA_CHANNEL_CONTROL_IE_DESCRIPTOR_STOPPED	BIT(1)
#define PEERDMA_CHANNEL_CONTROL_IE_DESCRIPTOR_COMPLETED	BIT(2)
#define PEERDMA_CHANNEL_CONTROL_IE_ALIGN_MISMATCH	BIT(3)
#define PEERDMA_CHANNEL_CONTROL_IE_MAGIC_STOPPED	BIT(4)
#define PEERDMA_CHANNEL_CONTROL_IE_INVALID_LENGTH	BIT(5)
#define PEERDMA_CHANNEL_CONTROL_IE_IDLE_STOPPED	BIT(6)
#define PEERDMA_CHANNEL_CONTROL_IE_READ_ERROR	GENMASK(13, 9)
#define PEERDMA_CHANNEL_CONTROL_IE_WRITE_ERROR	GENMASK(18, 14)
#define PEERDMA_CHANNEL_CONTROL_IE_DESC_ERROR	GENMASK(23, 19)
#define PEERDMA_CHANNEL_CONTROL_NON_INC_MODE	BIT(25)
#define PEERDMA_CHANNEL_CONTROL_POLLMODE_WB_ENABLE	BIT(26)
#define PEERDMA_CHANNEL_CONTROL_STREAM_WB_DISABLE	BIT(27)
#define PEERDMA_CHANNEL_CONTROL_W1S_REG		0x08	/* w1s */
#define PEERDMA_CHANNEL_CONTROL_W1C_REG		0x0c	/* w1c */
#define PEERDMA_CHANNEL_STATUS_REG		0x40	/* rw1c */
#define PEERDMA_CHANNEL_STATUS_RC_REG		0x44	/* rc */
#define PEERDMA_CHANNEL_COMPLETED_COUNT_REG	0x48	/* ro */
#define PEERDMA_CHANNEL_ALIGNMENTS_REG		0x4c	/* ro */
#define PEERDMA_CHANNEL_ALIGNMENTS_RESET	0x10140
#define PEERDMA_CHANNEL_WRITEBACK_LO_REG	0x88	/* rw */
#define PEERDMA_CHANNEL_WRITEBACK_HI_REG	0x8c	/* rw */
#define PEERDMA_CHANNEL_INTERRUPT_ENABLE_REG	0x90	/* rw */
#define PEERDMA_CHANNEL_INTERRUPT_ENABLE_W1S_REG	0x94	/* w1s */
#define PEERDMA_CHANNEL_INTERRUPT_ENABLE_W1C_REG	0x98	/* w1c */
#define PEERDMA_CHANNEL_PERF_CONTROL_REG	0xc0	/* rw */
#define PEERDMA_CHANNEL_PERF_CONTROL_AUTO	BIT(0)
#define PEERDMA_CHANNEL_PERF_CONTROL_CLEAR	BIT(1)
#define PEERDMA_CHANNEL_PERF_CONTROL_RUN	BIT(2)
#define PEERDMA_CHANNEL_PERF_CYCLES_LO_REG	0xc4	/* ro */
#define PEERDMA_CHANNEL_PERF_CYCLES_HI_REG	0xc8	/* ro */
#define PEERDMA_CHANNEL_PERF_CYCLES_HI_HIGH	GENMASK(9, 0)
#define PEERDMA_CHANNEL_PERF_CYCLES_HI_SATURATED	BIT(16)
#define PEERDMA_CHANNEL_PERF_DATA_LO_REG	0xcc	/* ro */
#define PEERDMA_CHANNEL_PERF_DATA_HI_REG	0xd0	/* ro */
#define PEERDMA_CHANNEL_PERF_DATA_HI_HIGH	GENMASK(9, 0)
#define PEERDMA_CHANNEL_PERF_DATA_HI_SATURATED	BIT(16)

/* Interrupt enables, requests and vector numbers (PEERDMA_BAR_DMA) */
#define PEERDMA_IRQ_BASE			0x2000
#define PEERDMA_IRQ_IDENTIFIER_REG		0x00	/* ro */
#define PEERDMA_IRQ_IDENTIFIER_RESET		0x1fc20006
#define PEERDMA_IRQ_USER_ENABLE_REG		0x04	/* rw */
#define PEERDMA_IRQ_USER_ENABLE_W1S_REG		0x08	/* w1s */
#define PEERDMA_IRQ_USER_ENABLE_W1C_REG		0x0c	/* w1c */
#define PEERDMA_IRQ_CHANNEL_ENABLE_REG		0x10	/* rw */
#define PEERDMA_IRQ_CHANNEL_ENABLE_W1S_REG	0x14	/* w1s */
#define PEERDMA_IRQ_CHANNEL_ENABLE_W1C_REG	0x18	/* w1c */
#define PEERDMA_IRQ_USER_REQUEST_REG		0x40	/* ro */
#define PEERDMA_IRQ_CHANNEL_REQUEST_REG		0x44	/* ro */
#define PEERDMA_IRQ_USER_PENDING_REG		0x48	/* ro */
#define PEERDMA_IRQ_CHANNEL_PENDING_REG		0x4c	/* ro */
#define PEERDMA_IRQ_USER_VECTOR0_REG		0x80	/* rw */
#define PEERDMA_IRQ_USER_VECTOR1_REG		0x84	/* rw */
#define PEERDMA_IRQ_USER_VECTOR2_REG		0x88	/* rw */
#define PEERDMA_IRQ_USER_VECTOR3_REG		0x8c	/* rw */
#define PEERDMA_IRQ_CHANNEL_VECTOR0_REG		0xa0	/* rw */
#define PEERDMA_IRQ_CHANNEL_VECTOR1_REG		0xa4	/* rw */

/* PCIe configuration as the engine sees it (PEERDMA_BAR_DMA) */
#define PEERDMA_CONFIG_BASE			0x3000
#define PEERDMA_CONFIG_IDENTIFIER_REG		0x00	/* ro */
#define PEERDMA_CONFIG_IDENTIFIER_RESET		0x1fc30006
#define PEERDMA_CONFIG_BUSDEV_REG		0x04	/* ro */
#define PEERDMA_CONFIG_MAX_PAYLOAD_REG		0x08	/* ro */
#define PEERDMA_CONFIG_MAX_READ_REQUEST_REG	0x0c	/* ro */
#define PEERDMA_CONFIG_SYSTEM_ID_REG		0x10	/* ro */
#define PEERDMA_CONFIG_SYSTEM_ID_RESET		0xff01
#define PEERDMA_CONFIG_MSI_ENABLE_REG		0x14	/* ro */
#define PEERDMA_CONFIG_DATA_WIDTH_REG		0x18	/* ro */
#define PEERDMA_CONFIG_PCIE_CONTROL_REG		0x1c	/* rw */
#define PEERDMA_CONFIG_PCIE_CONTROL_RESET	0x1
#define PEERDMA_CONFIG_USER_MAX_PAYLOAD_REG	0x40	/* rw */
#define PEERDMA_CONFIG_USER_MAX_PAYLOAD_RESET	0x55
#define PEERDMA_CONFIG_USER_MAX_READ_REQUEST_REG	0x44	/* rw */
#define PEERDMA_CONFIG_USER_MAX_READ_REQUEST_RESET	0x55
#define PEERDMA_CONFIG_WRITE_FLUSH_TIMEOUT_REG	0x60	/* rw */

/* First descriptor of a channel. H2C channels at 0x4n00, C2H channels at 0x5n00 (PEERDMA_BAR_DMA) */
#define PEERDMA_SGDMA_STRIDE			0x100
#define PEERDMA_H2C_SGDMA_BASE			0x4000
#define PEERDMA_C2H_SGDMA_BASE			0x5000
#define PEERDMA_SGDMA_IDENTIFIER_REG		0x00	/* ro */
#define PEERDMA_H2C_SGDMA_IDENTIFIER		0x1fc40006	/* channel 0 */
#define PEERDMA_C2H_SGDMA_IDENTIFIER		0x1fc50006	/* channel 0 */
#define PEERDMA_SGDMA_DESCRIPTOR_LO_REG		0x80	/* rw */
#define PEERDMA_SGDMA_DESCRIPTOR_HI_REG		0x84	/* rw */
#define PEERDMA_SGDMA_DESCRIPTOR_ADJACENT_REG	0x88	/* rw */
#define PEERDMA_SGDMA_DESCRIPTOR_CREDITS_REG	0x8c	/* add */

/* Descriptor fetch control of all channels (PEERDMA_BAR_DMA) */
#define PEERDMA_SGDMA_COMMON_BASE		0x6000
#define PEERDMA_SGDMA_COMMON_IDENTIFIER_REG	0x00	/* ro */
#define PEERDMA_SGDMA_COMMON_IDENTIFIER_RESET	0x1fc60006
#define PEERDMA_SGDMA_COMMON_HALT_REG		0x10	/* rw */
#define PEERDMA_SGDMA_COMMON_HALT_W1S_REG	0x14	/* w1s */
#define PEERDMA_SGDMA_COMMON_HALT_W1C_REG	0x18	/* w1c */
#define PEERDMA_SGDMA_COMMON_CREDIT_ENABLE_REG	0x20	/* rw */
#define PEERDMA_SGDMA_COMMON_CREDIT_ENABLE_W1S_REG	0x24	/* w1s */
#define PEERDMA_SGDMA_COMMON_CREDIT_ENABLE_W1C_REG	0x28	/* w1c */

/* What this core has beyond XDMA (PEERDMA_BAR_DMA) */
#define PEERDMA_EXTENSION_BASE			0x9000
#define PEERDMA_EXTENSION_MAGIC_REG		0x00	/* ro */
#define PEERDMA_EXTENSION_MAGIC_RESET		0x414d4450
#define PEERDMA_EXTENSION_VERSION_REG		0x04	/* ro */
#define PEERDMA_EXTENSION_VERSION_RESET		0x10004
#define PEERDMA_EXTENSION_VERSION_MINOR		GENMASK(15, 0)
#define PEERDMA_EXTENSION_VERSION_MAJOR		GENMASK(31, 16)
#define PEERDMA_EXTENSION_CAPABILITIES_REG	0x08	/* ro */
#define PEERDMA_EXTENSION_CHANNELS_REG		0x0c	/* ro */
#define PEERDMA_EXTENSION_CHANNELS_H2C		GENMASK(3, 0)
#define PEERDMA_EXTENSION_CHANNELS_C2H		GENMASK(7, 4)
#define PEERDMA_EXTENSION_CHANNELS_TAGS		GENMASK(15, 8)
#define PEERDMA_EXTENSION_CHANNELS_LAUNCH_QUEUES	GENMASK(19, 16)
#define PEERDMA_EXTENSION_CARD_RAM_SIZE_REG	0x10	/* ro */
#define PEERDMA_EXTENSION_STREAM_WINDOW_LO_REG	0x14	/* ro */
#define PEERDMA_EXTENSION_STREAM_WINDOW_HI_REG	0x18	/* ro */
#define PEERDMA_EXTENSION_LINK_REG		0x1c	/* ro */
#define PEERDMA_EXTENSION_LINK_SPEED		GENMASK(3, 0)
#define PEERDMA_EXTENSION_LINK_WIDTH		GENMASK(9, 4)
#define PEERDMA_EXTENSION_LINK_MAX_PAYLOAD	GENMASK(14, 12)
#define PEERDMA_EXTENSION_LINK_MAX_READ_REQUEST	GENMASK(18, 16)
#define PEERDMA_EXTENSION_LINK_RCB		BIT(20)
#define PEERDMA_EXTENSION_LINK_BUS_MASTER	BIT(24)
#define PEERDMA_EXTENSION_CLOCK_KHZ_REG		0x20	/* ro */
#define PEERDMA_EXTENSION_TIME_SCALE_REG	0x24	/* ro */
#define PEERDMA_EXTENSION_TIME_SCALE_RESET	0x1
#define PEERDMA_EXTENSION_ERROR_INFO_REG	0x28	/* ro */
#define PEERDMA_EXTENSION_ERROR_INFO_KIND	GENMASK(3, 0)
#define PEERDMA_EXTENSION_ERROR_INFO_CHANNEL	GENMASK(9, 8)
#define PEERDMA_EXTENSION_ERROR_INFO_C2H	BIT(12)
#define PEERDMA_EXTENSION_ERROR_INFO_DESCRIPTOR	BIT(13)
#define PEERDMA_EXTENSION_ERROR_INFO_COUNT	GENMASK(31, 16)
#define PEERDMA_EXTENSION_ERROR_ADDRESS_LO_REG	0x2c	/* ro */
#define PEERDMA_EXTENSION_ERROR_ADDRESS_HI_REG	0x30	/* ro */
#define PEERDMA_EXTENSION_ERROR_CLEAR_REG	0x34	/* wo */
#define PEERDMA_EXTENSION_SOFT_RESET_REG	0x38	/* wo */
#define PEERDMA_EXTENSION_CYCLES_LO_REG		0x40	/* ro */
#define PEERDMA_EXTENSION_CYCLES_HI_REG		0x44	/* ro */
#define PEERDMA_EXTENSION_QUARANTINED_REG	0x48	/* ro */
#define PEERDMA_EXTENSION_USER_BLOCK_REG	0x4c	/* ro */
#define PEERDMA_EXTENSION_USER_RATIO_REG	0x50	/* ro */
#define PEERDMA_EXTENSION_USER_RATIO_BYTES_IN	GENMASK(7, 0)
#define PEERDMA_EXTENSION_USER_RATIO_BYTES_OUT	GENMASK(15, 8)
#define PEERDMA_EXTENSION_STREAM_FLUSH_REG	0x54	/* wo */
#define PEERDMA_EXTENSION_READS_REG		0x58	/* rw */
#define PEERDMA_EXTENSION_READS_RESET		0x8
#define PEERDMA_EXTENSION_READS_IN_FLIGHT	GENMASK(3, 0)
#define PEERDMA_EXTENSION_READS_TOLERANT	BIT(4)
#define PEERDMA_EXTENSION_WAITS_FOR_REG		0x5c	/* ro */
#define PEERDMA_EXTENSION_WAITS_FOR_H2C0	GENMASK(3, 0)
#define PEERDMA_EXTENSION_WAITS_FOR_H2C1	GENMASK(7, 4)
#define PEERDMA_EXTENSION_WAITS_FOR_H2C2	GENMASK(11, 8)
#define PEERDMA_EXTENSION_WAITS_FOR_H2C3	GENMASK(15, 12)
#define PEERDMA_EXTENSION_WAITS_FOR_C2H0	GENMASK(19, 16)
#define PEERDMA_EXTENSION_WAITS_FOR_C2H1	GENMASK(23, 20)
#define PEERDMA_EXTENSION_WAITS_FOR_C2H2	GENMASK(27, 24)
#define PEERDMA_EXTENSION_WAITS_FOR_C2H3	GENMASK(31, 28)
#define PEERDMA_EXTENSION_FRAME_RECORDS_REG	0x60	/* rw */

/* Error capture of a channel. H2C channels from 0x9100, C2H channels from 0x9180 (PEERDMA_BAR_DMA) */
#define PEERDMA_CAPTURE_STRIDE			0x20
#define PEERDMA_H2C_CAPTURE_BASE		0x9100
#define PEERDMA_C2H_CAPTURE_BASE		0x9180
#define PEERDMA_CAPTURE_ERROR_INFO_REG		0x08	/* ro */
#define PEERDMA_CAPTURE_ERROR_INFO_KIND		GENMASK(3, 0)
#define PEERDMA_CAPTURE_ERROR_INFO_CHANNEL	GENMASK(9, 8)
#define PEERDMA_CAPTURE_ERROR_INFO_C2H		BIT(12)
#define PEERDMA_CAPTURE_ERROR_INFO_DESCRIPTOR	BIT(13)
#define PEERDMA_CAPTURE_ERROR_INFO_COUNT	GENMASK(31, 16)
#define PEERDMA_CAPTURE_ERROR_ADDRESS_LO_REG	0x0c	/* ro */
#define PEERDMA_CAPTURE_ERROR_ADDRESS_HI_REG	0x10	/* ro */

/* A job that a launch queue can start; slot n is n strides further (PEERDMA_BAR_DMA) */
#define PEERDMA_LAUNCH_SLOT_STRIDE		0x40
#define PEERDMA_LAUNCH_SLOT_BASE		0xa000
#define PEERDMA_LAUNCH_SLOT_DESCRIPTOR_REG	0x00	/* wo */
#define PEERDMA_LAUNCH_SLOT_LENGTH_REG		0x04	/* wo */
#define PEERDMA_LAUNCH_SLOT_SOURCE_LO_REG	0x08	/* wo */
#define PEERDMA_LAUNCH_SLOT_SOURCE_HI_REG	0x0c	/* wo */
#define PEERDMA_LAUNCH_SLOT_DESTINATION_LO_REG	0x10	/* wo */
#define PEERDMA_LAUNCH_SLOT_DESTINATION_HI_REG	0x14	/* wo */
#define PEERDMA_LAUNCH_SLOT_NEXT_LO_REG		0x18	/* wo */
#define PEERDMA_LAUNCH_SLOT_NEXT_HI_REG		0x1c	/* wo */
#define PEERDMA_LAUNCH_SLOT_CONTROL_REG		0x20	/* wo */
#define PEERDMA_LAUNCH_SLOT_CONTROL_VALID	BIT(0)
#define PEERDMA_LAUNCH_SLOT_CONTROL_C2H		BIT(1)
#define PEERDMA_LAUNCH_SLOT_CONTROL_PAIR	BIT(2)
#define PEERDMA_LAUNCH_SLOT_CONTROL_CHANNEL	GENMASK(5, 4)
#define PEERDMA_LAUNCH_SLOT_CONTROL_FLUSH	BIT(6)
#define PEERDMA_LAUNCH_SLOT_CONTROL_DONE	BIT(7)
#define PEERDMA_LAUNCH_SLOT_CONTROL_QUEUE	GENMASK(10, 8)
#define PEERDMA_LAUNCH_SLOT_CONTROL_OVERLAP	BIT(11)
#define PEERDMA_LAUNCH_SLOT_CONTROL_RECEIVE	BIT(12)
#define PEERDMA_LAUNCH_SLOT_FLUSH_LO_REG	0x28	/* wo */
#define PEERDMA_LAUNCH_SLOT_FLUSH_HI_REG	0x2c	/* wo */
#define PEERDMA_LAUNCH_SLOT_DONE_LO_REG		0x30	/* wo */
#define PEERDMA_LAUNCH_SLOT_DONE_HI_REG		0x34	/* wo */

/* A launch queue; queue n is n strides further (PEERDMA_BAR_DMA) */
#define PEERDMA_LAUNCH_QUEUE_STRIDE		0x40
#define PEERDMA_LAUNCH_QUEUE_BASE		0xb000
#define PEERDMA_LAUNCH_QUEUE_CONTROL_REG	0x00	/* wo */
#define PEERDMA_LAUNCH_QUEUE_CONTROL_ARMED	BIT(0)
#define PEERDMA_LAUNCH_QUEUE_CONTROL_POLLS	BIT(1)
#define PEERDMA_LAUNCH_QUEUE_CONTROL_MASK	GENMASK(15, 8)
#define PEERDMA_LAUNCH_QUEUE_CONTROL_GENERATION	GENMASK(31, 16)
#define PEERDMA_LAUNCH_QUEUE_FIRST_REG		0x04	/* wo */
#define PEERDMA_LAUNCH_QUEUE_RING_LO_REG	0x08	/* wo */
#define PEERDMA_LAUNCH_QUEUE_RING_HI_REG	0x0c	/* wo */
#define PEERDMA_LAUNCH_QUEUE_RECORDS_LO_REG	0x10	/* wo */
#define PEERDMA_LAUNCH_QUEUE_RECORDS_HI_REG	0x14	/* wo */
#define PEERDMA_LAUNCH_QUEUE_SHADOW_LO_REG	0x18	/* wo */
#define PEERDMA_LAUNCH_QUEUE_SHADOW_HI_REG	0x1c	/* wo */
#define PEERDMA_LAUNCH_QUEUE_STATE_REG		0x20	/* ro */
#define PEERDMA_LAUNCH_QUEUE_STATE_STATUS	GENMASK(4, 0)
#define PEERDMA_LAUNCH_QUEUE_STATE_FAILED	BIT(5)
#define PEERDMA_LAUNCH_QUEUE_STATE_BUSY		BIT(6)
#define PEERDMA_LAUNCH_QUEUE_STATE_ARMED	BIT(7)
#define PEERDMA_LAUNCH_QUEUE_STATE_END		GENMASK(10, 8)
#define PEERDMA_LAUNCH_QUEUE_STATE_PLACE	GENMASK(18, 16)
#define PEERDMA_LAUNCH_QUEUE_STATE_RECORDED	BIT(19)
#define PEERDMA_LAUNCH_QUEUE_STATE_ENDING	BIT(20)
#define PEERDMA_LAUNCH_QUEUE_STATE_RUNNING	GENMASK(23, 21)
#define PEERDMA_LAUNCH_QUEUE_STATE_STARTING	BIT(24)
#define PEERDMA_LAUNCH_QUEUE_IGNORED_REG	0x24	/* ro */
#define PEERDMA_LAUNCH_QUEUE_RESUME_REG		0x28	/* wo */

/* A place for tickets at work; place p of queue n is LAUNCH_PLACES * n + p strides further (PEERDMA_BAR_DMA) */
#define PEERDMA_LAUNCH_TICKET_STRIDE		0x8
#define PEERDMA_LAUNCH_TICKET_BASE		0xb800
#define PEERDMA_LAUNCH_TICKET_SLOT_REG		0x00	/* ro */

/* User registers; LED where NVIDIA's design has it (PEERDMA_BAR_USER) */
#define PEERDMA_USER_BASE			0x0000
#define PEERDMA_USER_LED_REG			0x00	/* rw */
#define PEERDMA_USER_GPIO_REG			0x08	/* ro */
#define PEERDMA_USER_SCRATCH_REG		0x10	/* rw */
#define PEERDMA_USER_RAISE_INTERRUPTS_REG	0x18	/* rw */

/* Mailbox page: a GPU reports its progress, the board timestamps it (PEERDMA_BAR_USER) */
#define PEERDMA_MAILBOX_BASE			0x1000
#define PEERDMA_MAILBOX_FIRST_REG		0x00	/* rw */
#define PEERDMA_MAILBOX_LAST_REG		0x04	/* rw */
#define PEERDMA_MAILBOX_DONE_REG		0x08	/* rw */
#define PEERDMA_MAILBOX_FIRST_TIME_LO_REG	0x20	/* ro */
#define PEERDMA_MAILBOX_FIRST_TIME_HI_REG	0x24	/* ro */
#define PEERDMA_MAILBOX_LAST_TIME_LO_REG	0x28	/* ro */
#define PEERDMA_MAILBOX_LAST_TIME_HI_REG	0x2c	/* ro */
#define PEERDMA_MAILBOX_DONE_TIME_LO_REG	0x30	/* ro */
#define PEERDMA_MAILBOX_DONE_TIME_HI_REG	0x34	/* ro */

/* Bits of the channel status and interrupt enable registers */
#define PEERDMA_STATUS_BUSY			BIT(0)
#define PEERDMA_STATUS_DESCRIPTOR_STOPPED	BIT(1)
#define PEERDMA_STATUS_DESCRIPTOR_COMPLETED	BIT(2)
#define PEERDMA_STATUS_ALIGN_MISMATCH		BIT(3)
#define PEERDMA_STATUS_MAGIC_STOPPED		BIT(4)
#define PEERDMA_STATUS_INVALID_LENGTH		BIT(5)
#define PEERDMA_STATUS_IDLE_STOPPED		BIT(6)
#define PEERDMA_STATUS_READ_UNSUPPORTED		BIT(9)
#define PEERDMA_STATUS_READ_ABORT		BIT(10)
#define PEERDMA_STATUS_READ_PARITY		BIT(11)
#define PEERDMA_STATUS_READ_POISONED		BIT(12)
#define PEERDMA_STATUS_READ_UNEXPECTED		BIT(13)
#define PEERDMA_STATUS_WRITE_DECODE		BIT(14)
#define PEERDMA_STATUS_WRITE_SLAVE		BIT(15)
#define PEERDMA_STATUS_DESC_UNSUPPORTED		BIT(19)
#define PEERDMA_STATUS_DESC_ABORT		BIT(20)
#define PEERDMA_STATUS_DESC_PARITY		BIT(21)
#define PEERDMA_STATUS_DESC_POISONED		BIT(22)
#define PEERDMA_STATUS_DESC_UNEXPECTED		BIT(23)
#define PEERDMA_STATUS_ERRORS			0xfffe38

/* Bits of the extension block's capabilities register */
#define PEERDMA_CAPABILITY_STREAM		BIT(0)
#define PEERDMA_CAPABILITY_MAILBOX		BIT(1)
#define PEERDMA_CAPABILITY_WRITEBACK		BIT(2)
#define PEERDMA_CAPABILITY_PUSH			BIT(3)
#define PEERDMA_CAPABILITY_FRAME_RECORDS	BIT(4)
#define PEERDMA_CAPABILITY_CAPTURE		BIT(6)
#define PEERDMA_CAPABILITY_LAUNCH		BIT(7)
#define PEERDMA_CAPABILITY_OVERCOMMIT		BIT(8)
#define PEERDMA_CAPABILITY_OVERCOMMIT_OFF	BIT(9)
#define PEERDMA_CAPABILITY_RECEIVE		BIT(10)

/**
 * enum peerdma_error_kind - kind in the extension block's error_info register
 * @PEERDMA_ERROR_NONE: none
 * @PEERDMA_ERROR_MAGIC: magic
 * @PEERDMA_ERROR_DECODE: decode
 * @PEERDMA_ERROR_UNSUPPORTED_REQUEST: unsupported request
 * @PEERDMA_ERROR_COMPLETER_ABORT: completer abort
 * @PEERDMA_ERROR_POISONED: poisoned
 * @PEERDMA_ERROR_UNEXPECTED_COMPLETION: unexpected completion
 * @PEERDMA_ERROR_COMPLETION_TIMEOUT: completion timeout
 * @PEERDMA_ERROR_BUS_MASTER_OFF: bus master off
 * @PEERDMA_ERROR_NO_COMPLETION_SPACE: no completion space
 * @PEERDMA_ERROR_WRITE_DROPPED: write dropped
 */
enum peerdma_error_kind {
	PEERDMA_ERROR_NONE = 0,
	PEERDMA_ERROR_MAGIC = 1,
	PEERDMA_ERROR_DECODE = 2,
	PEERDMA_ERROR_UNSUPPORTED_REQUEST = 3,
	PEERDMA_ERROR_COMPLETER_ABORT = 4,
	PEERDMA_ERROR_POISONED = 5,
	PEERDMA_ERROR_UNEXPECTED_COMPLETION = 6,
	PEERDMA_ERROR_COMPLETION_TIMEOUT = 7,
	PEERDMA_ERROR_BUS_MASTER_OFF = 8,
	PEERDMA_ERROR_NO_COMPLETION_SPACE = 9,
	PEERDMA_ERROR_WRITE_DROPPED = 10,
};

/**
 * enum peerdma_waits_for - what a channel waits for, in the extension block's waits_for register
 * @PEERDMA_WAITS_FOR_NOTHING: nothing
 * @PEERDMA_WAITS_FOR_DESCRIPTOR: descriptor
 * @PEERDMA_WAITS_FOR_CREDIT: credit
 * @PEERDMA_WAITS_FOR_RELEASE: release
 * @PEERDMA_WAITS_FOR_FLUSH: flush
 * @PEERDMA_WAITS_FOR_COMPLETION: completion
 * @PEERDMA_WAITS_FOR_USER_INPUT: user input
 * @PEERDMA_WAITS_FOR_USER_OUTPUT: user output
 * @PEERDMA_WAITS_FOR_TRANSMIT: transmit
 * @PEERDMA_WAITS_FOR_SPACE: space
 * @PEERDMA_WAITS_FOR_GRANT: grant
 */
enum peerdma_waits_for {
	PEERDMA_WAITS_FOR_NOTHING = 0,
	PEERDMA_WAITS_FOR_DESCRIPTOR = 1,
	PEERDMA_WAITS_FOR_CREDIT = 2,
	PEERDMA_WAITS_FOR_RELEASE = 3,
	PEERDMA_WAITS_FOR_FLUSH = 4,
	PEERDMA_WAITS_FOR_COMPLETION = 5,
	PEERDMA_WAITS_FOR_USER_INPUT = 6,
	PEERDMA_WAITS_FOR_USER_OUTPUT = 7,
	PEERDMA_WAITS_FOR_TRANSMIT = 8,
	PEERDMA_WAITS_FOR_SPACE = 9,
	PEERDMA_WAITS_FOR_GRANT = 10,
};

/* Texts of enum peerdma_waits_for, in its order */
#define PEERDMA_WAITS_FOR_TEXTS { \
	"nothing", \
	"the completion of a descriptor fetch", \
	"descriptor credits (normal until software gives some)", \
	"software to clear its halt bit", \
	"the other channel of its pair to end its run, for the user stream to be flushed", \
	"the completion of a read", \
	"the user block to take data (normal while its output has nowhere to go)", \
	"the user block to give data (normal while there is none)", \
	"a write to be sent", \
	"room for completions, which reads of other channels take", \
	"a run of another owner of the channel to end", \
}

/* Control word and length of a descriptor */
#define PEERDMA_DESC_STOP			BIT(0)
#define PEERDMA_DESC_COMPLETED			BIT(1)
#define PEERDMA_DESC_EOP			BIT(4)
#define PEERDMA_DESC_ADJACENT_MASK		GENMASK(13, 8)
#define PEERDMA_DESC_MAGIC_MASK			GENMASK(31, 16)
#define PEERDMA_DESC_MAGIC			0xad4b
#define PEERDMA_DESC_MAX_LENGTH			0xfffffff

/**
 * struct peerdma_descriptor - one piece of a transfer, in host memory
 * @control: magic, count of adjacent descriptors and flags, PEERDMA_DESC_*
 * @length: bytes to move, 1 to PEERDMA_DESC_MAX_LENGTH
 * @source: bus address for H2C, card address for C2H
 * @destination: card address for H2C, bus address for C2H
 * @next: bus address of the next descriptor
 *
 * Aligned to its size, 32 bytes.
 */
struct peerdma_descriptor {
	__le32 control;
	__le32 length;
	__le64 source;
	__le64 destination;
	__le64 next;
};
static_assert(sizeof(struct peerdma_descriptor) == 32);

/* Set in the number of each record of a frame */
#define PEERDMA_FRAME_NUMBER_VALID		BIT(31)

/**
 * struct peerdma_frame_record - what a frame was, written behind its data
 * @cycles: clock cycles of the board when the frame began
 * @reserved: anything
 * @bytes: its length
 * @dropped: frames that the user block has dropped so far
 * @crc: CRC-32 of its bytes, as IEEE 802.3 has it
 * @number: counted from 0, with PEERDMA_FRAME_NUMBER_VALID
 *
 * Aligned to its size, 32 bytes.
 */
struct peerdma_frame_record {
	__le64 cycles;
	__le64 reserved;
	__le32 bytes;
	__le32 dropped;
	__le32 crc;
	__le32 number;
};
static_assert(sizeof(struct peerdma_frame_record) == 32);

/* A doorbell, and a shadow tail */
#define PEERDMA_DOORBELL_TAIL			GENMASK(15, 0)
#define PEERDMA_DOORBELL_GENERATION		GENMASK(31, 16)

/* The upper half of a doorbell of 64 bits */
#define PEERDMA_DOORBELL_ENTRY_SLOT		GENMASK(5, 0)
#define PEERDMA_DOORBELL_ENTRY_TICKET		GENMASK(31, 16)

/**
 * enum peerdma_launch_status - status of a record
 * @PEERDMA_LAUNCH_STATUS_OK: ok
 * @PEERDMA_LAUNCH_STATUS_SLOT: slot
 * @PEERDMA_LAUNCH_STATUS_FLUSHED: flushed
 * @PEERDMA_LAUNCH_STATUS_ABORTED: aborted
 * @PEERDMA_LAUNCH_STATUS_LONG: long
 */
enum peerdma_launch_status {
	PEERDMA_LAUNCH_STATUS_OK = 0,
	PEERDMA_LAUNCH_STATUS_SLOT = 16,
	PEERDMA_LAUNCH_STATUS_FLUSHED = 17,
	PEERDMA_LAUNCH_STATUS_ABORTED = 18,
	PEERDMA_LAUNCH_STATUS_LONG = 19,
};

/**
 * enum peerdma_launch_end - end in the state register of a launch queue
 * @PEERDMA_LAUNCH_END_NONE: none
 * @PEERDMA_LAUNCH_END_TAIL: tail
 * @PEERDMA_LAUNCH_END_ENTRY: entry
 * @PEERDMA_LAUNCH_END_READ: read
 * @PEERDMA_LAUNCH_END_RECORD: record
 */
enum peerdma_launch_end {
	PEERDMA_LAUNCH_END_NONE = 0,
	PEERDMA_LAUNCH_END_TAIL = 1,
	PEERDMA_LAUNCH_END_ENTRY = 2,
	PEERDMA_LAUNCH_END_READ = 3,
	PEERDMA_LAUNCH_END_RECORD = 4,
};

/**
 * struct peerdma_launch_entry - what a GPU writes into a submission ring
 * @ticket: number of the job in its queue, counted by one
 * @slot: which job, 0 to PEERDMA_LAUNCH_SLOTS - 1
 *
 * Aligned to its size, 8 bytes.
 */
struct peerdma_launch_entry {
	__le32 ticket;
	__le32 slot;
};
static_assert(sizeof(struct peerdma_launch_entry) == 8);

/**
 * struct peerdma_launch_record - what the board writes when a job has ended
 * @ticket: that of its entry
 * @status: how it ended, enum peerdma_launch_status or enum peerdma_error_kind
 *
 * Aligned to its size, 8 bytes.
 */
struct peerdma_launch_record {
	__le32 ticket;
	__le32 status;
};
static_assert(sizeof(struct peerdma_launch_record) == 8);

#endif /* PEERDMA_REGS_H */
