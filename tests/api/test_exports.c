/* Exports as a user meets them: to files and callbacks, while others record, at scale. Cases B11, C01, C02, C28, C29, G07,
 * G08. */
#include "enigma.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recording.h"

static written read_text(const char *path)
{
    written out = {NULL, 0, 0};
    char buffer[4096];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    for (size_t size; (size = fread(buffer, 1, sizeof buffer, file)) > 0;) {
        write_to(&out, buffer, size);
    }
    fclose(file);
    return out;
}

static enigma_profile *small_profile(void)
{
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_scope scope = begin_with("s", "flops", 1e6, NULL, 0);
    add_kernel("k", 2000, 1000);
    enigma_end(scope);
    return recording_end(p);
}

/* ---- a reader: whether text is one JSON value ---- */

static const char *skip_value(const char *at, int depth);

static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        assert_true((unsigned char)*at >= ' ');
        if (*at == '\\') {
            at++;
            assert_non_null(strchr("\"\\/bfnrtu", *at));
        }
    }
    return at + 1;
}

static const char *skip_blanks(const char *at) { return at + strspn(at, " \n\r\t"); }

static const char *skip_container(const char *at, int depth)
{
    char end = *at == '{' ? '}' : ']';
    at = skip_blanks(at + 1);
    for (int first = 1; *at != end; first = 0) {
        if (!first) {
            assert_int_equal(*at, ',');
            at = skip_blanks(at + 1);
        }
        if (end == '}') {
            assert_int_equal(*at, '"');
            at = skip_blanks(skip_string(at));
            assert_int_equal(*at, ':');
            at = skip_blanks(at + 1);
        }
        at = skip_blanks(skip_value(at, depth + 1));
    }
    return at + 1;
}

static const char *skip_value(const char *at, int depth)
{
    static const char *const words[] = {"true", "false", "null"};
    assert_true(depth < 2000);
    if (*at == '{' || *at == '[') {
        return skip_container(at, depth);
    }
    if (*at == '"') {
        return skip_string(at);
    }
    for (size_t i = 0; i < 3; i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0) {
            return at + strlen(words[i]);
        }
    }
    assert_non_null(memchr("-0123456789", *at, 11));
    return at + strspn(at, "-+.eE0123456789");
}

static void assert_json(const written *text)
{
    const char *end = skip_blanks(skip_value(skip_blanks(text->data), 0));
    assert_true(end == text->data + text->size);
}

/* ---- files ---- */

static void c28_files_are_whole_or_absent(void **state)
{
    (void)state;
    enigma_profile *profile = small_profile();
    for (size_t i = 0; enigma_exporter_at(i) != NULL; i++) {
        const char *format = enigma_exporter_at(i)->name;
        written expected = exported(profile, format);
        assert_json(&expected);
        FILE *old = fopen("target", "w");
        fputs("old", old);
        fclose(old);
        assert_int_equal(chmod("target", 0640), 0);
        assert_int_equal(enigma_export_file(profile, format, "target"), ENIGMA_OK);
        written text = read_text("target");
        assert_string_equal(text.data, expected.data);
        struct stat info;
        assert_int_equal(stat("target", &info), 0);
        assert_int_equal(info.st_mode & 07777, 0640);
        free(text.data);
        assert_int_equal(enigma_export_file(profile, format, "missing/target"), ENIGMA_E_IO);
        assert_int_equal(enigma_error_errno(), ENOENT);
        assert_string_equal(enigma_error_path(), "missing/target");
        mkdir("folder", 0777);
        assert_int_equal(enigma_export_file(profile, format, "folder"), ENIGMA_E_IO);
        assert_int_equal(enigma_error_errno(), EISDIR);
        assert_int_equal(enigma_export_file(profile, format, "/dev/full"), ENIGMA_E_IO);
        assert_int_equal(enigma_error_errno(), ENOSPC);
        unlink("link");
        assert_int_equal(symlink("target", "link"), 0);
        assert_int_equal(enigma_export_file(profile, format, "link"), ENIGMA_OK);
        assert_int_equal(lstat("link", &info), 0);
        assert_true(S_ISLNK(info.st_mode));
        free(expected.data);
    }
    enigma_profile_free(profile);
}

static void *drain_pipe(void *path)
{
    written *text = malloc(sizeof *text);
    assert_non_null(text);
    *text = read_text(path);
    return text;
}

static void c28_pipes_are_written_in_place(void **state)
{
    pthread_t reader;
    void *text;
    struct stat info;
    (void)state;
    enigma_profile *profile = small_profile();
    unlink("pipe");
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(pthread_create(&reader, NULL, drain_pipe, (char[]){"pipe"}), 0);
    assert_int_equal(enigma_export_file(profile, "chrome", "pipe"), ENIGMA_OK);
    assert_int_equal(pthread_join(reader, &text), 0);
    assert_json(text);
    assert_true(stat("pipe", &info) == 0 && S_ISFIFO(info.st_mode));
    free(((written *)text)->data);
    free(text);
    enigma_profile_free(profile);
}

static void c29_odd_paths(void **state)
{
    static const char *const paths[] = {"a b.json", "\xe7\x9f\xa9.json", "\xff.json", "-x", "%s%n"};
    (void)state;
    enigma_profile *profile = small_profile();
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(enigma_export_file(profile, "hatchet", paths[i]), ENIGMA_OK);
        assert_int_equal(unlink(paths[i]), 0);
    }
    assert_int_equal(enigma_export_file(profile, "hatchet", ""), ENIGMA_E_IO);
    assert_int_equal(enigma_error_errno(), ENOENT);
    enigma_profile_free(profile);
}

/* ---- what is exported ---- */

static void c01_c02_every_name_is_legal(void **state)
{
    char name[3] = {0};
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    for (int byte = 0; byte < 256; byte++) {
        name[0] = (char)byte;
        name[1] = (char)(255 - byte);
        enigma_scope_desc desc = {.struct_size = sizeof desc, .name = {name, 2}, .category = {name, 2}};
        enigma_end(enigma_begin_desc(&desc));
    }
    enigma_profile *profile = recording_end(p);
    for (size_t i = 0; enigma_exporter_at(i) != NULL; i++) {
        written text = exported(profile, enigma_exporter_at(i)->name);
        assert_json(&text);
        free(text.data);
    }
    enigma_profile_free(profile);
}

static void the_same_profile_gives_the_same_file(void **state)
{
    (void)state;
    enigma_profile *profile = small_profile(), *loaded = NULL;
    assert_int_equal(enigma_profile_save(profile, "same.enigma"), ENIGMA_OK);
    assert_int_equal(enigma_profile_load("same.enigma", &loaded), ENIGMA_OK);
    for (size_t i = 0; enigma_exporter_at(i) != NULL; i++) {
        written a = exported(profile, enigma_exporter_at(i)->name), b = exported(loaded, enigma_exporter_at(i)->name);
        assert_string_equal(a.data, b.data);
        free(a.data);
        free(b.data);
    }
    enigma_profile_free(loaded);
    enigma_profile_free(profile);
}

static void g07_g08_deep_and_long(void **state)
{
    enum { DEEP = 5000 };
    static enigma_scope scopes[DEEP];
    (void)state;
    char *name = malloc((1 << 20) + 1);
    assert_non_null(name);
    memset(name, 'n', 1 << 20);
    name[1 << 20] = '\0';
    enigma_profiler *p = recording_begin(RECORDING_START);
    for (int i = 0; i < DEEP; i++) {
        scopes[i] = enigma_begin("f");
        advance(10);
    }
    for (int i = DEEP; i > 0; i--) {
        enigma_end(scopes[i - 1]);
    }
    enigma_end(enigma_begin(name));
    enigma_profile *profile = recording_end(p);
    for (size_t i = 0; enigma_exporter_at(i) != NULL; i++) {
        written text = exported(profile, enigma_exporter_at(i)->name);
        assert_json(&text);
        assert_non_null(strstr(text.data, name));
        free(text.data);
    }
    free(name);
    enigma_profile_free(profile);
}

/* ---- while others record ---- */

typedef struct recorder {
    enigma_profiler *profiler;
    pthread_barrier_t *begin;
} recorder;

static void *record_much(void *arg)
{
    recorder *r = arg;
    assert_int_equal(enigma_profiler_start(r->profiler), ENIGMA_OK);
    pthread_barrier_wait(r->begin);
    for (int i = 0; i < 5000; i++) {
        enigma_scope scope = begin_with("outer", "flops", i, NULL, 0);
        add_kernel("k", 0, 100);
        enigma_end(scope);
    }
    assert_int_equal(enigma_profiler_stop(r->profiler), ENIGMA_OK);
    return NULL;
}

static void b11_exports_while_threads_record(void **state)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    pthread_barrier_t begin;
    enigma_profile *profile = NULL;
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    recorder r = {p, &begin};
    pthread_barrier_init(&begin, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, record_much, &r), 0);
    }
    pthread_barrier_wait(&begin);
    for (int round = 0; round < 5; round++) {
        assert_int_equal(enigma_profiler_snapshot(p, &profile), ENIGMA_OK);
        for (size_t i = 0; enigma_exporter_at(i) != NULL; i++) {
            written text = exported(profile, enigma_exporter_at(i)->name);
            assert_json(&text);
            free(text.data);
        }
        enigma_profile_free(profile);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&begin);
    profile = recording_end(p);
    assert_int_equal(enigma_profile_event_count(profile), 2 * THREADS * 5000);
    enigma_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b11_exports_while_threads_record),
        cmocka_unit_test(c01_c02_every_name_is_legal),
        cmocka_unit_test(c28_files_are_whole_or_absent),
        cmocka_unit_test(c28_pipes_are_written_in_place),
        cmocka_unit_test(c29_odd_paths),
        cmocka_unit_test(g07_g08_deep_and_long),
        cmocka_unit_test(the_same_profile_gives_the_same_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
