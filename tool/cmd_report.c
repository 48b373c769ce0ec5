/* enigma report: the rows of a profile, or its call tree, on standard output. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "enigma.h"

enum { BY, SORT, LIMIT, TREE, JSON };

static const cli_option options[] = {
    [BY] = {"--by", "name|path", "a row for each name (the default) or for each call path"},
    [SORT] = {"--sort", "FIELD", "order of the rows, by any field of a row (default: cpu_total_us)"},
    [LIMIT] = {"--limit", "N", "at most N rows"},
    [TREE] = {"--tree", NULL, "the call tree instead of rows"},
    [JSON] = {"--json", NULL, "the rows as JSON: {\"rows\": [...]}"},
    {NULL, NULL, NULL},
};

typedef struct report_request {
    enum enigma_group group;
    const char *sort_by;
    size_t limit; /* SIZE_MAX: all rows */
    int json;
} report_request;

static int read_limit(const char *text, size_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number == 0) {
        return cli_usage("report: --limit must be a whole number from 1, not '%s'", text);
    }
    *out = (size_t)number;
    return CLI_OK;
}

static int read_request(const cli_args *args, report_request *out)
{
    const char *by = args->values[BY] == NULL ? "name" : args->values[BY];
    *out = (report_request){ENIGMA_GROUP_NAME, args->values[SORT], SIZE_MAX, args->values[JSON] != NULL};
    if (strcmp(by, "path") == 0) {
        out->group = ENIGMA_GROUP_CALL_PATH;
    } else if (strcmp(by, "name") != 0) {
        return cli_usage("report: --by must be name or path, not '%s'", by);
    }
    if (args->values[TREE] != NULL) {
        for (int i = 0; i <= JSON; i++) {
            if (i != TREE && args->values[i] != NULL) {
                return cli_usage("report: --tree goes without %s", options[i].name);
            }
        }
    }
    return args->values[LIMIT] == NULL ? CLI_OK : read_limit(args->values[LIMIT], &out->limit);
}

static int failed(enigma_status status)
{
    switch (status) {
    case ENIGMA_OK:
        return CLI_OK;
    case ENIGMA_E_IO: /* standard output: cli_finish says why */
        return CLI_FAILURE;
    case ENIGMA_E_INVALID: /* all that the user gave and the library checks is the field */
        return cli_usage("report: --sort: %s", enigma_error_message());
    default:
        return cli_fail("%s", enigma_error_message());
    }
}

static int print_rows(const enigma_result *all, const report_request *request)
{
    enigma_result *rows = NULL;
    enigma_status status = enigma_result_top(all, request->sort_by, request->limit, &rows);
    if (status == ENIGMA_OK) {
        status = request->json ? enigma_result_write_json(rows, request->sort_by, cli_write, NULL)
                               : enigma_result_write_table(rows, request->sort_by, cli_write, NULL);
    }
    if (status == ENIGMA_OK && !request->json && enigma_result_row_count(rows) < enigma_result_row_count(all)) {
        cli_print("(%zu of %zu rows)\n", enigma_result_row_count(rows), enigma_result_row_count(all));
    }
    enigma_result_free(rows);
    return failed(status);
}

static int print_result(const enigma_profile *profile, const report_request *request)
{
    enigma_result *all = NULL;
    enigma_status status = enigma_profile_key_averages(profile, request->group, &all);
    int code = status == ENIGMA_OK ? print_rows(all, request) : failed(status);
    enigma_result_free(all);
    return code;
}

static int run(const cli_args *args)
{
    report_request request;
    enigma_profile *profile = NULL;
    int code = read_request(args, &request);
    if (code != CLI_OK) {
        return code;
    }
    if (enigma_profile_load(args->operand, &profile) != ENIGMA_OK) {
        return cli_fail("%s", enigma_error_message());
    }
    code = args->values[TREE] != NULL ? failed(enigma_profile_write_tree(profile, cli_write, NULL))
                                      : print_result(profile, &request);
    enigma_profile_free(profile);
    return code;
}

const cli_command_body cli_report = {options, run};
