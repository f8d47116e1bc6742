# SPDX-License-Identifier: BSD-2-Clause
"""Which archive Debian packages come from."""

from __future__ import annotations

import pytest

from tools import debian_tree

BOOKWORM = {"ID": "debian", "VERSION_CODENAME": "bookworm"}
UNSTABLE = {"ID": "debian", "VERSION_CODENAME": "forky"}


@pytest.mark.parametrize(
    ("release", "targets"),
    [
        (BOOKWORM, "bookworm-security http://security\nbookworm http://archive\n"),
        (BOOKWORM, "stable http://archive\n"),
        (UNSTABLE, "sid http://archive\n"),
        (UNSTABLE, "experimental http://other\nunstable http://archive\n"),
    ],
)
def test_this_machines_own_archive(monkeypatch, release, targets):
    monkeypatch.delenv("PEERDMA_DEBIAN", raising=False)
    monkeypatch.setattr(debian_tree.platform, "freedesktop_os_release", lambda: release)
    monkeypatch.setattr(debian_tree, "_run", lambda command: targets)
    assert debian_tree.archive() == "http://archive"


@pytest.mark.parametrize(
    ("release", "targets"),
    [
        (BOOKWORM, "bookworm-security http://security\n"),
        ({"ID": "arch"}, "bookworm http://archive\n"),
    ],
)
def test_no_archive(monkeypatch, release, targets):
    monkeypatch.delenv("PEERDMA_DEBIAN", raising=False)
    monkeypatch.setattr(debian_tree.platform, "freedesktop_os_release", lambda: release)
    monkeypatch.setattr(debian_tree, "_run", lambda command: targets)
    with pytest.raises(debian_tree.TreeError, match="Set PEERDMA_DEBIAN"):
        debian_tree.archive()
