# SPDX-License-Identifier: BSD-2-Clause
"""What all tests need of the process that they run in."""

import signal

# A shell that starts a job in the background has it ignore interrupts, and so does every process
# that the job starts: tests that send one would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
