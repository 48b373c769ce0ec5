/* Puts notes of launches and records of work together. Called by whoever reads or ends a profile; several may at once, each for
 * all sessions. Notes are taken up to the end of the records at hand, so that what waits to be matched is what the device has in
 * its queues, however long a program runs. */
#include "attach/cuda.h"

#include <string.h>

#include "attach/cuda_event.h"
#include "base/clock.h"

enum { ITEMS = 64 };

eni_tap_drain eni_tap_drain_ = {.lock = ENI_MUTEX_INIT, .pending = {.entry_size = sizeof(eni_tap_pending)}};

static ENI_THREAD_LOCAL uint32_t depth; /* a hook may read a profile, which drains */

static uint64_t pending_key(uint32_t correlation) { return UINT64_C(1) << 32 | correlation; }

/* ---- sessions ---- */

eni_tap_session *eni_tap_session_of(uint64_t serial)
{
    eni_tap_session *session = eni_tap_drain_.sessions;
    while (session != NULL && session->serial != serial) {
        session = session->next;
    }
    return session;
}

void eni_tap_session_free(eni_tap_session *session)
{
    eni_map_free(&session->nodes);
    eni_map_free(&session->launches);
    eni_map_free(&session->streams);
    eni_free(session->lanes, session->lane_capacity * sizeof *session->lanes);
    ENI_DELETE(session);
}

/* ---- launches ---- */

/* A launch leaves the table; a kernel's is counted on. */
static void pending_drop(eni_tap_drain *drain, eni_tap_pending *entry)
{
    eni_tap_session *session = eni_tap_session_of(entry->note.serial);
    if (session != NULL && entry->note.family == ENI_CUPTI_KERNEL) {
        session->pending--;
    }
    eni_table_remove(&drain->pending, entry);
}

/* Copies and fills of nothing bring no record, and graphs any number of them: these launches are forgotten when that many others
 * came after them. */
static void note_loose(eni_tap_drain *drain, uint32_t correlation)
{
    if (drain->loose == NULL && (drain->loose = eni_alloc_zero(ENI_TAP_RECENT * sizeof *drain->loose)) == NULL) {
        return;
    }
    uint32_t *slot = &drain->loose[drain->loose_at++ % ENI_TAP_RECENT];
    eni_tap_pending *old = *slot == correlation ? NULL : eni_table_find(&drain->pending, pending_key(*slot));
    if (old != NULL && old->note.family != ENI_CUPTI_KERNEL) {
        eni_table_remove(&drain->pending, old);
    }
    *slot = correlation;
}

static void take_note(eni_tap_drain *drain, const eni_tap_log *log, const eni_tap_note *note)
{
    eni_tap_session *session = note->family == 0 ? NULL : eni_tap_session_of(note->serial);
    if (session == NULL) {
        return;
    }
    eni_tap_pending *entry = eni_table_find(&drain->pending, pending_key(note->correlation));
    if (entry != NULL) { /* the number came round again */
        pending_drop(drain, entry);
    }
    entry = eni_table_put(&drain->pending, pending_key(note->correlation));
    if (entry == NULL) {
        eni_profiler_count_drop(session->profiler);
        return;
    }
    entry->note = *note;
    entry->thread_id = log->thread_id;
    entry->graph_event = 0;
    if (note->family == ENI_CUPTI_KERNEL) {
        session->pending++;
    } else {
        note_loose(drain, note->correlation);
    }
}

static eni_tap_log *all_logs(void)
{
    eni_lock(&eni_tap_queue_.lock);
    eni_tap_log *logs = eni_tap_queue_.logs;
    eni_unlock(&eni_tap_queue_.lock);
    return logs;
}

/* Takes the notes of calls that began by then. */
static void take_notes(eni_tap_drain *drain, uint64_t until_ns)
{
    for (eni_tap_log *log = all_logs(); log != NULL; log = log->next) {
        const eni_tap_note *note;
        while ((note = eni_tap_log_front(log)) != NULL &&
               (until_ns == UINT64_MAX || eni_clock_ns(note->start) <= until_ns)) {
            take_note(drain, log, note);
            eni_tap_log_pop(log);
        }
    }
}

static bool somebody_is_in(uint32_t correlation)
{
    for (const eni_tap_log *log = all_logs(); log != NULL; log = log->next) {
        if (eni_tap_log_is_in(log, correlation)) {
            return true;
        }
    }
    return false;
}

/* ---- records ---- */

/* The next block of records that came, with the notes that it may need. False: there is none. */
static bool next_block(eni_tap_drain *drain)
{
    eni_tap_queue *queue = &eni_tap_queue_;
    eni_lock(&queue->lock);
    eni_tap_block *block = queue->first;
    if (block != NULL) {
        queue->first = block->next;
        queue->last = queue->first == NULL ? NULL : queue->last;
    }
    eni_unlock(&queue->lock);
    drain->block = block;
    if (block == NULL) {
        return false;
    }
    uint64_t latest = 0;
    for (uint32_t i = 0; i < block->count; i++) {
        uint64_t end = block->records[i].end_ns;
        latest = block->records[i].time == ENI_CUPTI_TIME_VALID && end > latest ? end : latest;
    }
    take_notes(drain, latest);
    return true;
}

/* The launch of a record. NULL: none of ours, or it has not returned (*later). */
static eni_tap_pending *launch_of(eni_tap_drain *drain, const eni_tap_record *record, bool *later)
{
    uint64_t key = pending_key(record->correlation);
    eni_tap_pending *found = eni_table_find(&drain->pending, key);
    *later = false;
    if (found == NULL) {
        take_notes(drain, UINT64_MAX);
        found = eni_table_find(&drain->pending, key);
        *later = found == NULL && somebody_is_in(record->correlation);
    }
    return found;
}

static void keep_waiting(eni_tap_drain *drain, const eni_tap_record *record)
{
    if (eni_grow((void **)&drain->waiting, &drain->waiting_capacity, drain->waiting_count, sizeof *record)) {
        drain->waiting[drain->waiting_count++] = *record;
    }
}

/* Makes an item of a record; false: it is nobody's, or waits. */
static bool match(eni_tap_drain *drain, const eni_tap_record *record, eni_tap_item *out)
{
    bool later;
    eni_tap_pending *launch = launch_of(drain, record, &later);
    if (launch == NULL) {
        if (later) {
            keep_waiting(drain, record);
        }
        return false;
    }
    *out = (eni_tap_item){.record = *record, .note = launch->note, .thread_id = launch->thread_id};
    bool ready = eni_tap_item_describe(drain, out);
    if (launch->note.family != ENI_CUPTI_GRAPH) {
        pending_drop(drain, launch);
    }
    return ready;
}

/* Records that waited for their call to return come again, before those that follow. */
static void retry_waiting(eni_tap_drain *drain, eni_tap_item *items, size_t *count)
{
    size_t waiting = drain->waiting_count;
    size_t i = 0;
    for (; i < waiting && *count < ITEMS; i++) {
        const eni_tap_record record = drain->waiting[i];
        *count += match(drain, &record, &items[*count]);
    }
    drain->waiting_count -= i;
    if (drain->waiting_count == 0) {
        return; /* waiting may be NULL */
    }
    memmove(drain->waiting, drain->waiting + i, drain->waiting_count * sizeof *drain->waiting);
}

/* Matches some records. False: none is left. */
static bool match_some(eni_tap_drain *drain, eni_tap_item *items, size_t *count)
{
    *count = 0;
    while (*count < ITEMS) {
        eni_tap_block *block = drain->block;
        if (block == NULL) {
            if (!next_block(drain)) {
                return false;
            }
        } else if (block->read == block->count) {
            eni_free(block, sizeof *block);
            drain->block = NULL;
        } else {
            *count += match(drain, &block->records[block->read++], &items[*count]);
        }
    }
    return true;
}

/* ---- draining ---- */

static void write_items(eni_tap_drain *drain, eni_tap_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        enigma_metric metrics[ENI_HOOK_METRICS];
        eni_hook *hook;
        size_t metric_count = eni_tap_item_ask(&items[i], metrics, &hook);
        eni_lock(&drain->lock);
        eni_tap_item_write(drain, &items[i], metrics, metric_count);
        eni_unlock(&drain->lock);
        eni_hooks_done(hook);
    }
}

uint64_t *eni_tap_replay_of(eni_tap_drain *drain, uint32_t correlation)
{
    eni_tap_pending *launch = eni_table_find(&drain->pending, pending_key(correlation));
    return launch == NULL || launch->note.family != ENI_CUPTI_GRAPH ? NULL : &launch->graph_event;
}

static void drain_all(eni_tap_drain *drain)
{
    eni_tap_item items[ITEMS];
    size_t count = 0;
    bool more = true;
    eni_lock(&drain->lock);
    retry_waiting(drain, items, &count);
    eni_unlock(&drain->lock);
    write_items(drain, items, count);
    while (more) {
        eni_lock(&drain->lock);
        more = match_some(drain, items, &count);
        eni_unlock(&drain->lock);
        write_items(drain, items, count);
    }
}

void eni_tap_drain_all(void)
{
    eni_tap_drain *drain = &eni_tap_drain_;
    eni_lock(&drain->lock);
    drain->drainers++;
    eni_unlock(&drain->lock);
    depth++;
    drain_all(drain);
    depth--;
    eni_lock(&drain->lock);
    drain->drainers--;
    take_notes(drain, UINT64_MAX); /* of what the device has not done yet, or never will */
    eni_tap_logs_tidy();
    eni_unlock(&drain->lock);
}

bool eni_tap_drain_others(void)
{
    eni_lock(&eni_tap_drain_.lock);
    bool others = eni_tap_drain_.drainers > depth;
    eni_unlock(&eni_tap_drain_.lock);
    return others;
}

bool eni_tap_drain_is_done(uint64_t serial)
{
    eni_tap_drain *drain = &eni_tap_drain_;
    eni_tap_drain_all();
    eni_lock(&drain->lock);
    const eni_tap_session *session = eni_tap_session_of(serial);
    bool done = session == NULL || (session->pending == 0 && drain->waiting_count == 0);
    eni_unlock(&drain->lock);
    return done;
}

void eni_tap_drain_rest(eni_tap_session *session, uint64_t dropped)
{
    eni_tap_drain *drain = &eni_tap_drain_;
    take_notes(drain, UINT64_MAX);
    size_t at = 0;
    for (eni_tap_pending *entry; (entry = eni_table_each(&drain->pending, &at)) != NULL;) {
        if (entry->note.serial != session->serial) {
            continue;
        }
        if (entry->note.family == ENI_CUPTI_KERNEL) {
            eni_tap_unfinished_write(drain, session, &entry->note, entry->thread_id);
            dropped -= dropped != 0;
        }
        pending_drop(drain, entry);
        at--; /* another one may have moved there */
    }
    for (; dropped > 0; dropped--) {
        eni_profiler_count_drop(session->profiler);
    }
}

void eni_tap_drain_reset(void)
{
    eni_tap_drain *drain = &eni_tap_drain_;
    eni_tap_queue *queue = &eni_tap_queue_;
    if (drain->sessions != NULL || drain->drainers != 0) {
        return;
    }
    eni_table_clear(&drain->pending);
    eni_free(drain->waiting, drain->waiting_capacity * sizeof *drain->waiting);
    drain->waiting = NULL;
    drain->waiting_count = drain->waiting_capacity = 0;
    eni_free(drain->loose, ENI_TAP_RECENT * sizeof *drain->loose);
    drain->loose = NULL;
    eni_free(drain->shown, drain->shown_count * sizeof *drain->shown);
    drain->shown = NULL;
    drain->shown_count = 0;
    eni_arena_free(&drain->texts);
    eni_free(drain->block, sizeof *drain->block);
    drain->block = NULL;
    eni_lock(&queue->lock);
    for (eni_tap_block *block = queue->first; block != NULL;) {
        eni_tap_block *next = block->next;
        eni_free(block, sizeof *block);
        block = next;
    }
    queue->first = queue->last = NULL;
    eni_intern_free(&queue->names);
    queue->names = (eni_intern){0};
    memset(queue->recent, 0, sizeof queue->recent);
    eni_free(queue->shapes, queue->shape_capacity * sizeof *queue->shapes);
    queue->shapes = NULL;
    queue->shape_count = queue->shape_capacity = 0;
    eni_map_free(&queue->shape_ids);
    queue->shape_ids = (eni_map){0};
    eni_table_clear(&queue->nodes);
    eni_free(queue->contexts, queue->context_capacity * sizeof *queue->contexts);
    queue->contexts = NULL;
    queue->context_count = queue->context_capacity = 0;
    eni_unlock(&queue->lock);
}
