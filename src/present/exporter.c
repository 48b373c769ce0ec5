/* The exporters by name, and where their bytes go. Stateless; any thread. */
#include "present/exporter.h"

static const struct {
    enigma_exporter_info info;
    eni_export_fn run;
} exporters[] = {
#define ENI_EXPORTER(id, method, suffix, help) {{#id, method, suffix, help}, eni_export_##id},
#include "present/exporters.def"
#undef ENI_EXPORTER
};

const enigma_exporter_info *enigma_exporter_at(size_t index)
{
    return index < ENI_COUNT_OF(exporters) ? &exporters[index].info : NULL;
}

static enigma_status find(const char *format, eni_export_fn *out)
{
    for (size_t i = 0; i < ENI_COUNT_OF(exporters); i++) {
        if (format != NULL && strcmp(exporters[i].info.name, format) == 0) {
            *out = exporters[i].run;
            return ENIGMA_OK;
        }
    }
    eni_str names = {0};
    for (size_t i = 0; i < ENI_COUNT_OF(exporters); i++) {
        eni_str_printf(&names, "%s%s", i == 0 ? "" : ", ", exporters[i].info.name);
    }
    enigma_status status = names.failed ? ENI_NO_MEMORY()
                                        : ENI_FAIL(ENIGMA_E_INVALID, "the format must be one of %s, not '%.100s'",
                                                   names.data, format == NULL ? "" : format);
    eni_str_free(&names);
    return status;
}

enigma_status enigma_export(const enigma_profile *profile, const char *format, enigma_write_fn write, void *user)
{
    eni_export_fn run;
    eni_sink sink;
    ENI_TRY(find(format, &run));
    ENI_TRY(eni_sink_init(&sink, write, user));
    enigma_status status = run(profile, &sink);
    enigma_status finished = eni_sink_finish(&sink);
    return status != ENIGMA_OK ? status : finished;
}

typedef struct file_job {
    const enigma_profile *profile;
    eni_export_fn run;
} file_job;

static enigma_status write_body(eni_sink *sink, const void *arg)
{
    const file_job *job = arg;
    return job->run(job->profile, sink);
}

enigma_status enigma_export_file(const enigma_profile *profile, const char *format, const char *path)
{
    file_job job = {.profile = profile};
    ENI_TRY(find(format, &job.run));
    return eni_sink_file(path, write_body, &job);
}
