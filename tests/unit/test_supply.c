/* Blocks faulted in ahead: usable from many threads, all different, also in a child forked while the supply works. */
#include "support.h"

#include <pthread.h>

#include "store/supply.h"

enum { THREADS = 4, BLOCKS = 12 };

static void *take_and_fill(void *arg)
{
    void *blocks[BLOCKS];
    uintptr_t wrong = 0;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = eni_supply_take();
        if (blocks[i] == NULL) {
            return (void *)1;
        }
        memset(blocks[i], *(int *)arg * BLOCKS + i, ENI_SUPPLY_SIZE);
    }
    for (int i = 0; i < BLOCKS; i++) {
        const unsigned char *bytes = blocks[i];
        wrong += bytes[0] != (unsigned char)(*(int *)arg * BLOCKS + i) || bytes[ENI_SUPPLY_SIZE - 1] != bytes[0];
        eni_free(blocks[i], ENI_SUPPLY_SIZE);
    }
    return (void *)wrong;
}

static void test_blocks_are_private(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_fill, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

static void test_child_has_a_supply_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        eni_free(eni_supply_take(), ENI_SUPPLY_SIZE);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            int number = 0;
            _exit(take_and_fill(&number) == NULL ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void *refuse(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    (void)ptr;
    (void)old_size;
    (void)new_size;
    return NULL;
}

/* First of the tests: the allocator can be replaced while nothing is in use. */
static void test_no_memory(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(enigma_set_allocator(refuse, NULL) != ENIGMA_OK ? 1 : eni_supply_take() != NULL ? 2 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_blocks_are_private),
        cmocka_unit_test(test_child_has_a_supply_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
