# SPDX-License-Identifier: BSD-2-Clause
"""Link limits against the numbers worked out for this project, in 10^6 bytes/s."""

import pytest

from peerdma.board.link import Link

LIMITS = [
    # speed, width, MPS, write 3DW, write 4DW, read, copy 3DW, copy 4DW
    (1, 1, 128, 215.7, 210.0, 214.2, 205.9, 199.5),
    (2, 1, 128, 431.3, 420.0, 428.4, 411.8, 399.0),
    (2, 1, 256, 462.6, 456.0, 459.2, 443.3, 434.2),
    (2, 1, 512, 480.0, 476.4, 476.4, 460.9, 454.3),
    (2, 4, 128, 1725.2, 1679.8, 1713.7, 1647.3, 1595.8),
    (3, 8, 256, 7286.1, 7182.0, 7233.7, 6982.5, 6840.0),
    # Half the lanes at twice the rate, with the same line code.
    (4, 4, 256, 7286.1, 7182.0, 7233.7, 6982.5, 6840.0),
]


@pytest.mark.parametrize(("speed", "width", "payload", *"abcde"), LIMITS)
def test_limits(speed, width, payload, a, b, c, d, e):
    link = Link(speed, width, payload, 512, 64)
    found = [
        link.write_limit(False),
        link.write_limit(True),
        link.read_limit(False),
        link.copy_limit(False),
        link.copy_limit(True),
    ]
    assert found == pytest.approx([n * 1e6 for n in (a, b, c, d, e)], rel=3e-4)


@pytest.mark.parametrize(
    ("payload", "nbytes", "reads", "writes", "limit"),
    [
        (128, 64, True, False, 254.8),
        (128, 64, False, True, 372.2),
        (128, 16, False, True, 193.4),
        # Down: 64 of data, 64 of descriptors, 1.5 completions' headers, DLLPs for 2.125 requests.
        (128, 64, True, True, 498.7 * 64 / (64 + 64 + 1.5 * 20 + 2.125 * 4)),
        (128, 256, True, True, 333.8),
        (512, 64, True, False, 262.7),
        (512, 256, True, True, 363.7),
    ],
)
def test_chains(payload, nbytes, reads, writes, limit):
    link = Link(2, 1, payload, 512, 64)
    found = link.chain_limit(nbytes, reads=reads, writes=writes)
    assert found == pytest.approx(limit * 1e6, rel=3e-4)


def test_a_link_reads_well():
    text = "PCIe Gen2 x1, max payload 128 B, max read request 512 B"
    assert str(Link(2, 1, 128, 512, 64)) == text
    assert str(Link(0, 0, 0, 0, 64)) == "no link: the board does not answer"
