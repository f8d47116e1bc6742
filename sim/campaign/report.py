# SPDX-License-Identifier: BSD-2-Clause
"""What campaigns came to: their records in JSON, merged, and the table of coverage."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from .coverage import Coverage
from .table import GROUPS

__all__ = ["Record"]


class Record:
    """Results of seeds, as they come or out of files.

    Attributes
    ----------
    coverage : Coverage
    seeds : dict of int to dict
        For each seed: passed, cpu_seconds, simulated_ns and digest.
    """

    def __init__(self) -> None:
        self.coverage = Coverage(GROUPS)
        self.seeds: dict[int, dict] = {}

    def add(self, result: dict) -> None:
        """Take a result of `run_seed`; a seed that was there before counts once."""
        if result["seed"] in self.seeds:
            return
        self.coverage.merge(result.get("counts", {}))
        kept = ("passed", "cpu_seconds", "simulated_ns", "digest")
        self.seeds[result["seed"]] = {name: result.get(name, 0) for name in kept}

    def save(self, path: Path) -> None:
        """Write all of it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "seeds": {str(seed): self.seeds[seed] for seed in sorted(self.seeds)},
            "counts": dict(sorted(self.coverage.counts.items())),
        }
        path.write_text(json.dumps(content, indent=1))

    @classmethod
    def load(cls, paths: Iterable[Path]) -> Record:
        """Merge what `save` wrote. ValueError for a seed in two of them, or another table."""
        merged = cls()
        for path in paths:
            content = json.loads(path.read_text())
            seeds = {int(seed): result for seed, result in content["seeds"].items()}
            if twice := seeds.keys() & merged.seeds.keys():
                raise ValueError(f"{path}: seed {min(twice)} is in another file, too")
            merged.seeds |= seeds
            merged.coverage.merge(content["counts"])
        return merged

    @property
    def failed(self) -> list[int]:
        """Seeds that failed."""
        return sorted(seed for seed, result in self.seeds.items() if not result["passed"])

    @property
    def complete(self) -> bool:
        """Whether every seed passed and there is no hole."""
        return bool(self.seeds) and not self.failed and not self.coverage.holes()

    def share(self) -> float:
        """The part of all possible bins that was seen, from 0 to 1."""
        rows = list(self.coverage.rows())
        return sum(row.seen for row in rows) / sum(row.possible for row in rows)

    def text(self) -> str:
        """Table of coverage, holes, reasons of what is impossible, and sums."""
        rows = list(self.coverage.rows())
        width = max(len(row.name) for row in rows)
        lines = [f"{'coverage':{width}}  seen / bins  impossible  rarest bin"]
        for row in rows:
            rarest = f"{row.rarest} ({row.count})"
            seen = f"{row.seen:4} / {row.possible:4}"
            lines.append(f"{row.name:{width}}  {seen}  {row.impossible or '':>10}  {rarest}")
        lines += ["", "Impossible, and why:"]
        for group in GROUPS:
            for one in group.exclusions:
                what = " × ".join("|".join(values) for values in one.values.values())
                lines.append(f"  {group.name}: {what}: {one.reason}")
        holes = self.coverage.holes()
        lines += ["", "Holes:"] if holes else ["", "No hole."]
        lines += [f"  {hole.item}: {'; '.join(hole.bins)}" for hole in holes]
        cpu = sum(result["cpu_seconds"] for result in self.seeds.values())
        simulated = sum(result["simulated_ns"] for result in self.seeds.values()) / 1e6
        lines += [
            "",
            f"{len(self.seeds)} seeds, {len(self.failed)} failed; {simulated:.1f} ms simulated,"
            f" {cpu:.0f} CPU seconds; {100 * self.share():.1f} % of the bins seen",
        ]
        return "\n".join(lines)
