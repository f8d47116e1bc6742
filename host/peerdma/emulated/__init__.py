# SPDX-License-Identifier: BSD-2-Clause
"""The emulated GPU: the CPU's memory and kernels behind the interface of a GPU.

`aperture` is memory with bus addresses, as a GPU's BAR has them. `simulated_gpu` is the same GPU
with the device memory that a simulated machine offers.
"""
