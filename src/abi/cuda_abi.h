/* The part of the CUDA driver's and of NVRTC's binary interface that the CUDA backend uses, written from NVIDIA's documentation: CUDA
 * 11 to 13. No code. */
#ifndef ENI_ABI_CUDA_ABI_H
#define ENI_ABI_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cu_result;
typedef int32_t cu_device;
typedef uint64_t cu_pointer;
typedef void *cu_context, *cu_stream, *cu_event, *cu_module, *cu_function;
typedef int32_t nvrtc_result;
typedef void *nvrtc_program;

/* CUresult */
#define CUDA_SUCCESS 0
#define CUDA_ERROR_INVALID_VALUE 1
#define CUDA_ERROR_OUT_OF_MEMORY 2
#define CUDA_ERROR_NO_DEVICE 100
#define CUDA_ERROR_INVALID_IMAGE 200
#define CUDA_ERROR_NO_BINARY 209
#define CUDA_ERROR_INVALID_PTX 218
#define CUDA_ERROR_PTX_VERSION 222
#define CUDA_ERROR_NOT_FOUND 500
#define CUDA_ERROR_NOT_READY 600
#define CUDA_ERROR_LAUNCH_RESOURCES 701

/* CUdevice_attribute */
#define CU_DEVICE_MAX_THREADS_PER_BLOCK 1
#define CU_DEVICE_MAX_BLOCK_DIM_X 2
#define CU_DEVICE_MAX_GRID_DIM_X 5
#define CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK 8
#define CU_DEVICE_WARP_SIZE 10
#define CU_DEVICE_MAX_REGISTERS_PER_BLOCK 12
#define CU_DEVICE_CLOCK_RATE 13
#define CU_DEVICE_MULTIPROCESSOR_COUNT 16
#define CU_DEVICE_MEMORY_CLOCK_RATE 36
#define CU_DEVICE_MEMORY_BUS_WIDTH 37
#define CU_DEVICE_L2_CACHE_SIZE 38
#define CU_DEVICE_MAX_THREADS_PER_MULTIPROCESSOR 39
#define CU_DEVICE_COMPUTE_CAPABILITY_MAJOR 75
#define CU_DEVICE_COMPUTE_CAPABILITY_MINOR 76
#define CU_DEVICE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR 81

/* CUfunction_attribute */
#define CU_FUNC_MAX_THREADS_PER_BLOCK 0
#define CU_FUNC_SHARED_SIZE_BYTES 1
#define CU_FUNC_LOCAL_SIZE_BYTES 3
#define CU_FUNC_NUM_REGS 4

/* CUjit_option */
#define CU_JIT_ERROR_LOG_BUFFER 5
#define CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES 6

#define CU_STREAM_NON_BLOCKING 1
#define CU_EVENT_DISABLE_TIMING 2
#define CU_MEMHOSTALLOC_PORTABLE 1
#define CU_MEMHOSTALLOC_DEVICEMAP 2
#define CU_STREAM_WAIT_VALUE_GEQ 0

/* nvrtcResult */
#define NVRTC_SUCCESS 0
#define NVRTC_ERROR_OUT_OF_MEMORY 1
#define NVRTC_ERROR_INVALID_OPTION 5
#define NVRTC_ERROR_COMPILATION 6

/* The functions; one pointer for each row of cuda_symbols.def. */
typedef struct eni_cuda_functions {
#define ENI_CUDA_FUNCTION(required, name, symbol, parameters) cu_result(*name) parameters;
#define ENI_NVRTC_FUNCTION(required, result, name, parameters)
#include "abi/cuda_symbols.def"
#undef ENI_CUDA_FUNCTION
#undef ENI_NVRTC_FUNCTION
} eni_cuda_functions;

typedef struct eni_nvrtc_functions {
#define ENI_CUDA_FUNCTION(required, name, symbol, parameters)
#define ENI_NVRTC_FUNCTION(required, result, name, parameters) result(*name) parameters;
#include "abi/cuda_symbols.def"
#undef ENI_CUDA_FUNCTION
#undef ENI_NVRTC_FUNCTION
} eni_nvrtc_functions;

#endif
