/* The part of CUPTI's binary interface that the session uses, written from NVIDIA's documentation: CUDA 11.1 to 13. Records grew at
 * their ends over the years, so the structs here are the prefix that all of these versions share. No code. */
#ifndef ENI_ABI_CUPTI_ABI_H
#define ENI_ABI_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cupti_result;
typedef void *cupti_subscriber;
typedef void (*cupti_callback)(void *user, uint32_t domain, uint32_t cbid, const void *data);
typedef void (*cupti_buffer_requested)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*cupti_buffer_completed)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size);
typedef uint64_t (*cupti_timestamp)(void);

/* CUptiResult */
#define CUPTI_SUCCESS 0
#define CUPTI_ERROR_MAX_LIMIT_REACHED 12
#define CUPTI_ERROR_NOT_COMPATIBLE 14
#define CUPTI_ERROR_NOT_INITIALIZED 15
#define CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED 33
#define CUPTI_ERROR_INSUFFICIENT_PRIVILEGES 35
#define CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED 39
#define CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES 40

/* The oldest version whose records have all of the fields below: CUDA 11.1. */
#define CUPTI_VERSION_MINIMUM 14

/* CUpti_CallbackDomain */
#define CUPTI_CB_DOMAIN_DRIVER_API 1
#define CUPTI_CB_DOMAIN_RUNTIME_API 2
#define CUPTI_CB_DOMAIN_RESOURCE 3

/* CUpti_ApiCallbackSite */
#define CUPTI_API_ENTER 0
#define CUPTI_API_EXIT 1

/* CUpti_CallbackIdResource */
#define CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING 10
#define CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED 13
#define CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING 14
#define CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED 18
#define CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING 19
#define CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED 20

/* CUpti_ActivityKind */
#define CUPTI_ACTIVITY_KIND_MEMCPY 1
#define CUPTI_ACTIVITY_KIND_MEMSET 2
#define CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL 10
#define CUPTI_ACTIVITY_KIND_MEMCPY2 22

#define CUPTI_ACTIVITY_FLAG_FLUSH_FORCED 1

/* CUpti_CallbackData */
typedef struct cupti_call {
    uint32_t site;
    const char *function_name;
    const void *parameters;
    const void *return_value; /* at exit: an int32_t, 0 for success, in both APIs */
    const char *symbol_name;
    void *context;
    uint32_t context_id;
    uint64_t *correlation_data;
    uint32_t correlation;
} cupti_call;

/* CUpti_ResourceData, and CUpti_GraphData as its descriptor */
typedef struct cupti_resource {
    void *context, *handle;
    const void *descriptor;
} cupti_resource;

typedef struct cupti_graph {
    void *graph, *original_graph, *node, *original_node;
    uint32_t node_type;
    void *dependency, *exec;
} cupti_graph;

/* cuLaunchKernel, cuLaunchCooperativeKernel, and their per-thread twins */
typedef struct cupti_driver_launch {
    const void *function;
    uint32_t grid[3], block[3], shared_bytes;
    void *stream;
} cupti_driver_launch;

/* cudaLaunchKernel, cudaLaunchCooperativeKernel */
typedef struct cupti_runtime_launch {
    const void *function;
    uint32_t grid[3], block[3];
    void **arguments;
    size_t shared_bytes;
    void *stream;
} cupti_runtime_launch;

/* CUlaunchConfig and cudaLaunchConfig_t differ before the stream alone */
typedef struct cupti_launch_config {
    uint8_t sizes[32];
    void *stream;
} cupti_launch_config;

/* cuLaunchKernelEx, cudaLaunchKernelExC */
typedef struct cupti_extended_launch {
    const cupti_launch_config *config;
    const void *function;
} cupti_extended_launch;

/* cuGraphLaunch, cudaGraphLaunch */
typedef struct cupti_graph_launch {
    void *exec, *stream;
} cupti_graph_launch;

/* Kernel5 to Kernel10; records are 8 byte aligned */
typedef struct cupti_kernel_record {
    uint32_t kind;
    uint8_t cache[2];
    uint16_t registers;
    uint32_t partitioned[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3];
    int32_t static_bytes, dynamic_bytes;
    uint32_t local_bytes[2];
    uint32_t correlation;
    int64_t grid_id;
    const char *name;
    void *reserved;
    uint64_t queued, submitted;
    uint8_t launch[4];
    uint32_t shared_executed;
    uint64_t graph_node;
    uint32_t shared_limit;
    uint32_t graph;
} cupti_kernel_record;

/* Memcpy4 to Memcpy6 */
typedef struct cupti_memcpy_record {
    uint32_t kind;
    uint8_t copy_kind, source_kind, target_kind, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation, runtime_correlation, pad;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
} cupti_memcpy_record;

/* MemcpyPtoP3, MemcpyPtoP4 */
typedef struct cupti_peer_record {
    uint32_t kind;
    uint8_t copy_kind, source_kind, target_kind, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream;
    uint32_t source_device, source_context, target_device, target_context;
    uint32_t correlation;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
} cupti_peer_record;

/* Memset3, Memset4 */
typedef struct cupti_memset_record {
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
    uint16_t flags, memory_kind;
    uint32_t pad;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
} cupti_memset_record;

_Static_assert(offsetof(cupti_call, correlation) == 64, "CUpti_CallbackData");
_Static_assert(offsetof(cupti_graph, exec) == 48, "CUpti_GraphData");
_Static_assert(offsetof(cupti_driver_launch, stream) == 40, "cuLaunchKernel_params");
_Static_assert(offsetof(cupti_runtime_launch, stream) == 48, "cudaLaunchKernel_v7000_params");
_Static_assert(offsetof(cupti_launch_config, stream) == 32, "CUlaunchConfig");
_Static_assert(offsetof(cupti_kernel_record, device) == 40, "CUpti_ActivityKernel5");
_Static_assert(offsetof(cupti_kernel_record, correlation) == 92, "CUpti_ActivityKernel5");
_Static_assert(offsetof(cupti_kernel_record, name) == 104, "CUpti_ActivityKernel5");
_Static_assert(offsetof(cupti_kernel_record, graph_node) == 144, "CUpti_ActivityKernel5");
_Static_assert(offsetof(cupti_kernel_record, graph) == 156, "CUpti_ActivityKernel5");
_Static_assert(offsetof(cupti_memcpy_record, correlation) == 44, "CUpti_ActivityMemcpy4");
_Static_assert(offsetof(cupti_memcpy_record, graph_node) == 64, "CUpti_ActivityMemcpy4");
_Static_assert(offsetof(cupti_memcpy_record, graph) == 72, "CUpti_ActivityMemcpy4");
_Static_assert(offsetof(cupti_peer_record, target_device) == 52, "CUpti_ActivityMemcpyPtoP3");
_Static_assert(offsetof(cupti_peer_record, correlation) == 60, "CUpti_ActivityMemcpyPtoP3");
_Static_assert(offsetof(cupti_peer_record, graph) == 80, "CUpti_ActivityMemcpyPtoP3");
_Static_assert(offsetof(cupti_memset_record, correlation) == 44, "CUpti_ActivityMemset3");
_Static_assert(offsetof(cupti_memset_record, graph_node) == 64, "CUpti_ActivityMemset3");
_Static_assert(offsetof(cupti_memset_record, graph) == 72, "CUpti_ActivityMemset3");

/* The functions; one pointer for each row of cupti_symbols.def. */
typedef struct eni_cupti_functions {
#define ENI_CUPTI_FUNCTION(required, name, parameters) cupti_result(*name) parameters;
#include "abi/cupti_symbols.def"
#undef ENI_CUPTI_FUNCTION
} eni_cupti_functions;

#endif
