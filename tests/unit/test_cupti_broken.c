/* Libraries that lack what is needed: the message says which function, and nothing is left half loaded. */
#include "support.h"

#include "../fakecuda/fake.h"
#include "backends/backend.h"
#include "cupti/cupti.h"

static fake_libraries fake;
static const eni_cupti_consumer consumer = {.records = ENI_CUPTI_KERNEL};

static void a_missing_function_is_named(void **state)
{
    (void)state;
    const eni_backend *backend;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(eni_cupti_start(&consumer), ENIGMA_E_UNAVAILABLE);
        assert_non_null(strstr(enigma_error_message(), "cuptiSubscribe"));
        assert_int_equal(eni_cupti_probe(), ENIGMA_E_UNAVAILABLE);
        assert_int_equal(eni_backend_get("cuda", &backend), ENIGMA_E_UNAVAILABLE);
        assert_non_null(strstr(enigma_error_message(), "cuCtxPopCurrent_v2"));
        assert_non_null(strstr(enigma_error_message(), "libcuda.so.1"));
    }
    assert_int_equal(eni_cupti_version(), 0);
    assert_true(eni_cupti_flush(NULL, NULL, 0));
    eni_cupti_stop(&consumer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_missing_function_is_named)};
    if (!fake_load("broken", &fake)) {
        return 1;
    }
    return cmocka_run_group_tests_name("cupti_broken", tests, NULL, NULL);
}
