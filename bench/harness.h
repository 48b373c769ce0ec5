/* What the benchmarks share: variants run in turn, round after round, so that a machine whose speed drifts slows all of them alike;
 * each figure is the minimum and the median of its rounds, and a ratio is of medians taken in one run. */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__linux__)
#include <sched.h>
#endif

#define BENCH_ROUNDS_MAX 64

typedef struct bench_variant {
    const char *name;
    void (*run)(long count);
    long count;       /* operations a round */
    int floor;        /* index of the variant that it is compared with; its own: none */
    double limit;     /* highest allowed ratio (or ns, where floor is its own); 0: none */
    void (*before)(void); /* off the clock, before each round; NULL: nothing */
    double ns[BENCH_ROUNDS_MAX];
} bench_variant;

static inline double bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline void bench_pin(int cpu)
{
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
#else
    (void)cpu;
#endif
}

static inline int bench_compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static inline void bench_run(bench_variant *variants, int count, int rounds)
{
    for (int round = -1; round < rounds; round++) { /* the first one warms up */
        for (int i = 0; i < count; i++) {
            bench_variant *v = &variants[i];
            if (v->before != NULL) {
                v->before();
            }
            double start = bench_now_ns();
            v->run(v->count);
            if (round >= 0) {
                v->ns[round] = (bench_now_ns() - start) / (double)v->count;
            }
        }
    }
    for (int i = 0; i < count; i++) {
        qsort(variants[i].ns, (size_t)rounds, sizeof(double), bench_compare);
    }
}

/* Prints the table, one JSON line a row for machines, and gives the number of rows over their limit. */
static inline int bench_report(const char *title, const bench_variant *variants, int count, int rounds)
{
    int over = 0;
    printf("%s (ns an operation, %d rounds in turn)\n  %-44s %10s %10s %8s %8s\n", title, rounds, "", "min", "median", "ratio",
           "limit");
    for (int i = 0; i < count; i++) {
        const bench_variant *v = &variants[i];
        double median = v->ns[rounds / 2];
        double value = v->floor == i ? median : median / variants[v->floor].ns[rounds / 2];
        int bad = v->limit > 0 && value > v->limit;
        over += bad;
        printf("  %-44s %10.2f %10.2f", v->name, v->ns[0], median);
        if (v->floor == i) {
            printf(" %8s", "");
        } else {
            printf(" %7.2fx", value);
        }
        if (v->limit > 0) {
            printf(" %6.2f%s %s\n", v->limit, v->floor == i ? "ns" : "x ", bad ? "OVER" : "ok");
        } else {
            printf("\n");
        }
    }
    for (int i = 0; i < count; i++) {
        printf("json {\"bench\": \"%s\", \"name\": \"%s\", \"min_ns\": %.3f, \"median_ns\": %.3f}\n", title, variants[i].name,
               variants[i].ns[0], variants[i].ns[rounds / 2]);
    }
    return over;
}

#endif
