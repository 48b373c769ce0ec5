/* The journal: the streams of one profiler while it records.
 *
 * Shared streams (names, nodes, launches, ...) are appended under the journal's lock, rarely. Each thread that records has a
 * lane: its RECORDS and SIDE streams, appended by that thread alone. Chunks never move and are freed with the journal, so a
 * pointer to a record or a block stays good as long as the journal lives, in a forked child too. */
#ifndef ENI_STORE_JOURNAL_H
#define ENI_STORE_JOURNAL_H

#include "base/arena.h"
#include "base/intern.h"
#include "base/thread.h"
#include "store/backing.h"
#include "store/layout.h"

#define ENI_MEMO_SIZE 256 /* call-path nodes that a lane finds without the lock */
#define ENI_KEY_SIZE 32   /* metric and metadata keys likewise */

typedef struct eni_stream {
    eni_chunk **chunks;
    size_t count, capacity;
    uint64_t thread_id;
    uint32_t owner;
    uint16_t kind;
    bool backed; /* its chunks are the file's */
} eni_stream;

typedef struct eni_journal eni_journal;

/* One thread's part. Only that thread touches it, except that snapshots read chunks under the rules of layout.h. */
typedef struct eni_lane {
    eni_record *next, *end; /* the free records of the last chunk */
    eni_chunk *chunk;
    uint32_t index; /* of the next record */
    uint32_t owner;
    eni_journal *journal;
    char *side_next, *side_end;
    eni_chunk *side_chunk;
    eni_stream records, side;
    uint64_t thread_key;
    struct eni_lane *next_lane;
    struct {
        const void *key; /* a site's id or a text's address */
        const char *text;
        uint32_t size, parent, node;
    } memo[ENI_MEMO_SIZE];
    struct {
        const char *key, *text;
        uint32_t size, id;
    } keys[ENI_KEY_SIZE];
} eni_lane;

typedef struct eni_name_slot {
    const char *text; /* NULL: empty */
    uint32_t size, id;
    uint64_t hash;
} eni_name_slot;

struct eni_journal {
    eni_mutex lock; /* shared streams, tables, the lists of chunks and lanes */
    eni_stream shared[ENI_STREAM_RECORDS];
    eni_name_slot *names;
    size_t name_count, name_slots;
    uint32_t *node_slots; /* node + 1, 0: empty */
    size_t node_count, node_slot_count;
    eni_lane *lanes;
    eni_lane *inherited; /* lanes of the parent process: their memory stays, nothing reads them */
    uint32_t owner_count;
    uint64_t dropped; /* atomic */
    eni_backing *backing;           /* the file that it is written into, NULL: none */
    eni_backing *inherited_backing; /* of the parent process: private memory */
    uint32_t pieces;                /* of the clock's map that are in the file */
};

enigma_status eni_journal_init(eni_journal *journal);
void eni_journal_free(eni_journal *journal);
void eni_journal_drop(eni_journal *journal); /* counts something that could not be kept */

/* Writes what there is and all that comes into a file; before anything is recorded. */
enigma_status eni_journal_back(eni_journal *journal, const char *path, uint32_t pid);
/* Nothing more is recorded: the file is complete as of end_ticks. Takes the lock. */
void eni_journal_finish(eni_journal *journal, uint64_t end_ticks);
/* Writes new pieces of the clock's map into the file. Takes the lock. */
void eni_journal_note_clock(eni_journal *journal);

/* Shared streams; the caller holds the lock. */
uint32_t eni_journal_name(eni_journal *journal, enigma_text text);                      /* 0: no memory, or absent */
const char *eni_journal_name_text(const eni_journal *journal, uint32_t name, uint32_t *size);
uint32_t eni_journal_node(eni_journal *journal, const eni_node *node);                  /* ENI_NODE_FAILED: no memory */
const eni_node *eni_journal_node_at(const eni_journal *journal, uint32_t node);         /* NULL: out of range */
void *eni_journal_append(eni_journal *journal, uint32_t stream, size_t size);           /* zeroed, not yet published; NULL: no memory */
bool eni_journal_publish(eni_journal *journal, uint32_t stream, size_t size); /* false: the file has no space; nothing was added */
size_t eni_journal_size(const eni_journal *journal, uint32_t stream);                   /* published bytes */
const void *eni_journal_at(const eni_journal *journal, uint32_t stream, uint64_t offset);
uint32_t eni_journal_fields(eni_journal *journal, const enigma_field *fields, size_t count); /* encoded DICT in FIELDS; 0 */
#define ENI_NODE_FAILED UINT32_MAX

/* Lanes. */
eni_lane *eni_journal_lane(eni_journal *journal, uint64_t thread_key, uint64_t thread_id); /* takes the lock; NULL: no memory */
bool eni_lane_grow(eni_lane *lane);                                       /* room for a record */
void *eni_lane_side(eni_lane *lane, size_t size, uint32_t *offset);       /* takes a multiple of 8 bytes; publish when filled */
void eni_lane_side_publish(eni_lane *lane, size_t size);
void eni_journal_disinherit(eni_journal *journal); /* in a forked child: starts empty, nodes and names stay */

/* Encoding of fields (layout.h), into memory of eni_fields_size bytes. Keys are interned through intern_key. */
typedef uint32_t (*eni_key_fn)(void *user, enigma_text key);
size_t eni_fields_size(const enigma_field *fields, size_t count, uint32_t depth);
char *eni_fields_encode(char *at, const enigma_field *fields, size_t count, uint32_t depth, eni_key_fn intern_key, void *user);

/* An image of what is published now: one chunk a stream and owner. */
typedef struct eni_image_options {
    uint32_t pid;
    uint32_t flags;
    uint64_t end_ticks; /* seal time, 0: still recording */
} eni_image_options;
enigma_status eni_journal_image(eni_journal *journal, const eni_image_options *options, uint8_t **image, size_t *size);

/* Gathers chunks into an image: concatenates those of one stream and owner in order of base. */
typedef struct eni_image_part {
    const eni_chunk *chunk;
    const uint8_t *data;
    uint64_t used;
} eni_image_part;
enigma_status eni_image_build(const eni_image_header *header, eni_image_part *parts, size_t count, uint8_t **image, size_t *size);

#endif
