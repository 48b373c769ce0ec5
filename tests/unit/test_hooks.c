/* Kernel hooks as their users see them; what a dispatch does with the answer is tested with the runtimes. */
#include "../api/support.h"

#include <pthread.h>

#include "record/profiler.h"

typedef struct probe {
    int calls, releases;
    double value;
} probe;

static size_t answer(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity)
{
    probe *state = user;
    assert_non_null(info->kernel_name.data);
    assert_true(capacity >= 1);
    state->calls++;
    out[0] = (enigma_metric){"flops", state->value};
    return 1;
}

static void released(void *user) { ((probe *)user)->releases++; }

/* A hook whose key goes when it is released. */
typedef struct owner {
    char *key;
} owner;

static size_t own_key(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity)
{
    assert_true(capacity > 0);
    out[0] = (enigma_metric){((owner *)user)->key, 1};
    enigma_hook_unregister(info->kernel_name);
    return 1;
}

static void free_key(void *user) { free(((owner *)user)->key); }

static size_t ask(const char *kernel, double *value)
{
    const enigma_dispatch_info info = {{kernel, strlen(kernel)}, {1, 1, 1}, {1, 1, 1}};
    enigma_metric metrics[ENI_HOOK_METRICS];
    eni_hook *asked;
    size_t count = eni_hooks_ask(&info, metrics, ENI_HOOK_METRICS, &asked);
    *value = count == 0 ? 0 : metrics[0].value;
    assert_true(count == 0 || strcmp(metrics[0].key, "flops") == 0);
    eni_hooks_done(asked);
    return count;
}

/* A17: the last one wins; unregistering what is not there is silent. */
static void test_register_replace_unregister(void **state)
{
    (void)state;
    probe first = {0, 0, 1};
    probe second = {0, 0, 2};
    double value;
    enigma_hook_unregister(text_of("k"));
    assert_ok(enigma_hook_register(text_of("k"), answer, released, &first));
    assert_ok(enigma_hook_register(text_of("other"), answer, released, &second));
    assert_int_equal(ask("k", &value), 1);
    assert_float_equal(value, 1, 0);
    assert_int_equal(ask("kk", &value), 0);
    assert_ok(enigma_hook_register(text_of("k"), answer, released, &second));
    assert_int_equal(first.releases, 1);
    assert_int_equal(ask("k", &value), 1);
    assert_float_equal(value, 2, 0);
    enigma_hook_unregister(text_of("k"));
    enigma_hook_unregister(text_of("k"));
    assert_int_equal(second.releases, 1);
    assert_int_equal(ask("k", &value), 0);
    enigma_hook_unregister(text_of("other"));
    assert_int_equal(second.releases, 2);
}

static size_t remove_itself(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity)
{
    double value;
    enigma_hook_unregister(info->kernel_name);
    assert_int_equal(((probe *)user)->releases, 0); /* not while it runs */
    assert_int_equal(ask("k", &value), 0);          /* and never from inside itself */
    return answer(user, info, out, capacity);
}

static void test_hook_that_unregisters_itself(void **state)
{
    (void)state;
    probe self = {0, 0, 3};
    double value;
    assert_ok(enigma_hook_register(text_of("k"), remove_itself, released, &self));
    assert_int_equal(ask("k", &value), 1);
    assert_int_equal(self.releases, 1);
    assert_int_equal(ask("k", &value), 0);
}

/* The keys live until whoever asked is done, though the hook is gone. */
static void test_keys_outlive_the_hook(void **state)
{
    (void)state;
    owner self = {strdup("flops")};
    double value;
    assert_ok(enigma_hook_register(text_of("k"), own_key, free_key, &self));
    assert_int_equal(ask("k", &value), 1);
}

static void test_bad_arguments(void **state)
{
    (void)state;
    assert_int_equal(enigma_hook_register((enigma_text){NULL, 0}, answer, NULL, NULL), ENIGMA_E_INVALID);
    assert_int_equal(enigma_hook_register(text_of("k"), NULL, NULL, NULL), ENIGMA_E_INVALID);
    enigma_hook_unregister((enigma_text){NULL, 0});
}

static size_t constant(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity)
{
    (void)info;
    out[0] = (enigma_metric){"flops", *(double *)user};
    return capacity > 0;
}

static int stop; /* atomic */

static void *keep_asking(void *arg)
{
    (void)arg;
    uintptr_t bad = 0;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        double value;
        bad += ask("k", &value) == 1 && value != 1 && value != 2;
    }
    return (void *)bad;
}

static void test_registering_while_others_ask(void **state)
{
    (void)state;
    static double one = 1;
    static double two = 2;
    pthread_t threads[3];
    stop = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, keep_asking, NULL), 0);
    }
    for (int i = 0; i < 2000; i++) {
        assert_ok(enigma_hook_register(text_of("k"), constant, NULL, i % 2 == 0 ? &one : &two));
        if (i % 7 == 0) {
            enigma_hook_unregister(text_of("k"));
        }
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
    enigma_hook_unregister(text_of("k"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_register_replace_unregister),
        cmocka_unit_test(test_hook_that_unregisters_itself),
        cmocka_unit_test(test_keys_outlive_the_hook),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_registering_while_others_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
