# SPDX-License-Identifier: BSD-2-Clause
"""flow: from features to an image and back, on a small FPGA; and that faults are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flow import bitstream, checks, fasm
from flow.frames import FrameError, assemble, bits_of, disassemble
from flow.hard_blocks import ConfigurationError, features
from flow.image import choose
from flow.netlist import HardBlock
from flow.place import Result
from flow.record import Record, compare, record
from flow.trace import Tracer
from hw.boards import Boot
from tests.flow.small_fpga import COLUMNS, make
from tests.hw.helpers import seeded

BOOT = Boot(rate=66, lanes=4)
GOOD = {
    "BLOCK_X1Y0.HARD.SIZE[1]",
    "BLOCK_X1Y0.HARD.ON",
    "BLOCK_X1Y0.HARD.IN_USE",
    "INT_X0Y0.IMUX0.GND_WIRE",
    "INT_X0Y0.IMUX1.LOGIC0",
    "PAD_X2Y0.IOB_Y1.DRIVE",
}


@pytest.fixture
def fpga(tmp_path):
    return make(tmp_path)


def image_of(frames):
    return bitstream.write(frames, COLUMNS, 0x1234, BOOT, "design", "diepkg")


def test_fasm_in_all_its_forms():
    lines = [
        "A.B # a comment",
        "",
        "A.C[2:0] = 3'b101",
        "A.D[7] = 1",
        "A.E = 0",
        "A.F[12:4] = 9'h11",
    ]
    assert fasm.parse(lines) == {"A.B", "A.C[0]", "A.C[2]", "A.D[7]", "A.F[4]", "A.F[8]"}
    assert fasm.parse([fasm.line("A.B", 5, 4)]) == {"A.B[0]", "A.B[2]"}
    with pytest.raises(ValueError, match="not a line of FASM"):
        fasm.parse(["A B C"])


def test_features_to_frames_and_back(fpga):
    frames = assemble(fpga, GOOD)
    found, unknown = disassemble(fpga, frames)
    assert found == GOOD and not unknown


def test_unknown_and_contradictory_features(fpga):
    with pytest.raises(FrameError, match=r"2 features are not in the database:\n.*GONE\n.*TILE"):
        assemble(fpga, {*GOOD, "BLOCK_X1Y0.HARD.GONE", "NO_TILE.X"})
    with pytest.raises(FrameError, match="need different values of one bit"):
        assemble(fpga, {"INT_X0Y0.IMUX0.GND_WIRE", "INT_X0Y0.IMUX0.LOGIC0"})


def test_image_and_back():
    random = seeded()
    addresses = [a for first, count in COLUMNS.items() for a in range(first, first + count)]
    for _ in range(20):
        chosen = random.sample(addresses, random.randrange(len(addresses) + 1))
        frames = {address: [random.getrandbits(32) for _ in range(101)] for address in chosen}
        image = bitstream.read(image_of(frames), COLUMNS)
        written = {address: words for address, words in image.frames.items() if any(words)}
        assert written == frames
        assert image.checked == 2
        assert checks.boot(image, BOOT, 0x1234) == []


def test_long_runs_fit_a_packet():
    """A type 1 packet holds 2047 words; more need a type 2 packet."""
    columns = {0: 60}
    frames = {address: [address + 1] * 101 for address in range(60)}
    data = bitstream.write(frames, columns, 1, BOOT, "d", "p")
    image = bitstream.read(data, columns)
    assert {a: w for a, w in image.frames.items() if any(w)} == frames


def test_checksum_finds_any_flipped_bit(fpga):
    random = seeded()
    data = bytearray(image_of(assemble(fpga, GOOD)))
    # The words of a run of two frames and its padding.
    start = data.find((0x3000_4000 | 303).to_bytes(4, "big")) + 4
    assert start > 4
    for _ in range(50):
        broken = bytearray(data)
        broken[start + random.randrange(4 * 303)] ^= 1 << random.randrange(8)
        with pytest.raises(ValueError, match="CRC"):
            bitstream.read(bytes(broken), COLUMNS)


def test_checksum_is_the_fpgas():
    """CRC-32C (Castagnoli) over data, then five bits of register address, low bits first."""
    crc = bitstream._Crc()
    crc.value = 0xFFFF_FFFF
    # Without the address' five steps it would be the well-known one: check value of "123456789".
    for byte in b"123456789":
        crc.value = crc.value >> 8 ^ bitstream._Crc._TABLE[(crc.value ^ byte) & 0xFF]
    assert crc.value ^ 0xFFFF_FFFF == 0xE306_9283
    one, other = bitstream._Crc(), bitstream._Crc()
    one.add(bitstream.Register.FAR, 5)
    other.add(bitstream.Register.MASK, 5)
    assert one.value != other.value


@pytest.mark.parametrize(
    ("register", "setting", "message"),
    [
        (bitstream.cor0, {"rate": 60}, "no configuration rate"),
        (bitstream.bspi, {"lanes": 3}, "1, 2 or 4"),
    ],
)
def test_boot_settings_that_there_are_not(register, setting, message):
    with pytest.raises(ValueError, match=message):
        register(Boot(**setting))


def test_no_bitstream():
    with pytest.raises(ValueError, match="no synchronisation word"):
        bitstream.read(bytes(100), COLUMNS)


def block(**inputs):
    known = {"A": "0", "B": 7, "C": "1"} | inputs
    return HardBlock("block", "HARD", {}, known)


@pytest.fixture(autouse=True)
def hard_is_a_block(monkeypatch):
    monkeypatch.setitem(checks.DEDICATED, "HARD", set())


SITES = {"HARD": "HARD_X0Y0"}


def test_inputs_are_traced(fpga):
    assert Tracer(fpga, GOOD).inputs("HARD_X0Y0") == {"A": "0", "B": "INT_X0Y0/LOGIC0", "C": "1"}
    assert checks.inputs(fpga, GOOD, [block()], SITES) == (3, [])


@pytest.mark.parametrize(
    ("change", "inputs", "message"),
    [
        # Left open, so it reads 1.
        ({"-INT_X0Y0.IMUX0.GND_WIRE"}, {}, "HARD A is 1, in the netlist 0"),
        ({"+INT_X0Y0.IMUX2.GND_WIRE"}, {}, "HARD C is 0, in the netlist 1"),
        ({"-INT_X0Y0.IMUX1.LOGIC0"}, {}, "HARD B is 1, in the netlist driven by logic"),
        ({"+INT_X0Y0.IMUX2.LOGIC1"}, {"C": 7}, "HARD C is driven by .*LOGIC1, others of its net"),
        ({"+INT_X0Y0.IMUX2.LOGIC0"}, {"C": 8}, "HARD C .* and so are inputs of another net"),
    ],
)
def test_wrong_ties_are_found(fpga, change, inputs, message):
    have = {f for f in GOOD if f"-{f}" not in change} | {f[1:] for f in change if f[0] == "+"}
    _, wrong = checks.inputs(fpga, have, [block(**inputs)], SITES)
    assert len(wrong) == 1
    assert re.search(message, wrong[0]), wrong[0]


def record_of(fpga, have, registers=None):
    registers = registers or {
        bitstream.Register.BSPI: bitstream.bspi(BOOT),
        bitstream.Register.COR0: bitstream.cor0(BOOT),
    }
    return record(fpga, have, ["HARD_X0Y0"], ["A1"], registers)


def test_record_survives_its_file(fpga, tmp_path):
    path = tmp_path / "record.txt"
    first = record_of(fpga, GOOD)
    path.write_text("# a comment\n" + first.dump())
    assert Record.load(path) == first
    assert first.values["input HARD_X0Y0.B"] == "n"
    assert first.values["feature BLOCK_X1Y0.HARD.SIZE"] == "0x2"


@pytest.mark.parametrize(
    ("have", "what"),
    [
        (GOOD - {"BLOCK_X1Y0.HARD.ON"}, "feature BLOCK_X1Y0.HARD.ON: (none), reference 0x1"),
        (GOOD | {"BLOCK_X1Y0.HARD.SIZE[0]"}, "feature BLOCK_X1Y0.HARD.SIZE: 0x3, reference 0x2"),
        (GOOD - {"INT_X0Y0.IMUX0.GND_WIRE"}, "input HARD_X0Y0.A: 1, reference 0"),
        (GOOD - {"PAD_X2Y0.IOB_Y1.DRIVE"}, "feature PAD_X2Y0.IOB_Y1.DRIVE: (none), reference 0x1"),
    ],
)
def test_parameter_tie_and_pin_are_compared(fpga, have, what):
    wrong = checks.reference(record_of(fpga, have), record_of(fpga, GOOD), {})
    assert wrong == [what]
    pattern = r".*" + what.split(":")[0].split(".")[-1]
    assert checks.reference(record_of(fpga, have), record_of(fpga, GOOD), {pattern: "why"}) == []


def test_boot_registers_are_compared(fpga):
    slow = Boot(rate=3, lanes=1)
    registers = {
        bitstream.Register.BSPI: bitstream.bspi(slow),
        bitstream.Register.COR0: bitstream.cor0(slow),
    }
    left, _ = compare(record_of(fpga, GOOD, registers), record_of(fpga, GOOD), {})
    assert [difference.what for difference in left] == ["register BSPI", "register COR0"]
    data = bitstream.write(assemble(fpga, GOOD), COLUMNS, 0x1234, slow, "design", "diepkg")
    wrong = checks.boot(bitstream.read(data, COLUMNS), BOOT, 0x4321)
    assert [text.split()[0] for text in wrong] == ["BSPI", "COR0", "IDCODE"]


def test_an_allowance_that_allows_nothing_is_wrong(fpga):
    good = record_of(fpga, GOOD)
    assert checks.reference(good, good, {"feature .*GONE": "why"}) == [
        "feature .*GONE is allowed to differ, but nothing does"
    ]


def test_bits_of_no_feature_are_found(fpga):
    frames = assemble(fpga, GOOD)
    frames[0x80][1] |= 1 << 9
    _, wrong = checks.bits(fpga, GOOD, frames)
    assert wrong[0].startswith("1 bits belong to no known feature")
    frames = assemble(fpga, GOOD - {"BLOCK_X1Y0.HARD.ON"})
    _, wrong = checks.bits(fpga, GOOD, frames)
    assert wrong[0] == "BLOCK_X1Y0.HARD.ON is not in the image"


def test_another_reader_is_compared():
    frames = {0x80: [1 << 31] + [0] * 100}
    assert checks.other_reader(["# comment", "bit_00000080_000_31\n"], frames) == []
    wrong = checks.other_reader(["bit_00000080_000_30\n"], frames)
    assert wrong == ["2 bits are read differently"]


def test_slow_and_missing_clocks_are_found(tmp_path):
    runs = [Result(n, tmp_path, {"a": mhz}, {}) for n, mhz in ((1, 70.0), (2, 60.0))]
    assert checks.timing(runs, {"a": 62.5}) == ["seed 2: a reaches 60.0 MHz of 62.5"]
    assert checks.timing(runs[:1], {"b": 1.0}) == ["seed 1: no clock b; there are ['a']"]


KNOWN = {"SIZE[0]", "SIZE[1]", "ON", "INV_CLK", "TX_DRIVE_MODE.PIPE", "RXOUT_DIV[0]"}


def test_parameters_become_features():
    given = {"SIZE": 2, "ON": "TRUE", "IS_CLK_INVERTED": 1, "TX_DRIVE_MODE": "PIPE", "RXOUT_DIV": 2}
    given["SIM_VERSION"] = "1.0"
    expected = {"SIZE[1]", "ON", "INV_CLK", "TX_DRIVE_MODE.PIPE", "RXOUT_DIV[0]"}
    assert features(given, KNOWN) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"SIZE": 4}, "SIZE = 4: wider than its feature"),
        ({"GONE": 1}, "GONE = 1: not in the database"),
        ({"ON": "MAYBE"}, "ON = MAYBE: not a value it can have"),
        ({"TX_DRIVE_MODE": "ODD"}, "TX_DRIVE_MODE = ODD: not one of"),
        ({"RXOUT_DIV": 3}, "RXOUT_DIV = 3: not a value it can have"),
        ({"IS_OTHER_INVERTED": 1}, "has no INV_OTHER"),
    ],
)
def test_parameters_that_do_not_fit(given, message):
    with pytest.raises(ConfigurationError, match=message):
        features(given, KNOWN)


def test_bits_of_leaves_out_the_frames_own_code():
    words = [0] * 101
    words[50] = 0x1FFF | 1 << 13
    assert bits_of({5: words}) == {(5, 50, 13)}


def test_time_to_load():
    """2.19 MB at the slowest clock are too late, what is left of it without empty frames is not."""
    assert checks.loading_ms(1_000_000, BOOT) == pytest.approx(30.3, abs=0.1)
    assert checks.enumeration(1_100_000, BOOT) == []
    assert checks.enumeration(2_192_000, BOOT) == [
        "2192000 bytes are loaded 183 ms after power is good, the limit is 120 ms"
    ]
    assert checks.enumeration(1_100_000, Boot(rate=3, lanes=1)) != []


@pytest.mark.parametrize(
    ("kilobytes", "seed"),
    [
        ((1100, 1100, 1100, 1100), 2),
        ((1100, 1160, 1100, 1100), 3),
        ((1120, 1160, 1160, 1160), 1),
        ((1160, 1160, 1160, 1160), 2),
    ],
)
def test_the_image_is_of_a_seed_that_is_loaded_in_time(kilobytes, seed):
    """The fastest of those, or of all where none is; a clock that is missing does not reach any."""
    clocks = ({"a": 84, "b": 282}, {"a": 96, "b": 313}, {"a": 90, "b": 310}, {"a": 200})
    results = [Result(number, Path("none"), each, {}) for number, each in enumerate(clocks, 1)]
    sizes = {number: 1000 * each for number, each in enumerate(kilobytes, 1)}
    assert choose(results, {"a": 62.5, "b": 250}, sizes, BOOT).seed == seed
