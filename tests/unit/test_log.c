/* The level is read once a process, so each case is a process of its own. */
#include "support.h"

#include <errno.h>

#include "base/error.h"
#include "base/log.h"

static int log_all(void)
{
    errno = 77;
    eni_log(ENI_LOG_ERROR, "e %d", 1);
    eni_log(ENI_LOG_WARN, "w\nnew\x1b[31m line");
    eni_log(ENI_LOG_INFO, "i");
    (void)ENI_FAIL(ENIGMA_E_STATE, "failed");
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    eni_log(ENI_LOG_DEBUG, "%s", text);
    return errno != 77;
}

static void levels(void **state)
{
    (void)state;
    static const char error[] = "enigma: error: e 1\n", warn[] = "enigma: warn: w new [31m line\n",
                      info[] = "enigma: info: i\n", failed[] = "enigma: debug: STATE: failed\n";
    child_result *child = malloc(sizeof *child);
    char want[512];
    run_self("log", NULL, NULL, child);
    assert_int_equal(child->exit_code, 0);
    assert_string_equal(child->err, "");
    run_self("log", "ENIGMA_LOG", "error", child);
    assert_string_equal(child->err, error);
    run_self("log", "ENIGMA_LOG", "warn", child);
    snprintf(want, sizeof want, "%s%s", error, warn);
    assert_string_equal(child->err, want);
    run_self("log", "ENIGMA_LOG", "info", child);
    snprintf(want, sizeof want, "%s%s%s", error, warn, info);
    assert_string_equal(child->err, want);
    run_self("log", "ENIGMA_LOG", "debug", child);
    assert_int_equal(child->exit_code, 0);
    snprintf(want, sizeof want, "%s%s%s%senigma: debug: xxx", error, warn, info, failed);
    assert_memory_equal(child->err, want, strlen(want));
    assert_int_equal(child->err[strlen(child->err) - 1], '\n'); /* what is too long is cut, and still one line */
    assert_int_equal(strlen(strstr(child->err, "enigma: debug: xxx")), 2048);
    assert_string_equal(child->out, "");
    run_self("log", "ENIGMA_LOG", "loud", child);
    assert_non_null(strstr(child->err, "ENIGMA_LOG=\"loud\": error, warn, info and debug are allowed"));
    assert_non_null(strstr(child->err, warn));
    assert_null(strstr(child->err, info));
    free(child);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "log") == 0) {
        return log_all();
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(levels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
