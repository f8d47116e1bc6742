# SPDX-License-Identifier: BSD-2-Clause
"""What a campaign has to have seen: counting, merging, and the holes.

A group is sampled as a whole, with a value for each of its points that is known at the moment.
Points and the crosses of a group's points have a bin for each value or combination; `table` has
them as data. Nothing counts as seen before the transfer, error or access in question was checked.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Coverage", "Exclusion", "Group", "Hole", "Row", "band"]


@dataclass(frozen=True)
class Exclusion:
    """Combinations that cannot occur: those with one of `values` at each of these points."""

    reason: str
    values: Mapping[str, tuple[str, ...]]

    def covers(self, sample: Mapping[str, str]) -> bool:
        """Whether it says something about all that is named, and each value is among its own."""
        return all(sample.get(point) in values for point, values in self.values.items())


@dataclass(frozen=True)
class Group:
    """Points that are sampled together.

    Attributes
    ----------
    name : str
    points : mapping of str to tuple of str
        The bins of each point.
    crosses : tuple of tuple of str
        Points whose combinations have to be seen.
    exclusions : tuple of Exclusion
        Combinations among these that are impossible, and why.
    """

    name: str
    points: Mapping[str, tuple[str, ...]]
    crosses: tuple[tuple[str, ...], ...] = ()
    exclusions: tuple[Exclusion, ...] = ()

    def items(self) -> Iterator[tuple[str, ...]]:
        """Points alone, and crosses."""
        yield from ((point,) for point in self.points)
        yield from self.crosses

    def excluded(self, sample: Mapping[str, str]) -> str:
        """Why this cannot occur; empty if it can."""
        return next((one.reason for one in self.exclusions if one.covers(sample)), "")

    def bins(self, item: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Each bin of a point or cross, with the reason if it is impossible."""
        for values in itertools.product(*(self.points[point] for point in item)):
            yield ", ".join(values), self.excluded(dict(zip(item, values, strict=True)))


@dataclass(frozen=True)
class Hole:
    """Bins of one point or cross that nobody has seen."""

    item: str
    bins: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """How well a point or cross is covered."""

    name: str
    #: bins
    seen: int
    possible: int
    impossible: int
    rarest: str
    #: how often the rarest was seen
    count: int


def band(value: int, edges: Iterable[str]) -> str:
    """The one of the bins ``7``, ``8-63`` or ``64+`` that `value` is in; ValueError if none."""
    for edge in edges:
        low, _, high = edge.rstrip("+").partition("-")
        last = int(high) if high else int(low)
        if int(low) <= value and (edge.endswith("+") or value <= last):
            return edge
    raise ValueError(f"{value} is in none of the bins {list(edges)}")


class Coverage:
    """How often each bin was seen.

    Parameters
    ----------
    groups : iterable of Group
    counts : mapping of str to int
        What an earlier `counts` says; a name that the groups do not have raises ValueError.
    """

    def __init__(self, groups: Iterable[Group], counts: Mapping[str, int] | None = None):
        self.groups = {group.name: group for group in groups}
        self.counts: Counter[str] = Counter()
        self._known = {
            _key(group, item, name)
            for group in self.groups.values()
            for item in group.items()
            for name, reason in group.bins(item)
            if not reason
        }
        self.merge(counts or {})

    def merge(self, counts: Mapping[str, int]) -> None:
        """Add the `counts` of another run. ValueError for bins that are not in the table."""
        if unknown := counts.keys() - self._known:
            raise ValueError(
                f"these counts are of another table of coverage: it has no {min(unknown)}"
            )
        self.counts.update(counts)

    def sample(self, group: str, **values: object) -> None:
        """See values of some points of a group at once. ValueError for a value without a bin."""
        found, given = self.groups[group], {point: str(value) for point, value in values.items()}
        for item in found.items():
            if not all(point in given for point in item):
                continue
            key = _key(found, item, ", ".join(given[point] for point in item))
            if key not in self._known:
                reason = found.excluded(given)
                raise ValueError(
                    f"{key} was seen, but {reason}" if reason else f"{key} is no bin of the table"
                )
            self.counts[key] += 1

    def holes(self) -> list[Hole]:
        """Every point and cross that has bins nobody has seen."""
        found = []
        for group in self.groups.values():
            for item in group.items():
                missing = tuple(
                    name
                    for name, reason in group.bins(item)
                    if not reason and not self.counts[_key(group, item, name)]
                )
                if missing:
                    found.append(Hole(_name(group, item), missing))
        return found

    def rows(self) -> Iterator[Row]:
        """One for each point and cross."""
        for group in self.groups.values():
            for item in group.items():
                bins = [(name, reason) for name, reason in group.bins(item)]
                counts = {
                    name: self.counts[_key(group, item, name)]
                    for name, reason in bins
                    if not reason
                }
                rarest = min(counts, key=counts.__getitem__)
                seen = sum(count > 0 for count in counts.values())
                impossible = len(bins) - len(counts)
                yield Row(_name(group, item), seen, len(counts), impossible, rarest, counts[rarest])


def _name(group: Group, item: tuple[str, ...]) -> str:
    return f"{group.name}: {' × '.join(item)}"


def _key(group: Group, item: tuple[str, ...], name: str) -> str:
    return f"{_name(group, item)} = {name}"
