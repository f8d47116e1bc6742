# SPDX-License-Identifier: BSD-2-Clause
"""Simulation, proof and measurement of the gateware.

`sim.board` is the simulated board, a program; `sim.compile`
makes the model that it loads. `sim.benches` and `sim.campaign` run the gateware under cocotb,
`sim.formal` proves properties of it, `sim.mutants` plants bugs in it, `sim.perf` measures it,
`sim.wheels` packs the simulated board for machines without a compiler, and `sim.system` runs the
whole system in QEMU. Bugs are planted in copies of the checkout, by `sim.copies`.
"""
