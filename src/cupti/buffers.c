/* The memory that CUPTI fills with records: blocks of 1 MiB, given when it asks and taken back when it hands them in; never freed
 * between, whatever stops meanwhile. Called by CUPTI on launching threads (a request once in some thousand launches) and on
 * whichever thread hands records out. */
#include "base/alloc.h"
#include "base/log.h"
#include "cupti/session.h"

enum { BUFFER_BYTES = 1 << 20, KEPT_LIMIT = 8, SINK_BYTES = 1 << 16 };

typedef struct block {
    struct block *next;
    uint64_t pad; /* the bytes are aligned as eni_alloc's result is */
    uint8_t bytes[BUFFER_BYTES];
} block;

/* Blocks that CUPTI does not hold. A leaf lock. */
static struct {
    eni_mutex lock;
    block *free;
    uint32_t count;
} pool = {.lock = ENI_MUTEX_INIT};

/* Where there is no memory CUPTI gets this one, as often as it asks, since older versions crash on NULL. What is in it is never read:
 * several threads may have written over each other. */
static uint64_t sink[SINK_BYTES / sizeof(uint64_t)];

uint32_t eni_cupti_active;
eni_cupti_counts eni_cupti_totals;

static block *take(void)
{
    eni_lock(&pool.lock);
    block *found = pool.free;
    if (found != NULL) {
        pool.free = found->next;
        pool.count--;
    }
    eni_unlock(&pool.lock);
    return found != NULL ? found : eni_alloc(sizeof(block));
}

static void give(block *item)
{
    eni_lock(&pool.lock);
    bool keep = pool.count < KEPT_LIMIT;
    if (keep) {
        item->next = pool.free;
        pool.free = item;
        pool.count++;
    }
    eni_unlock(&pool.lock);
    if (!keep) {
        eni_free(item, sizeof *item);
    }
}

bool eni_cupti_buffers_warm(void)
{
    block *item = take();
    if (item != NULL) {
        give(item);
    }
    return item != NULL;
}

void eni_cupti_buffers_trim(void)
{
    eni_lock(&pool.lock);
    block *list = pool.free;
    pool.free = NULL;
    pool.count = 0;
    eni_unlock(&pool.lock);
    while (list != NULL) {
        block *next = list->next;
        eni_free(list, sizeof *list);
        list = next;
    }
}

void eni_cupti_buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records)
{
    block *item = eni_cupti_in_child() ? NULL : take();
    __atomic_store_n(&eni_cupti_active, 1, __ATOMIC_RELAXED);
    *max_records = 0;
    if (item != NULL) {
        *buffer = item->bytes;
        *size = BUFFER_BYTES;
    } else {
        eni_cupti_count(&eni_cupti_totals.starved, 1);
        *buffer = (uint8_t *)sink;
        *size = sizeof sink;
    }
}

/* What CUPTI had to drop since it was last asked. */
static void count_dropped(void *context, uint32_t stream)
{
    size_t dropped = 0;
    if (eni_cu_pti.cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS && dropped != 0) {
        eni_cupti_count(&eni_cupti_totals.dropped, dropped);
        eni_log(ENI_LOG_WARN, "CUPTI dropped %zu records", dropped);
    }
}

void eni_cupti_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size)
{
    (void)size;
    if (eni_cupti_in_child() || buffer == NULL) {
        return;
    }
    if (buffer == (uint8_t *)sink) {
        count_dropped(context, stream);
        return;
    }
    eni_cupti_records_deliver(buffer, valid_size);
    count_dropped(context, stream);
    give((block *)(void *)(buffer - offsetof(block, bytes)));
}
