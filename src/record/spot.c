/* Spots of the attached profilers, of their owners, and of the contexts of bindings. Written by whoever moves in a context, read by
 * whoever launches; both without waiting: each entry has a number that is odd while it is written, and who reads it tries again. */
#include "record/spot.h"

#include "record/recorder.h"

enum { SPOTS = 16, NOTES = 1024, WAYS = 8, TRIES = 1000 };

/* An entry that one writes and any number read. All atomic. */
typedef struct note {
    uint32_t sequence, path;
    uint64_t key; /* of the context, 0: free */
    uint64_t serial, scope;
} note;

/* A live profiler that attaches. All atomic; serial and order change under the lock alone. */
typedef struct live_spot {
    uint64_t serial; /* 0: free */
    uint64_t order;  /* the last opened is the innermost */
    note owner;      /* key: the owner's context; threads have odd ones */
} live_spot;

#define NOT_ATTACHED UINT64_MAX /* of a note: a profiler is active that attaches to nothing */

static live_spot spots[SPOTS];
static note notes[NOTES];                 /* a context has its own in one of WAYS places */
static enigma_context_key_fn context_key; /* atomic */
static eni_mutex spots_lock = ENI_MUTEX_INIT;
static uint64_t opened;

/* ---- entries ---- */

/* False: it is not written, since it was no longer what the caller saw (was), or another thread writes it now. */
static bool note_write(note *entry, uint64_t was, uint64_t key, uint64_t serial, uint32_t path, uint64_t scope)
{
    uint32_t sequence = __atomic_load_n(&entry->sequence, __ATOMIC_RELAXED) & ~1u;
    if (!__atomic_compare_exchange_n(&entry->sequence, &sequence, sequence + 1, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED)) {
        return false;
    }
    bool same = __atomic_load_n(&entry->key, __ATOMIC_RELAXED) == was;
    if (same) {
        __atomic_store_n(&entry->key, key, __ATOMIC_RELEASE);
        __atomic_store_n(&entry->serial, serial, __ATOMIC_RELEASE);
        __atomic_store_n(&entry->path, path, __ATOMIC_RELEASE);
        __atomic_store_n(&entry->scope, scope, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&entry->sequence, sequence + 2, __ATOMIC_RELEASE);
    return same;
}

/* The key of the entry, 0: none. */
static uint64_t note_read(const note *entry, eni_spot *out)
{
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t before = __atomic_load_n(&entry->sequence, __ATOMIC_ACQUIRE);
        uint64_t key = __atomic_load_n(&entry->key, __ATOMIC_ACQUIRE);
        out->serial = __atomic_load_n(&entry->serial, __ATOMIC_ACQUIRE);
        out->path = __atomic_load_n(&entry->path, __ATOMIC_ACQUIRE);
        out->scope = __atomic_load_n(&entry->scope, __ATOMIC_ACQUIRE);
        if ((before & 1) == 0 && __atomic_load_n(&entry->sequence, __ATOMIC_RELAXED) == before) {
            return key;
        }
    }
    return 0;
}

static uint64_t note_key(const note *entry) { return __atomic_load_n(&entry->key, __ATOMIC_RELAXED); }

/* The places where the note of a context may be, i below WAYS, the likeliest first. */
static note *note_place(uint64_t key, uint64_t i)
{
    uint64_t mixed = key * UINT64_C(0x9e3779b97f4a7c15);
    return &notes[(mixed >> 32) % (NOTES / WAYS) * WAYS + ((mixed >> 56) + i) % WAYS];
}

static note *note_of(uint64_t key)
{
    for (uint64_t i = 0; i < WAYS; i++) {
        note *entry = note_place(key, i);
        if (note_key(entry) == key) {
            return entry;
        }
    }
    return NULL;
}

/* Where all places are taken another context's note is lost. Whether there was one of this context already. */
static bool note_put(uint64_t key, uint64_t serial, uint32_t path, uint64_t scope)
{
    note *entry = note_of(key);
    if (entry != NULL && note_write(entry, key, key, serial, path, scope)) {
        return true;
    }
    for (uint64_t i = 0; i < WAYS; i++) {
        entry = note_place(key, i);
        if (note_key(entry) == 0 && note_write(entry, 0, key, serial, path, scope)) {
            return false;
        }
    }
    entry = note_place(key, 0);
    note_write(entry, note_key(entry), key, serial, path, scope);
    return false;
}

/* ---- live profilers ---- */

static live_spot *live_of(uint64_t serial)
{
    for (int i = 0; serial != 0 && i < SPOTS; i++) {
        if (__atomic_load_n(&spots[i].serial, __ATOMIC_ACQUIRE) == serial) {
            return &spots[i];
        }
    }
    return NULL;
}

bool eni_spot_open(const enigma_profiler *profiler)
{
    uint64_t serial = eni_profiler_id(profiler);
    eni_lock(&spots_lock);
    live_spot *spot = NULL;
    for (int i = 0; spot == NULL && i < SPOTS; i++) {
        spot = __atomic_load_n(&spots[i].serial, __ATOMIC_RELAXED) == 0 ? &spots[i] : NULL;
    }
    if (spot != NULL) {
        note_write(&spot->owner, note_key(&spot->owner), 0, serial, 0, 0);
        __atomic_store_n(&spot->order, ++opened, __ATOMIC_RELAXED);
        __atomic_store_n(&spot->serial, serial, __ATOMIC_RELEASE);
    }
    eni_unlock(&spots_lock);
    return spot != NULL;
}

void eni_spot_close(uint64_t serial)
{
    eni_lock(&spots_lock);
    live_spot *spot = live_of(serial);
    if (spot != NULL) {
        __atomic_store_n(&spot->serial, 0, __ATOMIC_RELEASE);
    }
    eni_unlock(&spots_lock);
}

/* Notes where the owner is; the first context that records in a profiler is its owner. */
static void owner_moves(uint64_t key, uint64_t serial, uint32_t path, uint64_t scope)
{
    live_spot *spot = live_of(serial);
    uint64_t owner = spot == NULL ? 0 : note_key(&spot->owner);
    if (spot != NULL && (owner == 0 || owner == key)) {
        note_write(&spot->owner, owner, key, serial, path, scope);
    }
}

static bool find_owner(eni_spot *out)
{
    uint64_t newest = 0;
    bool found = false;
    for (int i = 0; i < SPOTS; i++) {
        uint64_t serial = __atomic_load_n(&spots[i].serial, __ATOMIC_ACQUIRE);
        uint64_t order = __atomic_load_n(&spots[i].order, __ATOMIC_RELAXED);
        eni_spot spot = {0};
        if (serial == 0 || order < newest) {
            continue;
        }
        note_read(&spots[i].owner, &spot);
        if (spot.serial == serial) {
            spot.source = ENI_SPOT_OWNER;
            *out = spot;
            newest = order;
            found = true;
        }
    }
    return found;
}

/* ---- where a thread is ---- */

/* The innermost frame of the calling thread that was not ended by another one. */
static const eni_frame *open_frame(const eni_thread *thread)
{
    const eni_frame *frame = thread->top;
    while (__atomic_load_n(&frame->id, __ATOMIC_RELAXED) == 0) {
        frame--;
    }
    return frame;
}

void eni_spot_share(void)
{
    const eni_thread *thread = &eni_thread_current;
    const eni_frame *frame = open_frame(thread);
    owner_moves(thread->key << 1 | 1, eni_profiler_id(thread->profiler), frame->node, frame->scope);
}

/* What a binding noted of the context that the calling thread is in. 1: out holds; -1: recorded nowhere; 0: nothing is active. */
static int find_noted(eni_spot *out)
{
    enigma_context_key_fn ask = __atomic_load_n(&context_key, __ATOMIC_RELAXED);
    uint64_t key = ask == NULL ? 0 : ask();
    const note *entry = key == 0 ? NULL : note_of(key);
    if (entry == NULL || note_read(entry, out) != key || out->serial == 0) {
        return 0;
    }
    out->source = ENI_SPOT_OWN;
    return out->serial == NOT_ATTACHED ? -1 : live_of(out->serial) != NULL;
}

bool eni_spot_find(eni_spot *out)
{
    const eni_thread *thread = &eni_thread_current;
    const enigma_profiler *profiler = thread->profiler;
    if (profiler != NULL && eni_recording(profiler)) {
        const eni_frame *frame = open_frame(thread);
        *out = (eni_spot){eni_profiler_id(profiler), frame->scope, frame->node, ENI_SPOT_OWN};
        return profiler->attach != 0;
    }
    int noted = find_noted(out);
    return noted > 0 || (noted == 0 && find_owner(out));
}

/* ---- bindings ---- */

void enigma_set_context_key(enigma_context_key_fn key) { __atomic_store_n(&context_key, key, __ATOMIC_RELAXED); }

int enigma_context_publish(uint64_t key, const enigma_context *context)
{
    if (context == NULL) {
        note *entry = note_of(key);
        if (entry != NULL) {
            note_write(entry, key, 0, 0, 0, 0);
        }
        return 0;
    }
    const enigma_profiler *profiler = context->profiler;
    uint64_t serial = profiler == NULL ? 0 : profiler->attach == 0 ? NOT_ATTACHED : eni_profiler_id(profiler);
    bool known = note_put(key, serial, context->path, context->scope);
    if (profiler != NULL && profiler->attach != 0) {
        owner_moves(key, serial, context->path, context->scope);
    }
    return !known;
}

/* ---- fork ---- */

static void fork_before(void) { eni_lock(&spots_lock); }
static void fork_parent(void) { eni_unlock(&spots_lock); }

/* Nothing is attached in the child; a note that another thread was writing is free again. */
static void fork_child(void)
{
    for (int i = 0; i < SPOTS; i++) {
        spots[i] = (live_spot){0};
    }
    for (int i = 0; i < NOTES; i++) {
        notes[i] = (note){0};
    }
    fork_parent();
}

__attribute__((constructor)) static void fork_register(void)
{
    static const eni_fork_handler handler = {ENI_FORK_RANK_RECORD + 2, fork_before, fork_parent, fork_child};
    eni_thread_at_fork(&handler);
}
