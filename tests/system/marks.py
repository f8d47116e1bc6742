# SPDX-License-Identifier: BSD-2-Clause
"""What a module of tests for guests says of all of them."""

import pytest

__all__ = ["IN_GUEST"]

#: Each is called in the module's guest, see conftest.py; boots one, which takes minutes.
IN_GUEST = [pytest.mark.system, pytest.mark.in_guest, pytest.mark.usefixtures("guest")]
