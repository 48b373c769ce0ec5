/* Running kernels, on every backend that has a device: sizes, order, device times, events. */
#include <signal.h>
#include <sys/wait.h>

#include "battery.h"

static enigma_prepared *prepare_mark(enigma_buffer *buffer, uint32_t n)
{
    enigma_kernel *kernel = compile("mark");
    enigma_prepared *prepared = prepare_on(kernel, buffer, n);
    enigma_kernel_free(kernel);
    return prepared;
}

static void sizes_that_cannot_run_are_refused(void **state)
{
    (void)state;
    enigma_buffer *buffer = NULL;
    double us;
    assert_ok(enigma_buffer_create(current.runtime, 4096, NULL, &buffer));
    enigma_prepared *prepared = prepare_mark(buffer, 1024);
    uint64_t limit = (uint64_t)fact_of(current.runtime, "max_group_threads")->as.integer;
    const enigma_dispatch_options bad[] = {sizes(0, 1), sizes(64, 0), sizes(limit * 2, limit * 2),
                                           sizes(UINT64_MAX, UINT64_MAX)};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(enigma_dispatch(prepared, &bad[i]), ENIGMA_E_INVALID);
        assert_int_equal(enigma_dispatch_timed(prepared, &bad[i], &us), ENIGMA_E_INVALID);
    }
    enigma_dispatch_options options = sizes(64, 64);
    options.threads.y = limit;
    options.grid.y = limit;
    assert_int_equal(enigma_dispatch(prepared, &options), ENIGMA_E_INVALID);
    options = sizes(64, 64);
    options.queue = 1000000;
    assert_int_equal(enigma_dispatch(prepared, &options), ENIGMA_E_INVALID);
    options = sizes(64, 64);
    options.device = 1;
    assert_int_equal(enigma_dispatch(prepared, &options), ENIGMA_E_INVALID);
    options = sizes(64, 64);
    options.flags = 1u << 20;
    assert_int_equal(enigma_dispatch(prepared, &options), ENIGMA_E_INVALID);
    options = sizes(64, 64);
    options.struct_size = 8;
    assert_int_equal(enigma_dispatch(prepared, &options), ENIGMA_E_INVALID);
    options = sizes(64, 64);
    options.flags = ENIGMA_DISPATCH_ASYNC;
    assert_int_equal(enigma_dispatch_timed(prepared, &options, &us), ENIGMA_E_INVALID);
    assert_int_equal(enigma_dispatch(NULL, &options), ENIGMA_E_INVALID);
    assert_int_equal(enigma_dispatch(prepared, NULL), ENIGMA_E_INVALID);
    uint32_t out[1024], untouched[1024] = {0};
    assert_ok(enigma_buffer_read(buffer, 0, out, sizeof out));
    assert_memory_equal(out, untouched, sizeof out); /* nothing ran */
    enigma_prepared_free(prepared);
    enigma_buffer_free(buffer);
}

/* Either the device runs exactly the threads asked for, or says what to do. */
static void partial_groups_run_exactly_or_not_at_all(void **state)
{
    (void)state;
    uint32_t out[256];
    enigma_buffer *buffer = NULL;
    assert_ok(enigma_buffer_create(current.runtime, sizeof out, NULL, &buffer));
    enigma_prepared *prepared = prepare_mark(buffer, 256);
    enigma_dispatch_options options = sizes(100, 64);
    enigma_status status = enigma_dispatch(prepared, &options);
    assert_ok(enigma_buffer_read(buffer, 0, out, sizeof out));
    uint32_t ran = 0;
    for (int i = 0; i < 256; i++) {
        assert_true(out[i] == 0 || (i < 100 && out[i] == 1));
        ran += out[i];
    }
    if (fact_of(current.runtime, "partial_groups")->as.integer) {
        assert_int_equal(status, ENIGMA_OK);
        assert_int_equal(ran, 100);
    } else {
        assert_int_equal(status, ENIGMA_E_INVALID);
        assert_message("multiple");
        assert_message("128");
        assert_int_equal(ran, 0);
    }
    enigma_prepared_free(prepared);
    enigma_buffer_free(buffer);
}

/* One group: two links out of order would run at the same time. */
enum { CHAIN = 64, LINKS = 600 };

/* One link of a chain, in one of the ways to run a kernel. */
static void run_link(enigma_prepared *prepared, uint32_t kind, uint32_t queue, enigma_profiler *profiler)
{
    enigma_dispatch_options options = sizes(CHAIN, 64);
    const enigma_context context = {.profiler = profiler};
    double us;
    options.queue = queue;
    options.flags = kind % 2 != 0 ? ENIGMA_DISPATCH_ASYNC : 0;
    options.context = &context;
    if (kind == 4) {
        options.flags = 0;
        assert_ok(enigma_dispatch_timed(prepared, &options, &us));
        return;
    }
    if (kind < 2) {
        options.flags |= ENIGMA_DISPATCH_UNRECORDED; /* the untimed path */
    }
    assert_ok(enigma_dispatch(prepared, &options));
}

/* Untimed, timed, waited and asynchronous launches of dependent kernels, mixed on two queues: each queue keeps its order. */
static void order_is_kept_whatever_is_mixed(void **state)
{
    (void)state;
    enum { VARIANTS = 4 };
    static uint32_t host[2][CHAIN], out[CHAIN];
    enigma_kernel *kernel = compile("turn");
    enigma_buffer *buffers[2];
    enigma_prepared *links[2][VARIANTS];
    enigma_profiler *profiler = NULL;
    assert_ok(enigma_profiler_create(NULL, &profiler));
    assert_ok(enigma_profiler_open(profiler));
    for (int q = 0; q < 2; q++) {
        for (uint32_t i = 0; i < CHAIN; i++) {
            host[q][i] = i * 2654435761u + (uint32_t)q;
        }
        assert_ok(enigma_buffer_create(current.runtime, sizeof host[q], host[q], &buffers[q]));
        for (uint32_t k = 0; k < VARIANTS; k++) {
            links[q][k] = prepare_on(kernel, buffers[q], k * 97);
        }
    }
    uint32_t seed = 12345;
    for (int i = 0; i < LINKS; i++) {
        static const uint32_t kinds[8] = {0, 1, 1, 1,
                                          2, 3, 3, 4}; /* mostly asynchronous: what is waited for is in order */
        seed = seed * 1664525u + 1013904223u;
        uint32_t kind = kinds[seed >> 29], queue = (seed >> 16) & 1, k = (seed >> 8) % VARIANTS;
        run_link(links[queue][k], kind, queue, profiler);
        for (uint32_t t = 0; t < CHAIN; t++) {
            host[queue][t] = turn_by_hand(host[queue][t], k * 97);
        }
    }
    assert_ok(enigma_runtime_synchronize(current.runtime));
    for (int q = 0; q < 2; q++) {
        assert_ok(enigma_buffer_read(buffers[q], 0, out, sizeof out));
        assert_memory_equal(out, host[q], sizeof out);
        for (uint32_t k = 0; k < VARIANTS; k++) {
            enigma_prepared_free(links[q][k]);
        }
        enigma_buffer_free(buffers[q]);
    }
    assert_ok(enigma_profiler_seal(profiler));
    enigma_profiler_free(profiler);
    enigma_kernel_free(kernel);
}

/* spin on 1024 values with so many rounds. */
static enigma_prepared *prepare_spin(uint32_t rounds)
{
    enigma_buffer *buffer = NULL;
    enigma_kernel *kernel = compile("spin");
    assert_ok(enigma_buffer_create(current.runtime, 4096, NULL, &buffer));
    enigma_prepared *prepared = prepare_on(kernel, buffer, rounds);
    enigma_kernel_free(kernel);
    enigma_buffer_free(buffer);
    return prepared;
}

static void device_times_lie_within_the_call(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_spin(20000);
    enigma_dispatch_options options = sizes(1024, 64);
    for (int i = 0; i < 5; i++) {
        double us = -1.0;
        uint64_t before = enigma_now_ns();
        assert_ok(enigma_dispatch_timed(prepared, &options, &us));
        double wall_us = (double)(enigma_now_ns() - before) / 1000.0;
        assert_true(us > 0.0);
        assert_true(us <= wall_us);
    }
    enigma_prepared_free(prepared);
}

static enigma_profile *sealed(enigma_profiler *profiler)
{
    enigma_profile *profile = NULL;
    assert_ok(enigma_profiler_seal(profiler));
    assert_ok(enigma_profiler_snapshot(profiler, &profile));
    enigma_profiler_free(profiler);
    return profile;
}

static enigma_profiler *recording(uint32_t flags)
{
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    enigma_profiler *profiler = NULL;
    options.flags = flags;
    assert_ok(enigma_profiler_create(&options, &profiler));
    assert_ok(enigma_profiler_open(profiler));
    return profiler;
}

static enigma_event event_at(const enigma_profile *profile, size_t index)
{
    enigma_event event = {.struct_size = sizeof event};
    assert_ok(enigma_profile_event(profile, index, &event));
    return event;
}

/* How far a device stamp may lie outside of its call on the host's clock: the bound on clock alignment. */
#define ALIGNMENT_NS 20000

static void events_have_device_time_on_the_host_clock(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_spin(20000);
    enigma_profiler *profiler = recording(0);
    const enigma_context context = {.profiler = profiler};
    enigma_dispatch_options options = sizes(1024, 64);
    options.context = &context;
    for (int i = 0; i < 20; i++) {
        assert_ok(enigma_dispatch(prepared, &options));
    }
    enigma_profile *profile = sealed(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 20);
    for (size_t i = 0; i < 20; i++) {
        enigma_event event = event_at(profile, i);
        assert_string_equal(event.name.data, "gpu_dispatch");
        assert_string_equal(event.category.data, current.backend);
        assert_string_equal(event.kernel_name.data, "spin");
        assert_int_equal(event.is_gpu_work, 1);
        assert_int_equal(event.buffer_count, 1);
        assert_int_equal(event.input_bytes, 0); /* not asked for */
        assert_int_equal(event.grid.x, 1024);
        assert_int_equal(event.threads.x, 64);
        assert_true(event.gpu_time_us > 0.0);
        assert_true(event.gpu_time_us * 1000.0 <= (double)(event.end_ns - event.start_ns));
        assert_true(event.gpu_start_ns + ALIGNMENT_NS >= event.start_ns);
        assert_true(event.gpu_end_ns <= event.end_ns + ALIGNMENT_NS);
        assert_null(metadata_of(&event, "gpu_time"));
        const enigma_value *wait = metadata_of(&event, "queue_wait_us");
        assert_true(wait == NULL || wait->as.number >= 0.0);
        assert_true(metadata_of(&event, "max_threads_per_threadgroup")->as.integer >= 64);
        assert_null(metadata_of(&event, "input_shapes"));
    }
    enigma_profile_free(profile);
    enigma_prepared_free(prepared);
}

static void asynchronous_work_is_resolved_when_the_profile_ends(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_spin(200000);
    enigma_profiler *profiler = recording(0);
    const enigma_context context = {.profiler = profiler};
    enigma_dispatch_options options = sizes(1024, 64);
    options.context = &context;
    options.flags = ENIGMA_DISPATCH_ASYNC;
    for (int i = 0; i < 10; i++) {
        options.queue = (uint32_t)i % 2;
        assert_ok(enigma_dispatch(prepared, &options));
    }
    enigma_prepared_free(prepared);
    enigma_profile *profile = sealed(profiler);
    enigma_counts counts = {.struct_size = sizeof counts};
    enigma_profile_get_counts(profile, &counts);
    assert_int_equal(counts.gpu_events, 10);
    assert_int_equal(counts.gpu_unfinished, 0);
    assert_int_equal(counts.gpu_invalid, 0);
    for (size_t i = 0; i < 10; i++) {
        enigma_event event = event_at(profile, i);
        assert_true(event.gpu_time_us > 0.0);
        assert_true(event.gpu_start_ns + ALIGNMENT_NS >= event.start_ns);
    }
    enigma_profile_free(profile);
}

static void waiting_for_one_kernel_leaves_the_others(void **state)
{
    (void)state;
    uint32_t out = 0;
    enigma_buffer *buffer = NULL;
    assert_ok(enigma_buffer_create(current.runtime, 4096, NULL, &buffer));
    enigma_prepared *prepared = prepare_mark(buffer, 1024);
    enigma_dispatch_options options = sizes(1024, 64);
    options.flags = ENIGMA_DISPATCH_ASYNC;
    for (int i = 0; i < 100; i++) {
        assert_ok(enigma_dispatch(prepared, &options));
    }
    assert_ok(enigma_prepared_wait(prepared));
    assert_ok(enigma_prepared_wait(prepared));
    assert_ok(enigma_buffer_read(buffer, 4092, &out, 4));
    assert_int_equal(out, 100);
    enigma_prepared_free(prepared);
    enigma_buffer_free(buffer);
}

static void shapes_and_bytes_are_recorded_when_asked_for(void **state)
{
    (void)state;
    float a[6] = {0}, factor = 1.0f;
    const uint64_t shape[2] = {2, 3};
    enigma_kernel *kernel = compile("scale");
    enigma_argument inputs[2] = {data_of(a, sizeof a), value_of(&factor, sizeof factor)};
    const size_t output = sizeof a;
    inputs[0].dtype = "float32";
    inputs[0].shape = shape;
    inputs[0].rank = 2;
    enigma_prepared *prepared = NULL;
    assert_ok(enigma_prepare(kernel, inputs, 2, &output, 1, &prepared));
    enigma_profiler *profiler = recording(ENIGMA_PROFILER_RECORD_SHAPES | ENIGMA_PROFILER_PROFILE_MEMORY);
    const enigma_context context = {.profiler = profiler};
    enigma_dispatch_options options = sizes(6, 2);
    options.context = &context;
    assert_ok(enigma_dispatch(prepared, &options));
    enigma_profile *profile = sealed(profiler);
    enigma_event event = event_at(profile, 0);
    assert_int_equal(event.input_bytes, sizeof a); /* buffers only */
    assert_int_equal(event.output_bytes, sizeof a);
    assert_int_equal(event.buffer_count, 2);
    const enigma_value *shapes = metadata_of(&event, "input_shapes");
    assert_non_null(shapes);
    assert_int_equal(shapes->type, ENIGMA_LIST);
    assert_int_equal(shapes->as.items.count, 2);
    const enigma_value *first = &shapes->as.items.data[0].value;
    assert_int_equal(first->type, ENIGMA_TUPLE);
    assert_int_equal(first->as.items.data[0].value.type, ENIGMA_TUPLE);
    assert_int_equal(first->as.items.data[0].value.as.items.count, 2);
    assert_int_equal(first->as.items.data[0].value.as.items.data[1].value.as.integer, 3);
    assert_string_equal(first->as.items.data[1].value.as.text.data, "float32");
    assert_string_equal(shapes->as.items.data[1].value.as.items.data[1].value.as.text.data, "bytes");
    enigma_profile_free(profile);
    enigma_prepared_free(prepared);
    enigma_kernel_free(kernel);
}

static void execute_records_its_steps(void **state)
{
    (void)state;
    static const char *const steps[] = {"load_library",          "create_pipeline", "create_input_buffers",
                                        "create_output_buffers", "gpu_dispatch",    "read_output",
                                        "release_resources",     "execute_total"};
    float a[64] = {0}, out[64], factor = 1.0f;
    enigma_kernel *kernel = compile("scale");
    const enigma_argument inputs[2] = {data_of(a, sizeof a), value_of(&factor, sizeof factor)};
    const size_t output = sizeof out;
    void *const outputs[1] = {out};
    enigma_profiler *profiler = recording(0);
    const enigma_context context = {.profiler = profiler};
    enigma_dispatch_options options = sizes(64, 8);
    options.context = &context;
    assert_ok(enigma_execute(kernel, inputs, 2, outputs, &output, 1, &options));
    enigma_profile *profile = sealed(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 8);
    enigma_event total = event_at(profile, 7);
    for (size_t i = 0; i < 8; i++) {
        enigma_text names[4];
        enigma_event event = event_at(profile, i);
        bool own = i == 7, gpu = i == 4;
        assert_string_equal(event.name.data, steps[i]);
        assert_string_equal(event.kernel_name.data, "scale");
        assert_string_equal(event.category.data, gpu ? current.backend : "runtime");
        assert_int_equal(enigma_profile_path_names(profile, event.path, names, 4), own ? 1 : 2);
        assert_string_equal(names[0].data, "execute_total:scale");
        assert_int_equal(enigma_profile_call_depth(profile, event.path), 0);
        assert_true(event.start_ns >= total.start_ns && event.end_ns <= total.end_ns);
        assert_true(gpu ? event.gpu_time_us > 0.0 : own || event.gpu_time_us == 0.0);
    }
    enigma_profile_free(profile);
    enigma_kernel_free(kernel);
}

static int interrupt_at_once(void *user)
{
    ++*(int *)user;
    return 1;
}

/* Runs ever longer kernels until one takes long enough to be interrupted, on the untimed or the timed path. */
static int interrupt_one(bool timed)
{
    int checks = 0;
    enigma_dispatch_options options = sizes(64, 64);
    enigma_status status = ENIGMA_OK;
    enigma_set_interrupt(interrupt_at_once, &checks);
    for (uint32_t rounds = 1000000; status == ENIGMA_OK && rounds < 1u << 31; rounds *= 2) {
        double us;
        enigma_prepared *prepared = prepare_spin(rounds);
        status = timed ? enigma_dispatch_timed(prepared, &options, &us) : enigma_dispatch(prepared, &options);
        enigma_prepared_free(prepared); /* it may still run */
    }
    enigma_set_interrupt(NULL, NULL);
    assert_int_equal(status, ENIGMA_E_INTERRUPTED);
    return checks;
}

/* A wait for a long kernel can be given up; the device stays usable. */
static void long_waits_can_be_interrupted(void **state)
{
    (void)state;
    for (int timed = 0; timed < 2; timed++) {
        enigma_dispatch_options options = sizes(64, 64);
        assert_int_equal(interrupt_one(timed != 0), 1);
        assert_ok(enigma_runtime_synchronize(current.runtime));
        enigma_prepared *small = prepare_spin(10);
        assert_ok(enigma_dispatch(small, &options));
        enigma_prepared_free(small);
    }
}

static void a_forked_child_is_refused(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_spin(10);
    enigma_dispatch_options options = sizes(1024, 64);
    assert_ok(enigma_dispatch(prepared, &options));
    pid_t child = fork();
    if (child == 0) {
        enigma_runtime *runtime = NULL;
        enigma_buffer *buffer = NULL;
        double us;
        int right = enigma_dispatch(prepared, &options) == ENIGMA_E_STATE &&
                    enigma_dispatch_timed(prepared, &options, &us) == ENIGMA_E_STATE &&
                    enigma_buffer_create(current.runtime, 4, NULL, &buffer) == ENIGMA_E_STATE &&
                    enigma_runtime_synchronize(current.runtime) == ENIGMA_E_STATE &&
                    enigma_prepared_wait(prepared) == ENIGMA_E_STATE &&
                    enigma_runtime_open(current.backend, 0, &runtime) == ENIGMA_E_STATE;
        enigma_prepared_free(prepared);
        enigma_runtime_free(current.runtime);
        _exit(right ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_ok(enigma_dispatch(prepared, &options)); /* the parent goes on */
    enigma_prepared_free(prepared);
}

static void benchmarks_time_real_kernels(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_spin(20000);
    enigma_benchmark *benchmark = NULL;
    enigma_benchmark_options options = ENIGMA_BENCHMARK_OPTIONS_INIT;
    enigma_benchmark_info info = {.struct_size = sizeof info};
    options.grid.x = 1024;
    options.threads.x = 64;
    options.repeat = 20;
    options.warmup = 2;
    options.flops = 2.0 * 20000 * 1024;
    assert_ok(enigma_benchmark_kernel(prepared, &options, &benchmark));
    enigma_benchmark_get(benchmark, &info);
    assert_int_equal(info.calls, 20);
    assert_true(info.min_us > 0.0 && info.min_us <= info.median_us && info.median_us <= info.p90_us);
    assert_true(info.p90_us <= info.max_us && info.gflops_per_s > 0.0);
    enigma_benchmark_free(benchmark);
    enigma_result *result = NULL;
    const enigma_row *row = NULL;
    enigma_profile_kernel_options rows = ENIGMA_PROFILE_KERNEL_OPTIONS_INIT;
    rows.grid.x = 1024;
    rows.threads.x = 64;
    rows.repeat = 10;
    assert_ok(enigma_profile_kernel(prepared, &rows, &result));
    assert_ok(enigma_result_by_name(result, (enigma_text){"gpu_dispatch", 0}, &row));
    assert_int_equal(row->calls, 10);
    assert_int_equal(row->input_bytes, 10 * 4096);
    assert_true(row->gpu_total_us > 0.0);
    enigma_result_free(result);
    enigma_prepared_free(prepared);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sizes_that_cannot_run_are_refused),
    cmocka_unit_test(partial_groups_run_exactly_or_not_at_all),
    cmocka_unit_test(order_is_kept_whatever_is_mixed),
    cmocka_unit_test(device_times_lie_within_the_call),
    cmocka_unit_test(events_have_device_time_on_the_host_clock),
    cmocka_unit_test(asynchronous_work_is_resolved_when_the_profile_ends),
    cmocka_unit_test(waiting_for_one_kernel_leaves_the_others),
    cmocka_unit_test(shapes_and_bytes_are_recorded_when_asked_for),
    cmocka_unit_test(execute_records_its_steps),
    cmocka_unit_test(long_waits_can_be_interrupted),
    cmocka_unit_test(a_forked_child_is_refused),
    cmocka_unit_test(benchmarks_time_real_kernels),
};

BATTERY_MAIN("dispatch")
