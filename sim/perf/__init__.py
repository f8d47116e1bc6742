# SPDX-License-Identifier: BSD-2-Clause
"""How fast the engine is, in exact cycles of the RTL, beside what any engine could reach.

``make perf`` measures, draws and judges; `docs/performance.md` has what came out.
"""
