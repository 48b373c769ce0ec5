/* The exporter table, exports by name, and exports with too little memory. Cases C28, H02. */
#include <errno.h>

#include "present/exporter.h"

#include "../api/recording.h"
#include "support.h"

static failing_allocator failing = {.left = -1};

static enigma_profile *small_profile(void)
{
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_scope scope = begin_with("s", "flops", 1, "x", 2);
    add_kernel("k", 10, 10);
    add_work(&(work){.kernel = "k", .cpu_ns = 10, .gpu_start = 5000, .gpu_end = 9000, .queue = 1});
    enigma_end(scope);
    return recording_end(p);
}

static void the_table_is_complete(void **state)
{
    (void)state;
    size_t count = 0;
    for (const enigma_exporter_info *info; (info = enigma_exporter_at(count)) != NULL; count++) {
        assert_int_equal(strncmp(info->method, "export_", 7), 0);
        assert_true(info->suffix[0] == '.' && info->help[0] != '\0' && info->name[0] != '\0');
        for (size_t other = 0; other < count; other++) {
            assert_string_not_equal(info->name, enigma_exporter_at(other)->name);
            assert_string_not_equal(info->suffix, enigma_exporter_at(other)->suffix);
        }
    }
    assert_int_equal(count, 2);
}

static void unknown_formats_list_the_known(void **state)
{
    (void)state;
    enigma_profile *profile = small_profile();
    static const char *const wrong[] = {"", "Chrome", "chrome ", "export_hatchet"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(enigma_export(profile, wrong[i], write_to, NULL), ENIGMA_E_INVALID);
        assert_non_null(strstr(enigma_error_message(), "hatchet, chrome"));
        assert_int_equal(enigma_export_file(profile, wrong[i], "never"), ENIGMA_E_INVALID);
    }
    assert_int_not_equal(access("never", F_OK), 0);
    enigma_profile_free(profile);
}

static int refuse(void *user, const void *data, size_t size)
{
    (void)user;
    (void)data;
    (void)size;
    return ENOSPC;
}

static void write_errors_come_back(void **state)
{
    (void)state;
    enigma_profile *profile = small_profile();
    for (size_t i = 0; enigma_exporter_at(i) != NULL; i++) {
        const char *format = enigma_exporter_at(i)->name;
        assert_int_equal(enigma_export(profile, format, refuse, NULL), ENIGMA_E_IO);
        assert_int_equal(enigma_export_file(profile, format, "/dev/full"), ENIGMA_E_IO);
        assert_int_equal(enigma_error_errno(), ENOSPC);
        assert_string_equal(enigma_error_path(), "/dev/full");
    }
    enigma_profile_free(profile);
}

/* Runs one way out with 0, 1, 2, ... allocations until it succeeds; nothing is left behind, and no half file. */
typedef enigma_status (*way_out)(const enigma_profile *profile, const char *format, written *out);

static enigma_status by_format(const enigma_profile *profile, const char *format, written *out)
{
    return enigma_export(profile, format, write_to, out);
}

static enigma_status to_file(const enigma_profile *profile, const char *format, written *out)
{
    (void)out;
    enigma_status status = enigma_export_file(profile, format, "exported");
    assert_true((access("exported", F_OK) == 0) == (status == ENIGMA_OK));
    unlink("exported");
    return status;
}

static enigma_status as_tree(const enigma_profile *profile, const char *format, written *out)
{
    (void)format;
    return enigma_profile_write_tree(profile, write_to, out);
}

static enigma_status as_table(const enigma_profile *profile, const char *format, written *out)
{
    enigma_result *result = NULL;
    (void)format;
    enigma_status status = enigma_profile_key_averages(profile, ENIGMA_GROUP_CALL_PATH, &result);
    status = status == ENIGMA_OK ? enigma_result_write_table(result, NULL, write_to, out) : status;
    status = status == ENIGMA_OK ? enigma_result_save_csv(result, "exported") : status;
    unlink("exported");
    enigma_result_free(result);
    return status;
}

static void assert_survives(const enigma_profile *profile, way_out way, const char *format)
{
    enigma_status status = ENIGMA_E_NO_MEMORY;
    size_t before = 0;
    for (long left = 0; status != ENIGMA_OK; left++) {
        written out = {NULL, 0, 0};
        failing.left = left;
        status = way(profile, format, &out);
        failing.left = -1;
        free(out.data);
        enigma_export(profile, "", write_to, NULL); /* so that the same message is kept each time */
        before = left == 0 ? failing.blocks : before;
        assert_int_equal(failing.blocks, before);
        assert_true(status == ENIGMA_OK || status == ENIGMA_E_NO_MEMORY || status == ENIGMA_E_IO);
        assert_true(left < 500);
    }
}

static void running_out_of_memory_leaves_nothing(void **state)
{
    (void)state;
    enigma_profile *profile = small_profile();
    unlink("exported"); /* of an earlier run */
    for (size_t i = 0; enigma_exporter_at(i) != NULL; i++) {
        assert_survives(profile, by_format, enigma_exporter_at(i)->name);
        assert_survives(profile, to_file, enigma_exporter_at(i)->name);
    }
    assert_survives(profile, as_tree, NULL);
    assert_survives(profile, as_table, NULL);
    enigma_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_complete),
        cmocka_unit_test(unknown_formats_list_the_known),
        cmocka_unit_test(write_errors_come_back),
        cmocka_unit_test(running_out_of_memory_leaves_nothing),
    };
    return enigma_set_allocator(failing_resize, &failing) + cmocka_run_group_tests(tests, NULL, NULL);
}
