/* One fixed profile with everything that is hard to present, and the expected bytes of the table, the tree, the CSV and every
 * exporter, in tests/golden/. `make golden` (ENIGMA_UPDATE_GOLDEN=1) rewrites them; then read the diff. */
#include <math.h>
#include <pthread.h>

#include "enigma.h"
#include "store/layout.h"

#include "../api/recording.h"

#define PID 4242
#define DEEP 70

/* ---- the profile ---- */

static enigma_prepared *prepared_of(enigma_runtime *runtime, const char *name)
{
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = name, .source = ""};
    enigma_kernel *kernel = NULL;
    enigma_prepared *prepared = NULL;
    uint64_t shape[] = {2, 4};
    enigma_argument input = {
        .kind = ENIGMA_ARGUMENT_DATA, .data = "12345678", .size = 8, .dtype = "uint8", .shape = shape, .rank = 2};
    size_t output = 16;
    assert_int_equal(enigma_kernel_compile(runtime, &desc, &kernel), ENIGMA_OK);
    assert_int_equal(enigma_prepare(kernel, &input, 1, &output, 1, &prepared), ENIGMA_OK);
    enigma_kernel_free(kernel);
    return prepared;
}

/* A dispatch whose stamps lie at the given offsets from now, in the device's clock, which is 1 s ahead. */
static void dispatch(enigma_runtime *runtime, enigma_prepared *prepared, uint32_t queue, uint32_t device, uint32_t kind,
                     int64_t start, int64_t end, uint32_t flags)
{
    uint64_t now = enigma_now_ns() + 1000000000;
    enigma_script script = {kind, now + (uint64_t)start, now + (uint64_t)end, "device lost"};
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    options.grid = (enigma_size3){1000, 2, 1};
    options.threads = (enigma_size3){64, 1, 1};
    options.queue = queue;
    options.device = device;
    options.flags = flags;
    assert_int_equal(enigma_scripted_push(runtime, device, queue, &script, 1), ENIGMA_OK);
    assert_int_equal(enigma_dispatch(prepared, &options), kind == ENIGMA_SCRIPT_FAILURE ? ENIGMA_E_DEVICE : ENIGMA_OK);
}

static void names(void)
{
    static const enigma_text hard[] = {
        {"a\"b", 3},
        {"C:\\dir\\new", 10},
        {"</script>", 9},
        {"{\"k\":1}", 7},
        {"\x01\x1b[31m\n\t\x7f", 9},
        {"\xff\xc3(", 3},
        {"GPU \xf0\x9f\x9a\x80 \xe7\x9f\xa9\xe9\x98\xb5", 15},
        {"e\xcc\x81", 3},
        {"a/b", 3},
        {"a:b;c > d", 9},
        {"n\0ul", 4},
    };
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) {
        enigma_scope_desc desc = {.struct_size = sizeof desc, .name = hard[i]};
        enigma_scope scope = enigma_begin_desc(&desc);
        advance(1000 + i);
        enigma_end(scope);
    }
    char long_name[301];
    memset(long_name, 'L', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    for (int i = 0; i < 2; i++) {
        long_name[150] = (char)('0' + i);
        enigma_end(enigma_begin(long_name));
    }
    enigma_end(enigma_begin(""));
}

static void annotations(void)
{
    const enigma_metric metrics[] = {{"flops", 2e9}, {"bytes", 1.5},    {"nan", NAN}, {"inf", -INFINITY},
                                     {"name", 1},    {"time (inc)", 2}, {"", 3},      {"huge", 1.5e300},
                                     {"time", 4}};
    const enigma_field items[] = {
        {{NULL, 0}, {ENIGMA_INT, {.integer = INT64_MIN}}}, {{NULL, 0}, {ENIGMA_NULL, {.integer = 0}}},
        {{NULL, 0}, {ENIGMA_BOOL, {.integer = 1}}},        {{NULL, 0}, {ENIGMA_DOUBLE, {.number = NAN}}},
        {{NULL, 0}, {ENIGMA_DOUBLE, {.number = 0.1}}},
    };
    const enigma_field dict[] = {{{"ts", 2}, {ENIGMA_LIST, {.items = {items, 5}}}},
                                 {{"args", 4}, {ENIGMA_TEXT, {.text = {"x\"y", 3}}}}};
    const enigma_field fields[] = {
        {{"name", 4}, {ENIGMA_TEXT, {.text = {"not the event's", 15}}}},
        {{"ts", 2}, {ENIGMA_INT, {.integer = 1}}},
        {{"nested", 6}, {ENIGMA_DICT, {.items = {dict, 2}}}},
        {{"tuple", 5}, {ENIGMA_TUPLE, {.items = {items, 2}}}},
        {{"empty", 5}, {ENIGMA_LIST, {.items = {NULL, 0}}}},
    };
    enigma_scope_desc desc = {.struct_size = sizeof desc,
                              .name = {"annotated", 9},
                              .category = {"custom \"category\"", 17},
                              .metrics = metrics,
                              .metric_count = sizeof metrics / sizeof *metrics,
                              .metadata = fields,
                              .metadata_count = sizeof fields / sizeof *fields};
    enigma_scope scope = enigma_begin_desc(&desc);
    advance(2000000);
    enigma_end(scope);
}

static void gpu_work(enigma_runtime *runtime)
{
    enigma_prepared *a = prepared_of(runtime, "saxpy"), *b = prepared_of(runtime, "gemm<float>(float const*, int)");
    enigma_scope step = begin_with("step", "bytes", 64e6, NULL, 0);
    dispatch(runtime, a, 0, 0, ENIGMA_SCRIPT_TIMES, 5000, 45000, 0);
    dispatch(runtime, b, 1, 0, ENIGMA_SCRIPT_TIMES, 1000, 41000, ENIGMA_DISPATCH_ASYNC);
    advance(100);
    dispatch(runtime, b, 1, 0, ENIGMA_SCRIPT_TIMES, 40899, 61000, ENIGMA_DISPATCH_ASYNC); /* overlaps by 1 ns */
    advance(100);
    dispatch(runtime, a, 1, 1, ENIGMA_SCRIPT_TIMES, 2000, 2000, ENIGMA_DISPATCH_ASYNC); /* takes no time */
    advance(100);
    dispatch(runtime, a, 0, 1, ENIGMA_SCRIPT_TIMES, -2500, 10000, ENIGMA_DISPATCH_ASYNC); /* before its launch */
    advance(100);
    dispatch(runtime, a, 0, 0, ENIGMA_SCRIPT_TIMES, 9000, 8000, ENIGMA_DISPATCH_ASYNC); /* ends before it starts */
    dispatch(runtime, a, 0, 0, ENIGMA_SCRIPT_UNAVAILABLE, 0, 0, ENIGMA_DISPATCH_ASYNC);
    dispatch(runtime, a, 0, 0, ENIGMA_SCRIPT_FAILURE, 0, 0, 0);
    advance(100000);
    assert_int_equal(enigma_runtime_synchronize(runtime), ENIGMA_OK);
    enigma_end(step);
    enigma_prepared_free(a);
    enigma_prepared_free(b);
}

static size_t saxpy_hook(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity)
{
    (void)user;
    assert_true(capacity >= 2);
    out[0] = (enigma_metric){"flops", 2.0 * (double)(info->grid.x * info->grid.y)};
    out[1] = (enigma_metric){"bytes", 12.0 * (double)(info->grid.x * info->grid.y)};
    return 2;
}

static void recursion(int depth)
{
    enigma_scope scope = begin_with(depth % 2 ? "odd" : "even", "flops", 10, NULL, 0);
    advance(1000);
    if (depth < DEEP) {
        recursion(depth + 1);
    }
    enigma_end(scope);
}

static void overlapping_tasks(enigma_profiler *profiler)
{
    enigma_scope a = enigma_scope_open(profiler, enigma_path_child(profiler, 0, (enigma_text){"task 1", 0}), 0, 0);
    advance(5000);
    enigma_scope b = enigma_scope_open(profiler, enigma_path_child(profiler, 0, (enigma_text){"task 2", 0}), 0, 0);
    advance(5000);
    enigma_scope_close(profiler, a);
    advance(5000);
    enigma_scope_close(profiler, b);
}

static void *other_thread(void *profiler)
{
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    enigma_scope scope = enigma_begin("on another thread");
    advance(3000);
    add_work(&(work){.name = "copy",
                     .cpu_ns = 1000,
                     .gpu_start = enigma_now_ns() + 100,
                     .gpu_end = enigma_now_ns() + 5100,
                     .queue = 3,
                     .device = 7,
                     .key = "bytes",
                     .value = 4096});
    enigma_end(scope);
    assert_int_equal(enigma_profiler_stop(profiler), ENIGMA_OK);
    return NULL;
}

static void record(enigma_profiler *profiler, enigma_runtime *runtime)
{
    pthread_t thread;
    names();
    annotations();
    assert_int_equal(enigma_hook_register((enigma_text){"saxpy", 0}, saxpy_hook, NULL, NULL), ENIGMA_OK);
    gpu_work(runtime);
    enigma_hook_unregister((enigma_text){"saxpy", 0});
    recursion(0);
    overlapping_tasks(profiler);
    assert_int_equal(pthread_create(&thread, NULL, other_thread, profiler), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    add_work(&(work){.name = "load_library", .kernel = "saxpy", .cpu_ns = 700, .not_gpu = 1});
}

/* ---- the same bytes in every process ---- */

static size_t read_file(const char *path, uint8_t **out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        *out = NULL;
        return 0;
    }
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    *out = malloc(size + 1);
    assert_non_null(*out);
    assert_int_equal(fread(*out, 1, size, file), size);
    (*out)[size] = 0;
    fclose(file);
    return size;
}

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Gives the process and its threads fixed numbers, and the profile some dropped events, by way of its file. */
static enigma_profile *fixed(enigma_profile *profile, uint64_t dropped)
{
    uint8_t *image;
    assert_int_equal(enigma_profile_save(profile, "golden.enigma"), ENIGMA_OK);
    enigma_profile_free(profile);
    size_t size = read_file("golden.enigma", &image);
    eni_image_header *header = (eni_image_header *)(void *)image;
    header->pid = PID;
    header->dropped = dropped;
    for (size_t at = sizeof *header; at < size;) {
        eni_chunk *chunk = (eni_chunk *)(void *)(image + at);
        assert_int_equal(chunk->magic, ENI_CHUNK_MAGIC);
        chunk->thread_id = chunk->owner == 0 ? 0 : PID + chunk->owner - 1;
        at += sizeof *chunk + chunk->used;
    }
    write_file("golden.enigma", image, size);
    free(image);
    assert_int_equal(enigma_profile_load("golden.enigma", &profile), ENIGMA_OK);
    return profile;
}

/* ---- comparing ---- */

static void assert_golden(const char *name, const char *suffix, const void *data, size_t size)
{
    char path[512];
    uint8_t *expected;
    snprintf(path, sizeof path, "%s/tests/golden/%s%s", ENIGMA_SOURCE_DIR, name, suffix);
    if (getenv("ENIGMA_UPDATE_GOLDEN") != NULL) {
        write_file(path, data, size);
    }
    size_t expected_size = read_file(path, &expected);
    if (expected == NULL || expected_size != size || memcmp(expected, data, size) != 0) {
        char actual[64];
        snprintf(actual, sizeof actual, "%s%s", name, suffix);
        write_file(actual, data, size);
        fail_msg("%s differs from what is written now (%s in this folder); if that is right: make golden", path,
                 actual);
    }
    free(expected);
}

static void compare_all(const enigma_profile *profile, const char *name)
{
    const enigma_exporter_info *exporter;
    for (size_t i = 0; (exporter = enigma_exporter_at(i)) != NULL; i++) {
        written text = exported(profile, exporter->name);
        assert_golden(name, exporter->suffix, text.data, text.size);
        free(text.data);
    }
    written tree = tree_of(profile);
    assert_golden(name, ".tree.txt", tree.data, tree.size);
    free(tree.data);
    static const char *const tables[] = {".names.txt", ".paths.txt"};
    for (int group = ENIGMA_GROUP_NAME; group <= ENIGMA_GROUP_CALL_PATH; group++) {
        enigma_result *result = averages(profile, (enum enigma_group)group);
        written table = table_of(result, group == ENIGMA_GROUP_NAME ? NULL : "name");
        assert_golden(name, tables[group], table.data, table.size);
        free(table.data);
        if (group == ENIGMA_GROUP_NAME) {
            uint8_t *csv;
            assert_int_equal(enigma_result_save_csv(result, "golden.csv"), ENIGMA_OK);
            size_t size = read_file("golden.csv", &csv);
            assert_golden(name, ".csv", csv, size);
            free(csv);
        }
        enigma_result_free(result);
    }
}

static void hard_profile(void **state)
{
    (void)state;
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    enigma_scripted_options device = ENIGMA_SCRIPTED_OPTIONS_INIT;
    enigma_profiler *profiler = NULL;
    enigma_profile *profile = NULL;
    enigma_runtime *runtime = NULL;
    options.flags = ENIGMA_PROFILER_RECORD_SHAPES | ENIGMA_PROFILER_PROFILE_MEMORY;
    device.clock_offset_ns = 1000000000;
    device.queues = device.devices = 2;
    enigma_scripted_clock_begin(UINT64_C(1700000000000000000));
    assert_int_equal(enigma_scripted_open(&device, &runtime), ENIGMA_OK);
    assert_int_equal(enigma_profiler_create(&options, &profiler), ENIGMA_OK);
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    record(profiler, runtime);
    enigma_scope open = enigma_begin("still open");
    assert_int_equal(enigma_profiler_snapshot(profiler, &profile), ENIGMA_OK);
    enigma_end(open);
    assert_int_equal(enigma_profiler_stop(profiler), ENIGMA_OK);
    enigma_profiler_free(profiler);
    enigma_runtime_free(runtime);
    enigma_scripted_clock_end();
    profile = fixed(profile, 3);
    compare_all(profile, "hard");
    enigma_profile_free(profile);
}

static void empty_profile(void **state)
{
    (void)state;
    enigma_profile *profile = fixed(recording_end(recording_begin(RECORDING_START)), 0);
    compare_all(profile, "empty");
    enigma_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hard_profile), cmocka_unit_test(empty_profile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
