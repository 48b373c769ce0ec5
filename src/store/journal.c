/* The journal: appending. Who may call what is in journal.h; copying it out is in image.c. */
#include "store/journal.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "store/supply.h"

#define CHUNK_MIN 4096u
#define CHUNK_MAX (ENI_SUPPLY_SIZE - sizeof(eni_chunk)) /* of a lane; what grows to it comes from the supply */
#define SHARED_MAX (1024u * 1024u)

static const size_t first_chunk[ENI_STREAM_COUNT] = {
    [ENI_STREAM_NAMES] = 4096,    [ENI_STREAM_NODES] = 4096,  [ENI_STREAM_CATEGORIES] = 256, [ENI_STREAM_LAUNCHES] = 960,
    [ENI_STREAM_DEVICES] = 256,   [ENI_STREAM_PAIRS] = 1024,  [ENI_STREAM_FIELDS] = 4096,    [ENI_STREAM_PIECES] = 256,
    [ENI_STREAM_RECORDS] = CHUNK_MIN, [ENI_STREAM_SIDE] = CHUNK_MIN,
};

/* ---- streams ---- */

static size_t chunk_capacity(const eni_stream *stream, size_t needed)
{
    size_t most = stream->owner != 0 ? CHUNK_MAX : SHARED_MAX;
    size_t capacity = first_chunk[stream->kind];
    for (size_t i = 0; i < stream->count && capacity < most; i++) {
        capacity *= 2;
    }
    capacity = capacity > most ? most : capacity;
    return capacity < needed ? needed : capacity;
}

/* Memory for a chunk, with its header. */
static eni_chunk *chunk_create(const eni_stream *stream, const eni_chunk *head, eni_backing *backing)
{
    size_t capacity = head->capacity;
    if (capacity > SIZE_MAX / 2) {
        return NULL;
    }
    if (stream->backed) {
        return eni_backing_chunk(backing, head, capacity);
    }
    eni_chunk *chunk = capacity == CHUNK_MAX ? eni_supply_take() : eni_alloc(sizeof(eni_chunk) + capacity);
    if (chunk != NULL) {
        *chunk = *head;
    }
    return chunk;
}

static eni_chunk *last_chunk(const eni_stream *stream)
{
    return stream->count == 0 ? NULL : stream->chunks[stream->count - 1];
}

/* Adds a chunk with room for needed bytes. The caller holds the journal's lock; backing is the journal's. */
static eni_chunk *stream_extend(eni_stream *stream, size_t needed, eni_backing *backing)
{
    if (!eni_grow((void **)&stream->chunks, &stream->capacity, stream->count, sizeof(eni_chunk *))) {
        return NULL;
    }
    const eni_chunk *last = last_chunk(stream);
    const eni_chunk head = {.magic = ENI_CHUNK_MAGIC,
                            .stream = stream->kind,
                            .owner = stream->owner,
                            .base = last == NULL ? 0 : last->base + last->used,
                            .capacity = chunk_capacity(stream, needed),
                            .thread_id = stream->thread_id};
    eni_chunk *chunk = chunk_create(stream, &head, backing);
    if (chunk != NULL) {
        stream->chunks[stream->count++] = chunk;
    }
    return chunk;
}

static void stream_free(eni_stream *stream)
{
    for (size_t i = 0; i < stream->count && !stream->backed; i++) {
        eni_free(stream->chunks[i], sizeof(eni_chunk) + stream->chunks[i]->capacity);
    }
    eni_free(stream->chunks, stream->capacity * sizeof(eni_chunk *));
}

static const void *stream_at(const eni_stream *stream, uint64_t offset)
{
    size_t low = 0;
    size_t high = stream->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const eni_chunk *chunk = stream->chunks[middle];
        if (offset < chunk->base) {
            high = middle;
        } else if (offset >= chunk->base + chunk->used) {
            low = middle + 1;
        } else {
            return (const char *)(chunk + 1) + (offset - chunk->base);
        }
    }
    return NULL;
}

void *eni_journal_append(eni_journal *journal, uint32_t stream_kind, size_t size)
{
    eni_stream *stream = &journal->shared[stream_kind];
    eni_chunk *chunk = last_chunk(stream);
    if (chunk == NULL || chunk->capacity - chunk->used < size) {
        chunk = stream_extend(stream, size, NULL);
        if (chunk == NULL) {
            return NULL;
        }
    }
    return memset((char *)(chunk + 1) + chunk->used, 0, size);
}

bool eni_journal_publish(eni_journal *journal, uint32_t stream_kind, size_t size)
{
    eni_chunk *chunk = last_chunk(&journal->shared[stream_kind]);
    const char *data = (const char *)(chunk + 1) + chunk->used;
    if (journal->backing != NULL &&
        !eni_backing_mirror(journal->backing, stream_kind, chunk->base + chunk->used, data, size)) {
        return false;
    }
    __atomic_store_n(&chunk->used, chunk->used + size, __ATOMIC_RELEASE);
    return true;
}

size_t eni_journal_size(const eni_journal *journal, uint32_t stream)
{
    const eni_chunk *chunk = last_chunk(&journal->shared[stream]);
    return chunk == NULL ? 0 : chunk->base + chunk->used;
}

const void *eni_journal_at(const eni_journal *journal, uint32_t stream, uint64_t offset)
{
    return stream_at(&journal->shared[stream], offset);
}

/* ---- names ---- */

static bool names_grow(eni_journal *journal)
{
    size_t slots = journal->name_slots == 0 ? 64 : journal->name_slots * 2;
    eni_name_slot *names = eni_alloc_zero(slots * sizeof *names);
    if (names == NULL) {
        return false;
    }
    for (size_t i = 0; i < journal->name_slots; i++) {
        if (journal->names[i].text != NULL) {
            size_t at = journal->names[i].hash & (slots - 1);
            while (names[at].text != NULL) {
                at = (at + 1) & (slots - 1);
            }
            names[at] = journal->names[i];
        }
    }
    eni_free(journal->names, journal->name_slots * sizeof *names);
    journal->names = names;
    journal->name_slots = slots;
    return true;
}

static size_t name_entry_size(size_t text_size) { return (sizeof(uint32_t) + text_size + 1 + 7) & ~(size_t)7; }

static bool name_add(eni_journal *journal, eni_name_slot *slot, enigma_text text, uint64_t hash)
{
    size_t size = name_entry_size(text.size);
    uint64_t offset = eni_journal_size(journal, ENI_STREAM_NAMES);
    char *entry = text.size > UINT32_MAX - 16 || offset / 8 >= UINT32_MAX
                      ? NULL
                      : eni_journal_append(journal, ENI_STREAM_NAMES, size);
    if (entry == NULL) {
        return false;
    }
    uint32_t text_size = (uint32_t)text.size;
    memcpy(entry, &text_size, sizeof text_size);
    memcpy(entry + sizeof text_size, text.data, text.size);
    if (!eni_journal_publish(journal, ENI_STREAM_NAMES, size)) {
        return false;
    }
    *slot = (eni_name_slot){entry + sizeof text_size, text_size, (uint32_t)(offset / 8), hash};
    journal->name_count++;
    return true;
}

uint32_t eni_journal_name(eni_journal *journal, enigma_text text)
{
    if (text.data == NULL || ((journal->name_count + 1) * 2 > journal->name_slots && !names_grow(journal))) {
        return 0;
    }
    uint64_t hash = eni_text_hash(text);
    size_t at = hash & (journal->name_slots - 1);
    for (eni_name_slot *slot; (slot = &journal->names[at])->text != NULL; at = (at + 1) & (journal->name_slots - 1)) {
        if (slot->hash == hash && slot->size == text.size && memcmp(slot->text, text.data, text.size) == 0) {
            return slot->id;
        }
    }
    return name_add(journal, &journal->names[at], text, hash) ? journal->names[at].id : 0;
}

const char *eni_journal_name_text(const eni_journal *journal, uint32_t name, uint32_t *size)
{
    const char *entry = stream_at(&journal->shared[ENI_STREAM_NAMES], (uint64_t)name * 8);
    if (entry == NULL) {
        *size = 0;
        return "";
    }
    memcpy(size, entry, sizeof *size);
    return entry + sizeof *size;
}

/* ---- nodes ---- */

static uint64_t node_hash(const eni_node *node)
{
    uint64_t a = (uint64_t)node->parent << 32 | node->name;
    uint64_t b = (uint64_t)node->kernel << 32 | node->flags;
    a = (a ^ (b * 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu;
    a ^= a >> 33;
    return a * 0xc4ceb9fe1a85ec53u;
}

const eni_node *eni_journal_node_at(const eni_journal *journal, uint32_t node)
{
    return stream_at(&journal->shared[ENI_STREAM_NODES], (uint64_t)node * sizeof(eni_node));
}

static size_t node_slot(const uint32_t *slots, size_t slot_count, const eni_node *node)
{
    return slots == NULL ? 0 : (node_hash(node) >> 7) & (slot_count - 1);
}

static bool nodes_grow(eni_journal *journal)
{
    size_t count = journal->node_slot_count == 0 ? 64 : journal->node_slot_count * 2;
    uint32_t *slots = eni_alloc_zero(count * sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < journal->node_slot_count; i++) {
        if (journal->node_slots[i] != 0) {
            size_t at = node_slot(slots, count, eni_journal_node_at(journal, journal->node_slots[i] - 1));
            while (slots[at] != 0) {
                at = (at + 1) & (count - 1);
            }
            slots[at] = journal->node_slots[i];
        }
    }
    eni_free(journal->node_slots, journal->node_slot_count * sizeof *slots);
    journal->node_slots = slots;
    journal->node_slot_count = count;
    return true;
}

static uint32_t node_add(eni_journal *journal, const eni_node *node)
{
    eni_node *entry = journal->node_count >= UINT32_MAX - 1 ? NULL : eni_journal_append(journal, ENI_STREAM_NODES, sizeof *entry);
    if (entry == NULL) {
        return ENI_NODE_FAILED;
    }
    *entry = *node;
    return eni_journal_publish(journal, ENI_STREAM_NODES, sizeof *entry) ? (uint32_t)journal->node_count++ : ENI_NODE_FAILED;
}

uint32_t eni_journal_node(eni_journal *journal, const eni_node *node)
{
    if ((journal->node_count + 1) * 2 > journal->node_slot_count && !nodes_grow(journal)) {
        return ENI_NODE_FAILED;
    }
    size_t at = node_slot(journal->node_slots, journal->node_slot_count, node);
    for (; journal->node_slots[at] != 0; at = (at + 1) & (journal->node_slot_count - 1)) {
        if (memcmp(eni_journal_node_at(journal, journal->node_slots[at] - 1), node, sizeof *node) == 0) {
            return journal->node_slots[at] - 1;
        }
    }
    uint32_t added = node_add(journal, node);
    if (added != ENI_NODE_FAILED) {
        journal->node_slots[at] = added + 1;
    }
    return added;
}

/* ---- fields ---- */

size_t eni_fields_size(const enigma_field *fields, size_t count, uint32_t depth)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        const enigma_value *value = &fields[i].value;
        size += sizeof(eni_field_entry);
        if (value->type == ENIGMA_TEXT) {
            size += eni_text_room(eni_text_in(value->as.text).size);
        } else if (value->type >= ENIGMA_LIST && value->type <= ENIGMA_DICT) {
            size += depth < ENI_FIELD_DEPTH ? eni_fields_size(value->as.items.data, value->as.items.count, depth + 1)
                                            : eni_text_room(3);
        }
    }
    return size;
}

static char *encode_text(char *at, eni_field_entry *entry, enigma_text text)
{
    entry->type = ENIGMA_TEXT;
    entry->payload = text.size;
    memset(at, 0, eni_text_room(text.size));
    if (text.size != 0) {
        memcpy(at, text.data, text.size);
    }
    return at + eni_text_room(text.size);
}

char *eni_fields_encode(char *at, const enigma_field *fields, size_t count, uint32_t depth, eni_key_fn intern_key, void *user)
{
    for (size_t i = 0; i < count; i++) {
        const enigma_value *value = &fields[i].value;
        eni_field_entry *entry = (eni_field_entry *)at;
        enigma_text key = eni_text_in(fields[i].key);
        at += sizeof *entry;
        *entry = (eni_field_entry){key.data == NULL ? 0 : intern_key(user, key), value->type, 0};
        switch (value->type) {
        case ENIGMA_BOOL:
        case ENIGMA_INT:
        case ENIGMA_DOUBLE:
            memcpy(&entry->payload, &value->as, sizeof entry->payload);
            break;
        case ENIGMA_TEXT:
            at = encode_text(at, entry, eni_text_in(value->as.text));
            break;
        case ENIGMA_LIST:
        case ENIGMA_TUPLE:
        case ENIGMA_DICT:
            if (depth >= ENI_FIELD_DEPTH) {
                at = encode_text(at, entry, (enigma_text){"...", 3});
                break;
            }
            entry->payload = value->as.items.count;
            at = eni_fields_encode(at, value->as.items.data, value->as.items.count, depth + 1, intern_key, user);
            break;
        default:
            entry->type = ENIGMA_NULL;
        }
    }
    return at;
}

static uint32_t key_locked(void *user, enigma_text key) { return eni_journal_name(user, key); }

uint32_t eni_journal_fields(eni_journal *journal, const enigma_field *fields, size_t count)
{
    const enigma_field dict = {{NULL, 0}, {ENIGMA_DICT, {.items = {fields, count}}}};
    size_t size = eni_fields_size(&dict, 1, 0);
    uint64_t offset = eni_journal_size(journal, ENI_STREAM_FIELDS) / 8;
    char *at = offset > UINT32_MAX ? NULL : eni_journal_append(journal, ENI_STREAM_FIELDS, size);
    if (at == NULL) {
        return 0;
    }
    eni_fields_encode(at, &dict, 1, 0, key_locked, journal);
    return eni_journal_publish(journal, ENI_STREAM_FIELDS, size) ? (uint32_t)offset : 0;
}

/* ---- life ---- */

/* What index and offset 0 stand for in each shared stream. */
static bool reserve(eni_journal *journal)
{
    const eni_node root = {0, 0, 0, 0};
    eni_launch *launch = eni_journal_append(journal, ENI_STREAM_LAUNCHES, sizeof *launch);
    if (launch == NULL) {
        return false;
    }
    launch->device = ENI_NO_DEVICE;
    eni_journal_publish(journal, ENI_STREAM_LAUNCHES, sizeof *launch);
    static const uint32_t empty[] = {ENI_STREAM_NAMES, ENI_STREAM_FIELDS};
    for (size_t i = 0; i < ENI_COUNT_OF(empty); i++) {
        if (eni_journal_append(journal, empty[i], 8) == NULL) {
            return false;
        }
        eni_journal_publish(journal, empty[i], 8);
    }
    return eni_journal_node(journal, &root) == 0;
}

enigma_status eni_journal_init(eni_journal *journal)
{
    *journal = (eni_journal){.lock = ENI_MUTEX_INIT};
    for (uint16_t kind = 0; kind < ENI_STREAM_RECORDS; kind++) {
        journal->shared[kind].kind = kind;
    }
    if (!reserve(journal)) {
        eni_journal_free(journal);
        return ENI_NO_MEMORY();
    }
    return ENIGMA_OK;
}

static void lanes_free(eni_lane *lane)
{
    while (lane != NULL) {
        eni_lane *next = lane->next_lane;
        stream_free(&lane->records);
        stream_free(&lane->side);
        ENI_DELETE(lane);
        lane = next;
    }
}

void eni_journal_free(eni_journal *journal)
{
    for (size_t i = 0; i < ENI_STREAM_RECORDS; i++) {
        stream_free(&journal->shared[i]);
    }
    eni_free(journal->names, journal->name_slots * sizeof *journal->names);
    eni_free(journal->node_slots, journal->node_slot_count * sizeof *journal->node_slots);
    lanes_free(journal->lanes);
    lanes_free(journal->inherited);
    eni_backing_free(journal->backing);
    eni_backing_free(journal->inherited_backing);
    pthread_mutex_destroy(&journal->lock);
}

/* ---- lanes ---- */

/* The pieces that are not in the file yet; what finds no space is left out, and the last piece in the file goes on. */
static void mirror_pieces(eni_journal *journal)
{
    uint32_t count = eni_clock_pieces(NULL, 0);
    uint32_t fresh = count - journal->pieces;
    eni_clock_piece *pieces = fresh == 0 ? NULL : eni_alloc(fresh * sizeof *pieces);
    if (pieces == NULL) {
        return;
    }
    eni_clock_pieces(pieces, fresh);
    if (eni_backing_mirror(journal->backing, ENI_STREAM_PIECES, journal->pieces * sizeof *pieces, pieces,
                           fresh * sizeof *pieces)) {
        journal->pieces = count;
    }
    eni_free(pieces, fresh * sizeof *pieces);
}


static eni_lane *lane_create(eni_journal *journal, uint64_t thread_key, uint64_t thread_id)
{
    eni_lane *lane = ENI_NEW(eni_lane);
    if (lane == NULL) {
        return NULL;
    }
    lane->owner = ++journal->owner_count;
    lane->journal = journal;
    lane->thread_key = thread_key;
    lane->records = (eni_stream){.kind = ENI_STREAM_RECORDS, .owner = lane->owner, .thread_id = thread_id,
                                 .backed = journal->backing != NULL};
    lane->side = lane->records;
    lane->side.kind = ENI_STREAM_SIDE;
    lane->next_lane = journal->lanes;
    journal->lanes = lane;
    return lane;
}

eni_lane *eni_journal_lane(eni_journal *journal, uint64_t thread_key, uint64_t thread_id)
{
    eni_lock(&journal->lock);
    eni_lane *lane = journal->lanes;
    while (lane != NULL && lane->thread_key != thread_key) {
        lane = lane->next_lane;
    }
    if (lane == NULL) {
        lane = lane_create(journal, thread_key, thread_id);
    }
    eni_unlock(&journal->lock);
    return lane;
}

bool eni_lane_grow(eni_lane *lane)
{
    if (lane->index >= ENI_RECORD_LIMIT) {
        return false;
    }
    eni_lock(&lane->journal->lock);
    eni_chunk *chunk = stream_extend(&lane->records, sizeof(eni_record), lane->journal->backing);
    if (lane->journal->backing != NULL) {
        mirror_pieces(lane->journal);
    }
    eni_unlock(&lane->journal->lock);
    if (chunk == NULL) {
        return false;
    }
    size_t room = chunk->capacity / sizeof(eni_record);
    if (room > ENI_RECORD_LIMIT - lane->index) {
        room = ENI_RECORD_LIMIT - lane->index;
    }
    lane->chunk = chunk;
    lane->next = (eni_record *)(chunk + 1);
    lane->end = lane->next + room;
    return true;
}

/* The next side chunk; the first 8 bytes of the stream are reserved, so that offset 0 means none. */
static bool side_grow(eni_lane *lane, size_t size)
{
    bool first = lane->side.count == 0;
    eni_lock(&lane->journal->lock);
    eni_chunk *chunk = stream_extend(&lane->side, size + 8, lane->journal->backing);
    if (chunk != NULL && first) {
        memset(chunk + 1, 0, 8);
        chunk->used = 8;
    }
    eni_unlock(&lane->journal->lock);
    if (chunk == NULL) {
        return false;
    }
    lane->side_chunk = chunk;
    lane->side_next = (char *)(chunk + 1) + chunk->used;
    lane->side_end = (char *)(chunk + 1) + chunk->capacity;
    return true;
}

void *eni_lane_side(eni_lane *lane, size_t size, uint32_t *offset)
{
    if ((size_t)(lane->side_end - lane->side_next) < size && !side_grow(lane, size)) {
        return NULL;
    }
    uint64_t at = (lane->side_chunk->base + lane->side_chunk->used) / 8;
    if (at > UINT32_MAX) {
        return NULL;
    }
    *offset = (uint32_t)at;
    return lane->side_next;
}

void eni_lane_side_publish(eni_lane *lane, size_t size)
{
    lane->side_next += size;
    __atomic_store_n(&lane->side_chunk->used, lane->side_chunk->used + size, __ATOMIC_RELEASE);
}

void eni_journal_disinherit(eni_journal *journal)
{
    eni_lane **end = &journal->inherited;
    while (*end != NULL) {
        end = &(*end)->next_lane;
    }
    *end = journal->lanes;
    journal->lanes = NULL;
    journal->dropped = 0;
    if (journal->backing != NULL) {
        eni_backing_disown(journal->backing);
        journal->inherited_backing = journal->backing;
        journal->backing = NULL;
    }
}

/* ---- the file ---- */

void eni_journal_drop(eni_journal *journal)
{
    uint64_t dropped = __atomic_add_fetch(&journal->dropped, 1, __ATOMIC_RELAXED);
    if (journal->backing != NULL) {
        eni_backing_count_dropped(journal->backing, dropped);
    }
}

static bool mirror_all(eni_journal *journal)
{
    for (uint32_t kind = 0; kind < ENI_STREAM_RECORDS; kind++) {
        const eni_stream *stream = &journal->shared[kind];
        for (size_t i = 0; i < stream->count; i++) {
            const eni_chunk *chunk = stream->chunks[i];
            if (!eni_backing_mirror(journal->backing, kind, chunk->base, chunk + 1, chunk->used)) {
                return false;
            }
        }
    }
    return true;
}

enigma_status eni_journal_back(eni_journal *journal, const char *path, uint32_t pid)
{
    eni_lock(&journal->lock);
    enigma_status status = journal->lanes != NULL ? ENI_FAIL(ENIGMA_E_STATE, "%s: something was recorded already", path)
                                                  : eni_backing_create(path, pid, &journal->backing);
    if (status == ENIGMA_OK && !mirror_all(journal)) {
        status = eni_error_io(ENOSPC, "cannot record into", path);
        eni_backing_free(journal->backing);
        journal->backing = NULL;
    }
    if (status == ENIGMA_OK) {
        mirror_pieces(journal);
    }
    eni_unlock(&journal->lock);
    return status;
}

void eni_journal_note_clock(eni_journal *journal)
{
    eni_lock(&journal->lock);
    if (journal->backing != NULL) {
        mirror_pieces(journal);
    }
    eni_unlock(&journal->lock);
}

void eni_journal_finish(eni_journal *journal, uint64_t end_ticks)
{
    eni_lock(&journal->lock);
    if (journal->backing != NULL) {
        mirror_pieces(journal);
        eni_backing_finish(journal->backing, end_ticks);
    }
    eni_unlock(&journal->lock);
}
