#include "support.h"

#include <errno.h>
#include <pthread.h>

#include "base/error.h"

static void statuses_have_names_and_texts(void **state)
{
    (void)state;
    assert_string_equal(enigma_status_name(ENIGMA_OK), "OK");
    assert_string_equal(enigma_status_name(ENIGMA_E_NOT_FOUND), "NOT_FOUND");
    assert_string_equal(enigma_status_text(ENIGMA_E_NOT_FOUND), "not found");
    assert_string_equal(enigma_status_name((enigma_status)-1000), "UNKNOWN");
    assert_true(strlen(enigma_status_text((enigma_status)12)) > 0);
    assert_int_equal(enigma_version_number(),
                     ENIGMA_VERSION_MAJOR * 10000 + ENIGMA_VERSION_MINOR * 100 + ENIGMA_VERSION_PATCH);
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", ENIGMA_VERSION_MAJOR, ENIGMA_VERSION_MINOR, ENIGMA_VERSION_PATCH);
    assert_string_equal(enigma_version_string(), text);
}

static enigma_status fails(int number) { return ENI_FAIL(ENIGMA_E_DEVICE, "number %d", number); }

static enigma_status passes_on(int number)
{
    ENI_TRY(ENIGMA_OK);
    ENI_TRY(fails(number));
    return ENIGMA_OK;
}

static void details_travel(void **state)
{
    (void)state;
    eni_error_forget();
    assert_string_equal(enigma_error_message(), "");
    assert_int_equal(passes_on(7), ENIGMA_E_DEVICE);
    assert_string_equal(enigma_error_message(), "number 7");
    assert_int_equal(enigma_error_errno(), 0);
    assert_string_equal(enigma_error_path(), "");

    assert_int_equal(eni_error_io(ENOENT, "cannot open", "/no/where"), ENIGMA_E_IO);
    assert_string_equal(enigma_error_message(), "cannot open /no/where: No such file or directory");
    assert_int_equal(enigma_error_errno(), ENOENT);
    assert_string_equal(enigma_error_path(), "/no/where");

    /* A detail may be made of the one before it. */
    (void)ENI_FAIL(ENIGMA_E_STATE, "first: %s (%s)", enigma_error_message(), enigma_error_path());
    assert_string_equal(enigma_error_message(), "first: cannot open /no/where: No such file or directory (/no/where)");
    assert_string_equal(enigma_error_path(), "");
}

static void long_details_stay_whole(void **state)
{
    (void)state;
    size_t size = 300000;
    char *log = malloc(size + 1);
    memset(log, 'x', size);
    log[size] = '\0';
    (void)ENI_FAIL(ENIGMA_E_COMPILE, "log: %s", log);
    assert_int_equal(strlen(enigma_error_message()), size + 5);
    free(log);
}

static void without_memory_the_status_speaks(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    for (long left = 0; left < 6; left++) {
        eni_error_forget();
        failing.left = left;
        errno = 1234;
        assert_int_equal(eni_error_set(ENIGMA_E_IO, EPERM, "/some/path", "detail"), ENIGMA_E_IO);
        assert_int_equal(errno, 1234);
        assert_int_equal(enigma_error_errno(), EPERM);
        const char *message = enigma_error_message();
        assert_true(strcmp(message, "detail") == 0 || strcmp(message, enigma_status_text(ENIGMA_E_IO)) == 0);
        if (left >= 3) {
            assert_string_equal(message, "detail");
            assert_string_equal(enigma_error_path(), "/some/path");
        }
        failing.left = -1;
    }
    failing_end(&failing);
}

static void *other_thread(void *unused)
{
    (void)unused;
    assert_string_equal(enigma_error_message(), "");
    (void)ENI_FAIL(ENIGMA_E_STATE, "theirs");
    return NULL;
}

static void threads_have_their_own(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    (void)ENI_FAIL(ENIGMA_E_STATE, "mine");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(enigma_error_message(), "mine");
    failing_end(&failing); /* the other thread's was freed with it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_names_and_texts), cmocka_unit_test(details_travel),
        cmocka_unit_test(long_details_stay_whole),       cmocka_unit_test(without_memory_the_status_speaks),
        cmocka_unit_test(threads_have_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
