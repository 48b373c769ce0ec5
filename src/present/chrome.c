/* Chrome trace events: a timeline for ui.perfetto.dev and chrome://tracing. Reads a profile, keeps nothing; any thread.
 *
 * What the readers need: complete (X) slices that nest on their track, so overlapping ones go to lanes of their own (lanes.h)
 * and what is nested deeper than the readers keep is folded into the slice above, with a count; small integer pid and tid,
 * each named, never 0; times in us with three decimals, relative to the earliest stamp, whose value is in the metadata; arrows (s, f) that
 * begin and end inside their slices, the end not before the begin. */
#include "aggregate/rates.h"
#include "base/intern.h"
#include "base/json_write.h"
#include "present/exporter.h"
#include "present/lanes.h"
#include "present/tracks.h"

#define DEPTH_LIMIT 512 /* of nested slices that the readers keep */
#define PATH_LIMIT 64   /* names of a call path that are written; the innermost ones */

typedef struct chrome {
    const enigma_profile *profile;
    eni_sink *sink;
    eni_json json; /* at depth 0: writes single values where the text around them is written by hand */
    eni_arena arena;
    eni_str scratch;
    eni_tracks tracks;
    uint32_t *folded_into; /* of events that are not written: the event that stands for them; else ENI_NONE */
    uint32_t *folded;      /* how many events stand behind each */
    uint64_t folded_count;
    bool *arrows; /* by GPU work: its arrow has begun */
    bool comma;
} chrome;

/* ---- pieces ---- */

static void begin_event(chrome *c, const char *phase, eni_track_id track)
{
    eni_sink_puts(c->sink, c->comma ? ",\n" : "\n");
    c->comma = true;
    eni_sink_puts(c->sink, "{\"ph\":\"");
    eni_sink_puts(c->sink, phase);
    eni_sink_puts(c->sink, "\",\"pid\":");
    eni_sink_u64(c->sink, track.pid);
    eni_sink_puts(c->sink, ",\"tid\":");
    eni_sink_u64(c->sink, track.tid);
}

/* A time on the file's axis. */
static void write_ts(chrome *c, uint64_t ns)
{
    eni_sink_puts(c->sink, ",\"ts\":");
    eni_sink_us(c->sink, (int64_t)(ns - c->profile->start_ns));
}

static void begin_slice(chrome *c, eni_track_id track, uint64_t start_ns, uint64_t end_ns, enigma_text name,
                        enigma_text category)
{
    begin_event(c, "X", track);
    write_ts(c, start_ns);
    eni_sink_puts(c->sink, ",\"dur\":");
    eni_sink_us(c->sink, (int64_t)(end_ns - start_ns));
    eni_sink_puts(c->sink, ",\"name\":");
    eni_json_text(&c->json, name.data == NULL ? eni_text_of("") : name);
    eni_sink_puts(c->sink, ",\"cat\":");
    eni_json_text(&c->json, category.data == NULL ? eni_text_of("") : category);
    eni_sink_puts(c->sink, ",\"args\":");
    eni_json_begin_object(&c->json);
}

static void end_slice(chrome *c)
{
    eni_json_end_object(&c->json);
    eni_sink_putc(c->sink, '}');
}

static void write_uint(chrome *c, const char *key, uint64_t value)
{
    eni_json_key(&c->json, key);
    eni_json_uint(&c->json, value);
}

static void write_size3(chrome *c, const char *key, const uint64_t size[3])
{
    if (size[0] == 0 && size[1] == 0 && size[2] == 0) {
        return;
    }
    eni_json_key(&c->json, key);
    eni_json_begin_array(&c->json);
    for (int i = 0; i < 3; i++) {
        eni_json_uint(&c->json, size[i]);
    }
    eni_json_end_array(&c->json);
}

static void write_number(chrome *c, enigma_text key, double value)
{
    enigma_value number = {ENIGMA_DOUBLE, {.number = value}};
    eni_json_key_text(&c->json, key);
    eni_json_value(&c->json, &number); /* not finite: a text */
}

/* ---- args ---- */

/* The user's scopes, root first. Of very deep ones the innermost, and how many there are. */
static void write_call_path(chrome *c, const eni_event *event)
{
    const eni_node_info *nodes = c->profile->nodes;
    enigma_text names[PATH_LIMIT];
    uint32_t count = 0;
    for (uint32_t at = event->node; nodes[at].depth > 0 && count < PATH_LIMIT; at = nodes[at].parent) {
        if (!nodes[at].runtime) {
            names[count++] = nodes[at].label;
        }
    }
    if (nodes[event->node].call_depth > PATH_LIMIT) {
        write_uint(c, "call_depth", nodes[event->node].call_depth);
    }
    eni_json_key(&c->json, "call_path");
    eni_json_begin_array(&c->json);
    while (count > 0) {
        eni_json_text(&c->json, names[--count]);
    }
    eni_json_end_array(&c->json);
}

static void write_launch(chrome *c, const eni_gpu_event *gpu)
{
    const eni_launch *launch = &c->profile->launches[gpu->launch];
    write_size3(c, "grid", launch->grid);
    write_size3(c, "threads", launch->threads);
    if (launch->input_bytes != 0 || launch->output_bytes != 0) {
        write_uint(c, "input_bytes", launch->input_bytes);
        write_uint(c, "output_bytes", launch->output_bytes);
    }
    write_uint(c, "buffer_count", launch->buffer_count);
    write_uint(c, "queue_id", launch->queue);
    write_uint(c, "device_id", launch->device_id);
}

/* Metrics in an object of their own, so that no key of theirs meets one of ours; equal keys add up, as in rows. */
static enigma_status write_metrics(chrome *c, const eni_event *event)
{
    eni_cursor cursor = {0};
    enigma_text key;
    double value;
    enigma_field *fields = NULL;
    size_t count = 0, capacity = 0;
    eni_intern keys = {0}; /* the number of a key is the index of its field */
    enigma_status status = ENIGMA_OK;
    while (event->side != 0 && eni_profile_next_metric(c->profile, event, &cursor, &key, &value)) {
        uint32_t at = eni_intern_put(&keys, key.data == NULL ? (enigma_text){"", 0} : key);
        if (at == ENI_INTERN_NONE || !eni_grow((void **)&fields, &capacity, count, sizeof *fields)) {
            status = ENI_NO_MEMORY();
            break;
        }
        if (at == count) {
            fields[count++] = (enigma_field){eni_intern_text(&keys, at), {.type = ENIGMA_DOUBLE}};
        }
        fields[at].value.as.number += value;
    }
    if (count > 0 && status == ENIGMA_OK) {
        enigma_value all = {ENIGMA_DICT, {.items = {fields, count}}};
        eni_json_key(&c->json, "metrics");
        eni_json_value(&c->json, &all); /* not finite: texts */
    }
    eni_free(fields, capacity * sizeof *fields);
    eni_intern_free(&keys);
    return status;
}

static enigma_status write_metadata(chrome *c, const eni_event *event)
{
    const enigma_field *fields;
    size_t count;
    if (!eni_profile_has_metadata(c->profile, event)) {
        return ENIGMA_OK;
    }
    eni_arena_reset(&c->arena);
    ENI_TRY(eni_profile_metadata(c->profile, event, &c->arena, &fields, &count));
    if (count > 0) {
        enigma_value all = {ENIGMA_DICT, {.items = {fields, count}}};
        eni_json_key(&c->json, "metadata");
        eni_json_value(&c->json, &all);
    }
    return ENIGMA_OK;
}

/* ---- slices ---- */

static enigma_text category_of(const chrome *c, const eni_event *event)
{
    return c->profile->categories[event->category];
}

/* The slice at which the arrow of a launch begins, ENI_NONE: none can. It is the launch's own; a launch shorter than the clock
 * tells has no inside, so its arrow begins in the slice around it, unless another slice that begins at the same instant would
 * catch it. before: the last slice of some length written on the track. */
static uint32_t arrow_begin(const chrome *c, uint32_t index, uint32_t before)
{
    const eni_event *events = c->profile->events;
    uint64_t at_ns = events[index].start_ns;
    uint32_t at = c->folded_into[index] == ENI_NONE ? index : c->folded_into[index];
    while (at != ENI_NONE && events[at].end_ns <= at_ns) {
        at = c->tracks.cpu_places[at].depth > 1 ? events[at].parent : ENI_NONE;
    }
    bool caught =
        at != ENI_NONE && at != index && before != ENI_NONE && before != at && events[before].start_ns == at_ns;
    return caught ? ENI_NONE : at;
}

/* Whether an arrow can end in the slice of GPU work, and when: not before it begins. */
static bool arrow_end(const chrome *c, const eni_gpu_event *gpu, uint64_t *end_ns)
{
    uint64_t begin_ns = c->profile->events[gpu->event].start_ns;
    *end_ns = gpu->start_ns > begin_ns ? gpu->start_ns : begin_ns;
    return gpu->status == ENI_GPU_VALID && *end_ns < gpu->end_ns;
}

static void write_arrow(chrome *c, const char *phase, uint64_t id, eni_track_id track, uint64_t ns)
{
    begin_event(c, phase, track);
    write_ts(c, ns);
    eni_sink_puts(c->sink, ",\"name\":\"launch\",\"cat\":\"launch\",\"id\":");
    eni_sink_u64(c->sink, id);
    eni_sink_puts(c->sink, phase[0] == 'f' ? ",\"bp\":\"e\"}" : "}");
}

static void write_arrow_begin(chrome *c, uint32_t index, uint32_t before)
{
    const eni_event *event = &c->profile->events[index];
    uint64_t end_ns;
    if (event->gpu == ENI_NONE || !arrow_end(c, &c->profile->gpu[event->gpu], &end_ns)) {
        return;
    }
    uint32_t from = arrow_begin(c, index, before);
    if (from != ENI_NONE) {
        c->arrows[event->gpu] = true;
        write_arrow(c, "s", (uint64_t)event->gpu + 1, eni_tracks_cpu(&c->tracks, from), event->start_ns);
    }
}

static enigma_status write_cpu_args(chrome *c, uint32_t index)
{
    const eni_event *event = &c->profile->events[index];
    enigma_text kernel = c->profile->nodes[event->node].kernel;
    if (kernel.data != NULL) {
        eni_json_key(&c->json, "kernel_name");
        eni_json_text(&c->json, kernel);
    }
    if (event->gpu != ENI_NONE) {
        write_launch(c, &c->profile->gpu[event->gpu]);
    }
    if (event->gpu != ENI_NONE || event->gpu_ns != 0) {
        eni_json_key(&c->json, "gpu_time_us");
        eni_json_us(&c->json, (int64_t)event->gpu_ns);
    }
    if (c->folded[index] != 0) {
        write_uint(c, "folded_slices", c->folded[index]);
    }
    write_call_path(c, event);
    ENI_TRY(write_metrics(c, event));
    return write_metadata(c, event);
}

static enigma_status write_cpu_slice(chrome *c, uint32_t index)
{
    const eni_event *event = &c->profile->events[index];
    begin_slice(c, eni_tracks_cpu(&c->tracks, index), event->start_ns, event->end_ns,
                c->profile->nodes[event->node].label, category_of(c, event));
    ENI_TRY(write_cpu_args(c, index));
    end_slice(c);
    return ENIGMA_OK;
}

static enigma_status write_cpu_slices(chrome *c)
{
    uint32_t before = ENI_NONE; /* the last slice of some length on this track */
    for (size_t i = 0; i < c->tracks.cpu_count; i++) {
        const eni_slice *slice = &c->tracks.cpu[i];
        if (i > 0 && slice->track != c->tracks.cpu[i - 1].track) {
            before = ENI_NONE;
        }
        if (c->folded_into[slice->id] == ENI_NONE) {
            ENI_TRY(write_cpu_slice(c, slice->id));
            before = slice->end_ns > slice->start_ns ? slice->id : before;
        }
        write_arrow_begin(c, slice->id, before);
    }
    return ENIGMA_OK;
}

/* The rates of one piece of GPU work. */
static void write_rates(chrome *c, const eni_event *event)
{
    eni_cursor cursor = {0};
    enigma_text key;
    double value, flops = 0.0, bytes = 0.0;
    while (event->side != 0 && eni_profile_next_metric(c->profile, event, &cursor, &key, &value)) {
        flops += eni_text_equal(key, eni_text_of(ENI_RATE_FLOPS)) ? value : 0.0;
        bytes += eni_text_equal(key, eni_text_of(ENI_RATE_BYTES)) ? value : 0.0;
    }
    double us = (double)event->gpu_ns / 1000.0;
    double rates[] = {eni_rate_giga_per_s(flops, us), eni_rate_giga_per_s(bytes, us)};
    static const char *const keys[] = {"gflops_per_s", "gbytes_per_s"};
    for (size_t i = 0; i < ENI_COUNT_OF(rates); i++) {
        if (rates[i] != 0.0) {
            write_number(c, eni_text_of(keys[i]), rates[i]);
        }
    }
}

static void write_gpu_slice(chrome *c, uint32_t index)
{
    const eni_gpu_event *gpu = &c->profile->gpu[index];
    const eni_event *event = &c->profile->events[gpu->event];
    const eni_node_info *node = &c->profile->nodes[event->node];
    eni_track_id track = eni_tracks_gpu(&c->tracks, index);
    uint64_t end_ns;
    begin_slice(c, track, gpu->start_ns, gpu->end_ns, node->kernel.data == NULL ? node->label : node->kernel,
                category_of(c, event));
    write_launch(c, gpu);
    eni_json_key(&c->json, "gpu_time_us");
    eni_json_us(&c->json, (int64_t)event->gpu_ns);
    if (gpu->skew_ns != 0) {
        eni_json_key(&c->json, "skew_us");
        eni_json_us(&c->json, gpu->skew_ns);
    }
    write_rates(c, event);
    write_call_path(c, event);
    end_slice(c);
    if (c->arrows[index] && arrow_end(c, gpu, &end_ns)) {
        write_arrow(c, "f", (uint64_t)index + 1, track, end_ns);
    }
}

static enigma_status write_slices(chrome *c)
{
    ENI_TRY(write_cpu_slices(c));
    for (size_t i = 0; i < c->tracks.gpu_count; i++) {
        write_gpu_slice(c, c->tracks.gpu[i].id);
    }
    return ENIGMA_OK;
}

/* Events come by start, parents first. */
static enigma_status fold_deep(chrome *c)
{
    size_t size = c->profile->event_count * sizeof(uint32_t);
    c->folded_into = eni_alloc(size);
    c->folded = eni_alloc_zero(size);
    c->arrows = eni_alloc_zero(c->profile->gpu_count * sizeof *c->arrows);
    if (c->folded_into == NULL || c->folded == NULL || c->arrows == NULL) {
        return ENI_NO_MEMORY();
    }
    memset(c->folded_into, 0xff, size);
    for (size_t i = 0; i < c->tracks.cpu_count; i++) {
        const eni_slice *slice = &c->tracks.cpu[i];
        if (c->tracks.cpu_places[slice->id].depth > DEPTH_LIMIT) {
            uint32_t above = c->folded_into[slice->parent];
            above = above == ENI_NONE ? slice->parent : above;
            c->folded_into[slice->id] = above;
            c->folded[above]++;
            c->folded_count++;
        }
    }
    return ENIGMA_OK;
}

/* ---- the file ---- */

static void write_name(chrome *c, const char *what, eni_track_id track, enigma_text name)
{
    begin_event(c, "M", track);
    eni_sink_puts(c->sink, ",\"name\":\"");
    eni_sink_puts(c->sink, what);
    eni_sink_puts(c->sink, "_name\",\"args\":{\"name\":");
    eni_json_text(&c->json, name);
    eni_sink_puts(c->sink, "}}");
}

static void write_order(chrome *c, const char *what, eni_track_id track, uint64_t order)
{
    begin_event(c, "M", track);
    eni_sink_puts(c->sink, ",\"name\":\"");
    eni_sink_puts(c->sink, what);
    eni_sink_puts(c->sink, "_sort_index\",\"args\":{\"sort_index\":");
    eni_sink_u64(c->sink, order);
    eni_sink_puts(c->sink, "}}");
}

/* Every track's name and place, before its slices. name is scratch. */
static enigma_status write_names(chrome *c, eni_str *name)
{
    eni_track_info info;
    uint32_t pid = 0;
    for (size_t i = 0; eni_tracks_info(&c->tracks, i, &info); i++) {
        if (info.id.pid != pid) {
            pid = info.id.pid;
            name->size = 0;
            ENI_TRY(eni_tracks_process_name(&c->tracks, i, &c->arena, name));
            write_name(c, "process", info.id, (enigma_text){name->data, name->size});
            write_order(c, "process", info.id, info.process);
        }
        name->size = 0;
        eni_tracks_name(&c->tracks, i, name);
        write_name(c, "thread", info.id, (enigma_text){name->data, name->size});
        write_order(c, "thread", info.id, i);
    }
    return name->failed ? ENI_NO_MEMORY() : ENIGMA_OK;
}

static enigma_status write_devices(chrome *c)
{
    eni_json_key(&c->json, "devices");
    eni_json_begin_array(&c->json);
    for (size_t i = 0; i < c->profile->device_count; i++) {
        enigma_value facts = {.type = ENIGMA_DICT};
        eni_arena_reset(&c->arena);
        ENI_TRY(eni_profile_device_facts(c->profile, i, &c->arena, &facts.as.items));
        eni_json_value(&c->json, &facts);
    }
    eni_json_end_array(&c->json);
    return ENIGMA_OK;
}

static enigma_status write_head(chrome *c)
{
    const enigma_counts *counts = &c->profile->counts;
    eni_json_begin_object(&c->json);
    eni_json_key(&c->json, "displayTimeUnit");
    eni_json_string(&c->json, "ns");
    write_uint(c, "baseTimeNanoseconds", c->profile->start_ns);
    eni_json_key(&c->json, "metadata");
    eni_json_begin_object(&c->json);
    eni_json_key(&c->json, "producer");
    eni_json_string(&c->json, "enigma");
    eni_json_key(&c->json, "version");
    eni_json_string(&c->json, enigma_version_string());
    write_uint(c, "baseTimeNanoseconds", c->profile->start_ns);
    write_uint(c, "pid", c->profile->header->pid);
    write_uint(c, "events", counts->events);
    write_uint(c, "dropped", counts->dropped);
    write_uint(c, "gpu_events", counts->gpu_events);
    write_uint(c, "gpu_invalid", counts->gpu_invalid);
    write_uint(c, "gpu_unfinished", counts->gpu_unfinished);
    write_uint(c, "gpu_skewed", counts->gpu_skewed);
    write_uint(c, "open_scopes", counts->open_scopes);
    write_uint(c, "folded_slices", c->folded_count);
    ENI_TRY(write_devices(c));
    eni_json_end_object(&c->json);
    return ENIGMA_OK;
}

static enigma_status write_file(chrome *c)
{
    ENI_TRY(eni_tracks_build(c->profile, &c->tracks));
    ENI_TRY(fold_deep(c));
    ENI_TRY(write_head(c));
    /* The rest of the object is written by hand, with the JSON writer at depth 0 for single values. */
    eni_sink_puts(c->sink, ",\"traceEvents\":[");
    eni_json_init(&c->json, c->sink);
    ENI_TRY(write_names(c, &c->scratch));
    ENI_TRY(write_slices(c));
    eni_sink_puts(c->sink, "\n]}\n");
    return ENIGMA_OK;
}

enigma_status eni_export_chrome(const enigma_profile *profile, eni_sink *sink)
{
    chrome c = {.profile = profile, .sink = sink};
    eni_json_init(&c.json, sink);
    enigma_status status = write_file(&c);
    eni_free(c.arrows, profile->gpu_count * sizeof *c.arrows);
    eni_free(c.folded, profile->event_count * sizeof *c.folded);
    eni_free(c.folded_into, profile->event_count * sizeof *c.folded_into);
    eni_tracks_free(&c.tracks);
    eni_str_free(&c.scratch);
    eni_arena_free(&c.arena);
    return status;
}
