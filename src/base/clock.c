/* The host clock of the process: which counter, its map to nanoseconds, and the scripted clock of the tests. Set up by a
 * constructor; discipline and the scripted clock are for any thread. */
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/clock_map.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/thread.h"

#define READING_TRIES 8
#define RATE_NS UINT64_C(2000000) /* over which the first rate is taken: good to some 10 ppm */

#if defined(__APPLE__)
#define REFERENCE_CLOCK CLOCK_UPTIME_RAW
#else
#define REFERENCE_CLOCK CLOCK_MONOTONIC
#endif

uint32_t eni_clock_source_ = ENI_CLOCK_MONOTONIC;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t real_source = ENI_CLOCK_MONOTONIC; /* enum eni_clock_source; fixed by init */
static eni_clock_reading at_load;
static eni_clock_map map;               /* used where real_source is ENI_CLOCK_COUNTER */
static eni_mutex lock = ENI_MUTEX_INIT; /* adding to map, and scripted_depth */
static uint32_t scripted_depth;
static uint64_t scripted_ns;

static uint64_t reference_ns(void)
{
    struct timespec now;
    clock_gettime(REFERENCE_CLOCK, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t counter_ticks(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 0;
#endif
}

/* The counter goes at one rate, whatever the core and its sleep. */
static bool counter_is_invariant(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

/* Both clocks at one moment: of several tries the one whose bracket is the shortest. */
static eni_clock_reading read_both(void)
{
    eni_clock_reading best = {0, 0};
    uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < READING_TRIES; i++) {
        uint64_t before = counter_ticks();
        uint64_t ns = reference_ns();
        uint64_t width = counter_ticks() - before;
        if (width < best_width) {
            best_width = width;
            best = (eni_clock_reading){before + width / 2, ns};
        }
    }
    return best;
}

static bool counter_wanted(void)
{
    const char *wanted = eni_settings_now()->clock;
    if (wanted != NULL && strcmp(wanted, "monotonic") == 0) {
        return false;
    }
    if (wanted != NULL) {
        eni_log(ENI_LOG_WARN, "ENIGMA_CLOCK=\"%.100s\": only monotonic is allowed; it is ignored", wanted);
    }
    return counter_is_invariant();
}

static void before_fork(void) { eni_lock(&lock); }
static void after_fork(void) { eni_unlock(&lock); }

static void init(void)
{
    static const eni_fork_handler handler = {ENI_FORK_RANK_CLOCK, before_fork, after_fork, after_fork};
    eni_thread_at_fork(&handler);
    if (counter_wanted()) {
        at_load = read_both();
        real_source = ENI_CLOCK_COUNTER;
        __atomic_store_n(&eni_clock_source_, ENI_CLOCK_COUNTER, __ATOMIC_RELAXED);
    }
}

void eni_clock_init(void) { pthread_once(&once, init); }

__attribute__((constructor)) static void init_at_load(void) { eni_clock_init(); }

static void wait_until(uint64_t ns)
{
    for (uint64_t now = reference_ns(); now < ns; now = reference_ns()) {
        struct timespec rest = {0, (long)(ns - now)};
        nanosleep(&rest, NULL);
    }
}

void eni_clock_ready(void)
{
    eni_clock_init();
    if (real_source != ENI_CLOCK_COUNTER || eni_clock_map_count(&map) != 0) {
        return;
    }
    wait_until(at_load.ns + RATE_NS);
    eni_lock(&lock);
    while (eni_clock_map_count(&map) == 0) {
        /* A counter that stands still or goes back is no counter; a machine that does this is broken, yet must not hang: its
         * ticks are then taken for nanoseconds. */
        if (!eni_clock_map_start(&map, at_load, read_both())) {
            eni_clock_map_start(&map, (eni_clock_reading){0, 0}, (eni_clock_reading){1, 1});
        }
    }
    eni_unlock(&lock);
}

void eni_clock_discipline(bool may_step)
{
    eni_clock_ready();
    if (real_source != ENI_CLOCK_COUNTER || eni_clock_is_scripted()) {
        return;
    }
    eni_lock(&lock);
    eni_clock_map_discipline(&map, read_both(), may_step);
    eni_unlock(&lock);
}

uint64_t eni_clock_ticks_slow_(void)
{
    eni_clock_init();
    switch (__atomic_load_n(&eni_clock_source_, __ATOMIC_RELAXED)) {
    case ENI_CLOCK_COUNTER:
        return counter_ticks();
    case ENI_CLOCK_SCRIPTED:
        return __atomic_load_n(&scripted_ns, __ATOMIC_RELAXED) | ENI_CLOCK_SCRIPTED_BIT;
    default:
        return reference_ns();
    }
}

/* The ticks are the real clock's. */
static const eni_clock_map *real_map(void)
{
    eni_clock_ready();
    return real_source == ENI_CLOCK_COUNTER ? &map : NULL;
}

uint64_t eni_clock_ns(uint64_t ticks)
{
    if ((ticks & ENI_CLOCK_SCRIPTED_BIT) != 0) {
        return ticks & ~ENI_CLOCK_SCRIPTED_BIT;
    }
    const eni_clock_map *real = real_map();
    return real == NULL ? ticks : eni_clock_map_ns(real, ticks);
}

uint64_t eni_clock_ticks_of(uint64_t ns)
{
    if (eni_clock_is_scripted()) {
        return ns | ENI_CLOCK_SCRIPTED_BIT;
    }
    const eni_clock_map *real = real_map();
    return real == NULL ? ns : eni_clock_map_ticks(real, ns);
}

uint64_t eni_clock_now_ns(void) { return eni_clock_ns(eni_clock_ticks()); }

uint64_t eni_clock_real_ticks(void)
{
    eni_clock_init();
    return real_source == ENI_CLOCK_COUNTER ? counter_ticks() : reference_ns();
}

uint64_t eni_clock_real_ns(void)
{
    const eni_clock_map *real = real_map();
    return real == NULL ? reference_ns() : eni_clock_map_ns(real, counter_ticks());
}

uint64_t enigma_now_ns(void) { return eni_clock_now_ns(); }

uint32_t eni_clock_pieces(eni_clock_piece *out, uint32_t capacity)
{
    const eni_clock_map *real = real_map();
    uint32_t count = real == NULL ? 0 : eni_clock_map_count(real);
    uint32_t skipped = count > capacity ? count - capacity : 0;
    for (uint32_t i = skipped; i < count; i++) {
        out[i - skipped] = *eni_clock_map_piece(real, i);
    }
    return count;
}

uint32_t eni_clock_find(const eni_clock_piece *pieces, uint32_t count, uint64_t ticks)
{
    uint32_t low = 0, high = count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (pieces[middle].ticks <= ticks) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

uint64_t eni_clock_convert(const eni_clock_piece *pieces, uint32_t count, uint64_t ticks)
{
    uint32_t last = 0;
    return eni_clock_convert_near(pieces, count, ticks, &last);
}

/* ---- The scripted clock ---------------------------------------------------------------------------------------------- */

bool eni_clock_is_scripted(void) { return __atomic_load_n(&eni_clock_source_, __ATOMIC_RELAXED) == ENI_CLOCK_SCRIPTED; }

/* An inner begin moves the clock forward alone: a clock never goes back. */
void enigma_scripted_clock_begin(uint64_t start_ns)
{
    eni_clock_init();
    start_ns &= ~ENI_CLOCK_SCRIPTED_BIT;
    eni_lock(&lock);
    if (scripted_depth++ == 0 || start_ns > __atomic_load_n(&scripted_ns, __ATOMIC_RELAXED)) {
        __atomic_store_n(&scripted_ns, start_ns, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&eni_clock_source_, ENI_CLOCK_SCRIPTED, __ATOMIC_RELAXED);
    eni_unlock(&lock);
}

void enigma_scripted_clock_advance(uint64_t ns)
{
    if (eni_clock_is_scripted()) {
        __atomic_add_fetch(&scripted_ns, ns & ~ENI_CLOCK_SCRIPTED_BIT, __ATOMIC_RELAXED);
    }
}

void enigma_scripted_clock_end(void)
{
    eni_lock(&lock);
    if (scripted_depth != 0 && --scripted_depth == 0) {
        __atomic_store_n(&eni_clock_source_, real_source, __ATOMIC_RELAXED);
    }
    eni_unlock(&lock);
}
