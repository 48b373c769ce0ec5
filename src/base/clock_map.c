/* The piecewise linear map of clock_map.h. Called by clock.c, which locks for those functions that add. */
#include "base/clock_map.h"

#include <math.h>

#include "base/alloc.h"

#define SPACING_NS 50e6      /* between two steerings, and the longest a slew lasts */
#define LEAD_NS 50e3         /* a slew begins a little later than now, so that nobody has read its ticks yet */
#define SMALL_ERROR_NS 200.0 /* about what a reading is uncertain by */
#define SMALL_RATE 1e-8      /* relative */
#define JUMP_RATE 1e-3       /* relative to the first rate: no counter drifts so */
#define LONGEST_NS 9e18
#define BASELINE_NS 10e9 /* the rate is taken over this to twice this */

uint32_t eni_clock_map_count(const eni_clock_map *map) { return __atomic_load_n(&map->count, __ATOMIC_ACQUIRE); }

const eni_clock_piece *eni_clock_map_piece(const eni_clock_map *map, uint32_t index)
{
    uint32_t chunk = index / ENI_CLOCK_CHUNK;
    return chunk == 0 ? &map->first[index] : &map->more[chunk - 1][index % ENI_CLOCK_CHUNK];
}

/* The last piece at which below() holds; the first piece where there is none. Readers ask about the recent past, so it looks
 * there first. */
static uint32_t last_piece(const eni_clock_map *map, uint32_t count, bool (*below)(const eni_clock_piece *, uint64_t),
                           uint64_t value)
{
    uint32_t low = 0, high = count; /* the answer is in [low, high) */
    for (uint32_t step = 1; step < count; step *= 2) {
        if (below(eni_clock_map_piece(map, count - step), value)) {
            low = count - step;
            break;
        }
        high = count - step;
    }
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (below(eni_clock_map_piece(map, middle), value)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool starts_by_ticks(const eni_clock_piece *piece, uint64_t ticks) { return piece->ticks <= ticks; }
/* Not at ns: the end of the piece before may show the same ns. */
static bool starts_below_ns(const eni_clock_piece *piece, uint64_t ns) { return piece->ns < ns; }

uint64_t eni_clock_map_ns(const eni_clock_map *map, uint64_t ticks)
{
    uint32_t at = last_piece(map, eni_clock_map_count(map), starts_by_ticks, ticks);
    return eni_clock_piece_ns(eni_clock_map_piece(map, at), ticks);
}

uint64_t eni_clock_map_ticks(const eni_clock_map *map, uint64_t ns)
{
    uint32_t count = eni_clock_map_count(map);
    uint32_t at = last_piece(map, count, starts_below_ns, ns);
    const eni_clock_piece *piece = eni_clock_map_piece(map, at);
    uint64_t ticks;
    if (ns < piece->ns) {
        double before = (double)(piece->ns - ns) / piece->ns_per_tick;
        ticks = before >= (double)piece->ticks ? 0 : piece->ticks - (uint64_t)before;
    } else {
        ticks = piece->ticks + (uint64_t)((double)(ns - piece->ns) / piece->ns_per_tick);
    }
    /* Rounding is off by a tick or so. */
    while (ticks > 0 && eni_clock_piece_ns(piece, ticks - 1) >= ns) {
        ticks--;
    }
    while (eni_clock_piece_ns(piece, ticks) < ns) {
        ticks++;
    }
    /* A time that a jump left out belongs to the jump. */
    if (at + 1 < count && ticks > eni_clock_map_piece(map, at + 1)->ticks) {
        ticks = eni_clock_map_piece(map, at + 1)->ticks;
    }
    return ticks;
}

/* Writes pieces behind the end and publishes them together. */
static bool append(eni_clock_map *map, const eni_clock_piece *pieces, uint32_t number)
{
    uint32_t count = map->count;
    if (count + number > ENI_CLOCK_CHUNK * ENI_CLOCK_CHUNKS) {
        return false;
    }
    uint32_t last_chunk = (count + number - 1) / ENI_CLOCK_CHUNK;
    if (last_chunk != 0 && map->more[last_chunk - 1] == NULL) {
        map->more[last_chunk - 1] = eni_alloc_zero(ENI_CLOCK_CHUNK * sizeof(eni_clock_piece));
        if (map->more[last_chunk - 1] == NULL) {
            return false;
        }
    }
    for (uint32_t i = 0; i < number; i++) {
        *(eni_clock_piece *)eni_clock_map_piece(map, count + i) = pieces[i];
    }
    __atomic_store_n(&map->count, count + number, __ATOMIC_RELEASE);
    return true;
}

static double rate_between(eni_clock_reading a, eni_clock_reading b)
{
    return b.ticks > a.ticks && b.ns > a.ns ? (double)(b.ns - a.ns) / (double)(b.ticks - a.ticks) : 0.0;
}

bool eni_clock_map_start(eni_clock_map *map, eni_clock_reading first, eni_clock_reading now)
{
    double rate = rate_between(first, now);
    if (!(rate > 0)) {
        return false;
    }
    map->older = map->newer = first;
    map->first_rate = rate;
    map->next_ticks = 0;
    return append(map, &(eni_clock_piece){first.ticks, first.ns, rate}, 1);
}

/* The rate now, by the readings kept; moves them on. Where a clock jumped, the rate so far stays and the readings begin anew. */
static double current_rate(eni_clock_map *map, eni_clock_reading now)
{
    double rate = rate_between(map->older, now);
    if (!(fabs(rate / map->first_rate - 1) < JUMP_RATE)) {
        map->older = map->newer = now;
        return eni_clock_map_piece(map, map->count - 1)->ns_per_tick;
    }
    if ((double)(now.ns - map->newer.ns) > BASELINE_NS) {
        map->older = map->newer;
        map->newer = now;
    }
    return rate;
}

static void step(eni_clock_map *map, eni_clock_reading now, double rate)
{
    if (append(map, &(eni_clock_piece){now.ticks, now.ns, rate}, 1)) {
        map->next_ticks = now.ticks + (uint64_t)(SPACING_NS / rate);
    }
}

/* Two pieces: one that takes away as much of the error as its length allows, and one that goes on at the rate. */
static void slew(eni_clock_map *map, eni_clock_reading now, double rate, double error_ns)
{
    double length_ns = fmin(fabs(error_ns) / ENI_CLOCK_MAX_SLEW, SPACING_NS);
    double slope = rate * (1 + copysign(fmin(ENI_CLOCK_MAX_SLEW, fabs(error_ns) / fmax(length_ns, 1)), error_ns));
    eni_clock_piece pieces[2];
    pieces[0].ticks = now.ticks + (uint64_t)(LEAD_NS / rate);
    pieces[0].ns = eni_clock_map_ns(map, pieces[0].ticks);
    pieces[0].ns_per_tick = slope;
    pieces[1].ticks = pieces[0].ticks + (uint64_t)(length_ns / rate);
    pieces[1].ns = eni_clock_piece_ns(&pieces[0], pieces[1].ticks);
    pieces[1].ns_per_tick = rate;
    uint32_t first = pieces[1].ticks == pieces[0].ticks ? 1 : 0;
    if (append(map, pieces + first, 2 - first)) {
        map->next_ticks = pieces[1].ticks + (uint64_t)(SPACING_NS / rate);
    }
}

void eni_clock_map_discipline(eni_clock_map *map, eni_clock_reading now, bool may_step)
{
    const eni_clock_piece *last = eni_clock_map_piece(map, map->count - 1);
    if (now.ticks <= last->ticks) { /* a slew is under way, or the counter went back */
        return;
    }
    if (now.ticks < map->next_ticks && !may_step) {
        return;
    }
    double rate = current_rate(map, now);
    uint64_t shown = eni_clock_map_ns(map, now.ticks);
    double error_ns = now.ns >= shown ? (double)(now.ns - shown) : -(double)(shown - now.ns);
    if (may_step && error_ns > SMALL_ERROR_NS) {
        step(map, now, rate);
    } else if (now.ticks >= map->next_ticks &&
               (fabs(error_ns) > SMALL_ERROR_NS || fabs(rate / last->ns_per_tick - 1) > SMALL_RATE)) {
        slew(map, now, rate, error_ns);
    }
}

void eni_clock_map_free(eni_clock_map *map)
{
    for (uint32_t i = 0; i < ENI_CLOCK_CHUNKS - 1; i++) {
        eni_free(map->more[i], ENI_CLOCK_CHUNK * sizeof(eni_clock_piece));
        map->more[i] = NULL;
    }
    map->count = 0;
}
