#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# conftest.sh HEADER COMPILER FLAGS...: finds out which forms of the kernel's interfaces these
# headers have, by compiling a few lines for each, and writes a #define for what was found.
#
# By trying rather than by version: distributions carry newer interfaces into older kernels.
# Every question has at least two answers, and one of them must compile. If none does the build
# stops with the compiler's words: a broken compiler must not pass for an old kernel.
set -eu

header=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/header"

# compiles [FILE]: whether the code on standard input does
compiles()
{
	cat >"$work/probe.c"
	"$compiler" "$@" -Werror=implicit-function-declaration -Werror=incompatible-pointer-types \
		-Werror=int-conversion -c -o "$work/probe.o" "$work/probe.c" 2>"$work/said"
}
compiler=$1
shift

# answer NAME: with the code on standard input; the first that compiles counts
answer()
{
	name=$1
	shift
	if [ -n "$found" ]; then
		cat >/dev/null
	elif compiles "$@"; then
		found=$name
		echo "#define COMPAT_$name" >>"$work/header"
	fi
}

question()
{
	settle
	topic=$1
	found=
}

settle()
{
	if [ -z "$found" ]; then
		echo "peerdma: cannot tell what this kernel has for: $topic. The compiler says:" >&2
		cat "$work/said" >&2
		exit 1
	fi
}

topic=start
found=yes

question "anything at all"
answer PROBED "$@" <<-END
	#include <linux/module.h>
	int probe(void); int probe(void) { return PAGE_SIZE; }
END

question "what does not exist"
if echo 'int probe(void); int probe(void) { return no_such_function(); }' | compiles "$@"; then
	echo "peerdma: this compiler accepts everything" >"$work/said"
else
	found=yes
fi

question "class_create()"
answer CLASS_CREATE_NAME "$@" <<-END
	#include <linux/device.h>
	void *probe(void); void *probe(void) { return class_create("x"); }
END
answer CLASS_CREATE_OWNER "$@" <<-END
	#include <linux/device.h>
	#include <linux/module.h>
	void *probe(void); void *probe(void) { return class_create(THIS_MODULE, "x"); }
END

question "flags of a vm_area_struct"
answer VM_FLAGS_SET "$@" <<-END
	#include <linux/mm.h>
	void probe(struct vm_area_struct *v); void probe(struct vm_area_struct *v) { vm_flags_set(v, VM_IO); vm_flags_clear(v, VM_MAYEXEC); }
END
answer VM_FLAGS_ASSIGN "$@" <<-END
	#include <linux/mm.h>
	void probe(struct vm_area_struct *v); void probe(struct vm_area_struct *v) { v->vm_flags |= VM_IO; }
END

# What gave frame vectors this argument in 6.2 is that the kernel has done so by itself since.
question "who sees to it that pages pinned for reading stay those of the process"
answer READ_PINS_LAST "$@" <<-END
	#include <linux/mm.h>
	#include <media/frame_vector.h>
	int probe(struct frame_vector *v); int probe(struct frame_vector *v) { return get_vaddr_frames(0, 1, false, v); }
END
answer READ_PINS_FORCED "$@" <<-END
	#include <linux/mm.h>
	int probe(struct page **p); int probe(struct page **p) { return pin_user_pages_fast(0, 1, FOLL_LONGTERM | FOLL_WRITE | FOLL_FORCE, p); }
END

question "how a dma-buf's exporter takes a mapping back"
answer DMABUF_INVALIDATE_MAPPINGS "$@" <<-END
	#include <linux/dma-buf.h>
	void probe(struct dma_buf_attach_ops *o); void probe(struct dma_buf_attach_ops *o) { o->invalidate_mappings = NULL; }
END
answer DMABUF_MOVE_NOTIFY "$@" <<-END
	#include <linux/dma-buf.h>
	void probe(struct dma_buf_attach_ops *o); void probe(struct dma_buf_attach_ops *o) { o->move_notify = NULL; }
END

question "a reference to a file that may be closed"
answer GET_FILE_ACTIVE "$@" <<-END
	#include <linux/fs.h>
	bool probe(struct file **f); bool probe(struct file **f) { return get_file_active(f); }
END
answer GET_FILE_RCU "$@" <<-END
	#include <linux/fs.h>
	bool probe(struct file *f); bool probe(struct file *f) { return get_file_rcu(f); }
END

# A string is accepted where a token is meant, and gives another namespace: its length tells.
question "namespace of the dma-buf functions"
answer IMPORT_NS_STRING "$@" <<-END
	#include <linux/module.h>
	#undef MODULE_INFO
	#define MODULE_INFO(tag, info) _Static_assert(sizeof(info) == sizeof("DMA_BUF"), "")
	MODULE_IMPORT_NS("DMA_BUF");
END
answer IMPORT_NS_TOKEN "$@" <<-END
	#include <linux/module.h>
	#undef MODULE_INFO
	#define MODULE_INFO(tag, info) _Static_assert(sizeof(info) == sizeof("DMA_BUF"), "")
	MODULE_IMPORT_NS(DMA_BUF);
END

question "waiting for a dma_resv"
answer DMA_RESV_USAGE "$@" <<-END
	#include <linux/dma-resv.h>
	long probe(struct dma_resv *r); long probe(struct dma_resv *r) { return dma_resv_wait_timeout(r, dma_resv_usage_rw(true), true, HZ); }
END
answer DMA_RESV_ALL "$@" <<-END
	#include <linux/dma-resv.h>
	long probe(struct dma_resv *r); long probe(struct dma_resv *r) { return dma_resv_wait_timeout(r, true, true, HZ); }
END
answer DMA_RESV_RCU "$@" <<-END
	#include <linux/dma-resv.h>
	long probe(struct dma_resv *r); long probe(struct dma_resv *r) { return dma_resv_wait_timeout_rcu(r, true, true, HZ); }
END

question "a table of pages in runs of limited length"
answer SG_TABLE_SEGMENT "$@" <<-END
	#include <linux/scatterlist.h>
	int probe(struct sg_table *t, struct page **p); int probe(struct sg_table *t, struct page **p) { return sg_alloc_table_from_pages_segment(t, p, 1, 0, 1, 4096, GFP_KERNEL); }
END
answer SG_TABLE_CHAINED "$@" <<-END
	#include <linux/scatterlist.h>
	void *probe(struct sg_table *t, struct page **p); void *probe(struct sg_table *t, struct page **p) { return __sg_alloc_table_from_pages(t, p, 1, 0, 1, 4096, NULL, 0, GFP_KERNEL); }
END

question "signalling an eventfd"
answer EVENTFD_SIGNAL_ONCE "$@" <<-END
	#include <linux/eventfd.h>
	void probe(struct eventfd_ctx *e); void probe(struct eventfd_ctx *e) { eventfd_signal(e); }
END
answer EVENTFD_SIGNAL_COUNT "$@" <<-END
	#include <linux/eventfd.h>
	void probe(struct eventfd_ctx *e); void probe(struct eventfd_ctx *e) { eventfd_signal(e, 1); }
END

question "who turns on a function's error reporting"
answer AER_BY_DRIVER "$@" <<-END
	#include <linux/pci.h>
	#include <linux/aer.h>
	int probe(struct pci_dev *p); int probe(struct pci_dev *p) { return pci_enable_pcie_error_reporting(p); }
END
answer AER_BY_CORE "$@" <<-END
	#include <linux/pci.h>
	int probe(struct pci_dev *p); int probe(struct pci_dev *p) { return p->devfn; }
END

settle
{
	echo "/* Generated by conftest.sh: forms of this kernel's interfaces. */"
	cat "$work/header"
} >"$work/whole"
mv "$work/whole" "$header"
