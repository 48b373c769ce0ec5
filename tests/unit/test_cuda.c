/* The CUDA backend over a fake driver with CUPTI: facts, compiling, arguments, launches, records that are late, lost or wrong. */
#include "cuda_fake.h"

#include "cupti/cupti.h"

static void facts_say_what_the_device_is(void **state)
{
    (void)state;
    assert_string_equal(fact_of("name")->as.text.data, "Fake GPU 0");
    assert_string_equal(fact_of("vendor")->as.text.data, "NVIDIA");
    assert_string_equal(fact_of("compute_capability")->as.text.data, "9.0");
    assert_string_equal(fact_of("cuda_version")->as.text.data, "13.0");
    assert_string_equal(fact_of("timer")->as.text.data, "CUPTI activity");
    assert_int_equal(fact_of("compute_units")->as.integer, 132);
    assert_int_equal(fact_of("clock_mhz")->as.integer, 1980);
    assert_int_equal(fact_of("partial_groups")->as.integer, 0);
    assert_null(fact_of("timer_reason"));
    assert_int_equal(fake.get(FAKE_SUBSCRIBED), 0); /* CUPTI is free until something is timed */
}

static void the_callers_context_stays_as_it_was(void **state)
{
    (void)state;
    enigma_dispatch_options options = sizes(256, 64);
    double us;
    assert_int_equal(fake.get(FAKE_CONTEXT_DEPTH), 0);
    enigma_prepared *prepared = prepare_add(1.0f);
    assert_ok(enigma_dispatch(prepared, &options));
    assert_ok(enigma_dispatch_timed(prepared, &options, &us));
    assert_true(us > 0.0);
    check_output(prepared, 1.0f);
    options.grid.y = 1 << 20;
    assert_int_equal(enigma_dispatch(prepared, &options), ENIGMA_E_INVALID);
    enigma_prepared_free(prepared);
    assert_int_equal(fake.get(FAKE_CONTEXT_DEPTH), 0);
}

static void blocks_are_limited_before_the_launch(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_add(1.0f);
    enigma_dispatch_options options = sizes(256, 64);
    long launches = fake.get(FAKE_LAUNCHES);
    options.grid.y = 65536;
    assert_int_equal(enigma_dispatch(prepared, &options), ENIGMA_E_INVALID);
    assert_message("grid.y is 65536 groups of threads.y; this device takes at most 65535");
    options.grid.y = 1;
    options.grid.x = 100;
    assert_int_equal(enigma_dispatch(prepared, &options), ENIGMA_E_INVALID);
    assert_message("multiple");
    assert_int_equal(fake.get(FAKE_LAUNCHES), launches);
    enigma_prepared_free(prepared);
}

/* Runs many times and pays for records a few times. */
static void a_benchmark_flushes_once_for_many_runs(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_add(2.0f);
    enigma_benchmark_options options = ENIGMA_BENCHMARK_OPTIONS_INIT;
    enigma_benchmark *benchmark = NULL;
    enigma_benchmark_info info = {.struct_size = sizeof info};
    options.grid.x = 256;
    options.threads.x = 64;
    options.repeat = 128;
    options.warmup = 3;
    long flushes = fake.get(FAKE_FLUSHES), events = fake.get(FAKE_EVENTS);
    assert_ok(enigma_benchmark_kernel(prepared, &options, &benchmark));
    enigma_benchmark_get(benchmark, &info);
    assert_int_equal(info.calls, 128);
    for (size_t i = 0; i < info.calls; i++) {
        assert_true(info.gpu_times_us[i] > 0.0);
    }
    assert_true(fake.get(FAKE_FLUSHES) - flushes <= 4);
    assert_int_equal(fake.get(FAKE_EVENTS), events); /* an event would hold the next kernel up */
    enigma_benchmark_free(benchmark);
    enigma_prepared_free(prepared);
}

static void recorded_dispatches_share_flushes(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_add(2.0f);
    enigma_profiler *profiler = recording();
    const enigma_context context = {.profiler = profiler};
    enigma_dispatch_options options = sizes(256, 64);
    options.context = &context;
    long flushes = fake.get(FAKE_FLUSHES);
    for (int i = 0; i < 500; i++) {
        assert_ok(enigma_dispatch(prepared, &options));
    }
    enigma_profile *profile = sealed(profiler);
    assert_true(fake.get(FAKE_FLUSHES) - flushes <= 100); /* the clocks' now and then, and one for all; not one each */
    assert_int_equal(enigma_profile_event_count(profile), 500);
    for (size_t i = 0; i < 500; i++) {
        enigma_event event = event_at(profile, i);
        assert_true(event.gpu_time_us > 0.0);
        assert_true(event.gpu_start_ns != 0 && event.gpu_end_ns > event.gpu_start_ns);
        assert_int_equal(metadata_of(&event, "registers_per_thread")->as.integer, 24);
        assert_int_equal(metadata_of(&event, "thread_execution_width")->as.integer, 32);
        assert_true(metadata_of(&event, "threadgroup_occupancy")->as.number == 1.0);
        assert_null(metadata_of(&event, "queue_wait_us")); /* CUPTI's latency stamps are off */
    }
    enigma_profile_free(profile);
    enigma_prepared_free(prepared);
}

static void work_that_nobody_waits_for_does_not_pile_up(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_add(2.0f);
    enigma_profiler *profiler = recording();
    const enigma_context context = {.profiler = profiler};
    enigma_dispatch_options options = sizes(256, 256);
    options.context = &context;
    options.flags = ENIGMA_DISPATCH_ASYNC;
    long flushes = fake.get(FAKE_FLUSHES);
    for (int i = 0; i < 10000; i++) {
        assert_ok(enigma_dispatch(prepared, &options));
    }
    long during = fake.get(FAKE_FLUSHES) - flushes;
    assert_true(during >= 1 && during <= 10);
    enigma_profile *profile = sealed(profiler);
    enigma_counts counts = {.struct_size = sizeof counts};
    enigma_profile_get_counts(profile, &counts);
    assert_int_equal(counts.gpu_events, 10000);
    assert_int_equal(counts.gpu_unfinished, 0);
    assert_int_equal(counts.gpu_invalid, 0);
    enigma_profile_free(profile);
    enigma_prepared_free(prepared);
}

static void wrong_records_are_no_numbers(void **state)
{
    (void)state;
    static const struct {
        enum fake_time time;
        bool good;
    } cases[] = {{FAKE_TIME_ZERO, false}, {FAKE_TIME_REVERSED, false}, {FAKE_TIME_RUNNING, false},
                 {FAKE_TIME_LOST, false}, {FAKE_TIME_LATE, true},      {FAKE_TIME_RIGHT, true}};
    enigma_prepared *prepared = prepare_add(3.0f);
    enigma_dispatch_options options = sizes(256, 64);
    for (size_t i = 0; i < ENI_COUNT_OF(cases); i++) {
        enigma_profiler *profiler = recording();
        const enigma_context context = {.profiler = profiler};
        options.context = &context;
        fake.set(FAKE_NEXT_TIME, cases[i].time);
        assert_ok(enigma_dispatch(prepared, &options));
        enigma_profile *profile = sealed(profiler);
        enigma_event event = event_at(profile, 0);
        enigma_counts counts = {.struct_size = sizeof counts};
        enigma_profile_get_counts(profile, &counts);
        assert_true(cases[i].good ? event.gpu_time_us > 0.0 : event.gpu_time_us == 0.0);
        assert_true((metadata_of(&event, "gpu_time") == NULL) == cases[i].good);
        assert_int_equal(counts.gpu_invalid, cases[i].good ? 0 : 1);
        enigma_profile_free(profile);
    }
    double us = -1.0;
    options.context = NULL;
    fake.set(FAKE_NEXT_TIME, FAKE_TIME_REVERSED);
    assert_ok(enigma_dispatch_timed(prepared, &options, &us));
    assert_true(us == 0.0);
    assert_message("not valid");
    enigma_prepared_free(prepared);
}

/* CUPTI converts the device's clock with an error that comes and goes: here far larger than what a busy machine adds. */
static void stamps_are_put_right_by_markers(void **state)
{
    (void)state;
    static const long skews[] = {0, 20000000, -20000000};
    enigma_prepared *prepared = prepare_add(3.0f);
    for (size_t i = 0; i < ENI_COUNT_OF(skews); i++) {
        fake.set(FAKE_SKEW_NS, skews[i]);
        enigma_profiler *profiler = recording();
        const enigma_context context = {.profiler = profiler};
        enigma_dispatch_options options = sizes(256, 64);
        options.context = &context;
        for (int k = 0; k < 10; k++) {
            assert_ok(enigma_dispatch(prepared, &options));
        }
        enigma_profile *profile = sealed(profiler);
        for (size_t k = 0; k < 10; k++) {
            enigma_event event = event_at(profile, k);
            assert_true(event.gpu_start_ns + 5000000 >= event.start_ns);
            assert_true(event.gpu_end_ns <= event.end_ns + 5000000);
        }
        enigma_profile_free(profile);
    }
    fake.set(FAKE_SKEW_NS, 0);
    enigma_prepared_free(prepared);
}

static void failing_launches_leave_nothing(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_add(3.0f);
    enigma_dispatch_options options = sizes(256, 64);
    double us;
    fake.set(FAKE_LAUNCH_ERROR, CUDA_ERROR_LAUNCH_RESOURCES);
    assert_int_equal(enigma_dispatch_timed(prepared, &options, &us), ENIGMA_E_INVALID);
    assert_message("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)");
    assert_ok(enigma_dispatch_timed(prepared, &options, &us));
    assert_true(us > 0.0);
    fake.set(FAKE_STICKY_ERROR, 700);
    assert_int_equal(enigma_dispatch(prepared, &options), ENIGMA_E_DEVICE);
    assert_message("CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access");
    options.flags = ENIGMA_DISPATCH_ASYNC;
    assert_ok(enigma_dispatch(prepared, &options));
    assert_int_equal(enigma_prepared_wait(prepared), ENIGMA_E_DEVICE);
    fake.set(FAKE_STICKY_ERROR, 0);
    enigma_prepared_free(prepared);
}

/* One event answers for all launches before it, however often it is asked. */
static void a_busy_queue_is_asked_by_one_event(void **state)
{
    (void)state;
    const eni_backend *backend;
    void *device, *program, *kernel, *tickets[50];
    eni_traits traits;
    eni_facts facts = {0};
    const eni_kernel_info *info;
    assert_ok(eni_backend_get("cuda", &backend));
    assert_ok(backend->open(0, NULL, &device, &traits, &facts));
    static const char ptx[] = ".version 8.0\n.visible .entry nothing()\n{ ret; }\n";
    assert_ok(backend->program_build(device, ptx, sizeof ptx - 1, NULL, NULL, &program));
    assert_ok(backend->kernel_create(program, "nothing", &kernel, &info));
    assert_int_equal(info->argument_count, 0);
    fake.set(FAKE_HOLD, 1);
    long events = fake.get(FAKE_EVENTS);
    for (int i = 0; i < 50; i++) {
        const eni_launch_request request = {
            .kernel = kernel, .grid = {1, 1, 1}, .threads = {1, 1, 1}, .timed = i % 2 == 0};
        assert_ok(backend->launch(device, &request, &tickets[i]));
        assert_int_equal(backend->poll(tickets[i]), 0);
    }
    assert_int_equal(fake.get(FAKE_EVENTS), events);
    for (int i = 0; i < 49; i++) {
        assert_int_equal(backend->poll(tickets[i]), 0);
    }
    assert_int_equal(fake.get(FAKE_EVENTS), events + 1);
    fake.set(FAKE_HOLD, 0);
    for (int i = 0; i < 50; i++) {
        assert_ok(backend->wait(tickets[i]));
        assert_int_equal(backend->poll(tickets[i]), 1);
    }
    for (int i = 0; i < 50; i++) {
        eni_stamps stamps;
        if (i % 2 == 0) {
            backend->stamps(tickets[i], &stamps);
            assert_true(stamps.available && stamps.end > stamps.start);
            assert_true(backend->stamps_ready(tickets[i]));
        }
        backend->release(tickets[i]);
    }
    backend->kernel_free(kernel);
    backend->program_free(program);
    backend->close(device);
    eni_facts_free(&facts);
}

static void launches_are_no_longer_listed_once_released(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_add(3.0f);
    enigma_profiler *profiler = recording();
    const enigma_context context = {.profiler = profiler};
    enigma_dispatch_options options = sizes(256, 64);
    options.context = &context;
    options.flags = ENIGMA_DISPATCH_ASYNC;
    for (int i = 0; i < 5; i++) {
        fake.set(FAKE_NEXT_TIME, FAKE_TIME_LATE);
        assert_ok(enigma_dispatch(prepared, &options));
        assert_ok(enigma_prepared_wait(prepared));
    }
    enigma_profile_free(sealed(profiler));
    enigma_prepared_free(prepared);
    eni_cupti_flush(NULL, NULL, 0); /* whatever still comes meets no freed ticket */
}

static void arguments_are_known_from_driver_and_source(void **state)
{
    (void)state;
    enigma_kernel *kernel = NULL;
    enigma_prepared *prepared = NULL;
    float data[256] = {0};
    double wide = 1.0;
    const size_t output = sizeof data;
    enigma_argument inputs[2] = {{.kind = ENIGMA_ARGUMENT_DATA, .data = data, .size = sizeof data},
                                 {.kind = ENIGMA_ARGUMENT_SCALAR, .data = &wide, .size = sizeof wide}};
    assert_ok(compile_as(add_source, "add", NULL, &kernel));
    assert_int_equal(enigma_prepare(kernel, inputs, 2, &output, 1, &prepared), ENIGMA_E_INVALID);
    assert_message("argument 1 (float step) of kernel add has 4 bytes; the value given has 8");
    inputs[0] = inputs[1];
    assert_int_equal(enigma_prepare(kernel, inputs, 2, &output, 1, &prepared), ENIGMA_E_INVALID);
    assert_message("argument 0 (const float * in) of kernel add is a pointer to a buffer");
    assert_int_equal(enigma_prepare(kernel, inputs, 1, &output, 1, &prepared), ENIGMA_E_INVALID);
    assert_message("takes 3 arguments");
    enigma_kernel_free(kernel);
}

static void mangled_names_are_explained(void **state)
{
    (void)state;
    enigma_kernel *kernel = NULL;
    static const char source[] = "__global__ void _Z3addPf(float *a) { a[0] = 1; }";
    assert_int_equal(compile_as(source, "add", NULL, &kernel), ENIGMA_E_NOT_FOUND);
    assert_message("_Z3addPf");
    assert_message("extern \"C\"");
    assert_int_equal(compile_as(add_source, "subtract", NULL, &kernel), ENIGMA_E_NOT_FOUND);
    assert_message("it has add");
    assert_null(strstr(enigma_error_message(), "extern"));
}

static enigma_status compile_bytes(const char *file, const char *bytes, size_t size, const char *name)
{
    enigma_kernel *kernel = NULL;
    FILE *out = fopen(file, "wb");
    assert_int_equal(fwrite(bytes, 1, size, out), size);
    fclose(out);
    const enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = name, .path = file};
    enigma_status status = enigma_kernel_compile(runtime, &desc, &kernel);
    enigma_kernel_free(kernel);
    return status;
}

static void all_kinds_of_programs_are_told_apart(void **state)
{
    (void)state;
    static const char ptx[] = "// made by hand\n.version 8.0\n.target sm_50\n.visible .entry nothing()\n{ ret; }\n";
    assert_ok(compile_bytes("k.ptx", ptx, sizeof ptx - 1, "nothing"));
    assert_ok(compile_bytes("k.cu", add_source, sizeof add_source - 1, "add"));
    assert_int_equal(compile_bytes("k.ptx", "junk", 4, "nothing"), ENIGMA_E_COMPILE);
    assert_int_equal(compile_bytes("k.cubin", "junk", 4, "nothing"), ENIGMA_E_COMPILE);
    assert_message("CUDA_ERROR_INVALID_IMAGE");
    assert_message("the fake linker's log");
    assert_int_equal(compile_bytes("k.metal", "kernel void", 11, "x"), ENIGMA_E_INVALID);
    assert_message(".metal");
    fake.set(FAKE_LOAD_ERROR, CUDA_ERROR_NO_BINARY);
    assert_int_equal(compile_bytes("k.fatbin", "\x50\xed\x55\xba....", 8, "x"), ENIGMA_E_COMPILE);
    assert_message("CUDA_ERROR_NO_BINARY_FOR_GPU");
}

static void compiler_options_and_architectures(void **state)
{
    (void)state;
    enigma_kernel *kernel = NULL;
    static const char source[] = "#if defined(ONE) && TWO == 5\n"
                                 "__global__ void given(TYPE a) { (void)a; }\n#endif\n";
    assert_ok(compile_as(source, "given", " -DONE  -DTWO=5 '-DTYPE=unsigned int'", &kernel));
    enigma_kernel_free(kernel);
    assert_int_equal(fake.get(FAKE_ARCH), 90);
    assert_int_equal(compile_as(source, "given", "--no-such-option", &kernel), ENIGMA_E_COMPILE);
    assert_message("--no-such-option");
    assert_message("unrecognized option");
    assert_int_equal(compile_as("__global__ void x() { y; }", "x", NULL, &kernel), ENIGMA_E_COMPILE);
    assert_message("NVRTC_ERROR_COMPILATION");
    assert_message("undeclared");
    fake.set(FAKE_ARCH_LIMIT, 80); /* a compiler older than the device: the driver finishes what it begins */
    assert_ok(compile_as(source, "given", "-DONE -DTWO=5 -DTYPE=int", &kernel));
    enigma_kernel_free(kernel);
    assert_int_equal(fake.get(FAKE_ARCH), -80);
    fake.set(FAKE_ARCH_LIMIT, 90);
    assert_ok(compile_as(source, "given", "-DONE -DTWO=5 -DTYPE=int --gpu-architecture=compute_75", &kernel));
    enigma_kernel_free(kernel);
    assert_int_equal(fake.get(FAKE_ARCH), -75);
}

static void cupti_is_given_back_with_the_last_runtime(void **state)
{
    (void)state;
    enigma_runtime *shared = runtime, *second = NULL;
    enigma_dispatch_options options = sizes(256, 64);
    double us;
    assert_ok(enigma_runtime_open("cuda", 0, &second));
    runtime = second;
    enigma_prepared *prepared = prepare_add(1.0f);
    assert_ok(enigma_dispatch_timed(prepared, &options, &us));
    assert_true(us > 0.0);
    enigma_prepared_free(prepared);
    enigma_runtime_free(second);
    runtime = shared;
    assert_int_equal(fake.get(FAKE_SUBSCRIBED), 1);
    enigma_runtime_free(shared);
    assert_int_equal(fake.get(FAKE_SUBSCRIBED), 0);
    assert_int_equal(fake.get(FAKE_EVENTS_ALIVE), 0);
    assert_int_equal(fake.get(FAKE_BUFFERS_OUT), 0);
    assert_ok(enigma_runtime_open("cuda", 0, &runtime));
}

static void a_forked_child_refuses(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0) {
        uint32_t count = 7;
        bool refused = enigma_backend_device_count("cuda", &count) == ENIGMA_E_STATE && count == 0;
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_driver_without_devices_says_so(void **state)
{
    (void)state;
    uint32_t count = 7;
    fake.set(FAKE_INIT_ERROR, CUDA_ERROR_NO_DEVICE);
    assert_int_equal(enigma_backend_device_count("cuda", &count), ENIGMA_E_UNAVAILABLE);
    assert_int_equal(count, 0);
    assert_message("CUDA_ERROR_NO_DEVICE (100)");
    assert_message("libcuda.so.1");
    fake.set(FAKE_INIT_ERROR, 0);
    fake.set(FAKE_DEVICES, 0);
    assert_int_equal(enigma_backend_device_count("cuda", &count), ENIGMA_E_UNAVAILABLE);
    fake.set(FAKE_DEVICES, 2);
    assert_ok(enigma_backend_device_count("cuda", &count));
    assert_int_equal(count, 2);
}

int main(void)
{
    const struct CMUnitTest before[] = {cmocka_unit_test(a_driver_without_devices_says_so)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_say_what_the_device_is),
        cmocka_unit_test(the_callers_context_stays_as_it_was),
        cmocka_unit_test(blocks_are_limited_before_the_launch),
        cmocka_unit_test(a_benchmark_flushes_once_for_many_runs),
        cmocka_unit_test(recorded_dispatches_share_flushes),
        cmocka_unit_test(work_that_nobody_waits_for_does_not_pile_up),
        cmocka_unit_test(wrong_records_are_no_numbers),
        cmocka_unit_test(stamps_are_put_right_by_markers),
        cmocka_unit_test(failing_launches_leave_nothing),
        cmocka_unit_test(a_busy_queue_is_asked_by_one_event),
        cmocka_unit_test(launches_are_no_longer_listed_once_released),
        cmocka_unit_test(arguments_are_known_from_driver_and_source),
        cmocka_unit_test(mangled_names_are_explained),
        cmocka_unit_test(all_kinds_of_programs_are_told_apart),
        cmocka_unit_test(compiler_options_and_architectures),
        cmocka_unit_test(cupti_is_given_back_with_the_last_runtime),
        cmocka_unit_test(a_forked_child_refuses),
    };
    if (!fake_load("new", &fake)) {
        return 1;
    }
    int failed = cmocka_run_group_tests_name("cuda driver", before, NULL, NULL);
    return failed + cmocka_run_group_tests_name("cuda", tests, open_runtime, close_runtime);
}
