/* Notes launches as they are made: on the launching thread, inside of the driver's call, without a lock but for a thread's first
 * launch and a context's. Also where nodes of graphs were made. */
#include "attach/cuda.h"

#include "base/clock.h"
#include "record/spot.h"

enum { CHUNK_FIRST = 16, CHUNK_LAST = 1024 };

static ENI_THREAD_LOCAL eni_tap_log *own_log;
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

/* ---- logs ---- */

static void thread_exit(void *arg)
{
    eni_tap_log *log = arg;
    own_log = NULL;
    __atomic_store_n(&log->dead, 1, __ATOMIC_RELEASE);
}

static void exit_init(void) { pthread_key_create(&exit_key, thread_exit); }

static size_t chunk_size(uint32_t capacity) { return sizeof(eni_tap_chunk) + capacity * sizeof(eni_tap_note); }

static eni_tap_chunk *chunk_new(uint32_t capacity)
{
    eni_tap_chunk *chunk = eni_alloc(chunk_size(capacity));
    if (chunk != NULL) {
        chunk->next = NULL;
        chunk->used = 0;
        chunk->capacity = capacity;
    }
    return chunk;
}

static eni_tap_log *log_new(void)
{
    eni_tap_log *log = ENI_NEW(eni_tap_log);
    eni_tap_chunk *chunk = log == NULL ? NULL : chunk_new(CHUNK_FIRST);
    pthread_once(&exit_once, exit_init);
    if (chunk == NULL || pthread_setspecific(exit_key, log) != 0) {
        if (chunk != NULL) {
            eni_free(chunk, chunk_size(chunk->capacity));
        }
        ENI_DELETE(log);
        return NULL;
    }
    log->thread_id = eni_thread_id();
    log->front = log->back = chunk;
    eni_lock(&eni_tap_queue_.lock);
    log->next = eni_tap_queue_.logs;
    eni_tap_queue_.logs = log;
    eni_unlock(&eni_tap_queue_.lock);
    own_log = log;
    return log;
}

/* Room for a note at the end of a log; NULL: no memory. */
static eni_tap_note *log_room(eni_tap_log *log)
{
    eni_tap_chunk *back = log->back;
    if (back->used == back->capacity) {
        eni_tap_chunk *more = chunk_new(back->capacity < CHUNK_LAST ? back->capacity * 2 : CHUNK_LAST);
        if (more == NULL) {
            return NULL;
        }
        log->back = more;
        __atomic_store_n(&back->next, more, __ATOMIC_RELEASE);
        back = more;
    }
    return &back->notes[back->used];
}

const eni_tap_note *eni_tap_log_front(eni_tap_log *log)
{
    eni_tap_chunk *front = log->front;
    if (log->read == front->capacity) {
        eni_tap_chunk *next = __atomic_load_n(&front->next, __ATOMIC_ACQUIRE);
        if (next == NULL) {
            return NULL;
        }
        eni_free(front, chunk_size(front->capacity));
        log->front = front = next;
        log->read = 0;
    }
    if (log->read == __atomic_load_n(&front->used, __ATOMIC_ACQUIRE)) {
        return NULL;
    }
    const eni_tap_note *note = &front->notes[log->read];
    return __atomic_load_n(&note->end, __ATOMIC_ACQUIRE) != 0 ? note : NULL;
}

void eni_tap_log_pop(eni_tap_log *log) { log->read++; }

bool eni_tap_log_is_in(const eni_tap_log *log, uint32_t correlation)
{
    const eni_tap_chunk *front = log->front;
    if (log->read == front->capacity) {
        front = __atomic_load_n(&front->next, __ATOMIC_ACQUIRE);
    }
    uint32_t read = front == log->front ? log->read : 0;
    return front != NULL && read < __atomic_load_n(&front->used, __ATOMIC_ACQUIRE) &&
           __atomic_load_n(&front->notes[read].correlation, __ATOMIC_RELAXED) == correlation;
}

void eni_tap_logs_tidy(void)
{
    eni_lock(&eni_tap_queue_.lock);
    for (eni_tap_log **at = &eni_tap_queue_.logs; *at != NULL;) {
        eni_tap_log *log = *at;
        bool dead = __atomic_load_n(&log->dead, __ATOMIC_ACQUIRE) != 0;
        if (!dead || eni_tap_log_front(log) != NULL) {
            at = &log->next;
            continue;
        }
        *at = log->next;
        for (eni_tap_chunk *chunk = log->front; chunk != NULL;) {
            eni_tap_chunk *next = chunk->next;
            eni_free(chunk, chunk_size(chunk->capacity));
            chunk = next;
        }
        ENI_DELETE(log);
    }
    eni_unlock(&eni_tap_queue_.lock);
}

void eni_tap_log_forget(void)
{
    if (own_log != NULL) {
        pthread_setspecific(exit_key, NULL);
        own_log = NULL;
    }
}

/* ---- launches ---- */

/* A context that this thread has not launched in lately: it is among those to be synchronised. */
static void note_context(eni_tap_log *log, void *context)
{
    eni_tap_queue *queue = &eni_tap_queue_;
    eni_lock(&queue->lock);
    size_t i = 0;
    while (i < queue->context_count && queue->contexts[i] != context) {
        i++;
    }
    bool known = i < queue->context_count;
    if (!known && eni_grow((void **)&queue->contexts, &queue->context_capacity, queue->context_count, sizeof(void *))) {
        queue->contexts[queue->context_count++] = context;
        known = true;
    }
    log->context = known ? context : NULL;
    log->sessions = __atomic_load_n(&queue->sessions, __ATOMIC_RELAXED);
    eni_unlock(&queue->lock);
}

/* Ends a call whose exit was never told, since listening stopped in between. */
static void close_open(eni_tap_log *log)
{
    if (log->open != NULL) {
        __atomic_store_n(&log->open->end, log->open->start, __ATOMIC_RELEASE);
        log->open = NULL;
    }
}

void eni_tap_enter(const eni_cupti_launch *launch)
{
    eni_tap_log *log = own_log;
    eni_spot spot;
    if (log != NULL) {
        close_open(log);
    }
    if (launch->mark != NULL || !eni_spot_find(&spot) || (log == NULL && (log = log_new()) == NULL)) {
        return;
    }
    eni_tap_note *note = log_room(log);
    if (note == NULL) {
        return;
    }
    if (launch->context != NULL && (log->context != launch->context ||
                                    log->sessions != __atomic_load_n(&eni_tap_queue_.sessions, __ATOMIC_RELAXED))) {
        note_context(log, launch->context);
    }
    note->scope = spot.scope;
    note->serial = spot.serial;
    note->path = spot.path;
    note->family = (uint8_t)launch->family;
    note->source = (uint8_t)spot.source;
    __atomic_store_n(&note->correlation, launch->correlation, __ATOMIC_RELAXED);
    __atomic_store_n(&note->end, 0, __ATOMIC_RELAXED);
    log->open = note;
    note->start = eni_clock_ticks();
    __atomic_store_n(&log->back->used, log->back->used + 1, __ATOMIC_RELEASE);
}

void eni_tap_leave(const eni_cupti_launch *launch)
{
    uint64_t now = eni_clock_ticks();
    eni_tap_log *log = own_log;
    if (log == NULL || log->open == NULL || log->open->correlation != launch->correlation) {
        return;
    }
    if (launch->failed) {
        log->open->family = 0;
    }
    __atomic_store_n(&log->open->end, now == 0 ? 1 : now, __ATOMIC_RELEASE);
    log->open = NULL;
}

/* ---- graphs ---- */

/* Where a node is made: at a launch that its stream captures, or by a call that adds it. */
static bool made_at(eni_spot *out)
{
    eni_tap_log *log = own_log;
    if (log == NULL || log->open == NULL) {
        return eni_spot_find(out);
    }
    eni_tap_note *note = log->open;
    note->family = 0; /* captured: it runs with each replay, not now */
    *out = (eni_spot){note->serial, note->scope, note->path, note->source};
    return true;
}

static void node_put(uint64_t id, uint32_t graph, uint64_t serial, uint32_t path)
{
    eni_tap_queue *queue = &eni_tap_queue_;
    eni_tap_node *node = queue->nodes.count >= ENI_TAP_NODE_LIMIT ? NULL : eni_table_put(&queue->nodes, id);
    if (node != NULL) {
        *node = (eni_tap_node){id, serial, path, graph};
    }
}

static void nodes_drop(uint32_t graph)
{
    eni_table *nodes = &eni_tap_queue_.nodes;
    size_t at = 0;
    for (eni_tap_node *node; graph != 0 && (node = eni_table_each(nodes, &at)) != NULL;) {
        if (node->graph == graph) {
            eni_table_remove(nodes, node);
            at--; /* another one may have moved there */
        }
    }
}

void eni_tap_graph(const eni_cupti_graph_event *event)
{
    eni_tap_queue *queue = &eni_tap_queue_;
    eni_spot spot;
    bool made = event->change == ENI_CUPTI_NODE_CREATED && made_at(&spot);
    eni_lock(&queue->lock);
    eni_tap_node *node;
    switch (event->change) {
    case ENI_CUPTI_NODE_CREATED:
        if (made && event->node != 0) {
            node_put(event->node, event->graph, spot.serial, spot.path);
        }
        break;
    case ENI_CUPTI_NODE_CLONED:
        node = event->original == 0 ? NULL : eni_table_find(&queue->nodes, event->original);
        if (node != NULL && event->node != 0) {
            node_put(event->node, event->graph, node->serial, node->path);
        }
        break;
    case ENI_CUPTI_NODE_DESTROYED:
        node = event->node == 0 ? NULL : eni_table_find(&queue->nodes, event->node);
        if (node != NULL) {
            eni_table_remove(&queue->nodes, node);
        }
        break;
    case ENI_CUPTI_EXEC_DESTROYED:
    case ENI_CUPTI_GRAPH_DESTROYED:
        nodes_drop(event->graph);
        break;
    default:
        break;
    }
    eni_unlock(&queue->lock);
}
