/* Commands and their command lines: what a command is, how its options are read, and its help. Used by main.c and the
 * commands, on the main thread. */
#ifndef TOOL_ARGS_H
#define TOOL_ARGS_H

#include <stddef.h>

enum cli_exit { CLI_OK = 0, CLI_FAILURE = 1, CLI_USAGE = 2 };

#define CLI_OPTION_LIMIT 8

typedef struct cli_option {
    const char *name;  /* "--sort", "-o" */
    const char *value; /* what the help calls its value, "FIELD"; NULL: it takes none */
    const char *help;
} cli_option;

/* What was given: values[i] belongs to the command's options[i]; NULL: not given, "" for an option without a value. */
typedef struct cli_args {
    const char *operand; /* NULL exactly when the command takes none */
    const char *values[CLI_OPTION_LIMIT];
} cli_args;

/* What a command's own file says about it; options end with one whose name is NULL. */
typedef struct cli_command_body {
    const cli_option *options;
    int (*run)(const cli_args *args); /* gives an enum cli_exit */
} cli_command_body;

typedef struct cli_command {
    const char *name, *operands, *summary; /* operands NULL: none */
    const cli_command_body *body;
} cli_command;

/* Reads what follows the command's name (count texts) and runs it; --help prints its help instead. */
int cli_command_run(const cli_command *command, char *const *texts, int count);

/* ---- output.c: standard output, and errors as one line on standard error ---- */

void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_write(void *user, const void *data, size_t size); /* an enigma_write_fn to standard output */

/* Print "enigma: ..." as one line and give CLI_FAILURE or CLI_USAGE. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Flushes standard output and gives code, or CLI_FAILURE with a message when something could not be written. */
int cli_finish(int code);

#endif
