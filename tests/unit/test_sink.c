#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/sink.h"

/* ---- Streams ---- */

static void bytes_arrive_in_order(void **state)
{
    (void)state;
    eni_str got = {0}, want = {0};
    eni_sink sink;
    assert_int_equal(eni_sink_init(&sink, eni_sink_to_str, &got), ENIGMA_OK);
    char block[5000];
    for (int i = 0; i < 200; i++) {
        memset(block, 'a' + i % 26, sizeof block);
        size_t size = (size_t)(i * 37) % sizeof block;
        eni_sink_write(&sink, block, size);
        eni_str_append(&want, block, size);
        eni_sink_printf(&sink, "%d,%.*s;", i, 4000, block);
        eni_str_printf(&want, "%d,%.*s;", i, 4000, block);
    }
    char *huge = calloc(1, 100001);
    memset(huge, 'h', 100000);
    eni_sink_puts(&sink, huge);
    eni_sink_printf(&sink, "%s", huge);
    eni_str_puts(&want, huge);
    eni_str_puts(&want, huge);
    free(huge);
    assert_int_equal(eni_sink_finish(&sink), ENIGMA_OK);
    assert_int_equal(got.size, want.size);
    assert_memory_equal(got.data, want.data, want.size);
    eni_str_free(&got);
    eni_str_free(&want);
}

static void numbers_are_exact(void **state)
{
    (void)state;
    eni_str got = {0};
    eni_sink sink;
    assert_int_equal(eni_sink_init(&sink, eni_sink_to_str, &got), ENIGMA_OK);
    static const int64_t times[] = {0, 1, 999, 1000, 12345, -1, -1500, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < ENI_COUNT_OF(times); i++) {
        eni_sink_us(&sink, times[i]);
        eni_sink_putc(&sink, ' ');
    }
    eni_sink_u64(&sink, 0);
    eni_sink_putc(&sink, ' ');
    eni_sink_u64(&sink, UINT64_MAX);
    assert_int_equal(eni_sink_finish(&sink), ENIGMA_OK);
    assert_string_equal(got.data,
                        "0.000 0.001 0.999 1.000 12.345 -0.001 -1.500 9223372036854775.807 -9223372036854775.808 "
                        "0 18446744073709551615");
    eni_str_free(&got);
}

static int stop_at_second(void *user, const void *data, size_t size)
{
    (void)data;
    (void)size;
    return ++*(int *)user == 2 ? 42 : 0;
}

static void the_first_error_sticks(void **state)
{
    (void)state;
    int calls = 0;
    eni_sink sink;
    assert_int_equal(eni_sink_init(&sink, stop_at_second, &calls), ENIGMA_OK);
    for (int i = 0; i < 100000; i++) {
        eni_sink_puts(&sink, "0123456789");
    }
    assert_int_equal(sink.error, 42);
    assert_int_equal(eni_sink_finish(&sink), ENIGMA_E_IO);
    assert_int_equal(calls, 2);
    assert_non_null(strstr(enigma_error_message(), "42"));
}

static void memory_failures(void **state)
{
    (void)state;
    failing_allocator failing;
    failing_begin(&failing);
    eni_sink sink;
    eni_str str = {0};
    failing.left = 0;
    assert_int_equal(eni_sink_init(&sink, eni_sink_to_str, &str), ENIGMA_E_NO_MEMORY);
    failing.left = 1;
    assert_int_equal(eni_sink_init(&sink, eni_sink_to_str, &str), ENIGMA_OK);
    eni_sink_puts(&sink, "x");
    assert_int_equal(eni_sink_finish(&sink), ENIGMA_E_NO_MEMORY);
    failing.left = -1;
    eni_str_free(&str);
    failing_end(&failing);
}

/* ---- Files ---- */

typedef struct body_arg {
    size_t lines;
    enigma_status status;
} body_arg;

static enigma_status body(eni_sink *sink, const void *arg)
{
    const body_arg *what = arg;
    for (size_t i = 0; i < what->lines; i++) {
        eni_sink_printf(sink, "line %zu\n", i);
    }
    return what->status == ENIGMA_OK ? ENIGMA_OK : ENI_FAIL(what->status, "the body's own words");
}

static const body_arg good = {3, ENIGMA_OK}, bad = {20000, ENIGMA_E_FORMAT};
static const char good_text[] = "line 0\nline 1\nline 2\n";

static void make(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void assert_holds(const char *path, const char *text)
{
    char got[256] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(got, 1, sizeof got - 1, file);
    fclose(file);
    got[size] = '\0';
    assert_string_equal(got, text);
}

static size_t entries(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    size_t count = 0;
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count - 2;
}

/* Each test works in an empty folder of its own, and is in it. */
static int enter_folder(void **state)
{
    (void)state;
    char name[] = "sinkXXXXXX";
    return mkdtemp(name) == NULL || chdir(name) != 0;
}

static int leave_folder(void **state)
{
    (void)state;
    return chdir("..");
}

static void a_new_file(void **state)
{
    (void)state;
    mode_t before = umask(027);
    assert_int_equal(eni_sink_file("new", body, &good), ENIGMA_OK);
    umask(before);
    assert_holds("new", good_text);
    struct stat info;
    assert_int_equal(stat("new", &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
    assert_int_equal(entries("."), 1);
    assert_int_equal(eni_sink_file("\xc3\xa9 \xff\"'\n", body, &good), ENIGMA_OK); /* a path is any bytes */
    assert_holds("\xc3\xa9 \xff\"'\n", good_text);
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0'; /* the longest name there is */
    assert_int_equal(eni_sink_file(name, body, &good), ENIGMA_OK);
    assert_holds(name, good_text);
}

static void a_file_that_exists_keeps_its_mode(void **state)
{
    (void)state;
    make("old", "old text");
    assert_int_equal(chmod("old", 0604), 0);
    assert_int_equal(eni_sink_file("old", body, &good), ENIGMA_OK);
    assert_holds("old", good_text);
    struct stat info;
    assert_int_equal(stat("old", &info), 0);
    assert_int_equal(info.st_mode & 07777, 0604);
    assert_int_equal(entries("."), 1);
}

static void a_failing_body_leaves_the_old_file(void **state)
{
    (void)state;
    make("old", "old text");
    assert_int_equal(eni_sink_file("old", body, &bad), ENIGMA_E_FORMAT);
    assert_string_equal(enigma_error_message(), "the body's own words");
    assert_holds("old", "old text");
    assert_int_equal(eni_sink_file("none", body, &bad), ENIGMA_E_FORMAT);
    assert_int_equal(entries("."), 1);
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    make("old", "old text");
    /* A size limit stands for the full disk; the program shares it, so a child meets it. */
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const body_arg large = {100000, ENIGMA_OK};
        const struct rlimit most = {65536, 65536};
        int failed = setrlimit(RLIMIT_FSIZE, &most) != 0;
        failed = failed || eni_sink_file("old", body, &large) != ENIGMA_E_IO || enigma_error_errno() != EFBIG ||
                 strcmp(enigma_error_path(), "old") != 0;
        _exit(failed);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_holds("old", "old text");
    assert_int_equal(entries("."), 1);
}

static void links_are_followed(void **state)
{
    (void)state;
    assert_int_equal(mkdir("folder", 0777), 0);
    make("folder/real", "old text");
    assert_int_equal(symlink("second", "first"), 0);
    assert_int_equal(symlink("folder/real", "second"), 0);
    assert_int_equal(eni_sink_file("first", body, &good), ENIGMA_OK);
    assert_holds("folder/real", good_text);
    struct stat info;
    assert_int_equal(lstat("first", &info), 0);
    assert_true(S_ISLNK(info.st_mode));

    assert_int_equal(symlink("fresh", "folder/dangling"), 0);
    assert_int_equal(eni_sink_file("folder/dangling", body, &good), ENIGMA_OK);
    assert_holds("folder/fresh", good_text);
    assert_int_equal(entries("folder"), 3);

    assert_int_equal(symlink("loop2", "loop1"), 0);
    assert_int_equal(symlink("loop1", "loop2"), 0);
    assert_int_equal(eni_sink_file("loop1", body, &good), ENIGMA_E_IO);
    assert_int_equal(enigma_error_errno(), ELOOP);
}

static void impossible_paths(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int errnum;
    } table[] = {{"", ENOENT},  {"no/such/folder", ENOENT}, {".", EISDIR},
                 {"/", EISDIR}, {"file/below", ENOTDIR},    {"nothing/", ENOENT}};
    make("file", "");
    for (size_t i = 0; i < ENI_COUNT_OF(table); i++) {
        assert_int_equal(eni_sink_file(table[i].path, body, &good), ENIGMA_E_IO);
        assert_int_equal(enigma_error_errno(), table[i].errnum);
        assert_string_equal(enigma_error_path(), table[i].path);
        assert_non_null(strstr(enigma_error_message(), table[i].path));
    }
    char name[300];
    memset(name, 'n', 299);
    name[299] = '\0';
    assert_int_equal(eni_sink_file(name, body, &good), ENIGMA_E_IO);
    assert_int_equal(enigma_error_errno(), ENAMETOOLONG);
    assert_int_equal(entries("."), 1);
}

static void devices_are_written_in_place(void **state)
{
    (void)state;
    assert_int_equal(eni_sink_file("/dev/null", body, &good), ENIGMA_OK);
    assert_int_equal(eni_sink_file("/dev/full", body, &good), ENIGMA_E_IO);
    assert_int_equal(enigma_error_errno(), ENOSPC);
    assert_string_equal(enigma_error_path(), "/dev/full");
    assert_int_equal(symlink("/dev/full", "full"), 0);
    assert_int_equal(eni_sink_file("full", body, &good), ENIGMA_E_IO);
    struct stat info;
    assert_int_equal(lstat("/dev/full", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(entries("."), 1);
}

static void *read_pipe(void *out)
{
    int fd = open("pipe", O_RDONLY);
    read_all(fd, out, 256);
    return NULL;
}

static void *close_pipe(void *unused)
{
    (void)unused;
    close(open("pipe", O_RDONLY));
    return NULL;
}

static void pipes_are_written_in_place(void **state)
{
    (void)state;
    assert_int_equal(mkfifo("pipe", 0666), 0);
    char got[256];
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, read_pipe, got), 0);
    assert_int_equal(eni_sink_file("pipe", body, &good), ENIGMA_OK);
    pthread_join(reader, NULL);
    assert_string_equal(got, good_text);

    /* A reader that goes away must not end the program by SIGPIPE. */
    const body_arg large = {200000, ENIGMA_OK};
    assert_int_equal(pthread_create(&reader, NULL, close_pipe, NULL), 0);
    assert_int_equal(eni_sink_file("pipe", body, &large), ENIGMA_E_IO);
    assert_int_equal(enigma_error_errno(), EPIPE);
    pthread_join(reader, NULL);
    sigset_t pending;
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
    struct stat info;
    assert_int_equal(lstat("pipe", &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
}

static void files_without_memory(void **state)
{
    (void)state;
    make("old", "old text");
    failing_allocator failing;
    failing_begin(&failing);
    enigma_status status = ENIGMA_E_NO_MEMORY;
    for (long left = 0; status != ENIGMA_OK; left++) {
        assert_true(left < 100);
        failing.left = left;
        status = eni_sink_file("old", body, &good);
        assert_true(status == ENIGMA_OK || status == ENIGMA_E_NO_MEMORY || status == ENIGMA_E_IO);
        assert_holds("old", status == ENIGMA_OK ? good_text : "old text");
        assert_int_equal(entries("."), 1);
    }
    failing.left = -1;
    failing_end(&failing);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, enter_folder, leave_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_in_order),
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(the_first_error_sticks),
        cmocka_unit_test(memory_failures),
        FILE_TEST(a_new_file),
        FILE_TEST(a_file_that_exists_keeps_its_mode),
        FILE_TEST(a_failing_body_leaves_the_old_file),
        FILE_TEST(a_full_disk_leaves_the_old_file),
        FILE_TEST(links_are_followed),
        FILE_TEST(impossible_paths),
        FILE_TEST(devices_are_written_in_place),
        FILE_TEST(pipes_are_written_in_place),
        FILE_TEST(files_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
