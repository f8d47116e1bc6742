# SPDX-License-Identifier: BSD-2-Clause
"""Mutants of the PHY: electrical idle, rate changes, clocks that were lost."""

__all__ = ["ROWS"]

_PHY = _TESTS = "pcie/series7/phy"

ROWS = [
    # Electrical idle
    (
        "an EIOS that begins a word is not seen",
        f"{_PHY}/eios.py",
        "eios = (com_idl & idl[0]) | (only_com & idl.all())",
        "eios = only_com & idl.all()",
        f"{_TESTS}/test_eios.py",
    ),
    (
        "an EIOS that begins inside a word is not seen",
        f"{_PHY}/eios.py",
        "eios = (com_idl & idl[0]) | (only_com & idl.all())",
        "eios = com_idl & idl[0]",
        f"{_TESTS}/test_eios.py",
    ),
    (
        "data bytes count as an EIOS",
        f"{_PHY}/eios.py",
        "control = received.rx_valid & received.rx_char_is_k[lane]",
        "control = received.rx_valid",
        f"{_TESTS}/test_eios.py::test_what_is_no_eios_passes",
    ),
    (
        "one IDL is enough for an EIOS",
        f"{_PHY}/eios.py",
        "(com_idl & idl[0])",
        "com_idl",
        f"{_TESTS}/test_eios.py::test_what_is_no_eios_passes",
    ),
    (
        "an EIOS is seen in L0 only",
        f"{_PHY}/eios.py",
        "with m.If(eios):",
        "with m.If(eios & in_l0):",
        f"{_TESTS}/test_eios.py::test_outside_l0_receiver_detection_passes",
    ),
    (
        "receiver detection is hidden",
        f"{_PHY}/eios.py",
        "in_l0.eq(self.ltssm == LTSSM_L0)",
        "in_l0.eq(1)",
        f"{_TESTS}/test_eios.py::test_outside_l0_receiver_detection_passes",
    ),
    (
        "noise until electrical idle is detected",
        f"{_PHY}/eios.py",
        '            with m.State("Idle-Expected"):\n                m.d.comb += silence.eq(1)',
        '            with m.State("Idle-Expected"):\n                m.d.comb += silence.eq(0)',
        f"{_TESTS}/test_phy.py::test_the_link_sleeps_and_wakes",
    ),
    (
        "a short idle is waited for for ever",
        f"{_PHY}/eios.py",
        "with m.Elif(left == 0):",
        "with m.Elif(left > IDLE_WITHIN):",
        f"{_TESTS}/test_eios.py::test_an_idle_too_short_for_the_detector_ends_by_itself",
    ),
    (
        "RXCHARISK stays in electrical idle",
        f"{_PHY}/eios.py",
        "[block.rx_valid.eq(0), block.rx_char_is_k.eq(0)]",
        "[block.rx_valid.eq(0)]",
        f"{_TESTS}/test_eios.py::test_noise_of_an_idle_link_is_hidden_and_nothing_else",
    ),
    (
        "no filter between transceiver and block",
        f"{_PHY}/phy.py",
        "        wiring.connect(m, eios=eios.gt, channel=channel.pipe)\n"
        "        wiring.connect(m, gt=pipe.gt, eios=eios.block)\n",
        "        wiring.connect(m, gt=pipe.gt, channel=channel.pipe)\n",
        f"{_TESTS}/test_phy.py::test_the_link_sleeps_and_wakes",
    ),
    # Rate changes
    (
        "noise of a rate change is valid",
        f"{_PHY}/pipe.py",
        "valid, error = self.rate_idle & gt.rx_valid,",
        "valid, error = gt.rx_valid,",
        f"{_TESTS}/test_phy.py::test_a_rate_change_shows_nothing_of_the_receiver",
    ),
    (
        "symbols with errors count as steady",
        f"{_PHY}/pipe.py",
        "with m.If(~valid | (error & ~steady)):",
        "with m.If(~valid):",
        f"{_TESTS}/test_pipe.py::test_symbols_with_errors_do_not_count_as_steady",
    ),
    (
        "an error of a link that is up ends RXVALID",
        f"{_PHY}/pipe.py",
        "with m.If(~valid | (error & ~steady)):",
        "with m.If(~valid | error):",
        f"{_TESTS}/test_pipe.py::test_symbols_with_errors_do_not_count_as_steady",
    ),
    # Clocks
    (
        "the MMCM is never reset",
        f"{_PHY}/phy.py",
        "tree.reset.eq(mmcm_reset.reset)",
        "tree.reset.eq(0)",
        f"{_TESTS}/test_phy.py::test_a_reference_clock_that_is_not_yet_stable",
    ),
    (
        "the MMCM is reset once only",
        f"{_PHY}/clocking.py",
        "count.eq(Mux(locked, 0, count + 1))",
        "count.eq(Mux(locked, 0, count + (count < _PULSE_CYCLES)))",
        f"{_TESTS}/test_clocking.py::test_reset_until_locked",
    ),
    (
        "the MMCM is reset while it locks",
        f"{_PHY}/clocking.py",
        "self.reset.eq(~locked & (count < _PULSE_CYCLES))",
        "self.reset.eq(~locked)",
        f"{_TESTS}/test_clocking.py::test_reset_until_locked",
    ),
    (
        "the watchdog's clock stops with the MMCM",
        f"{_PHY}/phy.py",
        'ClockSignal("watch").eq(tree.reference_clock)',
        'ClockSignal("watch").eq(tree.drp_clock)',
        f"{_TESTS}/test_phy.py::test_a_reference_clock_that_is_not_yet_stable",
    ),
]
