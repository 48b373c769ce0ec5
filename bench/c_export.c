/* What reading costs: a million events sealed, aggregated, exported, saved and loaded. Two shapes: deep (8 names nested 8 deep) and wide
 * (1,011 call paths, metrics on the leaves). */
#include <unistd.h>

#include "enigma.h"
#include "harness.h"

enum { EVENTS = 1000000 };

static enigma_profiler *profiler;
static enigma_profile *profile;
static const char *file = "bench.enigma";

static void must(enigma_status status)
{
    if (status != ENIGMA_OK) {
        fprintf(stderr, "%s\n", enigma_error_message());
        exit(1);
    }
}

static int discard(void *user, const void *data, size_t size)
{
    (void)data;
    *(size_t *)user += size;
    return 0;
}

static void record_deep(void)
{
    static enigma_site sites[8] = {{"s0", 0}, {"s1", 0}, {"s2", 0}, {"s3", 0}, {"s4", 0}, {"s5", 0}, {"s6", 0}, {"s7", 0}};
    enigma_scope scopes[8];
    for (int i = 0; i < EVENTS; i += 8) {
        for (int d = 0; d < 8; d++) {
            scopes[d] = enigma_begin_site(&sites[d]);
        }
        for (int d = 7; d >= 0; d--) {
            enigma_end(scopes[d]);
        }
    }
}

static void record_wide(void)
{
    static char layers[10][16];
    static char ops[100][16];
    const enigma_metric metrics[] = {{"flops", 1e6}, {"bytes", 4e6}};
    for (int i = 0; i < 10; i++) {
        snprintf(layers[i], sizeof layers[i], "layer %d", i);
    }
    for (int i = 0; i < 100; i++) {
        snprintf(ops[i], sizeof ops[i], "op %d", i);
    }
    for (int done = 0; done < EVENTS; done += 1011) {
        ENIGMA_SCOPE("step");
        for (int l = 0; l < 10; l++) {
            enigma_scope layer = enigma_begin(layers[l]);
            for (int o = 0; o < 100; o++) {
                const enigma_scope_desc desc = {sizeof desc, {ops[o], 0}, {NULL, 0}, metrics, 2, NULL, 0};
                enigma_end(enigma_begin_desc(&desc));
            }
            enigma_end(layer);
        }
    }
}

static void start(void (*record)(void))
{
    must(enigma_profiler_create(NULL, &profiler));
    must(enigma_profiler_start(profiler));
    record();
    must(enigma_profiler_stop(profiler));
    must(enigma_profiler_snapshot(profiler, &profile));
}

static void finish(void)
{
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
    unlink(file);
}

static void run_snapshot(long count)
{
    (void)count;
    enigma_profile *again;
    must(enigma_profiler_snapshot(profiler, &again));
    enigma_profile_free(again);
}

static void rows(enum enigma_group group)
{
    enigma_result *result;
    must(enigma_profile_key_averages(profile, group, &result));
    enigma_result_free(result);
}

static void run_by_name(long count)
{
    (void)count;
    rows(ENIGMA_GROUP_NAME);
}

static void run_by_path(long count)
{
    (void)count;
    rows(ENIGMA_GROUP_CALL_PATH);
}

static void run_tree(long count)
{
    (void)count;
    size_t bytes = 0;
    must(enigma_profile_write_tree(profile, discard, &bytes));
}

static void run_hatchet(long count)
{
    (void)count;
    size_t bytes = 0;
    must(enigma_export(profile, "hatchet", discard, &bytes));
}

static void run_chrome(long count)
{
    (void)count;
    size_t bytes = 0;
    must(enigma_export(profile, "chrome", discard, &bytes));
}

static void run_save(long count)
{
    (void)count;
    must(enigma_profile_save(profile, file));
}

static void run_load(long count)
{
    (void)count;
    enigma_profile *loaded;
    must(enigma_profile_load(file, &loaded));
    enigma_profile_free(loaded);
}

static void remove_file(void) { unlink(file); }

int main(void)
{
    enum { ROUNDS = 7 };
    static const struct {
        const char *title;
        void (*record)(void);
    } shapes[] = {{"A million events, deep (ns for all)", record_deep}, {"A million events, wide (ns for all)", record_wide}};
    for (int i = 0; i < 2; i++) {
        start(shapes[i].record);
        bench_variant variants[] = {
            {"snapshot (copy and seal)", run_snapshot, 1, 0, 0, NULL, {0}},
            {"key_averages by name", run_by_name, 1, 1, 0, NULL, {0}},
            {"key_averages by call path", run_by_path, 1, 2, 0, NULL, {0}},
            {"tree", run_tree, 1, 3, 0, NULL, {0}},
            {"hatchet", run_hatchet, 1, 4, 0, NULL, {0}},
            {"chrome", run_chrome, 1, 5, 0, NULL, {0}},
            {"save", run_save, 1, 6, 0, remove_file, {0}},
            {"load", run_load, 1, 7, 0, NULL, {0}},
        };
        bench_run(variants, 8, ROUNDS);
        bench_report(shapes[i].title, variants, 8, ROUNDS);
        finish();
    }
    return 0;
}
