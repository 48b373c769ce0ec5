#include "support.h"

#include <math.h>

#include "base/dynlib.h"

typedef struct functions {
    double (*cos)(double);
    int (*not_there)(void);
} functions;

static const eni_dynlib_symbol symbols[] = {
    {"cos", offsetof(functions, cos), 1},
    {"enigma_no_such_function", offsetof(functions, not_there), 0},
};

static void the_first_that_is_there_is_opened(void **state)
{
    (void)state;
    static const char *const names[] = {"libenigma-no-such-library.so.1", "libm.so.6", NULL};
    void *library, *again;
    assert_int_equal(eni_dynlib_open(names, &library), ENIGMA_OK);
    assert_non_null(library);
    assert_int_equal(eni_dynlib_open(names, &again), ENIGMA_OK);
    assert_ptr_equal(library, again);
    functions out = {NULL, (int (*)(void))1};
    assert_int_equal(eni_dynlib_load(library, symbols, ENI_COUNT_OF(symbols), &out), ENIGMA_OK);
    assert_true(out.cos(0.0) == 1.0);
    assert_null(out.not_there);
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"libenigma-none.so.1", "libenigma-neither.so", NULL}, *const nothing[] = {NULL};
    void *library = &library;
    assert_int_equal(eni_dynlib_open(names, &library), ENIGMA_E_UNAVAILABLE);
    assert_null(library);
    assert_non_null(strstr(enigma_error_message(), "libenigma-none.so.1: "));
    assert_non_null(strstr(enigma_error_message(), "libenigma-neither.so: "));
    assert_int_equal(eni_dynlib_open(nothing, &library), ENIGMA_E_UNAVAILABLE);

    static const char *const math[] = {"libm.so.6", NULL};
    static const eni_dynlib_symbol required[] = {{"enigma_no_such_function", offsetof(functions, not_there), 1}};
    functions out;
    assert_int_equal(eni_dynlib_open(math, &library), ENIGMA_OK);
    assert_int_equal(eni_dynlib_load(library, required, 1, &out), ENIGMA_E_UNAVAILABLE);
    assert_non_null(strstr(enigma_error_message(), "enigma_no_such_function"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_is_there_is_opened),
        cmocka_unit_test(what_is_missing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
