/* What a C scope costs, off and on, on one thread and on two, and with ten million of them kept, beside its floor: two clock reads and a
 * record of 32 bytes written inline. */
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

#include "enigma.h"
#include "harness.h"

#if defined(__x86_64__)
#include <x86intrin.h>
static inline unsigned long long ticks(void) { return __rdtsc(); }
#elif defined(__aarch64__)
static inline unsigned long long ticks(void)
{
    unsigned long long value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
}
#endif

static enigma_profiler *profiler;

/* ---- the floor ---- */

typedef struct record {
    unsigned long long start, end;
    const char *name;
    unsigned long long path;
} record;
enum { RING = 8192 };
static record ring[RING];
static unsigned ring_at;

__attribute__((noinline)) static void floor_scope(const char *name)
{
    record *at = &ring[ring_at++ & (RING - 1)];
    at->name = name;
    at->path = ring_at;
    at->start = ticks();
    __asm__ volatile("" ::: "memory");
    at->end = ticks();
}

static void run_floor(long count)
{
    for (long i = 0; i < count; i++) {
        floor_scope("a");
    }
}

static void run_empty(long count)
{
    for (long i = 0; i < count; i++) {
        __asm__ volatile("" ::: "memory");
    }
}

/* ---- ours ---- */

static void run_literal(long count)
{
    for (long i = 0; i < count; i++) {
        ENIGMA_SCOPE("a");
        __asm__ volatile("" ::: "memory");
    }
}

static void run_text(long count)
{
    static char name[] = "a name of common length";
    for (long i = 0; i < count; i++) {
        enigma_scope scope = enigma_begin(name);
        __asm__ volatile("" ::: "memory");
        enigma_end(scope);
    }
}

static void nest(int depth)
{
    static enigma_site sites[8] = {{"s0", 0}, {"s1", 0}, {"s2", 0}, {"s3", 0}, {"s4", 0}, {"s5", 0}, {"s6", 0}, {"s7", 0}};
    enigma_scope scope = enigma_begin_site(&sites[depth]);
    if (depth < 7) {
        nest(depth + 1);
    }
    enigma_end(scope);
}

static void run_depth8(long count)
{
    for (long i = 0; i < count; i += 8) {
        nest(0);
    }
}

static void run_metrics(long count)
{
    const enigma_metric metrics[] = {{"flops", 1e6}, {"bytes", 4e6}};
    const enigma_scope_desc desc = {sizeof desc, {"with metrics", 12}, {NULL, 0}, metrics, 2, NULL, 0};
    for (long i = 0; i < count; i++) {
        enigma_end(enigma_begin_desc(&desc));
    }
}

/* ---- on two threads at once ---- */

/* Runs the same work on two threads, a processor each; the time is that of both together. */
typedef struct worker {
    void (*run)(long count);
    long count;
    int cpu;
} worker;

static void *work(void *arg)
{
    const worker *self = arg;
    bench_pin(self->cpu);
    if (self->run != run_floor) {
        enigma_profiler_start(profiler);
    }
    self->run(self->count);
    if (self->run != run_floor) {
        enigma_profiler_stop(profiler);
    }
    return NULL;
}

static void run_two(void (*run)(long count), long count)
{
    worker workers[2] = {{run, count, 0}, {run, count, 1}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void run_floor_two(long count) { run_two(run_floor, count); }
static void run_literal_two(long count) { run_two(run_literal, count); }

/* ---- ten million kept ---- */

/* The floor of keeping: the same records into memory that is new, in huge pages where the system gives them. */
static void run_floor_kept(long count)
{
    const size_t huge = (size_t)2 << 20;
    size_t size = ((size_t)count * sizeof(record) + 2 * huge) & ~(huge - 1);
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        exit(1);
    }
    record *kept = (record *)(((uintptr_t)memory + huge - 1) & ~(huge - 1));
#if defined(MADV_HUGEPAGE)
    madvise(kept, (size_t)count * sizeof(record), MADV_HUGEPAGE);
#endif
    for (long i = 0; i < count; i++) {
        kept[i].name = "a";
        kept[i].path = 1;
        kept[i].start = ticks();
        __asm__ volatile("" ::: "memory");
        kept[i].end = ticks();
    }
    munmap(memory, size);
}

static void fresh_profiler(void)
{
    if (profiler != NULL) {
        enigma_profiler_stop(profiler);
        enigma_profiler_free(profiler);
    }
    if (enigma_profiler_create(NULL, &profiler) != ENIGMA_OK || enigma_profiler_start(profiler) != ENIGMA_OK) {
        fprintf(stderr, "%s\n", enigma_error_message());
        exit(1);
    }
}

int main(void)
{
    enum { ROUNDS = 31 };
    bench_pin(0);
    bench_variant off[] = {
        {"empty loop", run_empty, 2000000, 0, 0, NULL, {0}},
        {"scope off, literal", run_literal, 2000000, 1, 2.0, NULL, {0}},
        {"scope off, text", run_text, 2000000, 2, 2.0, NULL, {0}},
    };
    bench_run(off, 3, ROUNDS);
    int over = bench_report("C scope, no profiler active", off, 3, ROUNDS);
    bench_variant on[] = {
        {"floor: two clock reads, 32 bytes", run_floor, 100000, 0, 0, NULL, {0}},
        {"scope on, literal", run_literal, 100000, 1, 40.0, fresh_profiler, {0}},
        {"scope on, literal, depth 8", run_depth8, 100000, 2, 40.0, fresh_profiler, {0}},
        {"scope on, text", run_text, 100000, 0, 0, fresh_profiler, {0}},
        {"scope on, two metrics", run_metrics, 100000, 0, 0, fresh_profiler, {0}},
    };
    bench_run(on, 5, ROUNDS);
    over += bench_report("C scope, recorded (fresh profiler each round)", on, 5, ROUNDS);
    bench_variant two[] = {
        {"floor, each of two threads", run_floor_two, 1000000, 0, 0, NULL, {0}},
        {"scope on, literal, each of two threads", run_literal_two, 1000000, 0, 0, fresh_profiler, {0}},
    };
    bench_run(two, 2, 7);
    over += bench_report("C scope, recorded on two threads at once", two, 2, 7);
    bench_variant kept[] = {
        {"floor: new memory, huge pages", run_floor_kept, 10000000, 0, 0, NULL, {0}},
        {"scope on, literal, ten million kept", run_literal, 10000000, 0, 0, fresh_profiler, {0}},
    };
    bench_run(kept, 2, 5);
    over += bench_report("C scope, ten million kept", kept, 2, 5);
    printf("  literal / floor %.2f, depth 8 / floor %.2f\n", on[1].ns[ROUNDS / 2] / on[0].ns[ROUNDS / 2],
           on[2].ns[ROUNDS / 2] / on[0].ns[ROUNDS / 2]);
    enigma_profiler_stop(profiler);
    enigma_profiler_free(profiler);
    return over == 0 ? 0 : 1;
}
