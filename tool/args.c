/* Reads command lines by a command's table of options; see args.h. */
#include "args.h"

#include <string.h>

/* ---- help ---- */

/* "--sort FIELD"; lives until the next call. */
static const char *option_title(const cli_option *option)
{
    static char title[64];
    size_t name = strlen(option->name), value = option->value == NULL ? 0 : strlen(option->value) + 1;
    if (name + value >= sizeof title) {
        return option->name;
    }
    memcpy(title, option->name, name + 1);
    if (value > 0) {
        title[name] = ' ';
        memcpy(title + name + 1, option->value, value);
    }
    return title;
}

static void print_help(const cli_command *command)
{
    cli_print("usage: enigma %s%s%s [options]\n\n%s\n\noptions:\n", command->name, command->operands == NULL ? "" : " ",
              command->operands == NULL ? "" : command->operands, command->summary);
    for (const cli_option *option = command->body->options; option->name != NULL; option++) {
        cli_print("  %-16s  %s\n", option_title(option), option->help);
    }
    cli_print("  %-16s  %s\n\nexit codes: 0 done, 1 failed, 2 wrong usage\n", "--help", "this text");
}

/* ---- reading ---- */

/* The option that a text names, whole or up to '='; NULL: none. */
static const cli_option *find_option(const cli_command *command, const char *text)
{
    size_t size = strcspn(text, "=");
    for (const cli_option *option = command->body->options; option->name != NULL; option++) {
        if (strlen(option->name) == size && memcmp(option->name, text, size) == 0) {
            return option;
        }
    }
    return NULL;
}

/* Reads the option at texts[*at], moving *at on to its value where that is a text of its own. */
static int read_option(const cli_command *command, char *const *texts, int count, int *at, cli_args *args)
{
    const char *text = texts[*at];
    const cli_option *option = find_option(command, text);
    if (option == NULL) {
        return cli_usage("%s: no option '%s'; see enigma %s --help", command->name, text, command->name);
    }
    const char *value = strchr(text, '=') == NULL ? NULL : strchr(text, '=') + 1;
    if (option->value == NULL && value != NULL) {
        return cli_usage("%s: %s takes no value", command->name, option->name);
    }
    if (option->value != NULL && value == NULL) {
        if (*at + 1 >= count) {
            return cli_usage("%s: %s needs a value (%s)", command->name, option->name, option->value);
        }
        value = texts[++*at];
    }
    args->values[option - command->body->options] = value == NULL ? "" : value;
    return CLI_OK;
}

static int read_operand(const cli_command *command, const char *text, cli_args *args)
{
    if (command->operands == NULL || args->operand != NULL) {
        return cli_usage("%s: '%s' is one argument too many", command->name, text);
    }
    args->operand = text;
    return CLI_OK;
}

static int read_all(const cli_command *command, char *const *texts, int count, cli_args *args)
{
    int code = CLI_OK, options_over = 0;
    for (int at = 0; at < count && code == CLI_OK; at++) {
        const char *text = texts[at];
        if (!options_over && strcmp(text, "--") == 0) {
            options_over = 1;
        } else if (!options_over && text[0] == '-' && text[1] != '\0') {
            code = read_option(command, texts, count, &at, args);
        } else {
            code = read_operand(command, text, args);
        }
    }
    if (code == CLI_OK && command->operands != NULL && args->operand == NULL) {
        code = cli_usage("%s: %s is missing; see enigma %s --help", command->name, command->operands, command->name);
    }
    return code;
}

int cli_command_run(const cli_command *command, char *const *texts, int count)
{
    cli_args args = {NULL, {NULL}};
    for (int i = 0; i < count && strcmp(texts[i], "--") != 0; i++) {
        if (strcmp(texts[i], "--help") == 0) {
            print_help(command);
            return CLI_OK;
        }
    }
    int code = read_all(command, texts, count, &args);
    return code == CLI_OK ? command->body->run(&args) : code;
}
