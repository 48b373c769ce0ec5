/* The call tree as a Hatchet literal: GraphFrame.from_literal(json.load(f)). Reads a profile, keeps nothing; any thread.
 *
 * What the reader needs and does not say: a list with one root (never empty, nothing else in it); in every node a frame with only
 * texts under the keys name (not empty) and type, and all metrics, the same keys everywhere; X with "X (inc)" always, where the
 * latter is the sum of X over the subtree, since that is what Hatchet recomputes; so only numbers that add up. Siblings differ in
 * their frame. Nesting stays below what Python's json can read. Times are in us. */
#include "aggregate/rates.h"
#include "aggregate/tree.h"
#include "base/json_write.h"
#include "present/exporter.h"

#include <float.h>
#include <math.h>

#define LEVELS 400 /* of nesting nodes, the root included */
#define ROOT_NAME "ROOT"
#define UNNAMED "(unnamed)" /* the reader takes "" for missing */
#define FOLDED_NAME "(deeper calls)"

/* ---- the metrics every file has ---- */

enum value { VALUE_TIME, VALUE_GPU_TIME, VALUE_COUNT_CALLS, VALUE_INPUT, VALUE_OUTPUT, VALUE_DROPPED, VALUE_COUNT };

static const char *const value_keys[VALUE_COUNT] = {"time",        "gpu_time",     "count",
                                                    "input_bytes", "output_bytes", "dropped"};

enum column { COLUMN_BYTES = 0, COLUMN_FLOPS = 1, COLUMN_FIRST_USER = 2 };

/* Keys that the reader or we use for something else. */
static const char *const reserved_keys[] = {"", "name", "node", "type", "nid", "_hatchet_nid", "_missing_node"};

enum node_type { TYPE_SCOPE, TYPE_RUNTIME, TYPE_GPU, TYPE_ROOT, TYPE_FOLDED };
static const char *const type_names[] = {"scope", "runtime", "gpu", "root", "folded"};

/* A node as written. */
typedef struct out_node {
    enigma_text name;
    uint32_t parent, depth, type;
    uint64_t self[VALUE_COUNT], sum[VALUE_COUNT];
} out_node;

typedef struct hatchet {
    const enigma_profile *profile;
    eni_tree tree;
    out_node *nodes;
    size_t count, capacity;
    uint32_t *node_of;   /* written node of each tree node */
    eni_intern names;    /* texts as shown */
    eni_map siblings;    /* parent << 32 | name * 8 + type of what is there */
    eni_intern keys;     /* metric columns as written: "bytes", "flops", then the users' */
    uint32_t *column_of; /* column of each key number of the tree's metrics */
    double *self, *sum;  /* count x columns */
    size_t columns, cells;
} hatchet;

static void add_to(uint64_t *total, uint64_t value)
{
    if (__builtin_add_overflow(*total, value, total) || *total > INT64_MAX) {
        *total = INT64_MAX; /* larger ones would not fit Hatchet's columns */
    }
}

/* ---- names ---- */

/* The number in `names` of a label as shown; ENI_INTERN_NONE: no memory. */
static uint32_t shown_name(hatchet *h, enigma_text label)
{
    eni_str repaired = {0};
    uint32_t name = ENI_INTERN_NONE;
    if (label.size == 0) {
        return eni_intern_put(&h->names, eni_text_of(UNNAMED));
    }
    eni_str_append_utf8(&repaired, label);
    if (!repaired.failed) {
        name = eni_intern_put(&h->names, (enigma_text){repaired.data, repaired.size});
    }
    eni_str_free(&repaired);
    return name;
}

/* A name that no sibling has: repairing may have made two equal. */
static uint32_t unique_name(hatchet *h, uint32_t parent, uint32_t name, uint32_t type)
{
    uint32_t number = 1, candidate = name;
    while (candidate != ENI_INTERN_NONE) {
        size_t known = h->siblings.count;
        if (eni_map_put(&h->siblings, (uint64_t)parent << 32 | (candidate * 8 + type), 0) == NULL) {
            return ENI_INTERN_NONE;
        }
        if (h->siblings.count > known) {
            return candidate;
        }
        eni_str numbered = {0};
        enigma_text plain = eni_intern_text(&h->names, name);
        eni_str_append(&numbered, plain.data, plain.size);
        eni_str_printf(&numbered, " #%u", (unsigned)++number);
        candidate =
            numbered.failed ? ENI_INTERN_NONE : eni_intern_put(&h->names, (enigma_text){numbered.data, numbered.size});
        eni_str_free(&numbered);
    }
    return candidate;
}

/* ---- nodes ---- */

static enigma_status put_node(hatchet *h, uint32_t name, uint32_t parent, uint32_t depth, uint32_t type)
{
    if (name == ENI_INTERN_NONE || !eni_grow((void **)&h->nodes, &h->capacity, h->count, sizeof *h->nodes)) {
        return ENI_NO_MEMORY();
    }
    h->nodes[h->count++] =
        (out_node){.name = eni_intern_text(&h->names, name), .parent = parent, .depth = depth, .type = type};
    return ENIGMA_OK;
}

/* Nodes too deep become one node "(deeper calls)" below the last that is not. They lie together, since this is preorder. */
static enigma_status put_tree_node(hatchet *h, uint32_t index)
{
    const eni_tree_node *node = &h->tree.nodes[index];
    const out_node *last = &h->nodes[h->count - 1];
    if (node->depth >= LEVELS - 1) {
        if (last->type != TYPE_FOLDED) {
            uint32_t name = eni_intern_put(&h->names, eni_text_of(FOLDED_NAME));
            ENI_TRY(put_node(h, name, (uint32_t)h->count - 1, LEVELS - 1, TYPE_FOLDED));
        }
    } else {
        uint32_t parent = h->node_of[node->parent];
        uint32_t name = unique_name(h, parent, shown_name(h, node->label), node->kind);
        ENI_TRY(put_node(h, name, parent, node->depth, node->kind));
    }
    h->node_of[index] = (uint32_t)h->count - 1;
    return ENIGMA_OK;
}

static void add_values(out_node *out, const eni_tree_node *node)
{
    add_to(&out->self[VALUE_TIME], node->self_ns);
    add_to(&out->self[VALUE_GPU_TIME], node->gpu_self_ns);
    add_to(&out->self[VALUE_COUNT_CALLS], node->calls);
    add_to(&out->self[VALUE_INPUT], node->input_bytes);
    add_to(&out->self[VALUE_OUTPUT], node->output_bytes);
}

static enigma_status put_nodes(hatchet *h)
{
    h->node_of = eni_alloc_zero(h->tree.count * sizeof *h->node_of);
    if (h->node_of == NULL) {
        return ENI_NO_MEMORY();
    }
    ENI_TRY(put_node(h, eni_intern_put(&h->names, eni_text_of(ROOT_NAME)), ENI_NONE, 0, TYPE_ROOT));
    add_to(&h->nodes[0].self[VALUE_DROPPED], h->profile->counts.dropped);
    for (size_t i = 0; i < h->tree.count; i++) {
        if (i > 0) {
            ENI_TRY(put_tree_node(h, (uint32_t)i));
        }
        add_values(&h->nodes[h->node_of[i]], &h->tree.nodes[i]);
    }
    return ENIGMA_OK;
}

/* ---- metric columns ---- */

static bool is_taken(const hatchet *h, const char *key, size_t size)
{
    enigma_text text = {key, size};
    for (size_t i = 0; i < ENI_COUNT_OF(reserved_keys); i++) {
        if (eni_text_equal(text, (enigma_text){reserved_keys[i], strlen(reserved_keys[i])})) {
            return true;
        }
    }
    for (size_t i = 0; i < VALUE_COUNT; i++) {
        if (eni_text_equal(text, eni_text_of(value_keys[i]))) {
            return true;
        }
    }
    return eni_intern_find(&h->keys, text) != ENI_INTERN_NONE;
}

/* A user's key as a column: repaired, without the "(inc)" that means something to the reader, "user." before what is taken. */
static uint32_t put_key(hatchet *h, enigma_text key)
{
    eni_str plain = {0}, name = {0};
    uint32_t column = ENI_INTERN_NONE;
    eni_str_append_utf8(&plain, key);
    if (plain.failed) {
        eni_str_free(&plain);
        return ENI_INTERN_NONE;
    }
    for (char *inc = plain.data;
         inc != NULL && (inc = memmem(inc, plain.size - (size_t)(inc - plain.data), "(inc)", 5)) != NULL;) {
        inc[0] = '[';
        inc[4] = ']';
    }
    eni_str_append(&name, plain.size == 0 ? "" : plain.data, plain.size);
    for (unsigned number = 1; !name.failed && is_taken(h, name.size == 0 ? "" : name.data, name.size); number++) {
        name.size = 0;
        eni_str_puts(&name, "user.");
        eni_str_append(&name, plain.size == 0 ? "" : plain.data, plain.size);
        if (number > 1) {
            eni_str_printf(&name, ".%u", number);
        }
    }
    if (!name.failed) {
        column = eni_intern_put(&h->keys, (enigma_text){name.data, name.size});
    }
    eni_str_free(&name);
    eni_str_free(&plain);
    return column;
}

static enigma_status put_columns(hatchet *h)
{
    const eni_intern *keys = &h->tree.metrics.keys.texts;
    h->column_of = eni_alloc((keys->count + 1) * sizeof *h->column_of);
    if (h->column_of == NULL || eni_intern_put(&h->keys, eni_text_of(ENI_RATE_BYTES)) != COLUMN_BYTES ||
        eni_intern_put(&h->keys, eni_text_of(ENI_RATE_FLOPS)) != COLUMN_FLOPS) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < keys->count; i++) {
        uint32_t column = eni_text_equal(keys->texts[i], eni_text_of(ENI_RATE_BYTES))   ? COLUMN_BYTES
                          : eni_text_equal(keys->texts[i], eni_text_of(ENI_RATE_FLOPS)) ? COLUMN_FLOPS
                                                                                        : put_key(h, keys->texts[i]);
        if (column == ENI_INTERN_NONE) {
            return ENI_NO_MEMORY();
        }
        h->column_of[i] = column;
    }
    h->columns = h->keys.count;
    return ENIGMA_OK;
}

static double clamped(double value) { return isnan(value) ? 0.0 : fmin(fmax(value, -DBL_MAX), DBL_MAX); }

static enigma_status put_metrics(hatchet *h)
{
    if (__builtin_mul_overflow(h->count, h->columns, &h->cells) || h->cells > SIZE_MAX / 16) {
        return ENI_NO_MEMORY();
    }
    h->self = eni_alloc_zero(h->cells * sizeof *h->self);
    h->sum = eni_alloc_zero(h->cells * sizeof *h->sum);
    if (h->self == NULL || h->sum == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < h->tree.count; i++) {
        double *row = &h->self[h->node_of[i] * h->columns];
        const eni_metric_total *total = eni_metrics_first(&h->tree.metrics, h->tree.nodes[i].metrics);
        for (; total != NULL; total = eni_metrics_next(&h->tree.metrics, total)) {
            double value = eni_sum_get(&total->sum);
            double *cell = &row[h->column_of[total->key_id]];
            *cell = clamped(*cell + (isfinite(value) ? value : 0.0));
        }
    }
    return ENIGMA_OK;
}

/* Children lie after their parents, so one pass from the end adds every subtree up. */
static void add_subtrees(hatchet *h)
{
    for (size_t i = h->count; i > 0; i--) {
        out_node *node = &h->nodes[i - 1];
        double *self = &h->self[(i - 1) * h->columns], *sum = &h->sum[(i - 1) * h->columns];
        out_node *parent = node->parent == ENI_NONE ? NULL : &h->nodes[node->parent];
        for (size_t v = 0; v < VALUE_COUNT; v++) {
            add_to(&node->sum[v], node->self[v]);
            if (parent != NULL) {
                add_to(&parent->sum[v], node->sum[v]);
            }
        }
        for (size_t c = 0; c < h->columns; c++) {
            sum[c] = clamped(sum[c] + self[c]);
            if (parent != NULL) {
                double *above = &h->sum[node->parent * h->columns + c];
                *above = clamped(*above + sum[c]);
            }
        }
    }
}

/* ---- writing ---- */

static void write_value(eni_json *json, size_t value, uint64_t number)
{
    if (value == VALUE_TIME || value == VALUE_GPU_TIME) {
        eni_json_us(json, (int64_t)number);
    } else {
        eni_json_uint(json, number);
    }
}

/* "key (inc)". */
static void write_inc_key(eni_json *json, eni_str *scratch, enigma_text key)
{
    scratch->size = 0;
    eni_str_append(scratch, key.data, key.size);
    eni_str_puts(scratch, " (inc)");
    eni_json_key_text(json, (enigma_text){scratch->failed ? "" : scratch->data, scratch->failed ? 0 : scratch->size});
}

static void write_metrics(eni_json *json, eni_str *scratch, const hatchet *h, size_t index)
{
    const out_node *node = &h->nodes[index];
    eni_json_begin_object(json);
    for (size_t v = 0; v < VALUE_COUNT; v++) {
        eni_json_key(json, value_keys[v]);
        write_value(json, v, node->self[v]);
        write_inc_key(json, scratch, eni_text_of(value_keys[v]));
        write_value(json, v, node->sum[v]);
    }
    for (size_t c = 0; c < h->columns; c++) {
        eni_json_key_text(json, h->keys.texts[c]);
        eni_json_double(json, h->self[index * h->columns + c]);
        write_inc_key(json, scratch, h->keys.texts[c]);
        eni_json_double(json, h->sum[index * h->columns + c]);
    }
    eni_json_end_object(json);
}

/* Opens a node; its children follow. */
static void write_node(eni_json *json, eni_str *scratch, const hatchet *h, size_t index)
{
    eni_json_line(json);
    eni_json_begin_object(json);
    eni_json_key(json, "frame");
    eni_json_begin_object(json);
    eni_json_key(json, "name");
    eni_json_text(json, h->nodes[index].name);
    eni_json_key(json, "type");
    eni_json_string(json, type_names[h->nodes[index].type]);
    eni_json_end_object(json);
    eni_json_key(json, "metrics");
    write_metrics(json, scratch, h, index);
    eni_json_key(json, "children");
    eni_json_begin_array(json);
}

static enigma_status write_tree(eni_sink *sink, const hatchet *h)
{
    eni_json json;
    eni_str scratch = {0};
    uint32_t open = 0;
    eni_json_init(&json, sink);
    eni_json_begin_array(&json);
    for (size_t i = 0; i <= h->count; i++) {
        for (uint32_t depth = i < h->count ? h->nodes[i].depth : 0; open > depth; open--) {
            eni_json_end_array(&json);
            eni_json_end_object(&json);
        }
        if (i < h->count) {
            write_node(&json, &scratch, h, i);
            open++;
        }
    }
    eni_json_end_array(&json);
    eni_sink_putc(sink, '\n');
    enigma_status status = scratch.failed ? ENI_NO_MEMORY() : ENIGMA_OK;
    eni_str_free(&scratch);
    return status;
}

static enigma_status export_all(hatchet *h, eni_sink *sink)
{
    ENI_TRY(put_nodes(h));
    ENI_TRY(put_columns(h));
    ENI_TRY(put_metrics(h));
    add_subtrees(h);
    return write_tree(sink, h);
}

enigma_status eni_export_hatchet(const enigma_profile *profile, eni_sink *sink)
{
    hatchet h = {.profile = profile};
    ENI_TRY(eni_tree_build(profile, &h.tree));
    enigma_status status = export_all(&h, sink);
    eni_free(h.sum, h.cells * sizeof *h.sum);
    eni_free(h.self, h.cells * sizeof *h.self);
    eni_free(h.column_of, (h.tree.metrics.keys.texts.count + 1) * sizeof *h.column_of);
    eni_free(h.node_of, h.tree.count * sizeof *h.node_of);
    eni_free(h.nodes, h.capacity * sizeof *h.nodes);
    eni_intern_free(&h.keys);
    eni_map_free(&h.siblings);
    eni_intern_free(&h.names);
    eni_tree_free(&h.tree);
    return status;
}
