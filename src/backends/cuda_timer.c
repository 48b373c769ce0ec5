/* Timing by CUPTI's records. The callback at a launch of ours gives the ticket its correlation and lists it; the record that comes
 * later, in bulk and on any thread, fills it. One consumer for all devices of the process. The lock is a leaf, held for a few
 * instructions. */
#include "backends/cuda.h"
#include "base/clock.h"
#include "base/log.h"
#include "cupti/cupti.h"

enum { BUCKETS = 4096, OUTSTANDING_LIMIT = 4096 };
#define PATIENCE_NS UINT64_C(1000000000) /* for the record of a launch that is over */

/* Tickets whose record has not come, by correlation. */
static struct {
    eni_mutex lock;
    cuda_ticket *buckets[BUCKETS];
    uint32_t count;     /* atomic */
    uint32_t next_look; /* outstanding tickets at which the next flush is due; one thread may be late */
} listed = {.lock = ENI_MUTEX_INIT, .next_look = OUTSTANDING_LIMIT};

static cuda_ticket **bucket_of(uint32_t correlation) { return &listed.buckets[correlation % BUCKETS]; }

/* Takes a ticket out; NULL: it is not there. With the lock held. */
static cuda_ticket *unlist(uint32_t correlation)
{
    for (cuda_ticket **at = bucket_of(correlation); *at != NULL; at = &(*at)->next) {
        if ((*at)->correlation == correlation) {
            cuda_ticket *ticket = *at;
            *at = ticket->next;
            __atomic_fetch_sub(&listed.count, 1, __ATOMIC_RELAXED);
            return ticket;
        }
    }
    return NULL;
}

/* ---- what CUPTI calls ---- */

static void on_enter(const eni_cupti_launch *launch)
{
    cuda_ticket *ticket = launch->mark;
    if (ticket == NULL || ticket->correlation != 0) {
        return;
    }
    eni_lock(&listed.lock);
    ticket->correlation = launch->correlation;
    ticket->next = *bucket_of(launch->correlation);
    *bucket_of(launch->correlation) = ticket;
    __atomic_fetch_add(&listed.count, 1, __ATOMIC_RELAXED);
    eni_unlock(&listed.lock);
}

static void on_record(const eni_cupti_record *record)
{
    if (__atomic_load_n(&listed.count, __ATOMIC_RELAXED) == 0) {
        return;
    }
    eni_lock(&listed.lock);
    cuda_ticket *ticket = unlist(record->correlation);
    if (ticket != NULL) {
        bool told = record->time != ENI_CUPTI_TIME_UNFINISHED; /* gpu/ judges the others */
        ticket->start_ns = told ? record->start_ns : 0;
        ticket->end_ns = told ? record->end_ns : 0;
        __atomic_store_n(&ticket->filled, 1, __ATOMIC_RELEASE);
    }
    eni_unlock(&listed.lock);
}

static const eni_cupti_consumer consumer = {
    .records = ENI_CUPTI_KERNEL, .launches = ENI_CUPTI_KERNEL, .record = on_record, .enter = on_enter};

/* ---- what the backend calls ---- */

enigma_status eni_cuda_cupti_start(void) { return eni_cupti_start(&consumer); }

void eni_cuda_cupti_stop(void) { eni_cupti_stop(&consumer); }

void eni_cuda_cupti_mark(cuda_ticket *ticket) { eni_cupti_mark(ticket); }

/* Work that is launched and never asked for must not pile up. When the device itself is far behind, a flush brings little: the next
 * one is due when as many again are outstanding. */
void eni_cuda_cupti_bound(void)
{
    uint32_t count = __atomic_load_n(&listed.count, __ATOMIC_RELAXED);
    if (count < __atomic_load_n(&listed.next_look, __ATOMIC_RELAXED)) {
        return;
    }
    eni_cupti_flush(NULL, NULL, 0);
    count = __atomic_load_n(&listed.count, __ATOMIC_RELAXED);
    __atomic_store_n(&listed.next_look, count + OUTSTANDING_LIMIT, __ATOMIC_RELAXED);
}

static bool is_filled(void *ticket) { return __atomic_load_n(&((cuda_ticket *)ticket)->filled, __ATOMIC_ACQUIRE) != 0; }

void eni_cuda_cupti_stamps(cuda_ticket *ticket, eni_stamps *out)
{
    if (ticket->correlation == 0) {
        eni_log(ENI_LOG_WARN, "CUPTI did not tell a launch");
        return;
    }
    if (!is_filled(ticket) && !eni_cupti_flush(is_filled, ticket, PATIENCE_NS)) {
        eni_log(ENI_LOG_WARN, "CUPTI has no record of launch %u", ticket->correlation);
        return;
    }
    out->available = true;
    out->start = ticket->start_ns;
    out->end = ticket->end_ns;
}

void eni_cuda_cupti_forget(cuda_ticket *ticket)
{
    if (ticket->correlation == 0 || is_filled(ticket)) {
        return;
    }
    eni_lock(&listed.lock);
    if (ticket->filled == 0) {
        unlist(ticket->correlation);
    }
    eni_unlock(&listed.lock);
}
