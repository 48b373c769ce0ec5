/* The callbacks at CUDA's launching calls and at changes of graphs. Which calls those are is read from the library's own list of
 * names, so that a newer CUDA's further variants are seen as well. On the launching thread; takes no lock. */
#include "cupti/session.h"

enum { CBID_LIMIT = 4096 };

/* How a call's parameters tell the function and the stream. */
enum call_shape { SHAPE_NONE, SHAPE_DRIVER, SHAPE_RUNTIME, SHAPE_EXTENDED, SHAPE_GRAPH };

typedef struct call_kind {
    uint8_t family, shape; /* family 0: no launch */
} call_kind;

/* Row 0 the driver's calls, row 1 the runtime's. Filled once before the first subscription. */
static call_kind kinds[2][CBID_LIMIT];

ENI_THREAD_LOCAL void *eni_cupti_mark_;

/* The launching calls that this thread is in. */
static ENI_THREAD_LOCAL uint32_t epoch, depth;

/* ---- which calls ---- */

static bool starts(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

/* A name without the API's prefix: "LaunchKernel_ptsz" of cuLaunchKernel_ptsz, cudaLaunchKernel_ptsz_v7000 and __cudaLaunchKernel. */
static const char *plain_name(const char *name)
{
    name += starts(name, "__") ? 2 : 0;
    return starts(name, "cuda") ? name + 4 : starts(name, "cu") ? name + 2 : "";
}

static call_kind kind_of(const char *full_name, bool runtime)
{
    const char *name = plain_name(full_name);
    uint8_t plain = runtime ? SHAPE_RUNTIME : SHAPE_DRIVER;
    if (starts(name, "GraphLaunch")) {
        return (call_kind){ENI_CUPTI_GRAPH, SHAPE_GRAPH};
    }
    if (starts(name, "LaunchHostFunc")) {
        return (call_kind){0, SHAPE_NONE};
    }
    if (starts(name, "LaunchKernelEx")) {
        return (call_kind){ENI_CUPTI_KERNEL, SHAPE_EXTENDED};
    }
    if (starts(name, "LaunchCooperativeKernelMultiDevice")) {
        return (call_kind){ENI_CUPTI_KERNEL, SHAPE_NONE};
    }
    if (starts(name, "LaunchKernel") || starts(name, "LaunchCooperativeKernel")) {
        return (call_kind){ENI_CUPTI_KERNEL, plain};
    }
    if (starts(name, "Launch")) { /* of CUDA 3: cuLaunch, cuLaunchGrid */
        return (call_kind){ENI_CUPTI_KERNEL, SHAPE_NONE};
    }
    return (call_kind){starts(name, "Memcpy")   ? ENI_CUPTI_MEMCPY
                       : starts(name, "Memset") ? ENI_CUPTI_MEMSET
                                                : 0,
                       SHAPE_NONE};
}

void eni_cupti_calls_load(void)
{
    for (uint32_t row = 0; row < 2; row++) {
        uint32_t domain = row == 0 ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
        for (uint32_t cbid = 1; cbid < CBID_LIMIT; cbid++) {
            const char *name = NULL;
            if (eni_cu_pti.cuptiGetCallbackName(domain, cbid, &name) == CUPTI_SUCCESS && name != NULL) {
                kinds[row][cbid] = kind_of(name, row == 1);
            }
        }
    }
}

static void enable_row(cupti_subscriber subscriber, uint32_t row, uint32_t families, bool enable)
{
    for (uint32_t cbid = 1; cbid < CBID_LIMIT; cbid++) {
        if ((kinds[row][cbid].family & families) != 0) {
            eni_cu_pti.cuptiEnableCallback(enable, subscriber,
                                           row == 0 ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API, cbid);
        }
    }
}

void eni_cupti_calls_enable(cupti_subscriber subscriber, uint32_t families, bool graphs, bool enable)
{
    static const uint32_t changes[] = {
        CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,          CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,
        CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING, CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED,
        CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING, CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING};
    enable_row(subscriber, 0, families, enable);
    enable_row(subscriber, 1, families, enable);
    for (size_t i = 0; graphs && i < ENI_COUNT_OF(changes); i++) {
        eni_cu_pti.cuptiEnableCallback(enable, subscriber, CUPTI_CB_DOMAIN_RESOURCE, changes[i]);
    }
}

/* ---- launches ---- */

static void read_parameters(enum call_shape shape, const void *parameters, eni_cupti_launch *out)
{
    if (parameters == NULL) {
        return;
    }
    switch (shape) {
    case SHAPE_DRIVER:
        out->function = ((const cupti_driver_launch *)parameters)->function;
        out->stream = ((const cupti_driver_launch *)parameters)->stream;
        return;
    case SHAPE_RUNTIME:
        out->function = ((const cupti_runtime_launch *)parameters)->function;
        out->stream = ((const cupti_runtime_launch *)parameters)->stream;
        return;
    case SHAPE_EXTENDED: {
        const cupti_extended_launch *launch = parameters;
        out->function = launch->function;
        out->stream = launch->config == NULL ? NULL : launch->config->stream;
        return;
    }
    case SHAPE_GRAPH:
        out->function = ((const cupti_graph_launch *)parameters)->exec;
        out->stream = ((const cupti_graph_launch *)parameters)->stream;
        return;
    default:
        return;
    }
}

/* Notes that the thread enters or leaves a launching call. True: it is the outermost one. */
static bool is_outermost(uint32_t site)
{
    uint32_t now = __atomic_load_n(&eni_cupti_epoch, __ATOMIC_RELAXED);
    if (epoch != now) { /* an earlier session's notes: its last exits may never have come */
        epoch = now;
        depth = 0;
    }
    if (site == CUPTI_API_ENTER) {
        return depth++ == 0;
    }
    if (depth == 0) { /* entered before the session began */
        return false;
    }
    return --depth == 0;
}

static void tell_launch(const eni_cupti_launch *launch, uint32_t site)
{
    for (int i = 0; i < ENI_CUPTI_CONSUMERS; i++) {
        const eni_cupti_consumer *consumer = eni_cupti_consumer_at(i);
        if (consumer == NULL || (consumer->launches & launch->family) == 0) {
            continue;
        }
        void (*function)(const eni_cupti_launch *) = site == CUPTI_API_ENTER ? consumer->enter : consumer->leave;
        if (function != NULL) {
            function(launch);
        }
    }
}

static void note_call(uint32_t row, uint32_t cbid, const cupti_call *call)
{
    call_kind kind = cbid < CBID_LIMIT ? kinds[row][cbid] : (call_kind){0, SHAPE_NONE};
    if (kind.family == 0 || !is_outermost(call->site)) {
        return;
    }
    eni_cupti_launch launch = {.family = kind.family,
                               .correlation = call->correlation,
                               .cbid = cbid,
                               .runtime = row == 1,
                               .context_id = call->context_id,
                               .context = call->context,
                               .name = kind.family == ENI_CUPTI_KERNEL ? call->symbol_name : NULL,
                               .mark = eni_cupti_mark_};
    read_parameters(kind.shape, call->parameters, &launch);
    if (call->site == CUPTI_API_EXIT && call->return_value != NULL) {
        launch.failed = *(const int32_t *)call->return_value != 0;
    }
    tell_launch(&launch, call->site);
}

/* ---- graphs ---- */

static uint64_t node_id(void *node)
{
    uint64_t id = 0;
    bool known = node != NULL && eni_cu_pti.cuptiGetGraphNodeId != NULL &&
                 eni_cu_pti.cuptiGetGraphNodeId(node, &id) == CUPTI_SUCCESS;
    return known ? id : 0;
}

static uint32_t graph_id(cupti_result (*ask)(void *, uint32_t *), void *graph)
{
    uint32_t id = 0;
    return graph != NULL && ask != NULL && ask(graph, &id) == CUPTI_SUCCESS ? id : 0;
}

/* False: a change that nobody wants to know. */
static bool read_change(uint32_t cbid, const cupti_graph *graph, eni_cupti_graph_event *out)
{
    *out = (eni_cupti_graph_event){.node_type = graph->node_type};
    switch (cbid) {
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED:
        out->change = ENI_CUPTI_NODE_CREATED;
        break;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED:
        out->change = ENI_CUPTI_NODE_CLONED;
        out->original = node_id(graph->original_node);
        break;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING:
        out->change = ENI_CUPTI_NODE_DESTROYED;
        break;
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED:
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING:
        out->change = cbid == CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED ? ENI_CUPTI_EXEC_CREATED : ENI_CUPTI_EXEC_DESTROYED;
        out->graph = graph_id(eni_cu_pti.cuptiGetGraphExecId, graph->exec);
        return true;
    case CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING:
        out->change = ENI_CUPTI_GRAPH_DESTROYED;
        out->graph = graph_id(eni_cu_pti.cuptiGetGraphId, graph->graph);
        return true;
    default:
        return false;
    }
    out->node = node_id(graph->node);
    out->graph = graph_id(eni_cu_pti.cuptiGetGraphId, graph->graph);
    return true;
}

static void note_change(uint32_t cbid, const cupti_resource *resource)
{
    eni_cupti_graph_event event;
    if (resource->descriptor == NULL || !read_change(cbid, resource->descriptor, &event)) {
        return;
    }
    for (int i = 0; i < ENI_CUPTI_CONSUMERS; i++) {
        const eni_cupti_consumer *consumer = eni_cupti_consumer_at(i);
        if (consumer != NULL && consumer->graph != NULL) {
            consumer->graph(&event);
        }
    }
}

void eni_cupti_call(void *user, uint32_t domain, uint32_t cbid, const void *data)
{
    (void)user;
    if (data == NULL || eni_cupti_in_child()) {
        return;
    }
    if (__atomic_load_n(&eni_cupti_active, __ATOMIC_RELAXED) == 0) { /* a shared line is written once alone */
        __atomic_store_n(&eni_cupti_active, 1, __ATOMIC_RELAXED);
    }
    switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
        note_call(0, cbid, data);
        return;
    case CUPTI_CB_DOMAIN_RUNTIME_API:
        note_call(1, cbid, data);
        return;
    case CUPTI_CB_DOMAIN_RESOURCE:
        note_change(cbid, data);
        return;
    default:
        return;
    }
}
