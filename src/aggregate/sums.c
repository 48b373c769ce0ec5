/* The arithmetic of rows: one pass over the events for each question, all linear but for sorting. Times are summed as integers
 * and divided once. See rows.h; the rules are in docs/decisions.md, "Numbers". */
#include "aggregate/rows.h"

#include <stdlib.h>

#include "aggregate/forest.h"
#include "aggregate/metrics.h"

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

/* One row in the making; what every event touches comes first. */
typedef struct row_sum {
    uint64_t known;  /* calls whose GPU time, if they are GPU work, is known */
    uint64_t *timed; /* after the last of its durations for min, median and max */
    bool gpu;        /* which are GPU times: all its events are GPU work */
    wide cpu_ns, gpu_ns, self_ns;
    struct {
        wide cpu_ns, gpu_ns; /* over carriers of its metric */
    } rates[ENI_RATE_COUNT];
    uint64_t *samples; /* its durations */
    uint64_t input_bytes, output_bytes;
    wide busy_ns;
    uint64_t busy_to;                             /* end of the last GPU interval */
    eni_sum known_counts[ENI_RATE_COUNT];         /* over carriers whose GPU time is known, where some is not */
    uint32_t open, open_carriers[ENI_RATE_COUNT]; /* while walking the forest */
} row_sum;

typedef struct summing {
    const enigma_profile *profile;
    const eni_groups *groups;
    row_sum *rows;
    uint8_t *marks; /* enum mark of each event; NULL where none can be below another of its row */
    uint64_t *samples; /* ns */
    eni_metric_table metrics;
} summing;

static uint32_t group_of(const summing *sum, const eni_event *event) { return sum->groups->of_node[event->node]; }

static bool gpu_time_known(const summing *sum, const eni_event *event)
{
    return event->gpu == ENI_NONE || sum->profile->gpu[event->gpu].status == ENI_GPU_VALID;
}

/* ---- metrics ---- */

/* Adds all metrics before anything else, since marking needs to know the carriers. */
static enigma_status mark_carriers(summing *sum)
{
    for (size_t i = 0; i < sum->profile->event_count; i++) {
        const eni_event *event = &sum->profile->events[i];
        uint32_t group = event->side == 0 ? ENI_NONE : group_of(sum, event), carried;
        if (group != ENI_NONE) {
            ENI_TRY(eni_metrics_add(&sum->metrics, sum->profile, event, group, &carried));
            sum->marks[i] = (uint8_t)(carried * MARK_FLOPS);
        }
    }
    return ENIGMA_OK;
}

/* ---- recursion ---- */

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
    for (int rate = 0; rate < ENI_RATE_COUNT; rate++) {
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
    for (int rate = 0; rate < ENI_RATE_COUNT; rate++) {
        sum->rows[group].open_carriers[rate] -= (sum->marks[index] & CARRIES(rate)) != 0;
    }
}

static void forest_walk(summing *sum, const eni_forest *forest)
{
    eni_forest_step step = {0};
    while (eni_forest_next(forest, &step)) {
        (step.entering ? enter : leave)(sum, step.at);
    }
}

static enigma_status mark_recursion(summing *sum)
{
    eni_forest forest;
    sum->marks = eni_alloc_zero(sum->profile->event_count);
    if (sum->marks == NULL) {
        return ENI_NO_MEMORY();
    }
    ENI_TRY(mark_carriers(sum));
    ENI_TRY(eni_forest_init(&forest, &sum->profile->events[0].parent, sizeof(eni_event), sum->profile->event_count));
    forest_walk(sum, &forest);
    eni_forest_free(&forest);
    return ENIGMA_OK;
}

/* ---- times ---- */

static void add_bytes(uint64_t *total, uint64_t bytes)
{
    if (__builtin_add_overflow(*total, bytes, total)) {
        *total = UINT64_MAX;
    }
}

static void add_event(const summing *sum, const eni_event *event, uint32_t marks, row_sum *row)
{
    uint64_t cpu_ns = eni_event_duration_ns(event);
    bool known = gpu_time_known(sum, event);
    row->known += known;
    if (known || !row->gpu) {
        *row->timed++ = row->gpu ? event->gpu_ns : cpu_ns;
    }
    row->self_ns += event->self_ns;
    if ((marks & MARK_BELOW) == 0) {
        row->cpu_ns += cpu_ns;
        row->gpu_ns += event->gpu_ns;
    }
    for (int rate = 0; marks != 0 && rate < ENI_RATE_COUNT; rate++) {
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

/* min, median and max are over GPU time where every event of a row is GPU work, without those whose time is not known. */
static enigma_status place_samples(summing *sum)
{
    sum->samples = eni_alloc(sum->profile->event_count * sizeof *sum->samples);
    if (sum->samples == NULL) {
        return ENI_NO_MEMORY();
    }
    uint64_t *at = sum->samples;
    for (size_t i = 0; i < sum->groups->count; i++) {
        const eni_group *group = &sum->groups->items[i];
        row_sum *row = &sum->rows[i];
        row->gpu = group->gpu_calls == group->calls;
        row->samples = row->timed = at;
        at += group->calls;
    }
    return ENIGMA_OK;
}

static enigma_status add_events(summing *sum)
{
    for (size_t i = 0; i < sum->profile->event_count; i++) {
        const eni_event *event = &sum->profile->events[i];
        uint32_t group = group_of(sum, event), carried = 0;
        if (group == ENI_NONE) {
            continue;
        }
        if (sum->marks == NULL && event->side != 0) {
            ENI_TRY(eni_metrics_add(&sum->metrics, sum->profile, event, group, &carried));
        }
        add_event(sum, event, sum->marks == NULL ? carried * MARK_FLOPS : sum->marks[i], &sum->rows[group]);
    }
    return ENIGMA_OK;
}

static bool has_unknown(const summing *sum, uint32_t group)
{
    return sum->rows[group].known < sum->groups->items[group].calls;
}

/* Counts for the rates of rows in which some GPU time is not known. */
static void add_known(summing *sum, const eni_event *event, row_sum *row)
{
    eni_cursor cursor = {0};
    enigma_text key;
    double value;
    while (eni_profile_next_metric(sum->profile, event, &cursor, &key, &value)) {
        enum eni_rate rate = eni_rate_of(key);
        if (rate != ENI_RATE_COUNT) {
            eni_sum_add(&row->known_counts[rate], value);
        }
    }
}

static void add_known_all(summing *sum)
{
    bool any = false;
    for (uint32_t i = 0; i < sum->groups->count; i++) {
        any = any || has_unknown(sum, i);
    }
    for (size_t i = 0; any && i < sum->profile->event_count; i++) {
        const eni_event *event = &sum->profile->events[i];
        uint32_t group = group_of(sum, event);
        if (group != ENI_NONE && has_unknown(sum, group) && gpu_time_known(sum, event)) {
            add_known(sum, event, &sum->rows[group]);
        }
    }
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
        bool counts = at == gpu->event || eni_event_held(&events[at], work);
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
static void set_rates(const summing *sum, uint32_t group, enigma_row *out)
{
    const row_sum *row = &sum->rows[group];
    double *rates[ENI_RATE_COUNT] = {&out->gflops_per_s, &out->gbytes_per_s};
    bool gpu = row->gpu_ns > 0;
    for (int rate = 0; rate < ENI_RATE_COUNT; rate++) {
        const eni_metric_total *total = eni_metrics_rate(&sum->metrics, group, (enum eni_rate)rate);
        if (total == NULL) {
            continue;
        }
        double count = eni_sum_get(gpu && has_unknown(sum, group) ? &row->known_counts[rate] : &total->sum);
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
    eni_middle ns = {0, 0, 0, 0};
    if (row->timed > row->samples) {
        ns = eni_stats_middle(row->samples, (size_t)(row->timed - row->samples));
    }
    *out = (enigma_row){.struct_size = sizeof *out,
                        .name = about->name,
                        .kernel_name = about->kernel,
                        .calls = about->calls,
                        .cpu_total_us = us_of(row->cpu_ns),
                        .gpu_total_us = us_of(row->gpu_ns),
                        .cpu_avg_us = us_of(row->cpu_ns) / (double)about->calls,
                        .gpu_avg_us = us_of(row->gpu_ns) / (double)about->calls,
                        .min_us = us_of(ns.min),
                        .median_us = eni_stats_median(us_of(ns.below), us_of(ns.above)),
                        .max_us = us_of(ns.max),
                        .self_total_us = us_of(row->self_ns),
                        .gpu_busy_us = us_of(row->busy_ns),
                        .input_bytes = row->input_bytes,
                        .output_bytes = row->output_bytes,
                        .is_gpu_work = row->gpu,
                        .call_path = about->path,
                        .call_path_count = about->path_count};
    set_rates(sum, group, out);
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
    if (sum->groups->nested) {
        ENI_TRY(mark_recursion(sum));
    }
    ENI_TRY(place_samples(sum));
    ENI_TRY(add_events(sum));
    add_known_all(sum);
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
    enigma_status status = sum.rows == NULL ? ENI_NO_MEMORY() : eni_metrics_init(&sum.metrics, count);
    if (status == ENIGMA_OK) {
        status = sum_all(&sum, arena, out);
    }
    eni_metrics_free(&sum.metrics);
    eni_free(sum.samples, profile->event_count * sizeof *sum.samples);
    eni_free(sum.marks, profile->event_count);
    eni_free(sum.rows, count * sizeof *sum.rows);
    return status;
}
