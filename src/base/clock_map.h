/* The map from ticks of a counter to nanoseconds of a reference clock: linear pieces that are only ever added at the end, so
 * what a tick means does not change once it was read. One thread at a time adds (the owner locks); any thread reads, without
 * a lock. It knows no clock: readings come from outside, so that tests can give what drifts they like. */
#ifndef ENI_BASE_CLOCK_MAP_H
#define ENI_BASE_CLOCK_MAP_H

#include "base/clock.h"

#define ENI_CLOCK_CHUNK 512   /* pieces of a chunk */
#define ENI_CLOCK_CHUNKS 4096 /* when all are full the map runs on at its last rate */
#define ENI_CLOCK_MAX_SLEW 200e-6

/* Counter and reference clock at one moment. */
typedef struct eni_clock_reading {
    uint64_t ticks, ns;
} eni_clock_reading;

/* A zeroed map is empty. */
typedef struct eni_clock_map {
    eni_clock_piece first[ENI_CLOCK_CHUNK];
    eni_clock_piece *more[ENI_CLOCK_CHUNKS - 1]; /* each written before count passes into it */
    uint32_t count;                              /* stored with release */
    /* The writer's own: two readings far enough apart to give the rate, and when the next steering may begin. */
    eni_clock_reading older, newer;
    double first_rate; /* ns a tick; later rates that differ much come from a clock that jumped */
    uint64_t next_ticks;
} eni_clock_map;

/* Puts down the first piece; the readings are far enough apart for the rate. False: the counter does not count. */
bool eni_clock_map_start(eni_clock_map *map, eni_clock_reading first, eni_clock_reading now);
/* Compares the map with a reading and steers towards it: a jump forward where may_step, else, and always where the map
 * is ahead, a piece that runs at most ENI_CLOCK_MAX_SLEW faster or slower, followed by one at the right rate. Adds nothing where
 * the error is too small to matter, within 50 ms of the last steering, or out of memory. */
void eni_clock_map_discipline(eni_clock_map *map, eni_clock_reading now, bool may_step);

uint32_t eni_clock_map_count(const eni_clock_map *map);
const eni_clock_piece *eni_clock_map_piece(const eni_clock_map *map, uint32_t index); /* below the count */
uint64_t eni_clock_map_ns(const eni_clock_map *map, uint64_t ticks);                  /* not empty */
uint64_t eni_clock_map_ticks(const eni_clock_map *map,
                             uint64_t ns); /* not empty; the first tick that maps to ns or later */
void eni_clock_map_free(eni_clock_map *map);

#endif
