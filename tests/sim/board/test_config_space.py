# SPDX-License-Identifier: BSD-2-Clause
"""The configuration space: what it advertises, and what a client can and cannot change."""

from __future__ import annotations

import struct

import pytest

from hw.pcie.series7.parameters import PARAMETERS
from hw.pcie.series7.phy.pcie_block import TIED
from hw.pcie.ultrascale.family import FAMILIES
from peerdma import regs
from peerdma.vfio_user.wire import CONFIG_REGION, Command
from sim.board import config_space
from sim.compile import configuration
from sim.compile.configuration import configuration_space
from tests.sim.board.client import BAR_DMA, BAR_USER, Board, Client

#: Of each block, and what is not the same.
SPACES = {name: configuration_space(name) for name in ("series7", "ultrascale", "ultrascale_plus")}
DEVICES = {"series7": 0x7021, "ultrascale": 0x8038, "ultrascale_plus": 0x9038}
LINKS = {"series7": (2, 1), "ultrascale": (3, 8), "ultrascale_plus": (3, 8)}
#: Power management, MSI, PCI Express, MSI-X; the block has them there, and drivers and gateware
#: look for one of them.
PLACES = {
    "series7": (0x40, 0x48, 0x60, 0x9C),
    "ultrascale": (0x80, 0x90, 0xC0, 0xB0),
    "ultrascale_plus": (0x40, 0x48, 0x70, 0x60),
}
SPACE = SPACES["series7"]
POWER, MSI, EXPRESS, MSIX = (SPACE.capabilities[number] for number in (0x01, 0x05, 0x10, 0x11))
SERIAL = 0x100


@pytest.fixture(scope="module")
def board(board_of_each_block: Board) -> Board:
    return board_of_each_block


def space_of(client: Client) -> config_space.ConfigSpace:
    """The space of the block that the client's board has."""
    device = client.config(2, 2)
    return next(space for name, space in SPACES.items() if DEVICES[name] == device)


@pytest.mark.parametrize("family", SPACES)
def test_identity_and_class(family):
    image = SPACES[family].image
    assert struct.unpack_from("<HH", image, 0) == (0x10EE, DEVICES[family])
    assert struct.unpack_from("<HH", image, 0x2C) == (0x10EE, 0x5045)
    assert image[9:12] == bytes([0x00, 0x80, 0x05])
    assert image[0x3D] == 1


@pytest.mark.parametrize("family", SPACES)
def test_capabilities(family):
    space = SPACES[family]
    found = {number: space.capabilities[number] for number in (0x01, 0x05, 0x10, 0x11)}
    assert tuple(found.values()) == PLACES[family] and found == space.capabilities
    _, msi, express, msix = found.values()
    msi_control = struct.unpack_from("<H", space.image, msi + 2)[0]
    assert msi_control == 0x80, "64-bit address, one message"
    control, table, pending = struct.unpack_from("<HII", space.image, msix + 2)
    assert control + 1 == regs.MSIX_ENTRIES
    assert table == regs.MSIX_TABLE_OFFSET | BAR_DMA
    assert pending == regs.MSIX_PBA_OFFSET | BAR_DMA
    assert struct.unpack_from("<I", space.image, SERIAL)[0] == 0x00010003
    capabilities = struct.unpack_from("<I", space.image, express + 4)[0]
    assert 128 << (capabilities & 7) == 512
    assert capabilities >> 5 & 1, "extended tags"
    assert capabilities >> 28 & 1 == (family != "series7"), "function-level reset"
    speed, lanes = space.fastest
    assert (speed, lanes) == LINKS[family]
    assert struct.unpack_from("<H", space.image, express + 0x12)[0] & 0x3FF == lanes << 4 | speed
    speeds = struct.unpack_from("<I", space.image, express + 0x2C)[0]
    assert speeds == (0b1110 if speed == 3 else 0)
    assert space.image[express + 0x30] == speed, "target link speed"


@pytest.mark.parametrize("family", [family for family in FAMILIES if family in SPACES])
def test_the_gateware_reads_device_control_where_it_is(family):
    assert FAMILIES[family].device_control == SPACES[family].capabilities[0x10] + 8


def test_no_pme_is_claimed_as_none_is_sent():
    assert TIED["CFGPMWAKEN"] == (1, 1), "active low: the core never asks for PME"
    power, control = struct.unpack_from("<HH", SPACE.image, POWER + 2)
    assert power >> 9 == 0, "no D1, D2, nor PME from any state"
    assert control & 0x8100 == 0
    assert struct.unpack_from("<H", SPACE.writable, POWER + 4)[0] == 0x0003, "power state only"
    assert not any(SPACE.clearable[POWER : POWER + 8])


def test_pme_can_be_enabled_only_where_it_is_claimed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(configuration.PARAMETERS, "PM_CAP_PMESUPPORT", 0b01001)
    space = configuration_space()
    assert struct.unpack_from("<H", space.image, POWER + 2)[0] >> 11 == 0b01001
    assert struct.unpack_from("<H", space.writable, POWER + 4)[0] == 0x0103
    assert struct.unpack_from("<H", space.clearable, POWER + 4)[0] == 0x8000


def test_the_serial_number_is_the_only_extended_capability():
    """No AER: its log would have no headers of the core's errors, nor do its errors reach it."""
    header = struct.unpack_from("<I", SPACE.image, SERIAL)[0]
    assert (header & 0xFFFF, header >> 20) == (0x0003, 0), "serial number, and the list ends"
    assert not any(SPACE.image[SERIAL + 12 :] + SPACE.writable[SERIAL:] + SPACE.clearable[SERIAL:])
    assert PARAMETERS["AER_CAP_ON"] == "FALSE"
    assert TIED["CFGERRAERHEADERLOG"] == (128, 0)


@pytest.mark.parametrize("removed", [(0x05,), (0x11,), (0x05, 0x11), (0x11, 0x05)])
def test_capabilities_are_taken_out(removed):
    """The others stay where they are, and nothing is left of these."""
    space = SPACE
    for number in removed:
        space = space.without(number)
    left = {number: at for number, at in SPACE.capabilities.items() if number not in removed}
    assert space.capabilities == left
    for at in (SPACE.capabilities[number] for number in removed):
        assert not any(space.image[at : at + 12] + space.writable[at : at + 12])
    assert space.image[SERIAL:] == SPACE.image[SERIAL:]


def test_it_follows_the_parameters(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(configuration.PARAMETERS, "CMD_INTX_IMPLEMENTED", "FALSE")
    assert SPACE.writable[5] ^ configuration_space().writable[5] == 0x04
    monkeypatch.setitem(configuration.PARAMETERS, "PM_CAP_NEXTPTR", EXPRESS)
    monkeypatch.setitem(configuration.PARAMETERS, "MSI_CAP_ON", "FALSE")
    assert configuration_space().image == SPACE.without(config_space.MSI).image
    monkeypatch.setitem(configuration.PARAMETERS, "AER_CAP_ON", "TRUE")
    with pytest.raises(KeyError, match="AER"):
        configuration_space()


@pytest.mark.parametrize("family", SPACES)
def test_no_bit_is_both_set_and_cleared_by_a_write(family):
    space = SPACES[family]
    for writable, clearable in zip(space.writable, space.clearable, strict=True):
        assert not writable & clearable


# On the running board ------------------------------------------------------------------------


def test_every_bit_follows_its_mask(client: Client):
    """All ones, then all zeros, into every byte: exactly the writable bits follow.

    But for the one that resets the function.
    """
    space, control = space_of(client), client.capability(0x10) + 8
    for value in (0xFF, 0x00):
        for offset in range(0, config_space.SIZE, 4):
            kept = 1 << 15 if offset == control else 0
            client.write(CONFIG_REGION, offset, value * 0x01010101 & ~kept)
        for offset in range(0, config_space.SIZE, 4):
            mask, initial = (
                struct.unpack_from("<I", image, offset)[0]
                for image in (space.writable, space.image)
            )
            # Only state that the hardware reports may differ; at rest there is none.
            expected = initial & ~mask | value * 0x01010101 & mask
            assert client.config(offset) == expected, hex(offset)


def test_bar_sizing(client: Client):
    for number, size in (regs.BAR_USER, regs.BAR_DMA):
        client.write(CONFIG_REGION, 0x10 + 4 * number, 0xFFFFFFFF)
        assert client.config(0x10 + 4 * number) == -size & 0xFFFFFFFF
    for number in (2, 3, 4, 5):
        client.write(CONFIG_REGION, 0x10 + 4 * number, 0xFFFFFFFF)
        assert client.config(0x10 + 4 * number) == 0


def test_bars_work_wherever_they_are(client: Client):
    client.write(CONFIG_REGION, 0x10, 0xFE804000)
    client.write(CONFIG_REGION, 0x14, 0xFE810000)
    assert client.read(BAR_DMA, regs.EXTENSION.address("magic")) == regs.EXTENSION_MAGIC
    client.write(BAR_USER, regs.USER.address("scratch"), 0x12345678)
    assert client.read(BAR_USER, regs.USER.address("scratch")) == 0x12345678


def test_memory_space_off_answers_all_ones(client: Client):
    scratch = regs.USER.address("scratch")
    client.write(BAR_USER, scratch, 5)
    client.write(CONFIG_REGION, 4, 0x0004, 2)
    assert client.read(BAR_USER, scratch) == 0xFFFFFFFF
    client.write(BAR_USER, scratch, 6)
    client.enable()
    assert client.read(BAR_USER, scratch) == 5


def test_sleeping_function_answers_all_ones(client: Client):
    power = client.capability(0x01)
    client.write(CONFIG_REGION, power + 4, 3, 2)
    assert client.read(BAR_DMA, 0) == 0xFFFFFFFF
    client.write(CONFIG_REGION, power + 4, 0, 2)
    assert client.read(BAR_DMA, 0) == regs.identifier(0)


def test_configuration_reaches_the_core(client: Client):
    """The link register of the extension block shows what was written to Device Control."""
    link = regs.EXTENSION["link"]
    at = regs.EXTENSION.address("link")
    express, (speed, lanes) = client.capability(0x10), space_of(client).fastest
    value = client.read(BAR_DMA, at)
    assert link.field("max_payload").get(value) == 0
    assert link.field("max_read_request").get(value) == 2
    assert (link.field("speed").get(value), link.field("width").get(value)) == (speed, lanes)
    assert link.field("bus_master").get(value) == 1
    client.write(CONFIG_REGION, express + 8, 1 << 5 | 3 << 12, 2)
    client.write(CONFIG_REGION, express + 0x10, 1 << 3, 2)
    value = client.read(BAR_DMA, at)
    assert link.field("max_payload").get(value) == 1
    assert link.field("max_read_request").get(value) == 3
    assert link.field("rcb").get(value) == 1


def test_reset_restores_it(client: Client):
    express = client.capability(0x10)
    client.write(CONFIG_REGION, express + 8, 0, 2)
    client.write(BAR_USER, regs.USER.address("scratch"), 7)
    client.request(Command.DEVICE_RESET)
    assert client.config(4, 2) == 0
    assert client.config(express + 8, 2) == 0x2810
    client.enable()
    assert client.read(BAR_USER, regs.USER.address("scratch")) == 0


def test_any_size_and_alignment(client: Client):
    for offset, count in ((0, 1), (1, 2), (3, 4), (0x2D, 7), (0xFF8, 8), (0, 4096)):
        expected = bytearray(space_of(client).image[offset : offset + count])
        for at in range(4, 6):
            if offset <= at < offset + count:
                expected[at - offset] = (6, 0)[at - 4]
        assert client.config(offset, count) == int.from_bytes(expected, "little")
