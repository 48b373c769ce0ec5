/* What the OpenCL backend needs of the OpenCL API, written by hand: types, constants and the struct of functions that is
 * filled from the loader library at run time. Values are those of the OpenCL 3.0 specification. No code. */
#ifndef ENI_ABI_OPENCL_ABI_H
#define ENI_ABI_OPENCL_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_uint cl_bool;
typedef cl_ulong cl_bitfield;

typedef struct cl_platform_id_ *cl_platform_id;
typedef struct cl_device_id_ *cl_device_id;
typedef struct cl_context_ *cl_context;
typedef struct cl_command_queue_ *cl_command_queue;
typedef struct cl_mem_ *cl_mem;
typedef struct cl_program_ *cl_program;
typedef struct cl_kernel_ *cl_kernel;
typedef struct cl_event_ *cl_event;

typedef intptr_t cl_context_properties;

enum {
    CL_SUCCESS = 0,
    CL_DEVICE_NOT_FOUND = -1,
    CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    CL_OUT_OF_RESOURCES = -5,
    CL_OUT_OF_HOST_MEMORY = -6,
    CL_BUILD_PROGRAM_FAILURE = -11,
    CL_INVALID_VALUE = -30,
    CL_INVALID_BUILD_OPTIONS = -43,
    CL_INVALID_KERNEL_NAME = -46,
    CL_INVALID_ARG_INDEX = -49,
    CL_INVALID_ARG_VALUE = -50,
    CL_INVALID_ARG_SIZE = -51,
    CL_INVALID_KERNEL_ARGS = -52,
    CL_INVALID_WORK_DIMENSION = -53,
    CL_INVALID_WORK_GROUP_SIZE = -54,
    CL_INVALID_WORK_ITEM_SIZE = -55,
    CL_INVALID_GLOBAL_OFFSET = -56,
    CL_INVALID_BUFFER_SIZE = -61,
    CL_INVALID_GLOBAL_WORK_SIZE = -63,
    CL_INVALID_COMPILER_OPTIONS = -66,
    CL_PLATFORM_NOT_FOUND_KHR = -1001
};

/* Names of the errors, for messages: ENI_CL_ERRORS(XX) gives XX(name, number). */
#define ENI_CL_ERRORS(XX)                                                                                              \
    XX(CL_DEVICE_NOT_FOUND, -1)                                                                                        \
    XX(CL_DEVICE_NOT_AVAILABLE, -2)                                                                                    \
    XX(CL_COMPILER_NOT_AVAILABLE, -3)                                                                                  \
    XX(CL_MEM_OBJECT_ALLOCATION_FAILURE, -4)                                                                           \
    XX(CL_OUT_OF_RESOURCES, -5)                                                                                        \
    XX(CL_OUT_OF_HOST_MEMORY, -6)                                                                                      \
    XX(CL_PROFILING_INFO_NOT_AVAILABLE, -7)                                                                            \
    XX(CL_MEM_COPY_OVERLAP, -8)                                                                                        \
    XX(CL_IMAGE_FORMAT_MISMATCH, -9)                                                                                   \
    XX(CL_IMAGE_FORMAT_NOT_SUPPORTED, -10)                                                                             \
    XX(CL_BUILD_PROGRAM_FAILURE, -11)                                                                                  \
    XX(CL_MAP_FAILURE, -12)                                                                                            \
    XX(CL_MISALIGNED_SUB_BUFFER_OFFSET, -13)                                                                           \
    XX(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, -14)                                                              \
    XX(CL_COMPILE_PROGRAM_FAILURE, -15)                                                                                \
    XX(CL_LINKER_NOT_AVAILABLE, -16)                                                                                   \
    XX(CL_LINK_PROGRAM_FAILURE, -17)                                                                                   \
    XX(CL_DEVICE_PARTITION_FAILED, -18)                                                                                \
    XX(CL_KERNEL_ARG_INFO_NOT_AVAILABLE, -19)                                                                          \
    XX(CL_INVALID_VALUE, -30)                                                                                          \
    XX(CL_INVALID_DEVICE_TYPE, -31)                                                                                    \
    XX(CL_INVALID_PLATFORM, -32)                                                                                       \
    XX(CL_INVALID_DEVICE, -33)                                                                                         \
    XX(CL_INVALID_CONTEXT, -34)                                                                                        \
    XX(CL_INVALID_QUEUE_PROPERTIES, -35)                                                                               \
    XX(CL_INVALID_COMMAND_QUEUE, -36)                                                                                  \
    XX(CL_INVALID_HOST_PTR, -37)                                                                                       \
    XX(CL_INVALID_MEM_OBJECT, -38)                                                                                     \
    XX(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, -39)                                                                        \
    XX(CL_INVALID_IMAGE_SIZE, -40)                                                                                     \
    XX(CL_INVALID_SAMPLER, -41)                                                                                        \
    XX(CL_INVALID_BINARY, -42)                                                                                         \
    XX(CL_INVALID_BUILD_OPTIONS, -43)                                                                                  \
    XX(CL_INVALID_PROGRAM, -44)                                                                                        \
    XX(CL_INVALID_PROGRAM_EXECUTABLE, -45)                                                                             \
    XX(CL_INVALID_KERNEL_NAME, -46)                                                                                    \
    XX(CL_INVALID_KERNEL_DEFINITION, -47)                                                                              \
    XX(CL_INVALID_KERNEL, -48)                                                                                         \
    XX(CL_INVALID_ARG_INDEX, -49)                                                                                      \
    XX(CL_INVALID_ARG_VALUE, -50)                                                                                      \
    XX(CL_INVALID_ARG_SIZE, -51)                                                                                       \
    XX(CL_INVALID_KERNEL_ARGS, -52)                                                                                    \
    XX(CL_INVALID_WORK_DIMENSION, -53)                                                                                 \
    XX(CL_INVALID_WORK_GROUP_SIZE, -54)                                                                                \
    XX(CL_INVALID_WORK_ITEM_SIZE, -55)                                                                                 \
    XX(CL_INVALID_GLOBAL_OFFSET, -56)                                                                                  \
    XX(CL_INVALID_EVENT_WAIT_LIST, -57)                                                                                \
    XX(CL_INVALID_EVENT, -58)                                                                                          \
    XX(CL_INVALID_OPERATION, -59)                                                                                      \
    XX(CL_INVALID_GL_OBJECT, -60)                                                                                      \
    XX(CL_INVALID_BUFFER_SIZE, -61)                                                                                    \
    XX(CL_INVALID_MIP_LEVEL, -62)                                                                                      \
    XX(CL_INVALID_GLOBAL_WORK_SIZE, -63)                                                                               \
    XX(CL_INVALID_PROPERTY, -64)                                                                                       \
    XX(CL_INVALID_IMAGE_DESCRIPTOR, -65)                                                                               \
    XX(CL_INVALID_COMPILER_OPTIONS, -66)                                                                               \
    XX(CL_INVALID_LINKER_OPTIONS, -67)                                                                                 \
    XX(CL_INVALID_DEVICE_PARTITION_COUNT, -68)                                                                         \
    XX(CL_INVALID_PIPE_SIZE, -69)                                                                                      \
    XX(CL_INVALID_DEVICE_QUEUE, -70)                                                                                   \
    XX(CL_INVALID_SPEC_ID, -71)                                                                                        \
    XX(CL_MAX_SIZE_RESTRICTION_EXCEEDED, -72)                                                                          \
    XX(CL_PLATFORM_NOT_FOUND_KHR, -1001)

#define CL_FALSE 0u
#define CL_TRUE  1u

/* cl_platform_info */
#define CL_PLATFORM_VERSION 0x0901u
#define CL_PLATFORM_NAME    0x0902u

/* cl_device_type */
#define CL_DEVICE_TYPE_CPU         (UINT64_C(1) << 1)
#define CL_DEVICE_TYPE_GPU         (UINT64_C(1) << 2)
#define CL_DEVICE_TYPE_ACCELERATOR (UINT64_C(1) << 3)
#define CL_DEVICE_TYPE_ALL         UINT64_C(0xFFFFFFFF)

/* cl_device_info */
#define CL_DEVICE_TYPE                           0x1000u
#define CL_DEVICE_MAX_COMPUTE_UNITS              0x1002u
#define CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS       0x1003u
#define CL_DEVICE_MAX_WORK_GROUP_SIZE            0x1004u
#define CL_DEVICE_MAX_WORK_ITEM_SIZES            0x1005u
#define CL_DEVICE_MAX_CLOCK_FREQUENCY            0x100Cu
#define CL_DEVICE_ADDRESS_BITS                   0x100Du
#define CL_DEVICE_MAX_MEM_ALLOC_SIZE             0x1010u
#define CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE      0x101Du
#define CL_DEVICE_GLOBAL_MEM_CACHE_SIZE          0x101Eu
#define CL_DEVICE_GLOBAL_MEM_SIZE                0x101Fu
#define CL_DEVICE_LOCAL_MEM_SIZE                 0x1023u
#define CL_DEVICE_PROFILING_TIMER_RESOLUTION     0x1025u
#define CL_DEVICE_AVAILABLE                      0x1027u
#define CL_DEVICE_COMPILER_AVAILABLE             0x1028u
#define CL_DEVICE_NAME                           0x102Bu
#define CL_DEVICE_VENDOR                         0x102Cu
#define CL_DRIVER_VERSION                        0x102Du
#define CL_DEVICE_VERSION                        0x102Fu
#define CL_DEVICE_OPENCL_C_VERSION               0x103Du
#define CL_DEVICE_IL_VERSION                     0x105Bu
#define CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT 0x1065u
#define CL_DEVICE_OPENCL_C_ALL_VERSIONS          0x1066u

/* An entry of CL_DEVICE_OPENCL_C_ALL_VERSIONS. */
typedef struct cl_name_version {
    cl_uint version; /* major << 22 | minor << 12 | patch */
    char name[64];
} cl_name_version;

/* cl_context_properties */
#define CL_CONTEXT_PLATFORM 0x1084

/* cl_command_queue_properties */
#define CL_QUEUE_PROFILING_ENABLE (UINT64_C(1) << 1)

/* cl_mem_flags */
#define CL_MEM_READ_WRITE    (UINT64_C(1) << 0)
#define CL_MEM_COPY_HOST_PTR (UINT64_C(1) << 5)

/* cl_program_info, cl_program_build_info */
#define CL_PROGRAM_KERNEL_NAMES 0x1168u
#define CL_PROGRAM_BUILD_LOG    0x1183u

/* cl_kernel_info, cl_kernel_arg_info, cl_kernel_work_group_info */
#define CL_KERNEL_NUM_ARGS                           0x1191u
#define CL_KERNEL_ARG_ADDRESS_QUALIFIER              0x1196u
#define CL_KERNEL_ARG_TYPE_NAME                      0x1198u
#define CL_KERNEL_ARG_TYPE_QUALIFIER                 0x1199u
#define CL_KERNEL_ARG_NAME                           0x119Au
#define CL_KERNEL_ARG_ADDRESS_GLOBAL                 0x119Bu
#define CL_KERNEL_ARG_ADDRESS_LOCAL                  0x119Cu
#define CL_KERNEL_ARG_ADDRESS_CONSTANT               0x119Du
#define CL_KERNEL_ARG_ADDRESS_PRIVATE                0x119Eu
#define CL_KERNEL_ARG_TYPE_PIPE                      (UINT64_C(1) << 3)
#define CL_KERNEL_WORK_GROUP_SIZE                    0x11B0u
#define CL_KERNEL_COMPILE_WORK_GROUP_SIZE            0x11B1u
#define CL_KERNEL_LOCAL_MEM_SIZE                     0x11B2u
#define CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE 0x11B3u

/* cl_event_info and execution status */
#define CL_EVENT_COMMAND_EXECUTION_STATUS 0x11D3u
#define CL_COMPLETE                       0

/* cl_profiling_info */
#define CL_PROFILING_COMMAND_QUEUED 0x1280u
#define CL_PROFILING_COMMAND_SUBMIT 0x1281u
#define CL_PROFILING_COMMAND_START  0x1282u
#define CL_PROFILING_COMMAND_END    0x1283u

/* The functions; one pointer for each row of opencl_symbols.def. */
typedef struct eni_opencl_functions {
#define ENI_CL_FUNCTION(required, result, name, parameters) result(*name) parameters;
#include "abi/opencl_symbols.def"
#undef ENI_CL_FUNCTION
} eni_opencl_functions;

#endif
