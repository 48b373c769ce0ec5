/* The CUDA attacher against a fake CUPTI: many threads and launches at once, what is kept of them, and forking. */
#include "attach_cuda.h"

#include "cupti/cupti.h"

enum { THREADS = 64, EACH = 50 };

static void *launch_many(void *arg)
{
    enigma_profiler *profiler = arg;
    char name[32];
    uint32_t correlations[EACH];
    snprintf(name, sizeof name, "thread-%llu", (unsigned long long)eni_thread_id());
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    enigma_scope scope = enigma_begin(name);
    for (int i = 0; i < EACH; i++) {
        correlations[i] = call(RUNTIME_KERNEL);
    }
    for (int i = EACH; i-- > 0;) { /* in another order */
        kernel_done(correlations[i], "kernel", 1000);
    }
    enigma_end(scope);
    assert_int_equal(enigma_profiler_stop(profiler), ENIGMA_OK);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    pthread_t threads[THREADS];
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, launch_many, profiler), 0);
    }
    for (int i = 0; i < 5; i++) {
        enigma_profile_free(snapshot(profiler)); /* while they launch */
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    enigma_profile *profile = stopped(profiler);
    enigma_counts counts = counts_of(profile);
    assert_int_equal(counts.gpu_events, THREADS * EACH);
    assert_int_equal(counts.gpu_unfinished, 0);
    assert_int_equal(counts.gpu_invalid, 0);
    assert_int_equal(counts.dropped, 0);
    size_t wrong = 0;
    for (size_t i = 0; i < enigma_profile_event_count(profile); i++) {
        enigma_event event = event_at(profile, i);
        char path[512], expected[64];
        snprintf(expected, sizeof expected, "thread-%llu", (unsigned long long)event.thread_id);
        wrong += strncmp(path_of(profile, &event, path), expected, strlen(expected)) != 0;
        wrong += !event.is_gpu_work && event.gpu_time_us != EACH * 1.0;
    }
    assert_int_equal(wrong, 0);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

static size_t live_bytes;

static void *counted_resize(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    void *fresh = new_size == 0 ? NULL : realloc(ptr, new_size);
    if (new_size == 0) {
        free(ptr);
    }
    if (fresh != NULL || new_size == 0) {
        __atomic_fetch_add(&live_bytes, new_size - old_size, __ATOMIC_RELAXED);
    }
    return fresh;
}

enum { BATCHES = 20, BATCH = 2000 };

/* What is kept of a launch, and that what is not an event does not pile up. */
static void test_memory(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    size_t before = live_bytes;
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int i = 0; i < BATCH; i++) {
            run_kernel("kernel", 100);
        }
        enigma_profile_free(snapshot(profiler));
    }
    size_t kept = live_bytes - before;
    assert_true(kept <= (size_t)BATCHES * BATCH * 100 + (1 << 20));
    before = live_bytes;
    for (int batch = 0; batch < 5; batch++) {
        for (int i = 0; i < 5 * BATCH; i++) {
            uint32_t failed = enter_call(RUNTIME_KERNEL, "fails");
            tell_call(RUNTIME_KERNEL, CUPTI_API_EXIT, failed, "fails", 1);
        }
        enigma_profile_free(snapshot(profiler));
    }
    assert_true(live_bytes <= before + (1 << 16));
    assert_int_equal(enigma_profiler_stop(profiler), ENIGMA_OK);
    enigma_profile *profile = snapshot(profiler);
    assert_int_equal(counts_of(profile).gpu_events, BATCHES * BATCH);
    assert_int_equal(counts_of(profile).gpu_unfinished, 0);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

/* The same of launches that nobody has read yet, and what is left of them at the end. */
static void test_memory_unread(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    size_t at_first = live_bytes;
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    run_kernel("kernel", 100);
    eni_cupti_flush(NULL, NULL, 0);
    size_t before = live_bytes;
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int i = 0; i < BATCH; i++) {
            run_kernel("kernel", 100);
        }
        eni_cupti_flush(NULL, NULL, 0);
    }
    size_t limit = (size_t)BATCHES * BATCH * 100 + (1 << 18);
    assert_true(live_bytes - before <= limit);
    assert_int_equal(enigma_profiler_stop(profiler), ENIGMA_OK);
    assert_true(live_bytes - at_first <= limit);
    enigma_profiler_free(profiler);
}

static int in_child(enigma_profiler *profiler)
{
    run_kernel("child", 100);
    enigma_profile *profile;
    enigma_profiler *fresh = attached();
    int wrong = enigma_profiler_start(fresh) != ENIGMA_E_STATE;
    enigma_profiler_free(fresh);
    wrong |= (enigma_profiler_stop(profiler) != ENIGMA_OK) << 1;
    wrong |= (enigma_profiler_snapshot(profiler, &profile) != ENIGMA_OK) << 2;
    if (wrong == 0) {
        wrong |= (counts_of(profile).gpu_events != 0) << 3;
        enigma_profile_free(profile);
    }
    enigma_profiler_free(profiler);
    return wrong;
}

static void test_fork(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    int status;
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    run_kernel("parent", 100);
    pid_t child = fork();
    if (child == 0) {
        _exit(in_child(profiler));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    run_kernel("parent", 100);
    enigma_profile *profile = stopped(profiler);
    assert_int_equal(find(profile, "gpu_dispatch:parent", NULL), 2);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_unread),
        cmocka_unit_test(test_fork),
    };
    if (enigma_set_allocator(counted_resize, NULL) != ENIGMA_OK || !fake_load("new", &fake) ||
        eni_profiler_attach != &eni_attach_all) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
