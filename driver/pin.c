// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that pin memory.
 */
#include <linux/module.h>

#include "core.h"

#define ACCESS_BOTH	(PEERDMA_ACCESS_READ | PEERDMA_ACCESS_WRITE)

static int pin(struct peerdma_file *file, const struct peerdma_provider *provider,
	       const struct peerdma_pin_request *request, struct peerdma_pinning *pinning)
{
	struct peerdma_surface *surface;
	int error;

	if (!request->access || request->access & ~ACCESS_BOTH)
		return peerdma_fail(file, -EINVAL, "access %#x is not read, write or both",
				    request->access);
	error = peerdma_surface_reserve(file, &pinning->handle);
	if (error)
		return error;
	surface = peerdma_surface_create(file, provider, request);
	if (IS_ERR(surface)) {
		xa_release(&file->surfaces, pinning->handle);
		return PTR_ERR(surface);
	}
	pinning->surface = surface;
	return 0;
}

/**
 * peerdma_pin_finish() - makes a handle valid, or takes a pin back
 * @file: whose
 * @pinning: what was pinned, if anything
 * @error: of the request, once the program has been told the handle
 *
 * Return: @error.
 */
long peerdma_pin_finish(struct peerdma_file *file, struct peerdma_pinning *pinning, long error)
{
	if (!pinning->surface)
		return error;
	if (error) {
		xa_release(&file->surfaces, pinning->handle);
		peerdma_surface_release(pinning->surface);
		peerdma_surface_put(pinning->surface);
	} else {
		/* The place is reserved: this cannot fail. */
		xa_store(&file->surfaces, pinning->handle, pinning->surface, GFP_KERNEL);
	}
	return error;
}

/**
 * peerdma_pin_cuda() - PEERDMA_IOC_PIN_CUDA
 * @file: whose
 * @pin_cuda: the request
 * @pinning: for peerdma_pin_finish()
 *
 * Return: 0 or an errno.
 */
int peerdma_pin_cuda(struct peerdma_file *file, struct peerdma_pin_cuda *pin_cuda,
		     struct peerdma_pinning *pinning)
{
	struct peerdma_pin_request request = {
		.va = pin_cuda->va,
		.length = pin_cuda->size,
		.access = ACCESS_BOTH,
		.locked = true,
	};
	const struct peerdma_provider *provider;
	int error;

	if (!pin_cuda->size)
		return peerdma_fail(file, -EINVAL, "nothing to pin: the size is 0");
	provider = peerdma_provider_take_gpu();
	error = pin(file, provider, &request, pinning);
	if (error == -EFAULT && provider == &peerdma_pages)
		peerdma_fail(file, error,
			     "%llu bytes at %#llx are not host memory, and no provider for a GPU's is loaded: load peerdma_nvp2p (needs NVIDIA's open kernel modules), or export a dma-buf",
			     pin_cuda->size, pin_cuda->va);
	module_put(provider->owner);
	pin_cuda->handle = pinning->handle;
	return error;
}

/**
 * peerdma_pin_dmabuf() - PEERDMA_IOC_PIN_DMABUF
 * @file: whose
 * @pin_dmabuf: the request
 * @pinning: for peerdma_pin_finish()
 *
 * Return: 0 or an errno.
 */
int peerdma_pin_dmabuf(struct peerdma_file *file, struct peerdma_pin_dmabuf *pin_dmabuf,
		       struct peerdma_pinning *pinning)
{
	struct peerdma_pin_request request = {
		.fd = pin_dmabuf->fd,
		.offset = pin_dmabuf->offset,
		.length = pin_dmabuf->length,
		.access = pin_dmabuf->access,
	};
	int error;

	if (pin_dmabuf->flags & ~PEERDMA_PIN_REQUIRE_PEER)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x", pin_dmabuf->flags);
	error = pin(file, &peerdma_dmabuf, &request, pinning);
	if (error)
		return error;
	pin_dmabuf->handle = pinning->handle;
	pin_dmabuf->placement = pinning->surface->placement;
	if (pin_dmabuf->flags & PEERDMA_PIN_REQUIRE_PEER &&
	    pin_dmabuf->placement != PEERDMA_PLACEMENT_PEER)
		return peerdma_fail(file, -EOPNOTSUPP,
				    "the exporter put the dma-buf into host memory: the board does not reach the device directly, or this kernel pins no device memory");
	return 0;
}

/**
 * peerdma_pin_pages() - PEERDMA_IOC_PIN_PAGES
 * @file: whose
 * @pin_pages: the request
 * @pinning: for peerdma_pin_finish()
 *
 * Return: 0 or an errno.
 */
int peerdma_pin_pages(struct peerdma_file *file, struct peerdma_pin_pages *pin_pages,
		      struct peerdma_pinning *pinning)
{
	struct peerdma_pin_request request = {
		.va = pin_pages->address,
		.length = pin_pages->length,
		.access = pin_pages->access,
		.locked = true,
	};
	int error;

	if (pin_pages->flags)
		return peerdma_fail(file, -EINVAL, "unknown flags %#x", pin_pages->flags);
	if (!pin_pages->length)
		return peerdma_fail(file, -EINVAL, "nothing to pin: the length is 0");
	error = pin(file, &peerdma_pages, &request, pinning);
	pin_pages->handle = pinning->handle;
	return error;
}
