/* SPDX-License-Identifier: BSD-2-Clause */
/* What peerdma.h and the example of it use of CUDA's driver API, to compile where there is none. */
#ifndef CUDA_VERSION
#define CUDA_VERSION 12080

#include <stddef.h>

typedef enum { CUDA_SUCCESS = 0 } CUresult;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef unsigned long long CUdeviceptr;
typedef enum {
	CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
} CUpointer_attribute;
typedef enum {
	CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100,
} CUdevice_attribute;
typedef enum { CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1 } CUmemRangeHandleType;
enum { CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE = 1 };

#ifdef __cplusplus
extern "C" {
#endif
CUresult cuInit(unsigned int flags);
CUresult cuGetErrorName(CUresult error, const char **name);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes);
CUresult cuMemFree(CUdeviceptr address);
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes);
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr at);
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr at);
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes,
				       CUmemRangeHandleType type, unsigned long long flags);
#ifdef __cplusplus
}
#endif
#endif
