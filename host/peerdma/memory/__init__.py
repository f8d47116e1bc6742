# SPDX-License-Identifier: BSD-2-Clause
"""Memory that boards read and write.

`memory` defines the interface of all that can be pinned, and has host arrays; `surface` has arrays
in GPU memory and the interface of GPUs. Around them: other libraries' arrays (`external`,
`dlpack`), dma-bufs (`dmabuf`), `files`, the `mailbox` page, and lists of bus addresses
(`scatter`).
"""
