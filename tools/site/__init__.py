# SPDX-License-Identifier: BSD-2-Clause
"""The documentation site: pages that are written by hand, and pages made from the sources.

`pages` collects what Sphinx reads, `registers`, `requests` and `api` write the reference pages,
`links` checks what Sphinx has built. `make docs` runs it all.
"""
