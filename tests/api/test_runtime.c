/* Backends and runtimes (sections 11 to 14) where no device is needed: the table, what is missing, arguments, execute, capture. */
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define assert_message(part) assert_non_null(strstr(enigma_error_message(), part))

static const enigma_backend_info *backend_named(const char *name)
{
    const enigma_backend_info *backend;
    for (size_t i = 0; (backend = enigma_backend_at(i)) != NULL; i++) {
        if (strcmp(backend->name, name) == 0) {
            return backend;
        }
    }
    return NULL;
}

static void the_table_lists_the_backends_best_first(void **state)
{
    (void)state;
    static const char *const order[] = {"cuda", "metal", "opencl"};
    for (size_t i = 0; i < 3; i++) {
        const enigma_backend_info *backend = enigma_backend_at(i);
        assert_string_equal(backend->name, order[i]);
        assert_true(backend->title[0] != '\0' && backend->needs[0] != '\0');
        assert_ptr_equal(backend, enigma_backend_at(i));
    }
    assert_null(enigma_backend_at(3));
    assert_null(enigma_backend_at(SIZE_MAX));
    assert_int_equal(backend_named("opencl")->built, 1);
    assert_null(backend_named("scripted")); /* never chosen, never listed */
}

static void a_backend_that_is_not_built_says_so(void **state)
{
    (void)state;
    const enigma_backend_info *backend;
    for (size_t i = 0; (backend = enigma_backend_at(i)) != NULL; i++) {
        enigma_runtime *runtime = NULL;
        uint32_t count = 7;
        if (backend->built) {
            continue;
        }
        assert_int_equal(enigma_backend_device_count(backend->name, &count), ENIGMA_E_UNAVAILABLE);
        assert_int_equal(count, 0);
        assert_int_equal(enigma_runtime_open(backend->name, 0, &runtime), ENIGMA_E_UNAVAILABLE);
        assert_null(runtime);
        assert_message(backend->title);
        assert_message("not part of this build");
        assert_message(backend->needs);
    }
}

static void unknown_backends_list_the_known(void **state)
{
    (void)state;
    uint32_t count;
    enigma_runtime *runtime = NULL;
    assert_int_equal(enigma_runtime_open("vulkan", 0, &runtime), ENIGMA_E_INVALID);
    assert_message("vulkan");
    assert_message("cuda, metal, opencl");
    assert_int_equal(enigma_backend_device_count("", &count), ENIGMA_E_INVALID);
    assert_int_equal(enigma_backend_device_count(NULL, &count), ENIGMA_E_INVALID);
    assert_int_equal(enigma_backend_device_count("opencl", NULL), ENIGMA_E_INVALID);
    assert_int_equal(enigma_runtime_open("opencl", 0, NULL), ENIGMA_E_INVALID);
}

/* Runs this program again in the mode of a check, with one more variable, since settings and drivers are read once; 0: it held. */
static int run_again(const char *mode, const char *variable, const char *value)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        setenv(variable, value, 1);
        execl("/proc/self/exe", "test_runtime", mode, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define SKIPPED 77

static int no_platform(void)
{
    enigma_runtime *runtime = NULL;
    uint32_t count = 0;
    if (enigma_backend_device_count("opencl", &count) == ENIGMA_OK && count > 0) {
        return SKIPPED; /* a loader that finds drivers without the variable */
    }
    enigma_status status = enigma_runtime_open(NULL, ENIGMA_DEVICE_DEFAULT, &runtime);
    int named = status == ENIGMA_E_UNAVAILABLE && strstr(enigma_error_message(), "libOpenCL.so.1") != NULL &&
                strstr(enigma_error_message(), "pocl-opencl-icd") != NULL;
    return runtime == NULL && named ? 0 : 1;
}

static void without_a_driver_the_error_says_what_to_install(void **state)
{
    (void)state;
    int result = run_again("no_platform", "OCL_ICD_VENDORS", "/nonexistent");
    if (result == SKIPPED) {
        skip();
    }
    assert_int_equal(result, 0);
}

static int setting_is_unknown(void)
{
    enigma_runtime *runtime = NULL;
    return enigma_runtime_open(NULL, 0, &runtime) == ENIGMA_E_INVALID && runtime == NULL ? 0 : 1;
}

static int setting_is_not_built(void)
{
    enigma_runtime *runtime = NULL;
    return enigma_runtime_open(NULL, 0, &runtime) == ENIGMA_E_UNAVAILABLE &&
                   strstr(enigma_error_message(), "not part of this build") != NULL
               ? 0
               : 1;
}

static int device_is_out_of_range(void)
{
    uint32_t count = 0;
    enigma_runtime *runtime = NULL;
    if (enigma_backend_device_count("opencl", &count) != ENIGMA_OK) {
        return 77;
    }
    return enigma_runtime_open("opencl", ENIGMA_DEVICE_DEFAULT, &runtime) == ENIGMA_E_INVALID &&
                   strstr(enigma_error_message(), "out of range") != NULL
               ? 0
               : 1;
}

static void settings_choose_backend_and_device(void **state)
{
    (void)state;
    assert_int_equal(run_again("unknown", "ENIGMA_BACKEND", "vulkan"), 0);
    assert_int_equal(run_again("not_built", "ENIGMA_BACKEND", "metal"), 0);
    int code = run_again("out_of_range", "ENIGMA_DEVICE", "1000");
    assert_true(code == 0 || code == 77);
}

/* ---- execute on the scripted runtime ---- */

static enigma_kernel *scripted_kernel(enigma_runtime **runtime)
{
    enigma_kernel *kernel = NULL;
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = "k", .source = ""};
    assert_ok(enigma_scripted_open(NULL, runtime));
    assert_ok(enigma_kernel_compile(*runtime, &desc, &kernel));
    return kernel;
}

static void execute_goes_under_the_open_scopes(void **state)
{
    (void)state;
    enigma_runtime *runtime = NULL;
    enigma_kernel *kernel = scripted_kernel(&runtime);
    char out[8] = "garbage";
    const char zeros[8] = {0};
    const size_t size = sizeof out;
    void *const outputs[1] = {out};
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    enigma_profiler *profiler = profiler_started();
    enigma_scope scope = enigma_begin("s");
    assert_ok(enigma_execute(kernel, NULL, 0, outputs, &size, 1, &options));
    enigma_end(scope);
    assert_memory_equal(out, zeros, sizeof out);
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 9);
    enigma_event event = event_at(profile, 4);
    assert_string_equal(path_text(profile, event.path), "s/execute_total:k/gpu_dispatch:k");
    assert_int_equal(enigma_profile_call_depth(profile, event.path), 1);
    event = event_at(profile, 7);
    assert_string_equal(event.name.data, "execute_total");
    assert_string_equal(event.category.data, "runtime");
    assert_float_equal(event.gpu_time_us, 0.0, 0.0); /* runtime events have none of their own */
    event = event_at(profile, 8);
    assert_float_equal(event.gpu_time_us, 1.0, 1e-9);
    enigma_profile_free(profile);
    enigma_kernel_free(kernel);
    enigma_runtime_free(runtime);
}

static void a_failing_execute_frees_and_marks(void **state)
{
    (void)state;
    enigma_runtime *runtime = NULL;
    enigma_kernel *kernel = scripted_kernel(&runtime);
    const enigma_script script = {.kind = ENIGMA_SCRIPT_FAILURE, .message = "lost"};
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    char out[8];
    const size_t size = sizeof out;
    void *const outputs[1] = {out};
    assert_ok(enigma_scripted_push(runtime, 0, 0, &script, 1));
    enigma_profiler *profiler = profiler_started();
    assert_int_equal(enigma_execute(kernel, NULL, 0, outputs, &size, 1, &options), ENIGMA_E_DEVICE);
    enigma_profile *profile = profile_stopped(profiler);
    size_t count = enigma_profile_event_count(profile);
    assert_int_equal(count, 7); /* no read_output */
    enigma_event event = event_at(profile, count - 1);
    assert_string_equal(event.name.data, "execute_total");
    assert_string_equal(metadata_of(&event, "error")->as.text.data, "lost");
    event = event_at(profile, count - 2);
    assert_string_equal(event.name.data, "release_resources");
    assert_null(metadata_of(&event, "error"));
    event = event_at(profile, count - 3);
    assert_string_equal(event.name.data, "gpu_dispatch");
    assert_non_null(metadata_of(&event, "error"));
    enigma_profile_free(profile);
    void *const nowhere[1] = {NULL};
    assert_int_equal(enigma_execute(kernel, NULL, 0, nowhere, &size, 1, &options), ENIGMA_E_INVALID);
    assert_int_equal(enigma_execute(kernel, NULL, 0, NULL, &size, 1, &options), ENIGMA_E_INVALID);
    assert_int_equal(enigma_execute(kernel, NULL, 0, NULL, NULL, 0, NULL), ENIGMA_E_INVALID);
    enigma_kernel_free(kernel);
    enigma_runtime_free(runtime);
}

/* ---- life ---- */

static void case_f11_profiles_hold_no_buffers(void **state)
{
    (void)state;
    enigma_runtime *runtime = NULL;
    enigma_kernel *kernel = scripted_kernel(&runtime);
    enigma_buffer *buffer = NULL;
    enigma_prepared *prepared = NULL;
    assert_ok(enigma_buffer_create(runtime, 1 << 20, NULL, &buffer));
    const enigma_argument input = {.kind = ENIGMA_ARGUMENT_BUFFER, .buffer = buffer};
    assert_ok(enigma_prepare(kernel, &input, 1, NULL, 0, &prepared));
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    enigma_profiler *profiler = profiler_started();
    for (int i = 0; i < 1000; i++) {
        assert_ok(enigma_dispatch(prepared, &options));
    }
    enigma_prepared_free(prepared);
    enigma_buffer_free(buffer);
    enigma_kernel_free(kernel);
    enigma_runtime_free(runtime); /* everything is gone here; the leak checker agrees */
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 1000);
    assert_int_equal(event_at(profile, 999).buffer_count, 1);
    enigma_profile_free(profile);
}

static void case_f14_a_runtime_opened_under_the_profiler_is_recorded(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_started();
    enigma_runtime *runtime = NULL;
    enigma_kernel *kernel = scripted_kernel(&runtime);
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    assert_ok(enigma_execute(kernel, NULL, 0, NULL, NULL, 0, &options));
    enigma_kernel_free(kernel);
    enigma_runtime_free(runtime);
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 8);
    enigma_profile_free(profile);
}

static void case_f07_the_child_of_a_fork_is_refused_and_the_parent_untouched(void **state)
{
    (void)state;
    enigma_runtime *runtime = NULL;
    enigma_kernel *kernel = scripted_kernel(&runtime);
    enigma_prepared *prepared = NULL;
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    assert_ok(enigma_prepare(kernel, NULL, 0, NULL, 0, &prepared));
    enigma_scripted_clock_begin(1000);
    enigma_profiler *profiler = profiler_started();
    options.flags = ENIGMA_DISPATCH_ASYNC;
    assert_ok(enigma_dispatch(prepared, &options));
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        enigma_profile *profile = NULL;
        int right = enigma_dispatch(prepared, &options) == ENIGMA_E_STATE;
        right = right && strstr(enigma_error_message(), "fork") != NULL;
        right = right && enigma_runtime_synchronize(runtime) == ENIGMA_E_STATE;
        right = right && enigma_profiler_stop(profiler) == ENIGMA_OK; /* does not wait for the parent's work */
        right = right && enigma_profiler_snapshot(profiler, &profile) == ENIGMA_OK;
        right = right && enigma_profile_event_count(profile) == 0;
        enigma_prepared_free(prepared);
        enigma_kernel_free(kernel);
        enigma_runtime_free(runtime);
        _exit(right ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    enigma_profile *profile = profile_stopped(profiler);
    assert_float_equal(event_at(profile, 0).gpu_time_us, 1.0, 0.0);
    enigma_profile_free(profile);
    enigma_scripted_clock_end();
    enigma_prepared_free(prepared);
    enigma_kernel_free(kernel);
    enigma_runtime_free(runtime);
}

static void case_a23_a_capture_that_is_not_possible_says_why(void **state)
{
    (void)state;
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    enigma_profiler *profiler = NULL;
    options.capture_path = "x.trace";
    assert_int_equal(enigma_profiler_create(&options, &profiler), ENIGMA_E_INVALID);
    options.capture_path = "x.gputrace";
    assert_ok(enigma_profiler_create(&options, &profiler));
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_E_UNAVAILABLE);
    assert_message("MTL_CAPTURE_ENABLED");
    assert_message("x.gputrace");
    assert_null(enigma_profiler_active());
    assert_int_equal(enigma_profiler_open(profiler), ENIGMA_E_UNAVAILABLE);
    assert_int_equal(access("x.gputrace", F_OK), -1);
    enigma_profiler_free(profiler);
}

static const struct {
    const char *mode;
    int (*check)(void);
} modes[] = {{"no_platform", no_platform},
             {"unknown", setting_is_unknown},
             {"not_built", setting_is_not_built},
             {"out_of_range", device_is_out_of_range}};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(argv[1], modes[i].mode) == 0) {
            return modes[i].check();
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_choose_backend_and_device),
        cmocka_unit_test(without_a_driver_the_error_says_what_to_install),
        cmocka_unit_test(the_table_lists_the_backends_best_first),
        cmocka_unit_test(a_backend_that_is_not_built_says_so),
        cmocka_unit_test(unknown_backends_list_the_known),
        cmocka_unit_test(execute_goes_under_the_open_scopes),
        cmocka_unit_test(a_failing_execute_frees_and_marks),
        cmocka_unit_test(case_f11_profiles_hold_no_buffers),
        cmocka_unit_test(case_f14_a_runtime_opened_under_the_profiler_is_recorded),
        cmocka_unit_test(case_f07_the_child_of_a_fork_is_refused_and_the_parent_untouched),
        cmocka_unit_test(case_a23_a_capture_that_is_not_possible_says_why),
    };
    return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
