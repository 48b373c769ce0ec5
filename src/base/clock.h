/* The host clock. Stamps are taken in ticks, the cheapest monotonic counter the machine has (the time-stamp counter where it
 * is invariant, else CLOCK_MONOTONIC), and turned into nanoseconds of CLOCK_MONOTONIC when read out.
 *
 * One process-wide map from ticks to ns, a list of linear pieces that only ever grows at the end, so what a stamp means never
 * changes once it was read. eni_clock_discipline() compares the map with CLOCK_MONOTONIC and adds a piece that steers back to
 * it; call it where profiling starts, stops, is looked at, and now and then between.
 *
 * The scripted clock (enigma_scripted_clock_begin) replaces the counter: its ticks are ns with the top bit set, so both kinds
 * of stamp can lie in one profile. */
#ifndef ENI_BASE_CLOCK_H
#define ENI_BASE_CLOCK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define ENI_CLOCK_SCRIPTED_BIT (UINT64_C(1) << 63)

enum eni_clock_source { ENI_CLOCK_MONOTONIC = 0, ENI_CLOCK_COUNTER = 1, ENI_CLOCK_SCRIPTED = 2 };

extern uint32_t eni_clock_source_; /* enum eni_clock_source; written by clock.c alone */

uint64_t eni_clock_ticks_slow_(void);

static inline uint64_t eni_clock_ticks(void)
{
    if (__builtin_expect(__atomic_load_n(&eni_clock_source_, __ATOMIC_RELAXED) == ENI_CLOCK_COUNTER, 1)) {
#if defined(__x86_64__)
        return __rdtsc();
#elif defined(__aarch64__)
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
#endif
    }
    return eni_clock_ticks_slow_();
}

void eni_clock_init(void);                /* once, at load; cheap */
void eni_clock_ready(void);               /* before the first profile: makes sure the rate is known */
void eni_clock_discipline(bool may_step); /* may_step: no stamp is open, so the map may jump */
uint64_t eni_clock_ns(uint64_t ticks);    /* any thread, no lock */
uint64_t eni_clock_ticks_of(uint64_t ns); /* the inverse, for events timed elsewhere */
uint64_t eni_clock_now_ns(void);
uint64_t eni_clock_real_ticks(void);
uint64_t eni_clock_real_ns(void); /* also while the clock is scripted: for what compares devices with it */
bool eni_clock_is_scripted(void);

/* One piece of the map, as saved with a profile. */
typedef struct eni_clock_piece {
    uint64_t ticks, ns;
    double ns_per_tick;
} eni_clock_piece;
uint32_t eni_clock_pieces(eni_clock_piece *out, uint32_t capacity); /* the number there are; newest capacity of them */
/* Converts with a saved list (count 0: ticks are ns). */
uint64_t eni_clock_convert(const eni_clock_piece *pieces, uint32_t count, uint64_t ticks);

/* A length of time as a whole number; pieces of a damaged file may hold any rate. */
static inline uint64_t eni_clock_whole_ns(double ns)
{
    return ns >= 0x1p63 ? UINT64_C(1) << 63 : ns > 0 ? (uint64_t)ns : 0;
}

/* One piece, continued in both directions. Floor, so that it never falls as ticks rise. */
static inline uint64_t eni_clock_piece_ns(const eni_clock_piece *piece, uint64_t ticks)
{
    if (ticks >= piece->ticks) {
        uint64_t after = eni_clock_whole_ns((double)(ticks - piece->ticks) * piece->ns_per_tick);
        return after > UINT64_MAX - piece->ns ? UINT64_MAX : piece->ns + after;
    }
    uint64_t before = eni_clock_whole_ns(ceil((double)(piece->ticks - ticks) * piece->ns_per_tick));
    return before >= piece->ns ? 0 : piece->ns - before;
}

/* The last piece that starts by ticks, or the first; count is not 0. */
uint32_t eni_clock_find(const eni_clock_piece *pieces, uint32_t count, uint64_t ticks);

/* The same as eni_clock_convert for who asks about one stamp after the other: the piece used last is looked at first. */
static inline uint64_t eni_clock_convert_near(const eni_clock_piece *pieces, uint32_t count, uint64_t ticks, uint32_t *last)
{
    if ((ticks & ENI_CLOCK_SCRIPTED_BIT) != 0 || count == 0) {
        return ticks & ~ENI_CLOCK_SCRIPTED_BIT;
    }
    if (pieces[*last].ticks > ticks || (*last + 1 < count && pieces[*last + 1].ticks <= ticks)) {
        *last = eni_clock_find(pieces, count, ticks);
    }
    return eni_clock_piece_ns(&pieces[*last], ticks);
}

#endif
