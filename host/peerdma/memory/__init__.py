# SPDX-License-Identifier: BSD-2-Clause
"""Memory that boards read and write.

`memory` has the interface that everything pinned has, and host arrays; `surface` arrays in GPU
memory and the interface of GPUs. Around them: other libraries' arrays (`foreign`, `dlpack`,
`dmabuf`), files, the mailbox page, the test pattern, and lists of bus addresses (`scatter`).
"""
