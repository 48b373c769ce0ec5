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

#include <math.h>

#define DEPTH_LIMIT 512 /* of nested slices that the readers keep */
#define PATH_LIMIT 64   /* names of a call path that are written; the innermost ones */
#define KEPT_TEXTS 4096 /* of nodes and of launches; a power of two */
#define KEPT_KEYS 16    /* of metrics; a power of two */

/* What all slices of a node and category share, as written. */
typedef struct node_text {
    eni_str text;
    size_t path_at; /* where "call_path" begins, after what else is in args */
    uint32_t node, category;
} node_text;

/* What all slices of a launch share, as written. */
typedef struct launch_text {
    eni_str text;
    uint32_t launch;
} launch_text;

/* A metric's key. */
typedef struct key_text {
    eni_str text; /* quoted, with the colon */
    enigma_text key;
    uint32_t name;
    bool plain; /* ASCII: it differs as written from every other */
} key_text;

typedef struct chrome {
    const enigma_profile *profile;
    eni_sink *sink;
    eni_json json; /* at depth 0: writes single values where the text around them is written by hand */
    eni_arena arena;
    eni_str scratch;
    eni_sink text_sink; /* into scratch: writes texts that are kept */
    eni_json text_json;
    node_text *nodes;      /* a node's at its number modulo kept, as are the others */
    launch_text *launches; /* NULL without GPU work */
    size_t kept;
    key_text keys[KEPT_KEYS];
    eni_track_id track; /* written last */
    char track_text[48];
    size_t track_size;
    eni_tracks tracks;
    uint32_t *folded_into; /* of events that are not written: the event that stands for them; else ENI_NONE */
    uint32_t *folded;      /* how many events stand behind each */
    uint64_t folded_count;
    bool *arrows; /* by GPU work: its arrow has begun */
    bool comma;
} chrome;

/* ---- pieces ---- */

static char *put(char *at, const char *text, size_t size)
{
    memcpy(at, text, size);
    return at + size;
}
#define PUT(at, literal) put(at, literal, sizeof literal - 1)

/* "pid" and "tid", the same for slice after slice. */
static void set_track(chrome *c, eni_track_id track)
{
    char *at = PUT(c->track_text, "\"pid\":");
    at = eni_str_u64(track.pid, at);
    at = PUT(at, ",\"tid\":");
    at = eni_str_u64(track.tid, at);
    c->track_size = (size_t)(at - c->track_text);
    c->track = track;
}

#define EVENT_BYTES 256 /* more than an event's fixed fields need */

/* Begins an event; what it puts next into the room that is left goes to where it returns. */
static char *put_event(chrome *c, const char *phase, eni_track_id track)
{
    char *at = eni_sink_room(c->sink, EVENT_BYTES);
    if (track.pid != c->track.pid || track.tid != c->track.tid) {
        set_track(c, track);
    }
    at = c->comma ? PUT(at, ",\n{\"ph\":\"") : PUT(at, "\n{\"ph\":\"");
    c->comma = true;
    *at++ = *phase;
    at = PUT(at, "\",");
    return put(at, c->track_text, c->track_size);
}

/* A time on the file's axis. */
static char *put_ts(const chrome *c, char *at, uint64_t ns)
{
    return eni_str_us(ns - c->profile->start_ns, PUT(at, ",\"ts\":"));
}

static void begin_slice(chrome *c, eni_track_id track, uint64_t start_ns, uint64_t end_ns)
{
    char *at = put_ts(c, put_event(c, "X", track), start_ns);
    eni_sink_filled(c->sink, eni_str_us(end_ns - start_ns, PUT(at, ",\"dur\":")));
}

/* "key":us, */
static void write_us(chrome *c, const char *key, uint64_t ns)
{
    eni_sink_puts(c->sink, key);
    eni_sink_us(c->sink, (int64_t)ns);
    eni_sink_putc(c->sink, ',');
}

static void write_uint(eni_json *json, const char *key, uint64_t value)
{
    eni_json_key(json, key);
    eni_json_uint(json, value);
}

static void write_number(chrome *c, enigma_text key, double value)
{
    enigma_value number = {ENIGMA_DOUBLE, {.number = value}};
    eni_json_text(&c->json, key);
    eni_sink_putc(c->sink, ':');
    eni_json_value(&c->json, &number); /* not finite: a text */
    eni_sink_putc(c->sink, ',');
}

/* ---- texts that are kept ---- */

/* Begins a text, which is written to text_json at depth 0. */
static void begin_text(chrome *c)
{
    c->scratch.size = 0;
    eni_json_init(&c->text_json, &c->text_sink);
}

/* Where the text that was begun stands by now. */
static size_t text_size(chrome *c)
{
    eni_sink_flush(&c->text_sink);
    return c->scratch.size;
}

/* Keeps it in place of what was there. */
static enigma_status end_text(chrome *c, eni_str *out)
{
    text_size(c);
    out->size = 0;
    eni_str_append(out, c->scratch.size == 0 ? "" : c->scratch.data, c->scratch.size);
    return out->failed || c->scratch.failed || c->text_sink.error != 0 ? ENI_NO_MEMORY() : ENIGMA_OK;
}

static enigma_text or_empty(enigma_text text) { return text.data == NULL ? eni_text_of("") : text; }

/* The user's scopes, root first. Of very deep ones the innermost, and how many there are. */
static void text_call_path(chrome *c, uint32_t node)
{
    const eni_node_info *nodes = c->profile->nodes;
    eni_json *json = &c->text_json;
    enigma_text names[PATH_LIMIT];
    uint32_t count = 0;
    for (uint32_t at = node; nodes[at].depth > 0 && count < PATH_LIMIT; at = nodes[at].parent) {
        if (!nodes[at].runtime) {
            names[count++] = nodes[at].label;
        }
    }
    if (nodes[node].call_depth > PATH_LIMIT) {
        eni_sink_puts(json->sink, "\"call_depth\":");
        eni_sink_u64(json->sink, nodes[node].call_depth);
        eni_sink_putc(json->sink, ',');
    }
    eni_sink_puts(json->sink, "\"call_path\":");
    eni_json_begin_array(json);
    while (count > 0) {
        eni_json_text(json, names[--count]);
    }
    eni_json_end_array(json);
}

static enigma_status find_node_text(chrome *c, const eni_event *event, const node_text **out)
{
    node_text *kept = &c->nodes[event->node & (c->kept - 1)];
    const eni_node_info *node = &c->profile->nodes[event->node];
    *out = kept;
    if (kept->text.size > 0 && kept->node == event->node && kept->category == event->category) {
        return ENIGMA_OK;
    }
    begin_text(c);
    eni_sink_puts(&c->text_sink, ",\"name\":");
    eni_json_text(&c->text_json, or_empty(node->label));
    eni_sink_puts(&c->text_sink, ",\"cat\":");
    eni_json_text(&c->text_json, or_empty(c->profile->categories[event->category]));
    eni_sink_puts(&c->text_sink, ",\"args\":{");
    if (node->kernel.data != NULL) {
        eni_sink_puts(&c->text_sink, "\"kernel_name\":");
        eni_json_text(&c->text_json, node->kernel);
        eni_sink_putc(&c->text_sink, ',');
    }
    kept->path_at = text_size(c);
    kept->node = event->node;
    kept->category = event->category;
    text_call_path(c, event->node);
    return end_text(c, &kept->text);
}

static void text_size3(eni_json *json, const char *key, const uint64_t size[3])
{
    if (size[0] == 0 && size[1] == 0 && size[2] == 0) {
        return;
    }
    eni_json_key(json, key);
    eni_json_begin_array(json);
    for (int i = 0; i < 3; i++) {
        eni_json_uint(json, size[i]);
    }
    eni_json_end_array(json);
}

/* A JSON object without its brackets, and a comma. */
static enigma_status find_launch_text(chrome *c, const eni_gpu_event *gpu, const launch_text **out)
{
    launch_text *kept = &c->launches[gpu->launch & (c->kept - 1)];
    const eni_launch *launch = &c->profile->launches[gpu->launch];
    *out = kept;
    if (kept->text.size > 0 && kept->launch == gpu->launch) {
        return ENIGMA_OK;
    }
    begin_text(c);
    eni_json_begin_object(&c->text_json);
    text_size3(&c->text_json, "grid", launch->grid);
    text_size3(&c->text_json, "threads", launch->threads);
    if (launch->input_bytes != 0 || launch->output_bytes != 0) {
        write_uint(&c->text_json, "input_bytes", launch->input_bytes);
        write_uint(&c->text_json, "output_bytes", launch->output_bytes);
    }
    write_uint(&c->text_json, "buffer_count", launch->buffer_count);
    write_uint(&c->text_json, "queue_id", launch->queue);
    write_uint(&c->text_json, "device_id", launch->device_id);
    eni_sink_putc(&c->text_sink, ',');
    kept->launch = gpu->launch;
    return end_text(c, &kept->text);
}

static enigma_status write_launch(chrome *c, const eni_gpu_event *gpu)
{
    const launch_text *launch;
    ENI_TRY(find_launch_text(c, gpu, &launch));
    eni_sink_write(c->sink, launch->text.data + 1, launch->text.size - 1);
    return ENIGMA_OK;
}

static bool is_ascii(enigma_text text)
{
    for (size_t i = 0; i < text.size; i++) {
        if ((unsigned char)text.data[i] >= 0x80) {
            return false;
        }
    }
    return true;
}

static enigma_status find_key(chrome *c, uint32_t name, const key_text **out)
{
    key_text *kept = &c->keys[name % KEPT_KEYS];
    *out = kept;
    if (kept->text.size > 0 && kept->name == name) {
        return ENIGMA_OK;
    }
    eni_profile_name(c->profile, name, &kept->key);
    kept->key = or_empty(kept->key);
    kept->name = name;
    kept->plain = is_ascii(kept->key);
    begin_text(c);
    eni_json_text(&c->text_json, kept->key);
    eni_sink_putc(&c->text_sink, ':');
    return end_text(c, &kept->text);
}

/* ---- args ---- */

/* Metrics of any kind: in several blocks, with keys that are equal, not finite. Equal keys add up, as in rows. */
static enigma_status write_any_metrics(chrome *c, const eni_event *event)
{
    eni_cursor cursor = {0};
    enigma_text key;
    double value;
    enigma_field *fields = NULL;
    size_t count = 0, capacity = 0;
    eni_intern keys = {0}; /* the number of a key is the index of its field */
    enigma_status status = ENIGMA_OK;
    while (eni_profile_next_metric(c->profile, event, &cursor, &key, &value)) {
        uint32_t at = eni_intern_put(&keys, or_empty(key));
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
        eni_sink_puts(c->sink, ",\"metrics\":");
        eni_json_value(&c->json, &all); /* not finite: texts */
    }
    eni_free(fields, capacity * sizeof *fields);
    eni_intern_free(&keys);
    return status;
}

#define FEW_METRICS 8

/* Finds the keys of metrics that need no more than to be written one after the other; *simple: whether they are such. */
static enigma_status find_keys(chrome *c, const eni_metric_entry *metrics, size_t count, const key_text **keys,
                               bool *simple)
{
    *simple = count <= FEW_METRICS;
    for (size_t i = 0; i < count && *simple; i++) {
        ENI_TRY(find_key(c, metrics[i].key, &keys[i]));
        *simple = keys[i]->plain && isfinite(metrics[i].value);
        for (size_t k = 0; k < i && *simple; k++) {
            /* finding this one may have put away an earlier one */
            *simple = keys[k]->name == metrics[k].key && !eni_text_equal(keys[k]->key, keys[i]->key);
        }
    }
    return ENIGMA_OK;
}

/* Metrics in an object of their own, so that no key of theirs meets one of ours. */
static enigma_status write_metrics(chrome *c, const eni_event *event)
{
    const key_text *keys[FEW_METRICS];
    eni_cursor cursor = {0};
    size_t count;
    bool simple;
    const eni_metric_entry *metrics = eni_profile_next_metrics(c->profile, event, &cursor, &count);
    if (metrics == NULL) {
        return ENIGMA_OK;
    }
    ENI_TRY(find_keys(c, metrics, count, keys, &simple));
    if (!simple || cursor.left > 0) {
        return write_any_metrics(c, event);
    }
    eni_sink_puts(c->sink, ",\"metrics\":");
    for (size_t i = 0; i < count; i++) {
        eni_sink_putc(c->sink, i == 0 ? '{' : ',');
        eni_sink_write(c->sink, keys[i]->text.data, keys[i]->text.size);
        eni_json_double(&c->json, metrics[i].value + 0.0); /* no -0.0, as after adding up */
    }
    eni_sink_putc(c->sink, '}');
    return ENIGMA_OK;
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
        eni_sink_puts(c->sink, ",\"metadata\":");
        eni_json_value(&c->json, &all);
    }
    return ENIGMA_OK;
}

/* ---- slices ---- */

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
    char *at = put_ts(c, put_event(c, phase, track), ns);
    at = PUT(at, ",\"name\":\"launch\",\"cat\":\"launch\",\"id\":");
    eni_sink_filled(c->sink, eni_str_u64(id, at));
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

static enigma_status write_cpu_slice(chrome *c, uint32_t index)
{
    const eni_event *event = &c->profile->events[index];
    const node_text *node;
    ENI_TRY(find_node_text(c, event, &node));
    begin_slice(c, eni_tracks_cpu(&c->tracks, index), event->start_ns, event->end_ns);
    eni_sink_write(c->sink, node->text.data, node->path_at);
    if (event->gpu != ENI_NONE) {
        ENI_TRY(write_launch(c, &c->profile->gpu[event->gpu]));
    }
    if (event->gpu != ENI_NONE || event->gpu_ns != 0) {
        write_us(c, "\"gpu_time_us\":", event->gpu_ns);
    }
    if (c->folded[index] != 0) {
        eni_sink_puts(c->sink, "\"folded_slices\":");
        eni_sink_u64(c->sink, c->folded[index]);
        eni_sink_putc(c->sink, ',');
    }
    eni_sink_write(c->sink, node->text.data + node->path_at, node->text.size - node->path_at);
    if (event->side != 0) {
        ENI_TRY(write_metrics(c, event));
    }
    ENI_TRY(write_metadata(c, event));
    eni_sink_write(c->sink, "}}", 2);
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

static enigma_status write_gpu_slice(chrome *c, uint32_t index)
{
    const eni_gpu_event *gpu = &c->profile->gpu[index];
    const eni_event *event = &c->profile->events[gpu->event];
    const eni_node_info *info = &c->profile->nodes[event->node];
    const node_text *node;
    eni_track_id track = eni_tracks_gpu(&c->tracks, index);
    uint64_t end_ns;
    ENI_TRY(find_node_text(c, event, &node));
    begin_slice(c, track, gpu->start_ns, gpu->end_ns);
    eni_sink_puts(c->sink, ",\"name\":");
    eni_json_text(&c->json, or_empty(info->kernel.data == NULL ? info->label : info->kernel));
    eni_sink_puts(c->sink, ",\"cat\":");
    eni_json_text(&c->json, or_empty(c->profile->categories[event->category]));
    eni_sink_puts(c->sink, ",\"args\":{");
    ENI_TRY(write_launch(c, gpu));
    write_us(c, "\"gpu_time_us\":", event->gpu_ns);
    if (gpu->skew_ns != 0) {
        write_us(c, "\"skew_us\":", gpu->skew_ns);
    }
    write_rates(c, event);
    eni_sink_write(c->sink, node->text.data + node->path_at, node->text.size - node->path_at);
    eni_sink_write(c->sink, "}}", 2);
    if (c->arrows[index] && arrow_end(c, gpu, &end_ns)) {
        write_arrow(c, "f", (uint64_t)index + 1, track, end_ns);
    }
    return ENIGMA_OK;
}

static enigma_status write_slices(chrome *c)
{
    ENI_TRY(write_cpu_slices(c));
    for (size_t i = 0; i < c->tracks.gpu_count; i++) {
        ENI_TRY(write_gpu_slice(c, c->tracks.gpu[i].id));
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
    eni_sink_filled(c->sink, put_event(c, "M", track));
    eni_sink_puts(c->sink, ",\"name\":\"");
    eni_sink_puts(c->sink, what);
    eni_sink_puts(c->sink, "_name\",\"args\":{\"name\":");
    eni_json_text(&c->json, name);
    eni_sink_puts(c->sink, "}}");
}

static void write_order(chrome *c, const char *what, eni_track_id track, uint64_t order)
{
    eni_sink_filled(c->sink, put_event(c, "M", track));
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
    write_uint(&c->json, "baseTimeNanoseconds", c->profile->start_ns);
    eni_json_key(&c->json, "metadata");
    eni_json_begin_object(&c->json);
    eni_json_key(&c->json, "producer");
    eni_json_string(&c->json, "enigma");
    eni_json_key(&c->json, "version");
    eni_json_string(&c->json, enigma_version_string());
    write_uint(&c->json, "baseTimeNanoseconds", c->profile->start_ns);
    write_uint(&c->json, "pid", c->profile->header->pid);
    write_uint(&c->json, "events", counts->events);
    write_uint(&c->json, "dropped", counts->dropped);
    write_uint(&c->json, "gpu_events", counts->gpu_events);
    write_uint(&c->json, "gpu_invalid", counts->gpu_invalid);
    write_uint(&c->json, "gpu_unfinished", counts->gpu_unfinished);
    write_uint(&c->json, "gpu_skewed", counts->gpu_skewed);
    write_uint(&c->json, "open_scopes", counts->open_scopes);
    write_uint(&c->json, "folded_slices", c->folded_count);
    ENI_TRY(write_devices(c));
    eni_json_end_object(&c->json);
    return ENIGMA_OK;
}

static enigma_status make_room(chrome *c)
{
    size_t wanted = c->profile->node_count > c->profile->launch_count ? c->profile->node_count : c->profile->launch_count;
    for (c->kept = 1; c->kept < wanted && c->kept < KEPT_TEXTS;) {
        c->kept *= 2;
    }
    c->nodes = eni_alloc_zero(c->kept * sizeof *c->nodes);
    c->launches = eni_alloc_zero(c->kept * sizeof *c->launches);
    return c->nodes == NULL || c->launches == NULL ? ENI_NO_MEMORY() : ENIGMA_OK;
}

static void free_texts(chrome *c)
{
    for (size_t i = 0; i < c->kept && c->nodes != NULL && c->launches != NULL; i++) {
        eni_str_free(&c->nodes[i].text);
        eni_str_free(&c->launches[i].text);
    }
    for (size_t i = 0; i < KEPT_KEYS; i++) {
        eni_str_free(&c->keys[i].text);
    }
    eni_free(c->nodes, c->kept * sizeof *c->nodes);
    eni_free(c->launches, c->kept * sizeof *c->launches);
}

static enigma_status write_file(chrome *c)
{
    ENI_TRY(eni_tracks_build(c->profile, &c->tracks));
    ENI_TRY(fold_deep(c));
    ENI_TRY(make_room(c));
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
    ENI_TRY(eni_sink_init(&c.text_sink, eni_sink_to_str, &c.scratch));
    eni_json_init(&c.json, sink);
    enigma_status status = write_file(&c);
    free_texts(&c);
    eni_free(c.arrows, profile->gpu_count * sizeof *c.arrows);
    eni_free(c.folded, profile->event_count * sizeof *c.folded);
    eni_free(c.folded_into, profile->event_count * sizeof *c.folded_into);
    eni_tracks_free(&c.tracks);
    enigma_status ended = eni_sink_finish(&c.text_sink); /* its error has been told */
    (void)ended;
    eni_str_free(&c.scratch);
    eni_arena_free(&c.arena);
    return status;
}
