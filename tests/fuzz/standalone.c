/* Runs a fuzz target over stored inputs without a fuzzer: files, or folders of files. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return -1;
    }
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    if (data == NULL || fread(data, 1, (size_t)size, file) != (size_t)size) {
        perror(path);
        free(data);
        fclose(file);
        return -1;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 1;
}

static int run_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        perror(path);
        return -1;
    }
    int count = 0;
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL && count >= 0) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') {
            int ran = run_file(name);
            count = ran < 0 ? -1 : count + ran;
        }
    }
    closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        struct stat info;
        int count = stat(argv[i], &info) == 0 && S_ISDIR(info.st_mode) ? run_folder(argv[i]) : run_file(argv[i]);
        if (count < 0) {
            return 1;
        }
        total += count;
    }
    printf("%d inputs\n", total);
    return total > 0 ? 0 : 1;
}
