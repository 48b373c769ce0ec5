/* The call tree as indented text. Reads a profile, keeps nothing; any thread. */
#include "aggregate/tree.h"
#include "base/sink.h"
#include "present/shown.h"

#define INDENT_LEVELS 64
#define NAME_COLUMNS 200

/* At most two lines: what this is, and what is missing. */
static void write_head(eni_sink *sink, eni_str *scratch, const enigma_profile *profile)
{
    eni_sink_puts(sink, "Call tree of ");
    eni_sink_u64(sink, profile->event_count);
    eni_sink_puts(sink, profile->event_count == 1 ? " event" : " events");
    eni_sink_puts(sink, ": calls, inclusive CPU and GPU time in us\n");
    eni_shown_missing(scratch, &profile->counts, "; ");
    if (scratch->size > 0) {
        eni_sink_write(sink, scratch->data, scratch->size);
        eni_sink_putc(sink, '\n');
    }
}

static void write_us(eni_sink *sink, const char *what, uint64_t ns)
{
    eni_sink_puts(sink, what);
    eni_sink_us(sink, ns > INT64_MAX ? INT64_MAX : (int64_t)ns);
}

static void write_figures(eni_sink *sink, const eni_tree_node *node)
{
    eni_sink_puts(sink, "  calls ");
    eni_sink_u64(sink, node->calls);
    if (node->calls == 0) { /* recorded by an outer profiler, or still open */
        eni_sink_puts(sink, "  cpu -  gpu -\n");
        return;
    }
    write_us(sink, "  cpu ", node->cpu_ns);
    write_us(sink, "  gpu ", node->gpu_ns);
    eni_sink_putc(sink, '\n');
}

static void write_node(eni_sink *sink, eni_str *scratch, const eni_tree_node *node)
{
    uint32_t level = node->depth - 1;
    for (uint32_t i = 0; i < level && i < INDENT_LEVELS; i++) {
        eni_sink_puts(sink, "  ");
    }
    scratch->size = 0;
    if (level > INDENT_LEVELS) {
        eni_str_printf(scratch, "[%u] ", (unsigned)level);
    }
    eni_shown_append(scratch, node->label, NAME_COLUMNS);
    eni_sink_write(sink, scratch->size == 0 ? "" : scratch->data, scratch->size);
    write_figures(sink, node);
}

enigma_status enigma_profile_write_tree(const enigma_profile *profile, enigma_write_fn write, void *user)
{
    eni_tree tree;
    eni_sink sink;
    eni_str scratch = {0};
    ENI_TRY(eni_tree_build(profile, &tree));
    enigma_status status = eni_sink_init(&sink, write, user);
    if (status != ENIGMA_OK) {
        goto failed_sink;
    }
    write_head(&sink, &scratch, profile);
    for (size_t i = 1; i < tree.count; i++) {
        write_node(&sink, &scratch, &tree.nodes[i]);
    }
    status = eni_sink_finish(&sink);
    if (status == ENIGMA_OK && scratch.failed) {
        status = ENI_NO_MEMORY();
    }
failed_sink:
    eni_str_free(&scratch);
    eni_tree_free(&tree);
    return status;
}
