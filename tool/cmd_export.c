/* enigma export: a profile through one of the library's exporters. */
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "enigma.h"

enum { OUT, FORMAT };

static const cli_option options[] = {
    [OUT] = {"-o", "OUT", "the file to write; its suffix chooses the format (enigma info lists them)"},
    [FORMAT] = {"--format", "NAME", "the format, whatever the suffix"},
    {NULL, NULL, NULL},
};

static int ends_with(const char *text, const char *suffix)
{
    size_t size = strlen(text), tail = strlen(suffix);
    return size >= tail && memcmp(text + size - tail, suffix, tail) == 0;
}

/* The exporter of a name, or with name NULL of a path's suffix. NULL: none. */
static const char *find_format(const char *name, const char *path)
{
    const enigma_exporter_info *info;
    for (size_t i = 0; (info = enigma_exporter_at(i)) != NULL; i++) {
        if (name != NULL ? strcmp(name, info->name) == 0 : ends_with(path, info->suffix)) {
            return info->name;
        }
    }
    return NULL;
}

static int no_format(const char *name, const char *path)
{
    char list[512] = "";
    size_t used = 0;
    const enigma_exporter_info *info;
    for (size_t i = 0; (info = enigma_exporter_at(i)) != NULL && used < sizeof list; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s for %s", i == 0 ? "" : ", ", info->suffix,
                                 info->name);
    }
    return name != NULL ? cli_usage("export: there is no format '%s' (suffixes: %s)", name, list)
                        : cli_usage("export: '%s' has no suffix that says the format (%s); give --format", path, list);
}

static int run(const cli_args *args)
{
    const char *path = args->values[OUT];
    enigma_profile *profile = NULL;
    if (path == NULL) {
        return cli_usage("export: -o OUT is missing; see enigma export --help");
    }
    const char *format = find_format(args->values[FORMAT], path);
    if (format == NULL) {
        return no_format(args->values[FORMAT], path);
    }
    enigma_status status = enigma_profile_load(args->operand, &profile);
    if (status == ENIGMA_OK) {
        status = enigma_export_file(profile, format, path);
    }
    enigma_profile_free(profile);
    return status == ENIGMA_OK ? CLI_OK : cli_fail("%s", enigma_error_message());
}

const cli_command_body cli_export = {options, run};
