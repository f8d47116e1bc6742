# SPDX-License-Identifier: BSD-2-Clause
"""The constrained-random campaign: many seeds, each a simulator with everything at once.

`plan` says what a seed means, `session` does it under cocotb, `coverage` says what has to be seen,
`execute` runs seeds on the cores at hand or on a Dask cluster. ``docs/campaign.md`` has the rest.
"""
