/* The one layout of what is recorded: in memory while recording, in a sealed profile's image, and in an .enigma file.
 *
 * A journal is a set of streams. A stream is an append-only array of bytes, laid in chunks; a chunk is an eni_chunk header
 * and its bytes, and looks the same in memory and in a file. Nothing refers by pointer: records, nodes and names refer by
 * index or offset into their stream, so chunks can be copied, mapped or written anywhere, in any order. An image is an
 * eni_image_header and then chunks, each starting on a multiple of 8.
 *
 * Shared streams (owner 0) are appended under the journal's lock; RECORDS and SIDE belong to one thread each (owner = the
 * thread's number in the journal, from 1) and are appended by that thread alone, without a lock. `used` is stored with release
 * once the bytes below it are complete, so who loads it with acquire may read them. What changes after that: `end`, `side` and
 * `flags` of an open record (end last, with release), and the stamps of a pending eni_gpu_block (status last, with release).
 *
 * All numbers are little-endian. Offsets of NAMES, FIELDS and SIDE are in units of 8 bytes; offset 0 of each is reserved so that
 * 0 can mean "none". */
#ifndef ENI_STORE_LAYOUT_H
#define ENI_STORE_LAYOUT_H

#include <stdint.h>

#define ENI_IMAGE_MAGIC "ENIGMA\r\n"
#define ENI_IMAGE_VERSION 1u
#define ENI_CHUNK_MAGIC 0x4b4e4843u /* "CHNK" */

enum eni_stream_kind {
    ENI_STREAM_NAMES = 0,      /* uint32_t size, the bytes, a NUL, zeros up to a multiple of 8 */
    ENI_STREAM_NODES = 1,      /* eni_node; node 0 is the root */
    ENI_STREAM_CATEGORIES = 2, /* uint32_t name, padded to 8; the number is the index */
    ENI_STREAM_LAUNCHES = 3,   /* eni_launch; launch 0 is "none", on no device */
    ENI_STREAM_DEVICES = 4,    /* eni_device_entry */
    ENI_STREAM_PAIRS = 5,      /* eni_clock_pair_entry */
    ENI_STREAM_FIELDS = 6,     /* encoded fields shared by launches and devices, as in a side block */
    ENI_STREAM_PIECES = 7,     /* eni_clock_piece: the map from ticks to ns */
    ENI_STREAM_RECORDS = 8,    /* eni_record, of one thread */
    ENI_STREAM_SIDE = 9,       /* side blocks, of one thread */
    ENI_STREAM_COUNT = 10
};

enum eni_image_flags {
    ENI_IMAGE_COMPLETE = 1 << 0 /* nothing more is written: all that its records refer to is there */
};

typedef struct eni_image_header { /* 64 bytes */
    char magic[8];
    uint32_t version, header_size;
    uint32_t pid, flags; /* enum eni_image_flags */
    uint64_t dropped;
    uint64_t end_ticks; /* when the profile was sealed: open records end there; 0: it was still recording */
    uint64_t reserved[3];
} eni_image_header;

typedef struct eni_chunk { /* 64 bytes */
    uint32_t magic;
    uint16_t stream, flags;
    uint32_t owner, reserved0;
    uint64_t base;     /* offset in the stream of the first byte */
    uint64_t capacity; /* bytes that follow this header */
    uint64_t used;     /* bytes of them that are complete */
    uint64_t thread_id, reserved[2];
} eni_chunk;

enum eni_record_kind {
    ENI_KIND_SCOPE = 0,
    ENI_KIND_GPU = 1,    /* GPU work: has an eni_gpu_block */
    ENI_KIND_EVENT = 2   /* the runtime's steps and what interceptors add: no GPU time of their own */
};

enum eni_record_flags {
    ENI_RECORD_UNFINISHED = 1 << 0,    /* ended by the end of the profile */
    ENI_RECORD_FOREIGN_PARENT = 1 << 1 /* the parent is another thread's: its id is in the side block */
};

typedef struct eni_record { /* 32 bytes */
    uint64_t start, end;    /* ticks; end 0: open */
    uint32_t node;
    uint32_t parent; /* index + 1 of the enclosing record of this thread, 0: none */
    uint32_t side;   /* side block, 0: none */
    uint8_t kind, category, flags, reserved;
} eni_record;

/* The id of a record: owner << 32 | index + 1. */
#define ENI_RECORD_ID(owner, index) ((uint64_t)(owner) << 32 | ((uint64_t)(index) + 1))
#define ENI_RECORD_LIMIT (UINT32_MAX - 1) /* records of one thread */

enum eni_side_flags { ENI_SIDE_PARENT = 1 << 0, ENI_SIDE_GPU = 1 << 1 };

/* Then, in this order and each a multiple of 8 bytes: uint64_t parent id (if ENI_SIDE_PARENT), eni_gpu_block (if ENI_SIDE_GPU),
 * metrics eni_metric_entry, fields encoded fields. A later block of the same record comes first and points to the earlier. */
typedef struct eni_side_block { /* 8 bytes */
    uint32_t next; /* the block before it of the same record, 0: none */
    uint16_t metrics;
    uint8_t fields, flags;
} eni_side_block;

typedef struct eni_metric_entry { /* 16 bytes */
    uint32_t key, reserved; /* key: name */
    double value;
} eni_metric_entry;

/* An encoded field. Then by type: TEXT: size (payload) bytes and zeros up to a multiple of 8 (at least one); LIST, TUPLE, DICT:
 * count (payload) encoded fields; else nothing. */
typedef struct eni_field_entry { /* 16 bytes */
    uint32_t key; /* name; 0: none, for elements of lists and tuples */
    uint32_t type; /* enum enigma_type */
    uint64_t payload; /* integer, bits of the double, size or count */
} eni_field_entry;
#define ENI_FIELD_DEPTH 32

/* What the bytes of a TEXT take: at least one zero after them, up to a multiple of 8. */
static inline uint64_t eni_text_room(uint64_t size) { return (size + 1 + 7) & ~(uint64_t)7; }

enum eni_gpu_status {
    ENI_GPU_PENDING = 0,     /* not complete yet; in a sealed profile: unfinished */
    ENI_GPU_VALID = 1,
    ENI_GPU_UNAVAILABLE = 2, /* the device gave no stamps */
    ENI_GPU_REVERSED = 3,    /* end before start */
    ENI_GPU_ZERO = 4,        /* a stamp of 0 */
    ENI_GPU_ALL_ONES = 5,    /* a stamp of all ones */
    ENI_GPU_FAILED = 6,      /* the command failed */
    ENI_GPU_STATUS_COUNT = 7
};

typedef struct eni_gpu_block { /* 32 bytes */
    uint64_t start, end, submit; /* as the device gave them, in its ticks; submit 0: not known */
    uint32_t launch;
    uint32_t status; /* enum eni_gpu_status */
} eni_gpu_block;

enum eni_node_flags { ENI_NODE_RUNTIME = 1 << 0 /* no scope of the user's: not part of call paths */ };

typedef struct eni_node { /* 16 bytes */
    uint32_t parent, name, kernel, flags; /* kernel: name of the kernel, 0: none */
} eni_node;

#define ENI_NO_DEVICE UINT32_MAX

/* What dispatches of one shape share. */
typedef struct eni_launch { /* 96 bytes */
    uint64_t grid[3], threads[3]; /* all 0: none */
    uint64_t input_bytes, output_bytes;
    uint32_t buffer_count, queue;
    uint32_t device; /* index in DEVICES; ENI_NO_DEVICE: stamps are host ns */
    uint32_t device_id;
    uint32_t fields; /* in FIELDS: an eni_field_entry of type DICT, 0: none */
    uint32_t reserved[3];
} eni_launch;

typedef struct eni_device_entry { /* 32 bytes */
    double tick_ns;
    uint32_t counter_bits, device_id;
    uint32_t fields; /* in FIELDS: an eni_field_entry of type DICT, 0: none */
    uint32_t reserved[3];
} eni_device_entry;

/* The device's counter and the host's, read at one moment. */
typedef struct eni_clock_pair_entry { /* 32 bytes */
    uint32_t device, uncertainty_ns;
    uint64_t device_ticks; /* continued past the counter's width */
    uint64_t host_ticks, reserved;
} eni_clock_pair_entry;

_Static_assert(sizeof(eni_image_header) == 64, "file layout");
_Static_assert(sizeof(eni_chunk) == 64, "file layout");
_Static_assert(sizeof(eni_record) == 32, "file layout");
_Static_assert(sizeof(eni_side_block) == 8, "file layout");
_Static_assert(sizeof(eni_metric_entry) == 16, "file layout");
_Static_assert(sizeof(eni_field_entry) == 16, "file layout");
_Static_assert(sizeof(eni_gpu_block) == 32, "file layout");
_Static_assert(sizeof(eni_node) == 16, "file layout");
_Static_assert(sizeof(eni_launch) == 96, "file layout");
_Static_assert(sizeof(eni_device_entry) == 32, "file layout");
_Static_assert(sizeof(eni_clock_pair_entry) == 32, "file layout");

#endif
