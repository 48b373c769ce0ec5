/* Settings are read once a process, so each case is a process of its own. */
#include "support.h"

#include "base/settings.h"

/* Prints status, device, backend and the detail. */
static int print_settings(void)
{
    const eni_settings *settings;
    enigma_status first = eni_settings_get(&settings);
    const eni_settings *again;
    enigma_status second = eni_settings_get(&again);
    if (first != second || settings != again || settings != eni_settings_now()) {
        return 1;
    }
    printf("%s|%llu|%s|%s", enigma_status_name(first), (unsigned long long)settings->device,
           settings->backend == NULL ? "(none)" : settings->backend, enigma_error_message());
    return 0;
}

static void values_are_read_or_refused(void **state)
{
    (void)state;
    char long_text[1200];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    const struct {
        const char *variable, *value, *start;
    } table[] = {
        {NULL, NULL, "OK|0|(none)|"},
        {"ENIGMA_DEVICE", "3", "OK|3|(none)|"},
        {"ENIGMA_DEVICE", "18446744073709551615", "OK|18446744073709551615|(none)|"},
        {"ENIGMA_DEVICE", "", "OK|0|(none)|"},
        {"ENIGMA_DEVICE", "18446744073709551616",
         "INVALID|0|(none)|ENIGMA_DEVICE=\"18446744073709551616\": a whole number"},
        {"ENIGMA_DEVICE", "-1", "INVALID|0|(none)|ENIGMA_DEVICE=\"-1\": a whole number"},
        {"ENIGMA_DEVICE", " 1", "INVALID|0|(none)|ENIGMA_DEVICE=\" 1\""},
        {"ENIGMA_DEVICE", "1x", "INVALID|0|(none)|ENIGMA_DEVICE=\"1x\""},
        {"ENIGMA_DEVICE", "0x1", "INVALID|0|(none)|ENIGMA_DEVICE=\"0x1\""},
        {"ENIGMA_DEVICE", "%s%n", "INVALID|0|(none)|ENIGMA_DEVICE=\"%s%n\""},
        {"ENIGMA_BACKEND", "opencl", "OK|0|opencl|"},
        {"ENIGMA_BACKEND", long_text, "INVALID|0|(none)|ENIGMA_BACKEND is 1199 bytes long"},
    };
    child_result *child = malloc(sizeof *child);
    for (size_t i = 0; i < ENI_COUNT_OF(table); i++) {
        run_self("settings", table[i].variable, table[i].value, child);
        assert_int_equal(child->exit_code, 0);
        child->out[strlen(table[i].start)] = '\0';
        assert_string_equal(child->out, table[i].start);
        assert_string_equal(child->err, "");
    }
    free(child);
}

static void later_changes_do_not_reach_us(void **state)
{
    (void)state;
    const eni_settings *settings;
    assert_int_equal(eni_settings_get(&settings), ENIGMA_OK);
    setenv("ENIGMA_DEVICE", "5", 1);
    assert_int_equal(eni_settings_get(&settings), ENIGMA_OK);
    assert_int_equal(settings->device, 0);
    unsetenv("ENIGMA_DEVICE");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "settings") == 0) {
        return print_settings();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_or_refused),
        cmocka_unit_test(later_changes_do_not_reach_us),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
