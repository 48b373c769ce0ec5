/* Profiles that are recorded into a file: readable at any moment, whatever ended the process. Kills are random in time; what is asserted
 * holds at every moment. ENIGMA_SOAK=n multiplies their number by n. */
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const file = "file.enigma";

enum { THREADS = 2 };

/* Seen by a child and its parent. */
typedef struct shared_counts {
    uint64_t ended[THREADS]; /* scopes that each thread has ended */
    uint64_t started;        /* threads that record */
} shared_counts;
static shared_counts *shared;

static enigma_profiler *profiler_to(const char *path)
{
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    enigma_profiler *profiler = NULL;
    options.file = path;
    assert_ok(enigma_profiler_create(&options, &profiler));
    return profiler;
}

static enigma_profile *loaded(void)
{
    enigma_profile *profile = NULL;
    if (enigma_profile_load(file, &profile) != ENIGMA_OK) {
        fail_msg("%s", enigma_error_message());
    }
    return profile;
}

static enigma_counts counts_of(const enigma_profile *profile)
{
    enigma_counts counts = {.struct_size = sizeof counts};
    enigma_profile_get_counts(profile, &counts);
    return counts;
}

static void record_some(int number)
{
    char name[24];
    const enigma_metric metrics[] = {{"flops", number}};
    snprintf(name, sizeof name, "name %d", number % 500);
    const enigma_scope_desc desc = {sizeof desc, {name, 0}, {NULL, 0}, metrics, 1, NULL, 0};
    enigma_scope outer = enigma_begin("outer");
    enigma_end(enigma_begin_desc(&desc));
    enigma_end(outer);
}

/* ---- one process ---- */

static void test_file_is_readable_at_every_stage(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_to(file);
    assert_int_equal(access(file, F_OK), -1); /* the first start makes it */
    assert_ok(enigma_profiler_start(profiler));
    enigma_profile *profile = loaded();
    assert_int_equal(enigma_profile_event_count(profile), 0);
    enigma_profile_free(profile);
    enigma_scope open = enigma_begin("open");
    for (int i = 0; i < 5000; i++) {
        record_some(i);
    }
    profile = loaded();
    assert_int_equal(enigma_profile_event_count(profile), 10000);
    assert_int_equal(counts_of(profile).open_scopes, 1);
    enigma_event event = event_at(profile, 9998);
    assert_string_equal(path_text(profile, event.path), "open/outer/name 499");
    assert_float_equal(event.metrics[0].value, 4999, 0);
    enigma_profile_free(profile);
    enigma_end(open);
    enigma_profile *snapshot = profile_stopped(profiler);
    profile = loaded();
    assert_int_equal(enigma_profile_event_count(profile), 10001);
    for (size_t i = 0; i < 10001; i += 97) {
        enigma_event left = event_at(snapshot, i);
        uint64_t start = left.start_ns;
        uint64_t end = left.end_ns;
        enigma_event right = event_at(profile, i);
        assert_int_equal(start, right.start_ns);
        assert_int_equal(end, right.end_ns);
    }
    enigma_profile_free(snapshot);
    enigma_profile_free(profile);
    unlink(file);
}

static void test_old_file_is_replaced_whole(void **state)
{
    (void)state;
    FILE *old = fopen(file, "w");
    assert_non_null(old);
    fputs("something else", old);
    fclose(old);
    FILE *reader = fopen(file, "r");
    enigma_profiler *profiler = profiler_to(file);
    assert_ok(enigma_profiler_start(profiler));
    record_some(1);
    enigma_profile_free(profile_stopped(profiler));
    char text[32] = "";
    assert_non_null(fgets(text, sizeof text, reader)); /* who had it open reads on */
    assert_string_equal(text, "something else");
    fclose(reader);
    enigma_profile *profile = loaded();
    assert_int_equal(enigma_profile_event_count(profile), 2);
    enigma_profile_free(profile);
    unlink(file);
}

static void test_paths_that_cannot_be(void **state)
{
    (void)state;
    static const char *const paths[] = {"missing/x.enigma", "/dev/full", "/", ""};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        enigma_profiler *profiler = profiler_to(paths[i]);
        assert_int_equal(enigma_profiler_start(profiler), ENIGMA_E_IO);
        assert_true(enigma_error_errno() != 0);
        assert_string_equal(enigma_error_path(), paths[i]);
        assert_null(enigma_profiler_active());
        enigma_profiler_free(profiler);
    }
}

/* What finds no space is dropped and counted, in memory and in the file; nothing faults. */
static void test_full_disk(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {1024 * 1024, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enigma_profiler *profiler = profiler_to(file);
    assert_ok(enigma_profiler_start(profiler));
    for (int i = 0; i < 100000; i++) {
        record_some(i);
    }
    enigma_profile *snapshot = profile_stopped(profiler);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    enigma_profile *profile = loaded();
    enigma_counts counts = counts_of(profile);
    assert_true(counts.dropped > 0);
    assert_true(counts.events > 1000 && counts.events < 200000);
    assert_int_equal(counts.events, counts_of(snapshot).events);
    assert_int_equal(counts.dropped, counts_of(snapshot).dropped);
    enigma_profile_free(snapshot);
    enigma_profile_free(profile);
    unlink(file);
}

/* A child goes on in memory; the parent's file holds what the parent did. */
static void test_fork(void **state)
{
    (void)state;
    enigma_profiler *profiler = profiler_to(file);
    assert_ok(enigma_profiler_start(profiler));
    enigma_scope open = enigma_begin("open");
    for (int i = 0; i < 100; i++) {
        record_some(i);
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        enigma_profile *own = NULL;
        for (int i = 0; i < 5000; i++) {
            record_some(i + 7);
        }
        enigma_end(open);
        bool good = enigma_profiler_snapshot(profiler, &own) == ENIGMA_OK && enigma_profile_event_count(own) == 10000;
        _exit(good && enigma_profiler_stop(profiler) == ENIGMA_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    enigma_profile *profile = loaded();
    assert_int_equal(enigma_profile_event_count(profile), 200);
    assert_int_equal(counts_of(profile).open_scopes, 1); /* the child's end of it is the child's alone */
    enigma_profile_free(profile);
    enigma_end(open);
    enigma_profile_free(profile_stopped(profiler));
    profile = loaded();
    assert_int_equal(enigma_profile_event_count(profile), 201);
    enigma_profile_free(profile);
    unlink(file);
}

/* ---- processes that are ended ---- */

static void *record_for_ever(void *arg)
{
    struct {
        enigma_profiler *profiler;
        int number;
    } *self = arg;
    if (enigma_profiler_start(self->profiler) != ENIGMA_OK) {
        _exit(3);
    }
    __atomic_add_fetch(&shared->started, 1, __ATOMIC_RELEASE);
    for (int i = 0;; i++) {
        record_some(i);
        __atomic_store_n(&shared->ended[self->number], (uint64_t)(i + 1) * 2, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* A child ends with its parent, and never fills the disk. */
static void bound_child(void)
{
    const struct rlimit no_core = {0, 0};
    const struct rlimit most = {(rlim_t)1 << 26, (rlim_t)1 << 26};
    setrlimit(RLIMIT_CORE, &no_core);
    setrlimit(RLIMIT_FSIZE, &most);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGSEGV, SIG_DFL);
    alarm(60);
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
}

static void child_main(int ending)
{
    static struct {
        enigma_profiler *profiler;
        int number;
    } threads[THREADS];
    enigma_profiler *profiler = profiler_to(file);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        threads[i].profiler = profiler;
        threads[i].number = i;
        if (pthread_create(&thread, NULL, record_for_ever, &threads[i]) != 0) {
            _exit(4);
        }
    }
    while (ending != 0) { /* 0: the parent ends it */
        if (__atomic_load_n(&shared->ended[THREADS - 1], __ATOMIC_ACQUIRE) > (uint64_t)ending) {
            if (ending % 2 == 0) {
                _exit(0);
            }
            raise(SIGSEGV);
        }
    }
    pause();
}

/* May be full: the child ran so long that bound_child stopped its file; what it dropped is counted then. */
static void check_survivor(bool may_be_full)
{
    uint64_t ended = 0;
    for (int i = 0; i < THREADS; i++) {
        ended += __atomic_load_n(&shared->ended[i], __ATOMIC_ACQUIRE);
    }
    enigma_profile *profile = loaded();
    enigma_counts counts = counts_of(profile);
    assert_true(may_be_full || counts.dropped == 0);
    assert_true(counts.events + counts.dropped >= ended);
    assert_true(counts.open_scopes <= 2 * THREADS);
    for (size_t i = 0; i < enigma_profile_event_count(profile); i += 13) {
        enigma_event event = event_at(profile, i);
        size_t depth = enigma_profile_path_depth(profile, event.path);
        assert_int_equal(depth, event.name.data[0] == 'o' ? 1 : 2);
        assert_true(event.metric_count == depth - 1 || counts.dropped > 0);
    }
    enigma_profile_free(profile);
}

static void run_child(int ending, long sleep_ns)
{
    memset(shared, 0, sizeof *shared);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bound_child();
        child_main(ending);
        _exit(5);
    }
    if (ending == 0) {
        while (__atomic_load_n(&shared->started, __ATOMIC_ACQUIRE) < THREADS) {
        }
        const struct timespec some = {0, sleep_ns};
        nanosleep(&some, NULL);
        kill(child, SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    check_survivor(false);
    unlink(file);
}

static long soak(void)
{
    const char *text = getenv("ENIGMA_SOAK");
    return text == NULL ? 1 : strtol(text, NULL, 10);
}

static void test_killed_at_any_moment(void **state)
{
    (void)state;
    uint64_t random = (uint64_t)getpid() * 0x9e3779b97f4a7c15u;
    for (long i = 0; i < 12 * soak(); i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        run_child(0, (long)(random >> 33) % 20000000);
    }
}

static void test_exit_and_crash(void **state)
{
    (void)state;
    for (long i = 0; i < 2 * soak(); i++) {
        run_child(2000 + 2 * (int)i, 0);
        run_child(30001 + 2 * (int)i, 0);
    }
}

/* A file that grows while it is read shows a prefix of each thread every time. */
static void test_read_while_it_is_written(void **state)
{
    (void)state;
    memset(shared, 0, sizeof *shared);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bound_child();
        child_main(0);
        _exit(5);
    }
    while (__atomic_load_n(&shared->started, __ATOMIC_ACQUIRE) < THREADS) {
    }
    size_t last = 0;
    for (int i = 0; i < 10; i++) {
        enigma_profile *profile = loaded();
        size_t count = enigma_profile_event_count(profile);
        assert_true(count >= last);
        last = count;
        enigma_profile_free(profile);
    }
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    check_survivor(true);
    unlink(file);
}

static int setup(void **state)
{
    (void)state;
    unlink(file);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_is_readable_at_every_stage),
        cmocka_unit_test(test_old_file_is_replaced_whole),
        cmocka_unit_test(test_paths_that_cannot_be),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_killed_at_any_moment),
        cmocka_unit_test(test_exit_and_crash),
        cmocka_unit_test(test_read_while_it_is_written),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
