/* enigma info: the backends, devices, exporters and settings of this library on this machine. */
#include <inttypes.h>
#include <stdlib.h>

#include "args.h"
#include "enigma.h"

static const cli_option options[] = {{NULL, NULL, NULL}};

/* ---- values ---- */

static void print_value(const enigma_value *value);

static void print_items(const enigma_items *items, char open, char close)
{
    cli_print("%c", open);
    for (size_t i = 0; i < items->count; i++) {
        const enigma_field *item = &items->data[i];
        cli_print("%s", i == 0 ? "" : ", ");
        if (item->key.data != NULL) {
            cli_print("%s: ", item->key.data);
        }
        print_value(&item->value);
    }
    cli_print("%c", close);
}

static void print_value(const enigma_value *value)
{
    switch (value->type) {
    case ENIGMA_BOOL:
        cli_print("%s", value->as.integer != 0 ? "yes" : "no");
        break;
    case ENIGMA_INT:
        cli_print("%" PRId64, value->as.integer);
        break;
    case ENIGMA_DOUBLE:
        cli_print("%.9g", value->as.number);
        break;
    case ENIGMA_TEXT:
        cli_print("%s", value->as.text.data);
        break;
    case ENIGMA_LIST:
    case ENIGMA_TUPLE:
        print_items(&value->as.items, '(', ')');
        break;
    case ENIGMA_DICT:
        print_items(&value->as.items, '{', '}');
        break;
    default:
        cli_print("-");
    }
}

/* ---- sections ---- */

/* The number of devices of a backend that can be used, else 0. */
static uint32_t print_backend(const enigma_backend_info *backend)
{
    uint32_t count = 0;
    enigma_status status = enigma_backend_device_count(backend->name, &count);
    cli_print("  %-9s  built: %-3s  ", backend->name, backend->built ? "yes" : "no");
    if (status != ENIGMA_OK) {
        cli_print("available: no   %s\n", enigma_error_message());
        return 0;
    }
    cli_print("available: %-3s  %" PRIu32 " device%s\n", count > 0 ? "yes" : "no", count, count == 1 ? "" : "s");
    return count;
}

static void print_device(const char *backend, uint32_t index)
{
    enigma_runtime *runtime = NULL;
    enigma_field fact;
    cli_print("\n  %s %" PRIu32 "\n", backend, index);
    if (enigma_runtime_open(backend, index, &runtime) != ENIGMA_OK) {
        cli_print("    cannot be opened: %s\n", enigma_error_message());
        return;
    }
    for (size_t i = 0; enigma_runtime_fact(runtime, i, &fact); i++) {
        cli_print("    %-28s  ", fact.key.data);
        print_value(&fact.value);
        cli_print("\n");
    }
    enigma_runtime_free(runtime);
}

static void print_devices(void)
{
    const enigma_backend_info *backend;
    for (size_t i = 0; (backend = enigma_backend_at(i)) != NULL; i++) {
        uint32_t count = 0;
        if (enigma_backend_device_count(backend->name, &count) == ENIGMA_OK) {
            for (uint32_t device = 0; device < count; device++) {
                print_device(backend->name, device);
            }
        }
    }
}

static void print_backends(void)
{
    const enigma_backend_info *backend;
    uint32_t devices = 0;
    cli_print("backends, best first:\n");
    for (size_t i = 0; (backend = enigma_backend_at(i)) != NULL; i++) {
        devices += print_backend(backend);
    }
    cli_print("\ndevices:%s\n", devices == 0 ? " none" : "");
    print_devices();
}

static void print_exporters(void)
{
    const enigma_exporter_info *exporter;
    cli_print("\nexporters:\n");
    for (size_t i = 0; (exporter = enigma_exporter_at(i)) != NULL; i++) {
        cli_print("  %-9s  %-14s  %s\n", exporter->name, exporter->suffix, exporter->help);
    }
}

static void print_settings(void)
{
    const enigma_setting_info *setting;
    cli_print("\nsettings (environment variables):\n");
    for (size_t i = 0; (setting = enigma_setting_at(i)) != NULL; i++) {
        const char *value = getenv(setting->name);
        if (value != NULL && *value != '\0') {
            cli_print("  %-15s  %s  (is %s)\n", setting->name, setting->help, value);
        } else if (setting->fallback != NULL) {
            cli_print("  %-15s  %s  (not set: %s)\n", setting->name, setting->help, setting->fallback);
        } else {
            cli_print("  %-15s  %s  (not set)\n", setting->name, setting->help);
        }
    }
}

static int run(const cli_args *args)
{
    (void)args;
    cli_print("enigma %s\n\n", enigma_version_string());
    print_backends();
    print_exporters();
    print_settings();
    return CLI_OK;
}

const cli_command_body cli_info = {options, run};
