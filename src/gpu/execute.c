/* enigma_execute: prepare, dispatch, read back and free in one call, each step an event below "execute_total" when a profiler is
 * active. By one thread at a time for each runtime. */
#include "base/str.h"
#include "gpu/gpu.h"

typedef struct execution {
    enigma_kernel *kernel;
    const enigma_argument *inputs;
    size_t input_count;
    void *const *outputs;
    const size_t *output_sizes;
    size_t output_count;
    enigma_dispatch_options options;
    enigma_prepared *prepared;
    enigma_context at; /* inside of execute_total; its profiler is NULL when nothing is recorded */
    uint32_t category;
} execution;

/* ---- events ---- */

static enigma_scope begin_event(const execution *run, const char *name, enigma_path *node)
{
    enigma_scope none = {0};
    if (run->at.profiler == NULL) {
        return none;
    }
    *node = eni_profiler_runtime_path(run->at.profiler, run->at.path, eni_text_of(name), run->kernel->name);
    return eni_profiler_begin(run->at.profiler, ENI_KIND_EVENT, *node, run->at.scope, run->category, 0);
}

static void end_event(const execution *run, enigma_scope scope, enigma_status status)
{
    if (run->at.profiler == NULL) {
        return;
    }
    if (status != ENIGMA_OK) {
        const enigma_field error = {.key = eni_text_of("error"),
                                    .value = {.type = ENIGMA_TEXT, .as.text = eni_text_of(enigma_error_message())}};
        enigma_scope_annotate(run->at.profiler, scope, NULL, 0, &error, 1);
    }
    eni_profiler_end(run->at.profiler, scope, 0);
}

/* ---- steps ---- */

static enigma_status load_library(execution *run) { return run->kernel->runtime->backend->load(); }

static enigma_status create_pipeline(execution *run)
{
    ENI_TRY(eni_prepare_begin(run->kernel, run->inputs, run->input_count, run->output_sizes, run->output_count,
                              &run->prepared));
    return eni_prepare_instance(run->prepared);
}

static enigma_status create_input_buffers(execution *run)
{
    return eni_prepare_inputs(run->prepared, run->inputs, run->input_count);
}

static enigma_status create_output_buffers(execution *run)
{
    return eni_prepare_outputs(run->prepared, run->input_count, run->output_sizes, run->output_count);
}

/* Checks first: sizes that cannot run are refused without an event, as everywhere. The dispatch makes its own event. */
static enigma_status gpu_dispatch(execution *run)
{
    ENI_TRY(eni_dispatch_check(run->prepared, &run->options));
    return run->at.profiler == NULL ? eni_dispatch_untimed(run->prepared, &run->options)
                                    : eni_record_dispatch(run->prepared, &run->options, &run->at);
}

static enigma_status read_output(execution *run)
{
    for (size_t i = 0; i < run->output_count; i++) {
        ENI_TRY(enigma_prepared_read_output(run->prepared, i, run->outputs[i], run->output_sizes[i]));
    }
    return ENIGMA_OK;
}

static enigma_status release_resources(execution *run)
{
    enigma_prepared_free(run->prepared);
    run->prepared = NULL;
    return ENIGMA_OK;
}

static enigma_status take_step(execution *run, const char *name, enigma_status (*step)(execution *))
{
    enigma_path node;
    enigma_scope scope = begin_event(run, name, &node);
    enigma_status status = step(run);
    end_event(run, scope, status);
    return status;
}

static enigma_status take_steps(execution *run)
{
    ENI_TRY(take_step(run, "load_library", load_library));
    ENI_TRY(take_step(run, "create_pipeline", create_pipeline));
    ENI_TRY(take_step(run, "create_input_buffers", create_input_buffers));
    ENI_TRY(take_step(run, "create_output_buffers", create_output_buffers));
    ENI_TRY(gpu_dispatch(run));
    return take_step(run, "read_output", read_output);
}

/* ---- the call ---- */

static enigma_status check_execute(const execution *run)
{
    if (run->output_count != 0 && run->outputs == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "outputs is NULL and output_count is not 0");
    }
    for (size_t i = 0; i < run->output_count; i++) {
        if (run->outputs[i] == NULL) {
            return ENI_FAIL(ENIGMA_E_INVALID, "outputs[%zu] is NULL", i);
        }
    }
    return ENIGMA_OK;
}

enigma_status enigma_execute(enigma_kernel *kernel, const enigma_argument *inputs, size_t input_count,
                             void *const *outputs, const size_t *output_sizes, size_t output_count,
                             const enigma_dispatch_options *options)
{
    if (kernel == NULL || options == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "%s is NULL", kernel == NULL ? "kernel" : "options");
    }
    execution run = {.kernel = kernel,
                     .inputs = inputs,
                     .input_count = input_count,
                     .outputs = outputs,
                     .output_sizes = output_sizes,
                     .output_count = output_count,
                     .options = *options};
    ENI_TRY(eni_runtime_check(kernel->runtime));
    ENI_TRY(check_execute(&run));
    execution total = run;
    total.at = eni_dispatch_context(options);
    if (total.at.profiler != NULL) {
        total.category = enigma_category(total.at.profiler, eni_text_of("runtime"));
    }
    enigma_path node = 0;
    enigma_scope scope = begin_event(&total, "execute_total", &node);
    run.category = total.category;
    run.at = (enigma_context){total.at.profiler, node, scope.id};
    enigma_status status = take_steps(&run);
    if (run.prepared != NULL) {
        take_step(&run, "release_resources", release_resources);
    }
    end_event(&total, scope, status);
    return status;
}
