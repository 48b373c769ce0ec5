#include "support.h"

#include <pthread.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/thread.h"

static char order[64];
static size_t used;

static void note(char what) { order[used++] = what; }

#define HANDLER(name)                                                                                                  \
    static void before_##name(void) { note(#name[0]); }                                                                \
    static void parent_##name(void) { note((char)(#name[0] - 'a' + 'A')); }                                            \
    static void child_##name(void) { note((char)(#name[0] - 'a' + 'A')); }
HANDLER(x)
HANDLER(y)
HANDLER(z)

static void handlers_run_by_rank(void **state)
{
    (void)state;
    static const eni_fork_handler z = {30, before_z, parent_z, child_z}, x = {10, before_x, parent_x, child_x},
                                  y = {20, before_y, parent_y, child_y}, none = {15, NULL, NULL, NULL};
    eni_thread_at_fork(&z);
    eni_thread_at_fork(&x);
    eni_thread_at_fork(&none);
    eni_thread_at_fork(&y);
    pid_t child = fork();
    if (child == 0) {
        _exit(strcmp(order, "xyzZYX") != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_string_equal(order, "xyzZYX");
}

static void numbers_are_the_systems(void **state)
{
    (void)state;
    assert_int_equal(eni_thread_id(), syscall(SYS_gettid));
    assert_int_equal(eni_thread_id(), syscall(SYS_gettid));
    assert_int_equal(eni_process_id(), getpid());
    assert_int_equal(eni_fork_generation, 0);
}

static void a_child_has_its_own_numbers(void **state)
{
    (void)state;
    (void)eni_thread_id();
    pid_t child = fork();
    if (child == 0) {
        _exit(eni_thread_id() != (uint64_t)getpid() || eni_process_id() != (uint32_t)getpid() ||
              eni_fork_generation != 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(eni_fork_generation, 0);
}

static int done;

static void *busy(void *unused)
{
    (void)unused;
    assert_int_equal(eni_thread_id(), syscall(SYS_gettid));
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
        eni_clock_discipline(true);
        (void)eni_clock_now_ns();
    }
    return NULL;
}

/* Fork while others hold and release the locks of base: the child must be able to take them. */
static void locks_survive_fork(void **state)
{
    (void)state;
    used = 0;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, busy, NULL), 0);
    }
    for (int i = 0; i < 100; i++) {
        used = 0;
        pid_t child = fork();
        if (child == 0) {
            alarm(60); /* a deadlock ends as a failure */
            eni_clock_discipline(true);
            uint64_t before = eni_clock_now_ns();
            _exit(eni_clock_now_ns() < before);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handlers_run_by_rank),
        cmocka_unit_test(numbers_are_the_systems),
        cmocka_unit_test(a_child_has_its_own_numbers),
        cmocka_unit_test(locks_survive_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
