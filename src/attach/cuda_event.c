/* Events of CUDA work: what they are called, under which node they lie, and what is known of them. See cuda_event.h. */
#include "attach/cuda_event.h"

#include <string.h>

#include "attach/demangle.h"
#include "base/clock.h"
#include "base/str.h"
#include "record/spot.h"

/* ---- what the record says ---- */

/* The name of a kernel as it is shown, asked for once. */
static bool shown_name(eni_tap_drain *drain, uint32_t id, enigma_text mangled, enigma_text *out)
{
    *out = (enigma_text){NULL, 0};
    if (id == ENI_INTERN_NONE) {
        return true;
    }
    while (id >= drain->shown_count) {
        size_t capacity = drain->shown_count;
        size_t wanted = capacity == 0 ? 64 : capacity * 2;
        enigma_text *shown = eni_resize(drain->shown, capacity * sizeof *shown, wanted * sizeof *shown);
        if (shown == NULL) {
            return false;
        }
        memset(shown + capacity, 0, (wanted - capacity) * sizeof *shown);
        drain->shown = shown;
        drain->shown_count = wanted;
    }
    if (drain->shown[id].data == NULL && !eni_demangle(&drain->texts, mangled, &drain->shown[id])) {
        return false;
    }
    *out = drain->shown[id];
    return true;
}

bool eni_tap_item_describe(eni_tap_drain *drain, eni_tap_item *item)
{
    eni_tap_queue *queue = &eni_tap_queue_;
    enigma_text mangled = {NULL, 0};
    eni_lock(&queue->lock);
    item->shape = queue->shapes[item->record.shape];
    if (item->shape.name != ENI_INTERN_NONE) {
        mangled = eni_intern_text(&queue->names, item->shape.name);
    }
    const eni_tap_node *node = item->record.node == 0 ? NULL : eni_table_find(&queue->nodes, item->record.node);
    if (node != NULL) {
        item->made = node->path;
        item->made_in = node->serial;
    }
    eni_unlock(&queue->lock);
    return shown_name(drain, item->shape.name, mangled, &item->kernel);
}

static enigma_size3 threads_of(const eni_tap_shape *shape)
{
    return (enigma_size3){shape->block[0], shape->block[1], shape->block[2]};
}

/* In threads, as everywhere. */
static enigma_size3 grid_of(const eni_tap_shape *shape)
{
    return (enigma_size3){(uint64_t)shape->grid[0] * shape->block[0], (uint64_t)shape->grid[1] * shape->block[1],
                          (uint64_t)shape->grid[2] * shape->block[2]};
}

size_t eni_tap_item_ask(const eni_tap_item *item, enigma_metric metrics[ENI_HOOK_METRICS], eni_hook **hook)
{
    *hook = NULL;
    if (item->shape.family != ENI_CUPTI_KERNEL || item->kernel.data == NULL) {
        return 0;
    }
    const enigma_dispatch_info info = {item->kernel, grid_of(&item->shape), threads_of(&item->shape)};
    return eni_hooks_ask(&info, metrics, ENI_HOOK_METRICS, hook);
}

/* ---- metadata ---- */

typedef struct field_list {
    enigma_field fields[12];
    size_t count;
    enigma_field blocks[3];
} field_list;

static void add_int(field_list *list, const char *key, uint64_t number)
{
    list->fields[list->count++] =
        (enigma_field){eni_text_of(key), {.type = ENIGMA_INT, .as = {.integer = (int64_t)number}}};
}

static void add_text(field_list *list, const char *key, const char *text)
{
    list->fields[list->count++] =
        (enigma_field){eni_text_of(key), {.type = ENIGMA_TEXT, .as = {.text = eni_text_of(text)}}};
}

static const struct {
    const char *kind, *direction;
} copies[] = {
    [ENI_CUPTI_COPY_UNKNOWN] = {"unknown", "unknown"},    [ENI_CUPTI_COPY_HTOD] = {"HtoD", "host to device"},
    [ENI_CUPTI_COPY_DTOH] = {"DtoH", "device to host"},   [ENI_CUPTI_COPY_HTOA] = {"HtoA", "host to device"},
    [ENI_CUPTI_COPY_ATOH] = {"AtoH", "device to host"},   [ENI_CUPTI_COPY_ATOA] = {"AtoA", "device to device"},
    [ENI_CUPTI_COPY_ATOD] = {"AtoD", "device to device"}, [ENI_CUPTI_COPY_DTOA] = {"DtoA", "device to device"},
    [ENI_CUPTI_COPY_DTOD] = {"DtoD", "device to device"}, [ENI_CUPTI_COPY_HTOH] = {"HtoH", "host to host"},
    [ENI_CUPTI_COPY_PTOP] = {"PtoP", "peer to peer"},
};

static void add_kernel(field_list *list, const eni_tap_shape *shape)
{
    for (size_t i = 0; i < 3; i++) {
        list->blocks[i] = (enigma_field){{NULL, 0}, {.type = ENIGMA_INT, .as = {.integer = shape->grid[i]}}};
    }
    list->fields[list->count++] =
        (enigma_field){eni_text_of("blocks"), {.type = ENIGMA_TUPLE, .as = {.items = {list->blocks, 3}}}};
    add_int(list, "registers_per_thread", shape->registers);
    add_int(list, "static_threadgroup_memory_bytes", shape->static_bytes);
    add_int(list, "dynamic_threadgroup_memory_bytes", shape->dynamic_bytes);
}

static void add_copy(field_list *list, const eni_tap_shape *shape)
{
    uint32_t kind = shape->kind < ENI_COUNT_OF(copies) ? shape->kind : ENI_CUPTI_COPY_UNKNOWN;
    add_text(list, "kind", copies[kind].kind);
    add_text(list, "direction", copies[kind].direction);
    add_int(list, "bytes", shape->bytes);
    if (shape->source_device != shape->target_device) {
        add_int(list, "source_device", shape->source_device);
        add_int(list, "target_device", shape->target_device);
    }
}

static void fields_of(const eni_tap_shape *shape, uint32_t source, field_list *list)
{
    list->count = 0;
    if (shape->family == ENI_CUPTI_KERNEL) {
        add_kernel(list, shape);
    } else if (shape->family == ENI_CUPTI_MEMCPY) {
        add_copy(list, shape);
    } else {
        add_int(list, "bytes", shape->bytes);
        add_int(list, "value", shape->kind);
    }
    add_int(list, "stream", shape->stream);
    add_int(list, "context", shape->context);
    if (source == ENI_SPOT_OWNER) {
        add_text(list, "path_source", "owner");
    }
}

/* ---- numbers of a session ---- */

static uint32_t queue_of(eni_tap_session *session, const eni_tap_shape *shape)
{
    const uint32_t stream[] = {shape->device, shape->context, shape->stream};
    uint64_t key = eni_text_hash((enigma_text){(const char *)stream, sizeof stream});
    uint32_t *queue = eni_map_put(&session->streams, key, (uint32_t)session->streams.count);
    return queue == NULL ? 0 : *queue;
}

static uint32_t intern_launch(eni_tap_session *session, const eni_tap_shape *shape, uint32_t source)
{
    bool with_bytes = (eni_profiler_flags(session->profiler) & ENIGMA_PROFILER_PROFILE_MEMORY) != 0;
    enigma_size3 grid = grid_of(shape);
    enigma_size3 threads = threads_of(shape);
    const eni_launch launch = {
        .grid = {grid.x, grid.y, grid.z},
        .threads = {threads.x, threads.y, threads.z},
        .input_bytes = with_bytes && shape->family == ENI_CUPTI_MEMCPY ? shape->bytes : 0,
        .output_bytes = with_bytes ? shape->bytes : 0,
        .queue = queue_of(session, shape),
        .device = ENI_NO_DEVICE,
        .device_id = shape->device,
    };
    field_list list;
    fields_of(shape, source, &list);
    return eni_profiler_launch(session->profiler, &launch, list.fields, list.count);
}

static uint32_t launch_of(eni_tap_session *session, const eni_tap_item *item)
{
    uint64_t key = (uint64_t)item->record.shape << 8 | item->note.source;
    uint32_t *launch = eni_map_put(&session->launches, key, 0);
    if (launch != NULL && *launch == 0) {
        *launch = intern_launch(session, &item->shape, item->note.source);
    }
    return launch == NULL ? 0 : *launch;
}

static enigma_text event_name(uint32_t family)
{
    return eni_text_of(family == ENI_CUPTI_KERNEL ? "gpu_dispatch" : family == ENI_CUPTI_MEMCPY ? "memcpy" : "memset");
}

/* The node of a piece of work under a path, once looked up. */
static uint32_t work_node(eni_tap_session *session, enigma_path under, const eni_tap_item *item)
{
    uint32_t what = item->shape.name == ENI_INTERN_NONE ? UINT32_MAX - item->shape.family : item->shape.name;
    uint32_t *node = eni_map_put(&session->nodes, (uint64_t)under << 32 | what, UINT32_MAX);
    if (node == NULL) {
        return under;
    }
    if (*node == UINT32_MAX) {
        *node = eni_profiler_runtime_path(session->profiler, under, event_name(item->shape.family), item->kernel);
    }
    return *node;
}

static eni_lane *lane_of(eni_tap_session *session, uint64_t thread_id)
{
    for (size_t i = 0; i < session->lane_count; i++) {
        if (session->lanes[i].thread_id == thread_id) {
            return session->lanes[i].lane;
        }
    }
    if (!eni_grow((void **)&session->lanes, &session->lane_capacity, session->lane_count, sizeof *session->lanes)) {
        eni_profiler_count_drop(session->profiler);
        return NULL;
    }
    eni_lane *lane = eni_profiler_foreign_lane(session->profiler, thread_id);
    if (lane != NULL) {
        session->lanes[session->lane_count].thread_id = thread_id;
        session->lanes[session->lane_count++].lane = lane;
    }
    return lane;
}

/* ---- graphs ---- */

/* The node of a graph's replay: runtime, so that the path above stays the user's. */
static enigma_path replay_node(eni_tap_session *session, const eni_tap_item *item)
{
    char name[32] = "graph:";
    char digits[16];
    size_t count = 0, size = strlen(name);
    for (uint32_t rest = item->record.graph; count == 0 || rest != 0; rest /= 10) {
        digits[count++] = (char)('0' + rest % 10);
    }
    while (count > 0) {
        name[size++] = digits[--count];
    }
    return eni_profiler_runtime_path(session->profiler, item->note.path, (enigma_text){name, size},
                                     (enigma_text){NULL, 0});
}

/* Goes on with the names of the path on which the node was made, if the profiler of that is still there. */
static enigma_path with_made(eni_tap_session *session, enigma_path under, const eni_tap_item *item)
{
    eni_tap_session *maker = item->made == 0 ? NULL : eni_tap_session_of(item->made_in);
    eni_arena arena = {NULL, NULL, NULL};
    enigma_text *names = NULL;
    size_t count = 0;
    if (maker != NULL && eni_profiler_path_names(maker->profiler, item->made, &arena, &names, &count)) {
        for (size_t i = count; i > 0; i--) {
            under = eni_profiler_runtime_path(session->profiler, under, names[i - 1], (enigma_text){NULL, 0});
        }
        eni_free(names, (count + 1) * sizeof *names);
    }
    eni_arena_free(&arena);
    return under;
}

/* The node under which the work of a graph lies, and in *parent its replay's event, which is written when it is the first. */
static enigma_path graph_path(eni_tap_drain *drain, eni_tap_session *session, eni_lane *lane, const eni_tap_item *item,
                              uint64_t *parent)
{
    uint64_t *replay = eni_tap_replay_of(drain, item->record.correlation);
    enigma_path node = replay_node(session, item);
    if (replay != NULL && *replay == 0) {
        const eni_foreign_event event = {.kind = ENI_KIND_EVENT,
                                         .node = node,
                                         .category = session->category,
                                         .parent = item->note.scope,
                                         .start_ticks = item->note.start,
                                         .end_ticks = item->note.end};
        *replay = eni_profiler_add_foreign(lane, &event);
    }
    *parent = replay == NULL || *replay == 0 ? item->note.scope : *replay;
    return with_made(session, node, item);
}

/* ---- events ---- */

static uint32_t status_of(uint32_t time)
{
    static const uint32_t statuses[] = {[ENI_CUPTI_TIME_VALID] = ENI_GPU_VALID,
                                        [ENI_CUPTI_TIME_ZERO] = ENI_GPU_ZERO,
                                        [ENI_CUPTI_TIME_REVERSED] = ENI_GPU_REVERSED,
                                        [ENI_CUPTI_TIME_UNFINISHED] = ENI_GPU_PENDING};
    return time < ENI_COUNT_OF(statuses) ? statuses[time] : ENI_GPU_UNAVAILABLE;
}

void eni_tap_item_write(eni_tap_drain *drain, const eni_tap_item *item, const enigma_metric *metrics,
                        size_t metric_count)
{
    eni_tap_session *session = eni_tap_session_of(item->note.serial);
    eni_lane *lane = session == NULL ? NULL : lane_of(session, item->thread_id);
    if (lane == NULL) {
        return;
    }
    uint64_t parent = item->note.scope;
    enigma_path under = item->note.path;
    if (item->note.family == ENI_CUPTI_GRAPH) {
        under = graph_path(drain, session, lane, item, &parent);
    }
    const eni_foreign_event event = {
        .kind = ENI_KIND_GPU,
        .node = work_node(session, under, item),
        .category = session->category,
        .launch = launch_of(session, item),
        .parent = parent,
        .start_ticks = item->note.start,
        .end_ticks = item->note.end,
        .gpu_start_ns = item->record.start_ns,
        .gpu_end_ns = item->record.end_ns,
        .submit_ns = eni_clock_ns(item->note.start),
        .status = status_of(item->record.time),
        .metrics = metrics,
        .metric_count = metric_count,
    };
    eni_profiler_add_foreign(lane, &event);
}

/* What is known of a kernel without a record. */
static uint32_t bare_launch(eni_tap_session *session, const eni_tap_note *note)
{
    const eni_launch launch = {.device = ENI_NO_DEVICE};
    const enigma_field field = {eni_text_of("path_source"),
                                {.type = ENIGMA_TEXT, .as = {.text = eni_text_of("owner")}}};
    return eni_profiler_launch(session->profiler, &launch, &field, note->source == ENI_SPOT_OWNER);
}

void eni_tap_unfinished_write(eni_tap_drain *drain, eni_tap_session *session, const eni_tap_note *note,
                              uint64_t thread_id)
{
    eni_tap_item item = {.note = *note, .thread_id = thread_id};
    (void)drain;
    eni_lane *lane = lane_of(session, thread_id);
    if (lane == NULL) {
        return;
    }
    item.shape.family = ENI_CUPTI_KERNEL;
    item.shape.name = ENI_INTERN_NONE;
    const eni_foreign_event event = {.kind = ENI_KIND_GPU,
                                     .node = work_node(session, note->path, &item),
                                     .category = session->category,
                                     .launch = bare_launch(session, note),
                                     .parent = note->scope,
                                     .start_ticks = note->start,
                                     .end_ticks = note->end,
                                     .status = ENI_GPU_PENDING};
    eni_profiler_add_foreign(lane, &event);
}
