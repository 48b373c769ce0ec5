/* Memory, compiling and binding, on every backend that has a device. */
#include "battery.h"

static void facts_are_there(void **state)
{
    (void)state;
    static const char *const texts[] = {"backend", "name", "vendor", "driver", "version"};
    static const char *const numbers[] = {"compute_units", "memory_bytes", "max_group_threads"};
    for (size_t i = 0; i < 5; i++) {
        const enigma_value *value = fact_of(current.runtime, texts[i]);
        assert_non_null(value);
        assert_int_equal(value->type, ENIGMA_TEXT);
        assert_true(value->as.text.size > 0);
    }
    for (size_t i = 0; i < 3; i++) {
        const enigma_value *value = fact_of(current.runtime, numbers[i]);
        assert_non_null(value);
        assert_int_equal(value->type, ENIGMA_INT);
        assert_true(value->as.integer > 0);
    }
    assert_int_equal(fact_of(current.runtime, "partial_groups")->type, ENIGMA_BOOL);
    assert_int_equal(fact_of(current.runtime, "max_group_size")->as.items.count, 3);
    assert_string_equal(fact_of(current.runtime, "backend")->as.text.data, current.backend);
}

static void buffers_keep_what_was_written(void **state)
{
    (void)state;
    uint8_t in[1000], out[1000], zero[1000] = {0};
    enigma_buffer *buffer = NULL;
    for (size_t i = 0; i < sizeof in; i++) {
        in[i] = (uint8_t)(i * 7);
    }
    assert_ok(enigma_buffer_create(current.runtime, sizeof in, NULL, &buffer));
    assert_int_equal(enigma_buffer_size(buffer), sizeof in);
    assert_ok(enigma_buffer_read(buffer, 0, out, sizeof out));
    assert_memory_equal(out, zero, sizeof out);
    assert_ok(enigma_buffer_write(buffer, 100, in, 200));
    assert_ok(enigma_buffer_read(buffer, 0, out, sizeof out));
    assert_memory_equal(out, zero, 100);
    assert_memory_equal(out + 100, in, 200);
    assert_memory_equal(out + 300, zero, 700);
    enigma_buffer_free(buffer);
    assert_ok(enigma_buffer_create(current.runtime, sizeof in, in, &buffer));
    assert_ok(enigma_buffer_read(buffer, 1, out, sizeof out - 1));
    assert_memory_equal(out, in + 1, sizeof out - 1);
    assert_ok(enigma_buffer_write(buffer, sizeof in, NULL, 0));
    enigma_buffer_free(buffer);
}

static void buffers_refuse_what_is_outside(void **state)
{
    (void)state;
    uint8_t byte = 0;
    enigma_buffer *buffer = NULL;
    assert_int_equal(enigma_buffer_create(current.runtime, 0, NULL, &buffer), ENIGMA_E_INVALID);
    assert_null(buffer);
    assert_ok(enigma_buffer_create(current.runtime, 16, NULL, &buffer));
    assert_int_equal(enigma_buffer_read(buffer, 16, &byte, 1), ENIGMA_E_INVALID);
    assert_int_equal(enigma_buffer_write(buffer, 8, &byte, SIZE_MAX), ENIGMA_E_INVALID);
    assert_int_equal(enigma_buffer_write(buffer, SIZE_MAX, &byte, 1), ENIGMA_E_INVALID);
    assert_int_equal(enigma_buffer_write(buffer, 0, NULL, 1), ENIGMA_E_INVALID);
    enigma_buffer_free(buffer);
}

static enigma_status compile_text(const char *source, const char *name, const char *options)
{
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = name, .source = source, .options = options};
    enigma_kernel *kernel = (enigma_kernel *)&desc;
    enigma_status status = enigma_kernel_compile(current.runtime, &desc, &kernel);
    assert_true((status == ENIGMA_OK) == (kernel != NULL));
    enigma_kernel_free(kernel);
    return status;
}

static void compile_errors_bring_the_log(void **state)
{
    (void)state;
    char source[5000];
    snprintf(source, sizeof source, "%s\nKERNEL void broken(GLOBAL float *a) { a[0] = no_such_name_here; }\n",
             current.source);
    assert_int_equal(compile_text(source, "broken", NULL), ENIGMA_E_COMPILE);
    assert_message("no_such_name_here");
    assert_int_equal(compile_text("this is no program", "x", NULL), ENIGMA_E_COMPILE);
    assert_int_equal(compile_text(current.source, "add", "-DKERNEL_OPTION=1"), ENIGMA_OK);
}

static void unknown_kernels_list_the_known(void **state)
{
    (void)state;
    assert_int_equal(compile_text(current.source, "subtract", NULL), ENIGMA_E_NOT_FOUND);
    assert_message("subtract");
    assert_message("add");
    assert_message("scale");
}

static void compile_checks_its_arguments(void **state)
{
    (void)state;
    enigma_kernel *kernel = NULL;
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = "add"};
    assert_int_equal(enigma_kernel_compile(current.runtime, &desc, &kernel), ENIGMA_E_INVALID);
    desc.source = current.source;
    desc.path = "x.cl";
    assert_int_equal(enigma_kernel_compile(current.runtime, &desc, &kernel), ENIGMA_E_INVALID);
    desc.path = NULL;
    desc.name = "";
    assert_int_equal(enigma_kernel_compile(current.runtime, &desc, &kernel), ENIGMA_E_INVALID);
    desc.name = "add";
    desc.struct_size = 4;
    assert_int_equal(enigma_kernel_compile(current.runtime, &desc, &kernel), ENIGMA_E_INVALID);
    assert_int_equal(enigma_kernel_compile(NULL, &desc, &kernel), ENIGMA_E_INVALID);
}

static enigma_status compile_path(const char *path, enigma_kernel **out)
{
    enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = "add", .path = path};
    return enigma_kernel_compile(current.runtime, &desc, out);
}

static void kernels_come_from_files(void **state)
{
    (void)state;
    enigma_kernel *kernel = NULL;
    FILE *file = fopen("kernels.cl", "w");
    assert_non_null(file);
    fputs(current.source, file);
    fclose(file);
    assert_ok(compile_path("kernels.cl", &kernel));
    assert_string_equal(enigma_kernel_name(kernel).data, "add");
    enigma_kernel_free(kernel);
    assert_int_equal(compile_path("no-such-file.cl", &kernel), ENIGMA_E_IO);
    assert_null(kernel);
    assert_int_equal(enigma_error_errno(), ENOENT);
    assert_string_equal(enigma_error_path(), "no-such-file.cl");
    assert_int_equal(compile_path(".", &kernel), ENIGMA_E_IO);
    assert_int_equal(enigma_error_errno(), EISDIR);
}

static void inputs_and_outputs_follow_the_argument_list(void **state)
{
    (void)state;
    float a[256], b[256], out[256];
    for (int i = 0; i < 256; i++) {
        a[i] = (float)i;
        b[i] = (float)(i * i);
    }
    enigma_kernel *kernel = compile("add");
    const enigma_argument inputs[2] = {data_of(a, sizeof a), data_of(b, sizeof b)};
    const size_t output = sizeof out;
    enigma_prepared *prepared = NULL;
    assert_ok(enigma_prepare(kernel, inputs, 2, &output, 1, &prepared));
    assert_int_equal(enigma_prepared_output_size(prepared, 0), sizeof out);
    assert_int_equal(enigma_prepared_output_size(prepared, 1), 0);
    a[0] = 1e9f; /* inputs were copied */
    enigma_dispatch_options options = sizes(256, 64);
    assert_ok(enigma_dispatch(prepared, &options));
    assert_ok(enigma_prepared_read_output(prepared, 0, out, sizeof out));
    for (int i = 0; i < 256; i++) {
        assert_true(out[i] == (float)i + (float)(i * i));
    }
    assert_int_equal(enigma_prepared_read_output(prepared, 0, out, 4), ENIGMA_E_INVALID);
    assert_int_equal(enigma_prepared_read_output(prepared, 1, out, sizeof out), ENIGMA_E_INVALID);
    enigma_prepared_free(prepared);
    enigma_kernel_free(kernel);
}

static void values_are_passed_by_value(void **state)
{
    (void)state;
    float in[64], out[64], factor = 2.5f;
    for (int i = 0; i < 64; i++) {
        in[i] = (float)i;
    }
    enigma_kernel *kernel = compile("scale");
    const enigma_argument inputs[2] = {data_of(in, sizeof in), value_of(&factor, sizeof factor)};
    const size_t output = sizeof out;
    void *const outputs[1] = {out};
    enigma_dispatch_options options = sizes(64, 8);
    assert_ok(enigma_execute(kernel, inputs, 2, outputs, &output, 1, &options));
    for (int i = 0; i < 64; i++) {
        assert_true(out[i] == (float)i * 2.5f);
    }
    enigma_kernel_free(kernel);
}

static enigma_status try_prepare(enigma_kernel *kernel, const enigma_argument *inputs, size_t count,
                                 const size_t *outputs, size_t output_count)
{
    enigma_prepared *prepared = (enigma_prepared *)&count;
    enigma_status status = enigma_prepare(kernel, inputs, count, outputs, output_count, &prepared);
    assert_true((status == ENIGMA_OK) == (prepared != NULL));
    enigma_prepared_free(prepared);
    return status;
}

static void arguments_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    float data[16] = {0}, factor = 1.0f;
    double wide = 1.0;
    const size_t output = sizeof data, none = 0;
    enigma_kernel *kernel = compile("scale");
    enigma_argument inputs[3] = {data_of(data, sizeof data), value_of(&factor, sizeof factor),
                                 data_of(data, sizeof data)};
    assert_int_equal(try_prepare(kernel, inputs, 2, &output, 1), ENIGMA_OK);
    assert_int_equal(try_prepare(kernel, inputs, 3, &output, 1), ENIGMA_E_INVALID);
    assert_message("3 arguments");
    assert_message("3 inputs and 1 output");
    assert_int_equal(try_prepare(kernel, inputs, 2, NULL, 0), ENIGMA_E_INVALID);
    assert_int_equal(try_prepare(kernel, NULL, 0, NULL, 0), ENIGMA_E_INVALID);
    assert_int_equal(try_prepare(kernel, NULL, 2, &output, 1), ENIGMA_E_INVALID);
    assert_int_equal(try_prepare(kernel, inputs, 2, &none, 1), ENIGMA_E_INVALID);
    inputs[1] = value_of(&wide, sizeof wide);
    assert_int_equal(try_prepare(kernel, inputs, 2, &output, 1), ENIGMA_E_INVALID);
    assert_message("scale");
    inputs[1] = data_of(data, sizeof factor);
    assert_int_equal(try_prepare(kernel, inputs, 2, &output, 1), ENIGMA_E_INVALID);
    assert_message("by value");
    inputs[1] = value_of(&factor, sizeof factor);
    inputs[0] = value_of(&wide, sizeof wide);
    assert_int_equal(try_prepare(kernel, inputs, 2, &output, 1), ENIGMA_E_INVALID);
    assert_message("buffer");
    inputs[0] = (enigma_argument){.kind = 9};
    assert_int_equal(try_prepare(kernel, inputs, 2, &output, 1), ENIGMA_E_INVALID);
    inputs[0] = buffer_of(NULL);
    assert_int_equal(try_prepare(kernel, inputs, 2, &output, 1), ENIGMA_E_INVALID);
    enigma_kernel_free(kernel);
}

static void buffers_of_another_runtime_are_refused(void **state)
{
    (void)state;
    uint32_t n = 1;
    enigma_runtime *other = NULL;
    enigma_buffer *buffer = NULL;
    assert_ok(enigma_runtime_open(current.backend, ENIGMA_DEVICE_DEFAULT, &other));
    assert_ok(enigma_buffer_create(other, 64, NULL, &buffer));
    enigma_kernel *kernel = compile("turn");
    const enigma_argument inputs[2] = {buffer_of(buffer), value_of(&n, sizeof n)};
    assert_int_equal(try_prepare(kernel, inputs, 2, NULL, 0), ENIGMA_E_INVALID);
    assert_message("another runtime");
    enigma_kernel_free(kernel);
    enigma_runtime_free(other);
    enigma_buffer_free(buffer);
}

static void objects_are_freed_in_any_order(void **state)
{
    (void)state;
    uint32_t out[64];
    enigma_runtime *runtime = NULL, *shared = current.runtime;
    enigma_buffer *buffer = NULL;
    assert_ok(enigma_runtime_open(current.backend, ENIGMA_DEVICE_DEFAULT, &runtime));
    current.runtime = runtime;
    enigma_kernel *kernel = compile("mark");
    current.runtime = shared;
    assert_ok(enigma_buffer_create(runtime, sizeof out, NULL, &buffer));
    enigma_prepared *prepared = prepare_on(kernel, buffer, 64);
    enigma_runtime_free(runtime);
    enigma_kernel_free(kernel);
    enigma_dispatch_options options = sizes(64, 64);
    assert_ok(enigma_dispatch(prepared, &options));
    options.flags = ENIGMA_DISPATCH_ASYNC;
    assert_ok(enigma_dispatch(prepared, &options));
    enigma_prepared_free(prepared); /* its launch keeps what it needs */
    assert_ok(enigma_buffer_read(buffer, 0, out, sizeof out));
    assert_int_equal(out[0], 2);
    assert_int_equal(out[63], 2);
    enigma_buffer_free(buffer);
    enigma_runtime_free(NULL);
    enigma_buffer_free(NULL);
    enigma_kernel_free(NULL);
    enigma_prepared_free(NULL);
}

/* What the driver's type names mean in bytes, and what prepare cannot bind. OpenCL C alone has these. */
static void opencl_arguments_are_known_by_their_types(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        size_t size;
    } types[] = {{"char", 1},         {"uchar", 1},   {"short", 2},    {"ushort", 2},  {"int", 4},    {"uint", 4},
                 {"unsigned int", 4}, {"long", 8},    {"ulong", 8},    {"float", 4},   {"uchar3", 4}, {"float2", 8},
                 {"int3", 16},        {"float4", 16}, {"ushort8", 16}, {"float16", 64}};
    if (strcmp(current.backend, "opencl") != 0) {
        skip();
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char source[256];
        uint8_t value[65] = {0};
        enigma_kernel *kernel = NULL;
        snprintf(source, sizeof source, "kernel void k(global int *out, %s v) { out[0] = sizeof(v); }", types[i].type);
        enigma_kernel_desc desc = {.struct_size = sizeof desc, .name = "k", .source = source};
        assert_ok(enigma_kernel_compile(current.runtime, &desc, &kernel));
        enigma_argument inputs[2] = {data_of(value, 4), value_of(value, types[i].size)};
        assert_int_equal(try_prepare(kernel, inputs, 2, NULL, 0), ENIGMA_OK);
        inputs[1].size++;
        assert_int_equal(try_prepare(kernel, inputs, 2, NULL, 0), ENIGMA_E_INVALID);
        assert_message(types[i].size == 1 ? "1 byte;" : "bytes");
        enigma_kernel_free(kernel);
    }
    enigma_kernel *kernel = NULL;
    int word = 0;
    enigma_kernel_desc desc = {.struct_size = sizeof desc,
                               .name = "k",
                               .source = "kernel void k(global int *out, local int *l) { l[0] = 1; out[0] = l[0]; }"};
    assert_ok(enigma_kernel_compile(current.runtime, &desc, &kernel));
    const enigma_argument inputs[2] = {data_of(&word, 4), value_of(&word, 4)};
    assert_int_equal(try_prepare(kernel, inputs, 2, NULL, 0), ENIGMA_E_INVALID);
    assert_message("local memory");
    enigma_kernel_free(kernel);
    desc.source = NULL;
    desc.path = "k.metal";
    FILE *file = fopen(desc.path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(enigma_kernel_compile(current.runtime, &desc, &kernel), ENIGMA_E_INVALID);
    assert_message(".metal");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(facts_are_there),
    cmocka_unit_test(buffers_keep_what_was_written),
    cmocka_unit_test(buffers_refuse_what_is_outside),
    cmocka_unit_test(compile_errors_bring_the_log),
    cmocka_unit_test(unknown_kernels_list_the_known),
    cmocka_unit_test(compile_checks_its_arguments),
    cmocka_unit_test(kernels_come_from_files),
    cmocka_unit_test(inputs_and_outputs_follow_the_argument_list),
    cmocka_unit_test(values_are_passed_by_value),
    cmocka_unit_test(arguments_that_do_not_fit_are_refused),
    cmocka_unit_test(opencl_arguments_are_known_by_their_types),
    cmocka_unit_test(buffers_of_another_runtime_are_refused),
    cmocka_unit_test(objects_are_freed_in_any_order),
};

BATTERY_MAIN("kernels")
