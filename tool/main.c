/* The enigma command: finds the command of commands.def that was asked for and runs it. */
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "enigma.h"

#define ENIGMA_COMMAND(id, operands, summary) extern const cli_command_body cli_##id;
#include "commands.def"
#undef ENIGMA_COMMAND

static const cli_command commands[] = {
#define ENIGMA_COMMAND(id, operands, summary) {#id, operands, summary, &cli_##id},
#include "commands.def"
#undef ENIGMA_COMMAND
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static int print_help(void)
{
    cli_print("usage: enigma COMMAND ...\n\nProfiles and benchmarks of GPU kernels.\n\ncommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        cli_print("  %-9s  %s\n", commands[i].name, commands[i].summary);
    }
    cli_print("\nenigma COMMAND --help has the options of a command; enigma --version prints the version.\n"
              "exit codes: 0 done, 1 failed, 2 wrong usage\n");
    return CLI_OK;
}

static int no_command(const char *name)
{
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < COMMAND_COUNT && used < sizeof names; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ", commands[i].name);
    }
    return name == NULL ? cli_usage("a command is missing (%s); see enigma --help", names)
                        : cli_usage("there is no command '%s' (there are %s); see enigma --help", name, names);
}

static int run(int count, char *const *texts)
{
    if (count == 0) {
        return no_command(NULL);
    }
    if (strcmp(texts[0], "--help") == 0) {
        return print_help();
    }
    if (strcmp(texts[0], "--version") == 0) {
        cli_print("enigma %s\n", enigma_version_string());
        return CLI_OK;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(texts[0], commands[i].name) == 0) {
            return cli_command_run(&commands[i], texts + 1, count - 1);
        }
    }
    return no_command(texts[0]);
}

int main(int argc, char **argv) { return cli_finish(run(argc > 0 ? argc - 1 : 0, argv + 1)); }
