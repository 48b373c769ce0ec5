/* Reads CUPTI's activity records and hands them to the consumers. Called by buffers.c on whichever thread CUPTI completes a buffer
 * on; holds no lock. */
#include "base/clock.h"
#include "cupti/session.h"

/* Who gets the records of one buffer. Fixed for its length, so that batch_begin and batch_end pair. */
typedef struct audience {
    const eni_cupti_consumer *members[ENI_CUPTI_CONSUMERS];
    int count;
    uint32_t families;
} audience;

static audience gather(void)
{
    audience found = {.count = 0};
    for (int i = 0; i < ENI_CUPTI_CONSUMERS; i++) {
        const eni_cupti_consumer *consumer = eni_cupti_consumer_at(i);
        if (consumer != NULL && consumer->record != NULL) {
            found.members[found.count++] = consumer;
            found.families |= consumer->records;
        }
    }
    return found;
}

/* ---- one record ---- */

/* A stamp on the host's clock; 0 stays what it says. */
static uint64_t host_ns(uint64_t stamp)
{
    if (stamp == 0) {
        return 0;
    }
    return __atomic_load_n(&eni_cupti_own_clock, __ATOMIC_RELAXED)
               ? eni_clock_ns(stamp)
               : stamp + (uint64_t)__atomic_load_n(&eni_cupti_offset_ns, __ATOMIC_RELAXED);
}

static void set_times(eni_cupti_record *out, uint64_t start, uint64_t end)
{
    out->start_ns = host_ns(start);
    out->end_ns = host_ns(end);
    out->time = start != 0 && end == 0 ? ENI_CUPTI_TIME_UNFINISHED
                : start == 0           ? ENI_CUPTI_TIME_ZERO
                : end < start          ? ENI_CUPTI_TIME_REVERSED
                                       : ENI_CUPTI_TIME_VALID;
}

static void read_kernel(const cupti_kernel_record *record, eni_cupti_record *out)
{
    *out = (eni_cupti_record){.family = ENI_CUPTI_KERNEL,
                              .correlation = record->correlation,
                              .device = record->device,
                              .context = record->context,
                              .stream = record->stream,
                              .graph = record->graph,
                              .graph_node = record->graph_node};
    set_times(out, record->start, record->end);
    out->as.kernel.name = record->name;
    for (int i = 0; i < 3; i++) {
        out->as.kernel.grid[i] = (uint32_t)record->grid[i];
        out->as.kernel.block[i] = (uint32_t)record->block[i];
    }
    out->as.kernel.registers = record->registers;
    out->as.kernel.static_bytes = (uint32_t)record->static_bytes;
    out->as.kernel.dynamic_bytes = (uint32_t)record->dynamic_bytes;
}

static void read_memcpy(const cupti_memcpy_record *record, eni_cupti_record *out)
{
    *out = (eni_cupti_record){.family = ENI_CUPTI_MEMCPY,
                              .correlation = record->correlation,
                              .device = record->device,
                              .context = record->context,
                              .stream = record->stream,
                              .graph = record->graph,
                              .graph_node = record->graph_node};
    set_times(out, record->start, record->end);
    out->as.copy.bytes = record->bytes;
    out->as.copy.kind = record->copy_kind;
    out->as.copy.source_device = out->as.copy.target_device = record->device;
}

static void read_peer(const cupti_peer_record *record, eni_cupti_record *out)
{
    *out = (eni_cupti_record){.family = ENI_CUPTI_MEMCPY,
                              .correlation = record->correlation,
                              .device = record->device,
                              .context = record->context,
                              .stream = record->stream,
                              .graph = record->graph,
                              .graph_node = record->graph_node};
    set_times(out, record->start, record->end);
    out->as.copy.bytes = record->bytes;
    out->as.copy.kind = record->copy_kind;
    out->as.copy.source_device = record->source_device;
    out->as.copy.target_device = record->target_device;
}

static void read_memset(const cupti_memset_record *record, eni_cupti_record *out)
{
    *out = (eni_cupti_record){.family = ENI_CUPTI_MEMSET,
                              .correlation = record->correlation,
                              .device = record->device,
                              .context = record->context,
                              .stream = record->stream,
                              .graph = record->graph,
                              .graph_node = record->graph_node};
    set_times(out, record->start, record->end);
    out->as.fill.bytes = record->bytes;
    out->as.fill.value = record->value;
}

/* False: a kind that was not asked for. */
static bool read_record(const void *record, eni_cupti_record *out)
{
    switch (*(const uint32_t *)record) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        read_kernel(record, out);
        return true;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        read_memcpy(record, out);
        return true;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        read_peer(record, out);
        return true;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        read_memset(record, out);
        return true;
    default:
        eni_cupti_count(&eni_cupti_totals.foreign, 1);
        return false;
    }
}

/* ---- a buffer ---- */

static void count_record(const eni_cupti_record *record)
{
    uint64_t *const counters[] = {NULL, &eni_cupti_totals.zero, &eni_cupti_totals.reversed,
                                  &eni_cupti_totals.unfinished};
    if (record->time != ENI_CUPTI_TIME_VALID) {
        eni_cupti_count(counters[record->time], 1);
    }
}

static void hand_out(const audience *to, const eni_cupti_record *record)
{
    for (int i = 0; i < to->count; i++) {
        if ((to->members[i]->records & record->family) != 0) {
            to->members[i]->record(record);
        }
    }
}

void eni_cupti_records_deliver(uint8_t *buffer, size_t valid_size)
{
    void *at = NULL;
    uint64_t count = 0;
    eni_cupti_record record;
    audience to = gather();
    eni_cupti_compare_clocks();
    for (int i = 0; i < to.count; i++) {
        if (to.members[i]->batch_begin != NULL) {
            to.members[i]->batch_begin();
        }
    }
    while (valid_size != 0 && eni_cu_pti.cuptiActivityGetNextRecord(buffer, valid_size, &at) == CUPTI_SUCCESS) {
        if (read_record(at, &record) && (to.families & record.family) != 0) {
            count_record(&record);
            hand_out(&to, &record);
            count++;
        }
    }
    for (int i = 0; i < to.count; i++) {
        if (to.members[i]->batch_end != NULL) {
            to.members[i]->batch_end();
        }
    }
    eni_cupti_count(&eni_cupti_totals.records, count);
}
