/* Inside of the sealed profile: what profile.c (reading) and seal.c (working it out) share. */
#ifndef ENI_STORE_SEAL_H
#define ENI_STORE_SEAL_H

#include "base/clock.h"
#include "base/intern.h"
#include "store/profile.h"

/* A stream of an image: one contiguous run of bytes. */
typedef struct eni_span {
    const uint8_t *data;
    size_t size;
} eni_span;

/* The two streams of a thread, and where its records went. */
typedef struct eni_thread_streams {
    eni_span records, side;
    uint32_t owner;
    uint64_t thread_id;
    uint32_t *event_of; /* event of each record, ENI_NONE: still open; freed after sealing */
} eni_thread_streams;

typedef struct eni_profile_private {
    eni_span shared[ENI_STREAM_RECORDS];
    eni_thread_streams *threads; /* profile->thread_count of them, by owner */
    size_t thread_capacity, gpu_capacity;
    eni_intern labels;
    const char *source; /* for error messages while sealing */
} eni_profile_private;

/* The side block at an offset of a thread's side stream, checked against its end; NULL: none or damaged. */
const eni_side_block *eni_side_at(const eni_thread_streams *thread, uint32_t offset);
/* The parts of a checked block. */
const uint64_t *eni_side_parent(const eni_side_block *block);
const eni_gpu_block *eni_side_gpu(const eni_side_block *block);
const eni_metric_entry *eni_side_metrics(const eni_side_block *block);
const eni_field_entry *eni_side_fields(const eni_side_block *block);

/* Checks an encoded field at `at`; gives where the next begins. NULL: damaged. */
const uint8_t *eni_field_check(const enigma_profile *profile, const uint8_t *at, const uint8_t *end, uint32_t depth);
/* Decodes count checked fields. NULL: no memory (or count 0: *next is at). */
const enigma_field *eni_field_decode(const enigma_profile *profile, eni_arena *arena, const uint8_t *at, size_t count,
                                     const uint8_t **next);

/* The GPU side of sealing (seal_gpu.c): stamps judged and mapped to the host clock. */
enigma_status eni_seal_gpu(enigma_profile *profile);

#endif
