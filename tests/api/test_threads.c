/* Many threads: lanes of their own, snapshots while others record, scopes ended elsewhere, and fork in the middle of it. */
#include "support.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, SCOPES = 20000 };

static enigma_profiler *shared;
static int done; /* atomic */

static void *record(void *arg)
{
    (void)arg;
    if (enigma_profiler_start(shared) != ENIGMA_OK) {
        return (void *)(uintptr_t)1;
    }
    for (int i = 0; i < SCOPES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i % 50);
        enigma_scope outer = enigma_begin("outer");
        enigma_scope inner = enigma_begin(name);
        enigma_end(inner);
        enigma_end(outer);
    }
    __atomic_fetch_add(&done, 1, __ATOMIC_RELAXED);
    return (void *)(uintptr_t)(enigma_profiler_stop(shared) == ENIGMA_OK ? 0 : 2);
}

/* Of each thread a snapshot holds a prefix: every inner event's path is whole, and events are in order of ending. */
static size_t check_snapshot(void)
{
    enigma_profile *profile = NULL;
    assert_ok(enigma_profiler_snapshot(shared, &profile));
    size_t count = enigma_profile_event_count(profile);
    uint64_t last = 0;
    for (size_t i = 0; i < count; i++) {
        enigma_event event = event_at(profile, i);
        assert_true(event.end_ns >= last && event.end_ns >= event.start_ns);
        last = event.end_ns;
        size_t depth = enigma_profile_path_depth(profile, event.path);
        assert_int_equal(depth, event.name.data[0] == 'o' ? 1 : 2);
    }
    enigma_profile_free(profile);
    return count;
}

static void test_snapshots_while_threads_record(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    size_t last = 0;
    done = 0;
    assert_ok(enigma_profiler_create(NULL, &shared));
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, record, NULL), 0);
    }
    while (__atomic_load_n(&done, __ATOMIC_RELAXED) < THREADS) {
        size_t count = check_snapshot();
        assert_true(count >= last);
        last = count;
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(check_snapshot(), (size_t)THREADS * SCOPES * 2);
    enigma_profiler_free(shared);
}

static void *end_it(void *arg)
{
    enigma_end(*(enigma_scope *)arg);
    enigma_end(*(enigma_scope *)arg);
    return NULL;
}

/* B10: begun on one thread, ended on another: the event keeps the thread that began it and no path leaks. */
static void test_scope_ended_on_another_thread(void **state)
{
    (void)state;
    pthread_t thread;
    enigma_profiler *profiler = profiler_started();
    enigma_scope scope = enigma_begin("a");
    assert_int_equal(pthread_create(&thread, NULL, end_it, &scope), 0);
    pthread_join(thread, NULL);
    enigma_end(enigma_begin("b"));
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 2);
    assert_string_equal(path_text(profile, event_at(profile, 0).path), "a");
    assert_string_equal(path_text(profile, event_at(profile, 1).path), "b");
    assert_int_equal(event_at(profile, 0).thread_id, event_at(profile, 1).thread_id);
    enigma_event event = event_at(profile, 0);
    assert_null(metadata_of(&event, "unfinished"));
    enigma_profile_free(profile);
}

static void *inside(void *arg)
{
    const enigma_context *at = arg;
    enigma_path path = enigma_path_child(at->profiler, at->path, text_of("child"));
    enigma_scope scope = enigma_scope_open(at->profiler, path, at->scope, ENIGMA_CATEGORY_SCOPE);
    enigma_scope_close(at->profiler, scope);
    return NULL;
}

/* A scope of one thread inside a scope of another: self time and path follow the parent. */
static void test_parent_on_another_thread(void **state)
{
    (void)state;
    pthread_t thread;
    enigma_profiler *profiler = profiler_started();
    enigma_scope scope = enigma_begin("parent");
    enigma_context here = enigma_context_current();
    assert_int_equal(pthread_create(&thread, NULL, inside, &here), 0);
    pthread_join(thread, NULL);
    enigma_end(scope);
    enigma_profile *profile = profile_stopped(profiler);
    enigma_event child = event_at(profile, 0);
    enigma_event parent = event_at(profile, 1);
    assert_string_equal(path_text(profile, child.path), "parent/child");
    assert_true(child.thread_id != parent.thread_id);
    assert_float_equal(parent.self_us + child.self_us, (double)(parent.end_ns - parent.start_ns) / 1000.0, 1e-6);
    enigma_profile_free(profile);
}

static void *exit_while_started(void *arg)
{
    (void)arg;
    enigma_profiler *profiler = NULL;
    enigma_profiler_create(NULL, &profiler);
    enigma_profiler_start(profiler);
    enigma_begin("left open");
    enigma_profiler_free(profiler);
    return NULL;
}

static void test_thread_that_ends_while_started(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, exit_while_started, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(enigma_gate, 0);
}

/* ---- fork ---- */

static int child_checks(enigma_profiler *profiler, enigma_scope open)
{
    enigma_profile *profile = NULL;
    if (enigma_profiler_active() != profiler) {
        return 1;
    }
    enigma_scope scope = enigma_begin("in child");
    enigma_end(scope);
    enigma_end(open);
    enigma_end(enigma_begin("after"));
    if (enigma_profiler_snapshot(profiler, &profile) != ENIGMA_OK || enigma_profile_event_count(profile) != 2) {
        return 2;
    }
    enigma_event event = {.struct_size = sizeof event};
    enigma_profile_event(profile, 0, &event);
    if (strcmp(path_text(profile, event.path), "p/in child") != 0 || event.thread_id != (uint64_t)getpid()) {
        return 3;
    }
    enigma_profile_event(profile, 1, &event);
    if (strcmp(path_text(profile, event.path), "after") != 0) {
        return 4;
    }
    enigma_profile_free(profile);
    return 0;
}

static void fork_and_check(enigma_profiler *profiler)
{
    enigma_scope open = enigma_begin("p");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(child_checks(profiler, open));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    enigma_end(open);
}

/* F07: the child starts empty on the open path; the parent is untouched. */
static void test_fork_in_a_scope(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_started();
    fork_and_check(profiler);
    enigma_profile *profile = profile_stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 1);
    enigma_profile_free(profile);
}

static void *intern_until_done(void *arg)
{
    (void)arg;
    enigma_profiler_start(shared);
    for (int i = 0; !__atomic_load_n(&done, __ATOMIC_RELAXED); i++) {
        char name[24];
        snprintf(name, sizeof name, "n%d", i % 100000);
        enigma_end(enigma_begin(name));
    }
    enigma_profiler_stop(shared);
    return NULL;
}

/* Forked while other threads hold and take the recorder's locks: no child hangs, none sees half a node. */
static void test_fork_while_others_record(void **state)
{
    (void)state;
    pthread_t threads[2];
    done = 0;
    assert_ok(enigma_profiler_create(NULL, &shared));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, intern_until_done, NULL), 0);
    }
    enigma_profiler *profiler = profiler_started();
    for (int i = 0; i < 50; i++) {
        fork_and_check(profiler);
    }
    enigma_profile_free(profile_stopped(profiler));
    __atomic_store_n(&done, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    enigma_profiler_free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snapshots_while_threads_record), cmocka_unit_test(test_scope_ended_on_another_thread),
        cmocka_unit_test(test_parent_on_another_thread),       cmocka_unit_test(test_thread_that_ends_while_started),
        cmocka_unit_test(test_fork_in_a_scope),                cmocka_unit_test(test_fork_while_others_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
