/* The CUDA backend over a driver of CUDA 11: it tells nothing of arguments, and streams cannot wait on memory. */
#include "cuda_fake.h"

static void kernels_run_without_knowing_their_arguments(void **state)
{
    (void)state;
    enigma_prepared *prepared = prepare_add(4.0f);
    enigma_dispatch_options options = sizes(256, 64);
    double us;
    assert_ok(enigma_dispatch(prepared, &options));
    assert_ok(enigma_dispatch_timed(prepared, &options, &us));
    assert_true(us > 0.0);
    check_output(prepared, 4.0f);
    enigma_prepared_free(prepared);
}

/* The driver reads as many arguments as the kernel has: those that were not given are zeros, not somebody's memory. */
static void missing_arguments_are_zeros(void **state)
{
    (void)state;
    enigma_kernel *kernel = NULL;
    enigma_prepared *prepared = NULL;
    float out[4];
    enigma_dispatch_options options = sizes(4, 4);
    static const char source[] = "__global__ void put(float *out, float a, double b)\n"
                                 "{ out[threadIdx.x] = a + (float)b + 1.0f; }\n";
    const size_t output = sizeof out;
    assert_ok(compile_as(source, "put", NULL, &kernel));
    assert_ok(enigma_prepare(kernel, NULL, 0, &output, 1, &prepared));
    assert_ok(enigma_dispatch(prepared, &options));
    assert_ok(enigma_prepared_read_output(prepared, 0, out, sizeof out));
    assert_true(out[3] == 1.0f);
    enigma_prepared_free(prepared);
    enigma_kernel_free(kernel);
}

static void names_are_found_in_the_image(void **state)
{
    (void)state;
    enigma_kernel *kernel = NULL;
    static const char ptx[] = ".version 6.0\n.visible .entry first()\n{ ret; }\n.visible .entry second()\n{ ret; }\n";
    assert_int_equal(compile_as(ptx, "third", NULL, &kernel), ENIGMA_E_NOT_FOUND);
    assert_message("it has first, second");
}

static void events_work_without_holding_streams(void **state)
{
    (void)state;
    enigma_runtime *shared = runtime;
    enigma_dispatch_options options = sizes(256, 64);
    double us = -1.0;
    fake.set(FAKE_SUBSCRIBE_ERROR, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    enigma_runtime_free(shared); /* it holds CUPTI */
    assert_ok(enigma_runtime_open("cuda", 0, &runtime));
    assert_string_equal(fact_of("timer")->as.text.data, "event pairs, calibrated");
    enigma_prepared *prepared = prepare_add(4.0f);
    assert_ok(enigma_dispatch_timed(prepared, &options, &us));
    assert_true(us >= 0.0);
    assert_int_equal(fake.get(FAKE_GATES), 0);
    enigma_prepared_free(prepared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_run_without_knowing_their_arguments),
        cmocka_unit_test(missing_arguments_are_zeros),
        cmocka_unit_test(names_are_found_in_the_image),
        cmocka_unit_test(events_work_without_holding_streams),
    };
    if (!fake_load("old", &fake)) {
        return 1;
    }
    return cmocka_run_group_tests_name("cuda_old", tests, open_runtime, close_runtime);
}
