/* .enigma files: what is saved is what is loaded, and a file damaged in any way is refused or read, never a crash. */
#include "../api/support.h"

#include <unistd.h>

#include "store/journal.h"
#include "store/profile.h"

/* A profile with everything a file can hold: two threads' worth of nesting, metrics, nested metadata, GPU work, a runtime node. */
static enigma_profile *rich_profile(void)
{
    const enigma_metric metrics[] = {{"flops", 2e9}, {"x", 0.1}};
    const enigma_field list[] = {{{NULL, 0}, {ENIGMA_INT, {.integer = 1}}}, {{NULL, 0}, {ENIGMA_TEXT, {.text = {"t", 0}}}}};
    const enigma_field metadata[] = {{{"list", 0}, {ENIGMA_LIST, {.items = {list, 2}}}},
                                     {{"text", 0}, {ENIGMA_TEXT, {.text = {"\xf0\x9f\x9a\x80", 0}}}}};
    const enigma_scope_desc desc = {sizeof desc, {"s", 0}, {"mine", 0}, metrics, 2, metadata, 2};
    enigma_event work = {.struct_size = sizeof work,
                         .name = text_of("copy"),
                         .category = text_of("cuda"),
                         .kernel_name = text_of("k"),
                         .is_gpu_work = 1,
                         .grid = {4, 2, 1}};
    enigma_profiler *profiler = profiler_started();
    for (int i = 0; i < 3; i++) {
        enigma_scope outer = enigma_begin("outer");
        enigma_scope scope = enigma_begin_desc(&desc);
        enigma_context here = enigma_context_current();
        work.path = here.path;
        work.start_ns = work.gpu_start_ns = enigma_now_ns();
        work.end_ns = work.gpu_end_ns = work.start_ns + 100;
        enigma_profiler_add_event(profiler, &work, here.scope);
        enigma_end(scope);
        enigma_end(outer);
    }
    return profile_stopped(profiler);
}

static void assert_same_event(const enigma_profile *a, const enigma_profile *b, size_t index)
{
    enigma_event left = event_at(a, index);
    char path[512];
    snprintf(path, sizeof path, "%s", path_text(a, left.path));
    size_t metrics = left.metric_count;
    size_t fields = left.metadata_count;
    enigma_event right = event_at(b, index);
    assert_string_equal(path, path_text(b, right.path));
    assert_string_equal(left.category.data, right.category.data);
    assert_int_equal(left.start_ns, right.start_ns);
    assert_int_equal(left.end_ns, right.end_ns);
    assert_int_equal(left.gpu_end_ns, right.gpu_end_ns);
    assert_float_equal(left.gpu_time_us, right.gpu_time_us, 0);
    assert_float_equal(left.self_us, right.self_us, 0);
    assert_int_equal(left.grid.y, right.grid.y);
    assert_int_equal(metrics, right.metric_count);
    assert_int_equal(fields, right.metadata_count);
}

static void test_round_trip(void **state)
{
    (void)state;
    enigma_profile *profile = rich_profile();
    enigma_profile *loaded = NULL;
    assert_ok(enigma_profile_save(profile, "round.enigma"));
    assert_ok(enigma_profile_load("round.enigma", &loaded));
    assert_int_equal(enigma_profile_event_count(loaded), 9);
    for (size_t i = 0; i < 9; i++) {
        assert_same_event(profile, loaded, i);
    }
    enigma_event event = event_at(loaded, 1);
    assert_int_equal(metadata_of(&event, "list")->as.items.count, 2);
    assert_string_equal(metadata_of(&event, "text")->as.text.data, "\xf0\x9f\x9a\x80");
    enigma_profile *again = NULL;
    assert_ok(enigma_profile_save(loaded, "round.enigma"));
    assert_ok(enigma_profile_load("round.enigma", &again));
    assert_int_equal(profile->image_size, loaded->image_size);
    assert_int_equal(loaded->image_size, again->image_size);
    assert_memory_equal(loaded->image, again->image, again->image_size);
    enigma_profile_free(profile);
    enigma_profile_free(loaded);
    enigma_profile_free(again);
    unlink("round.enigma");
}

static void test_not_a_profile(void **state)
{
    (void)state;
    enigma_profile *profile = (enigma_profile *)1;
    assert_int_equal(enigma_profile_load("/nonexistent/x.enigma", &profile), ENIGMA_E_IO);
    assert_null(profile);
    assert_string_equal(enigma_error_path(), "/nonexistent/x.enigma");
    assert_int_equal(enigma_profile_load("/dev/null", &profile), ENIGMA_E_FORMAT);
    assert_non_null(strstr(enigma_error_message(), "/dev/null"));
    assert_int_equal(enigma_profile_load("/", &profile), ENIGMA_E_IO);
    assert_int_equal(enigma_profile_load(NULL, &profile), ENIGMA_E_INVALID);
}

/* Reads everything a reader could, so that a bad reference that slipped through would be met. */
static void read_everything(const enigma_profile *profile)
{
    enigma_text names[64];
    enigma_field fact;
    for (size_t i = 0; i < enigma_profile_event_count(profile); i++) {
        enigma_event event = event_at(profile, i);
        assert_true(event.end_ns >= event.start_ns);
        enigma_profile_path_names(profile, event.path, names, 64);
    }
    for (size_t i = 0; enigma_profile_fact(profile, i, &fact); i++) {
        assert_non_null(fact.key.data);
    }
}

static void try_image(const uint8_t *bytes, size_t size)
{
    uint8_t *image = eni_alloc(size == 0 ? 1 : size);
    assert_non_null(image);
    memcpy(image, bytes, size);
    enigma_profile *profile = NULL;
    if (eni_profile_from_image(image, size, "test", &profile) == ENIGMA_OK) {
        read_everything(profile);
        enigma_profile_free(profile);
    } else {
        assert_null(profile);
        assert_true(strlen(enigma_error_message()) > 0);
    }
}

/* Each byte to several values, and cut at each multiple of 8. */
static void test_damaged_images(void **state)
{
    (void)state;
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    enigma_profile *profile = rich_profile();
    size_t size = profile->image_size;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    memcpy(bytes, profile->image, size);
    enigma_profile_free(profile);
    for (size_t i = 0; i < size; i++) {
        uint8_t kept = bytes[i];
        for (size_t v = 0; v < sizeof values; v++) {
            bytes[i] = values[v];
            try_image(bytes, size);
        }
        bytes[i] = kept;
    }
    for (size_t cut = 0; cut < size; cut += 8) {
        try_image(bytes, cut);
    }
    free(bytes);
}

/* A file whose chunks lie in another order, with room left in them, as one that was written while recording. */
static void test_chunks_in_any_order(void **state)
{
    (void)state;
    enigma_profile *profile = rich_profile();
    const uint8_t *chunks[32];
    size_t count = 0;
    for (size_t at = sizeof(eni_image_header); at < profile->image_size; count++) {
        chunks[count] = profile->image + at;
        at += sizeof(eni_chunk) + ((const eni_chunk *)(const void *)chunks[count])->used;
    }
    FILE *file = fopen("order.enigma", "wb");
    assert_non_null(file);
    fwrite(profile->image, 1, sizeof(eni_image_header), file);
    static const uint8_t room[4096];
    const eni_chunk reserved = {.magic = ENI_CHUNK_MAGIC, .stream = ENI_STREAM_SIDE, .owner = 77, .capacity = sizeof room};
    fwrite(&reserved, 1, sizeof reserved, file); /* a thread that has not written yet */
    fwrite(room, 1, sizeof room, file);
    for (size_t i = count; i > 0; i--) {
        eni_chunk chunk;
        memcpy(&chunk, chunks[i - 1], sizeof chunk);
        chunk.capacity = chunk.used + sizeof room;
        fwrite(&chunk, 1, sizeof chunk, file);
        fwrite(chunks[i - 1] + sizeof chunk, 1, chunk.used, file);
        fwrite(room, 1, sizeof room, file);
    }
    assert_int_equal(fclose(file), 0);
    enigma_profile *loaded = NULL;
    assert_ok(enigma_profile_load("order.enigma", &loaded));
    for (size_t i = 0; i < 9; i++) {
        assert_same_event(profile, loaded, i);
    }
    enigma_profile_free(profile);
    enigma_profile_free(loaded);
    unlink("order.enigma");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_not_a_profile),
        cmocka_unit_test(test_damaged_images),
        cmocka_unit_test(test_chunks_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
