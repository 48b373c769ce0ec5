/* The arithmetic of rows: one pass over the events for each question, all linear but for sorting. Times are summed as integers
 * and divided once. See rows.h; the rules are in docs/decisions.md, "Numbers". */
#include "aggregate/rows.h"

#include <stdlib.h>

#include "aggregate/metrics.h"
#include "aggregate/rates.h"

typedef unsigned __int128 wide;

/* What an event is to its row. */
enum mark {
    MARK_BELOW = 1 << 0, /* below another event of its row: adds a call, not time */
    MARK_FLOPS = 1 << 1, /* carries the metric */
    MARK_BYTES = 1 << 2,
    MARK_BELOW_FLOPS = 1 << 3, /* below another event of its row that carries the metric */
    MARK_BELOW_BYTES = 1 << 4
};
#define CARRIES(rate) (MARK_FLOPS << (rate))
#define BELOW_CARRIER(rate) (MARK_BELOW_FLOPS << (rate))

enum rate { RATE_FLOPS = 0, RATE_BYTES = 1, RATE_COUNT = 2 };

/* One row in the making. */
typedef struct row_sum {
    uint64_t calls, gpu_calls, timed; /* timed: calls with a duration for min, median, max */
    wide cpu_ns, gpu_ns, self_ns, busy_ns;
    uint64_t busy_to; /* end of the last GPU interval */
    uint64_t input_bytes, output_bytes;
    size_t samples; /* where its durations lie */
    struct {
        eni_sum count, known; /* over all carriers; over those whose GPU time is known */
        wide cpu_ns, gpu_ns;
    } rates[RATE_COUNT];
    uint32_t open, open_carriers[RATE_COUNT]; /* while walking the forest */
} row_sum;

typedef struct summing {
    const enigma_profile *profile;
    const eni_groups *groups;
    row_sum *rows;
    uint8_t *marks; /* enum mark of each event */
    double *samples;
    eni_metric_table metrics;
} summing;

static uint32_t group_of(const summing *sum, const eni_event *event) { return sum->groups->of_node[event->node]; }

static bool gpu_time_known(const summing *sum, const eni_event *event)
{
    return event->gpu == ENI_NONE || sum->profile->gpu[event->gpu].status == ENI_GPU_VALID;
}

/* ---- metrics ---- */

/* Which rate a metric drives; RATE_COUNT: none. */
static enum rate rate_of(enigma_text key)
{
    static const char *const names[RATE_COUNT] = {ENI_RATE_FLOPS, ENI_RATE_BYTES};
    enum rate rate = RATE_FLOPS;
    while (rate < RATE_COUNT && !eni_text_equal(key, eni_text_of(names[rate]))) {
        rate++;
    }
    return rate;
}

static void add_rate_count(summing *sum, size_t index, enum rate rate, double value)
{
    const eni_event *event = &sum->profile->events[index];
    row_sum *row = &sum->rows[group_of(sum, event)];
    sum->marks[index] |= (uint8_t)CARRIES(rate);
    eni_sum_add(&row->rates[rate].count, value);
    if (gpu_time_known(sum, event)) {
        eni_sum_add(&row->rates[rate].known, value);
    }
}

static enigma_status add_metrics(summing *sum)
{
    for (size_t i = 0; i < sum->profile->event_count; i++) {
        const eni_event *event = &sum->profile->events[i];
        uint32_t group = group_of(sum, event);
        if (group == ENI_NONE || event->side == 0) {
            continue;
        }
        eni_cursor cursor = {0, 0, 0};
        enigma_text key;
        double value;
        while (eni_profile_next_metric(sum->profile, event, &cursor, &key, &value)) {
            ENI_TRY(eni_metrics_add(&sum->metrics, group, key, value));
            enum rate rate = rate_of(key);
            if (rate != RATE_COUNT) {
                add_rate_count(sum, i, rate, value);
            }
        }
    }
    return ENIGMA_OK;
}

/* ---- recursion ---- */

/* The events as a forest: the children of each, by links. */
typedef struct forest {
    uint32_t *first_child, *next_sibling; /* first_child[event_count]: the roots */
} forest;

static void forest_link(const enigma_profile *profile, forest *links)
{
    size_t count = profile->event_count;
    memset(links->first_child, 0xff, (count + 1) * sizeof *links->first_child);
    for (size_t i = count; i > 0; i--) {
        uint32_t parent = profile->events[i - 1].parent;
        uint32_t *head = &links->first_child[parent == ENI_NONE ? count : parent];
        links->next_sibling[i - 1] = *head;
        *head = (uint32_t)(i - 1);
    }
}

static void enter(summing *sum, uint32_t index)
{
    uint32_t group = group_of(sum, &sum->profile->events[index]);
    if (group == ENI_NONE) {
        return;
    }
    row_sum *row = &sum->rows[group];
    uint8_t *marks = &sum->marks[index];
    if (row->open++ > 0) {
        *marks |= MARK_BELOW;
    }
    for (int rate = 0; rate < RATE_COUNT; rate++) {
        if (row->open_carriers[rate] > 0) {
            *marks |= (uint8_t)BELOW_CARRIER(rate);
        }
        row->open_carriers[rate] += (*marks & CARRIES(rate)) != 0;
    }
}

static void leave(summing *sum, uint32_t index)
{
    uint32_t group = group_of(sum, &sum->profile->events[index]);
    if (group == ENI_NONE) {
        return;
    }
    sum->rows[group].open--;
    for (int rate = 0; rate < RATE_COUNT; rate++) {
        sum->rows[group].open_carriers[rate] -= (sum->marks[index] & CARRIES(rate)) != 0;
    }
}

/* Depth first without a stack: down by the first child, on by the sibling, up by the parent. */
static void forest_walk(summing *sum, const forest *links)
{
    uint32_t at = links->first_child[sum->profile->event_count];
    while (at != ENI_NONE) {
        enter(sum, at);
        if (links->first_child[at] != ENI_NONE) {
            at = links->first_child[at];
            continue;
        }
        while (at != ENI_NONE && links->next_sibling[at] == ENI_NONE) {
            leave(sum, at);
            at = sum->profile->events[at].parent;
        }
        if (at != ENI_NONE) {
            leave(sum, at);
            at = links->next_sibling[at];
        }
    }
}

static enigma_status mark_recursion(summing *sum)
{
    if (!sum->groups->repeats) {
        return ENIGMA_OK;
    }
    size_t size = (sum->profile->event_count + 1) * sizeof(uint32_t);
    forest links = {eni_alloc(size), eni_alloc(size)};
    enigma_status status = ENIGMA_OK;
    if (links.first_child == NULL || links.next_sibling == NULL) {
        status = ENI_NO_MEMORY();
    } else {
        forest_link(sum->profile, &links);
        forest_walk(sum, &links);
    }
    eni_free(links.first_child, size);
    eni_free(links.next_sibling, size);
    return status;
}

/* ---- times ---- */

static void add_bytes(uint64_t *total, uint64_t bytes)
{
    if (__builtin_add_overflow(*total, bytes, total)) {
        *total = UINT64_MAX;
    }
}

static void add_event(summing *sum, size_t index)
{
    const eni_event *event = &sum->profile->events[index];
    row_sum *row = &sum->rows[group_of(sum, event)];
    uint8_t marks = sum->marks[index];
    uint64_t cpu_ns = eni_event_duration_ns(event);
    row->calls++;
    row->gpu_calls += event->gpu != ENI_NONE;
    row->timed += gpu_time_known(sum, event);
    row->self_ns += event->self_ns;
    if ((marks & MARK_BELOW) == 0) {
        row->cpu_ns += cpu_ns;
        row->gpu_ns += event->gpu_ns;
    }
    for (int rate = 0; rate < RATE_COUNT; rate++) {
        if ((marks & CARRIES(rate)) != 0 && (marks & BELOW_CARRIER(rate)) == 0) {
            row->rates[rate].cpu_ns += cpu_ns;
            row->rates[rate].gpu_ns += event->gpu_ns;
        }
    }
    const eni_launch *launch = eni_event_launch(sum->profile, event);
    if (launch != NULL) {
        add_bytes(&row->input_bytes, launch->input_bytes);
        add_bytes(&row->output_bytes, launch->output_bytes);
    }
}

static void add_events(summing *sum)
{
    for (size_t i = 0; i < sum->profile->event_count; i++) {
        if (group_of(sum, &sum->profile->events[i]) != ENI_NONE) {
            add_event(sum, i);
        }
    }
}

/* min, median and max are over GPU time where every event of a row is GPU work, without those whose time is not known. */
static bool is_gpu_row(const row_sum *row) { return row->gpu_calls == row->calls; }

static enigma_status add_samples(summing *sum)
{
    size_t at = 0;
    for (size_t i = 0; i < sum->groups->count; i++) {
        row_sum *row = &sum->rows[i];
        row->samples = at;
        at += is_gpu_row(row) ? row->timed : row->calls;
        row->timed = 0;
    }
    sum->samples = eni_alloc(sum->profile->event_count * sizeof *sum->samples);
    if (sum->samples == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < sum->profile->event_count; i++) {
        const eni_event *event = &sum->profile->events[i];
        row_sum *row = group_of(sum, event) == ENI_NONE ? NULL : &sum->rows[group_of(sum, event)];
        if (row == NULL || (is_gpu_row(row) && !gpu_time_known(sum, event))) {
            continue;
        }
        uint64_t ns = is_gpu_row(row) ? event->gpu_ns : eni_event_duration_ns(event);
        sum->samples[row->samples + row->timed++] = (double)ns / 1000.0;
    }
    return ENIGMA_OK;
}

/* ---- busy time ---- */

typedef struct interval {
    uint64_t start_ns;
    uint32_t gpu;
} interval;

static int by_start(const void *a, const void *b)
{
    const interval *x = a, *y = b;
    if (x->start_ns != y->start_ns) {
        return x->start_ns < y->start_ns ? -1 : 1;
    }
    return (x->gpu > y->gpu) - (x->gpu < y->gpu);
}

/* Intervals come by start, so a row's union grows only at its end. */
static void add_busy(row_sum *row, const eni_gpu_event *gpu)
{
    uint64_t from = gpu->start_ns > row->busy_to ? gpu->start_ns : row->busy_to;
    if (gpu->end_ns > from) {
        row->busy_ns += gpu->end_ns - from;
        row->busy_to = gpu->end_ns;
    }
}

/* Adds an interval to the rows of the work itself and of the scopes that were open when it was launched. */
static void add_busy_up(summing *sum, const eni_gpu_event *gpu)
{
    const eni_event *events = sum->profile->events;
    const eni_event *work = &events[gpu->event];
    for (uint32_t at = gpu->event; at != ENI_NONE; at = events[at].parent) {
        bool counts = at == gpu->event || (events[at].kind == ENI_KIND_SCOPE && events[at].end_ns >= work->start_ns);
        uint32_t group = group_of(sum, &events[at]);
        if (counts && group != ENI_NONE) {
            add_busy(&sum->rows[group], gpu);
        }
    }
}

static enigma_status add_busy_all(summing *sum)
{
    const enigma_profile *profile = sum->profile;
    size_t count = 0;
    if (profile->gpu_count == 0) {
        return ENIGMA_OK;
    }
    interval *order = eni_alloc(profile->gpu_count * sizeof *order);
    if (order == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < profile->gpu_count; i++) {
        if (profile->gpu[i].status == ENI_GPU_VALID) {
            order[count++] = (interval){profile->gpu[i].start_ns, (uint32_t)i};
        }
    }
    qsort(order, count, sizeof *order, by_start);
    for (size_t i = 0; i < count; i++) {
        add_busy_up(sum, &profile->gpu[order[i].gpu]);
    }
    eni_free(order, profile->gpu_count * sizeof *order);
    return ENIGMA_OK;
}

/* ---- rows ---- */

static double us_of(wide ns) { return (double)ns / 1000.0; }

/* Rates are over GPU time; CPU time only where the row has no GPU time at all. */
static void set_rates(const row_sum *row, enigma_row *out)
{
    double *rates[RATE_COUNT] = {&out->gflops_per_s, &out->gbytes_per_s};
    bool gpu = row->gpu_ns > 0;
    for (int rate = 0; rate < RATE_COUNT; rate++) {
        double count = eni_sum_get(gpu ? &row->rates[rate].known : &row->rates[rate].count);
        *rates[rate] = eni_rate_giga_per_s(count, us_of(gpu ? row->rates[rate].gpu_ns : row->rates[rate].cpu_ns));
        if (*rates[rate] != 0.0) {
            out->rate_source = gpu ? ENIGMA_RATE_GPU : ENIGMA_RATE_CPU;
        }
    }
}

static enigma_status set_metrics(const summing *sum, uint32_t group, eni_arena *arena, enigma_row *out)
{
    size_t count = eni_metrics_count(&sum->metrics, group);
    if (count == 0) {
        return ENIGMA_OK;
    }
    enigma_metric *metrics = eni_arena_alloc(arena, count * sizeof *metrics);
    if (metrics == NULL) {
        return ENI_NO_MEMORY();
    }
    const eni_metric_total *total = eni_metrics_first(&sum->metrics, group);
    for (size_t i = 0; total != NULL; i++, total = eni_metrics_next(&sum->metrics, total)) {
        metrics[i] = (enigma_metric){total->key.data, eni_sum_get(&total->sum)};
    }
    out->metrics = metrics;
    out->metric_count = count;
    return ENIGMA_OK;
}

static enigma_status set_row(const summing *sum, uint32_t group, eni_arena *arena, enigma_row *out)
{
    const row_sum *row = &sum->rows[group];
    const eni_group *about = &sum->groups->items[group];
    double *samples = &sum->samples[row->samples];
    eni_stats stats;
    eni_stats_sort(samples, row->timed);
    eni_stats_of(samples, row->timed, &stats);
    *out = (enigma_row){.struct_size = sizeof *out,
                        .name = about->name,
                        .kernel_name = about->kernel,
                        .calls = row->calls,
                        .cpu_total_us = us_of(row->cpu_ns),
                        .gpu_total_us = us_of(row->gpu_ns),
                        .cpu_avg_us = us_of(row->cpu_ns) / (double)row->calls,
                        .gpu_avg_us = us_of(row->gpu_ns) / (double)row->calls,
                        .min_us = stats.min,
                        .median_us = stats.median,
                        .max_us = stats.max,
                        .self_total_us = us_of(row->self_ns),
                        .gpu_busy_us = us_of(row->busy_ns),
                        .input_bytes = row->input_bytes,
                        .output_bytes = row->output_bytes,
                        .is_gpu_work = is_gpu_row(row),
                        .call_path = about->path,
                        .call_path_count = about->path_count};
    set_rates(row, out);
    return set_metrics(sum, group, arena, out);
}

static enigma_status set_rows(const summing *sum, eni_arena *arena, enigma_row **out)
{
    enigma_row *rows = eni_arena_alloc(arena, sum->groups->count * sizeof *rows);
    if (rows == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < sum->groups->count; i++) {
        ENI_TRY(set_row(sum, (uint32_t)i, arena, &rows[i]));
    }
    *out = rows;
    return ENIGMA_OK;
}

static enigma_status sum_all(summing *sum, eni_arena *arena, enigma_row **out)
{
    ENI_TRY(add_metrics(sum));
    ENI_TRY(mark_recursion(sum));
    add_events(sum);
    ENI_TRY(add_samples(sum));
    ENI_TRY(add_busy_all(sum));
    return set_rows(sum, arena, out);
}

enigma_status eni_rows_sum(const enigma_profile *profile, const eni_groups *groups, eni_arena *arena, enigma_row **out)
{
    *out = NULL;
    summing sum = {.profile = profile, .groups = groups};
    size_t count = groups->count;
    if (count == 0) {
        return ENIGMA_OK;
    }
    sum.rows = eni_alloc_zero(count * sizeof *sum.rows);
    sum.marks = eni_alloc_zero(profile->event_count);
    enigma_status status =
        sum.rows == NULL || sum.marks == NULL ? ENI_NO_MEMORY() : eni_metrics_init(&sum.metrics, count);
    if (status == ENIGMA_OK) {
        status = sum_all(&sum, arena, out);
    }
    eni_metrics_free(&sum.metrics);
    eni_free(sum.samples, profile->event_count * sizeof *sum.samples);
    eni_free(sum.marks, profile->event_count);
    eni_free(sum.rows, count * sizeof *sum.rows);
    return status;
}
