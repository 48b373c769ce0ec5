/* What a dispatch costs with no profiler active, beside the same written by hand: enqueue a small kernel and wait for it. */
#include <dlfcn.h>

#include "abi/opencl_abi.h"
#include "enigma.h"
#include "harness.h"

static const char source[] = "kernel void touch(global float *a) { a[get_global_id(0)] += 1.0f; }";
enum { ITEMS = 64 };

/* ---- by hand ---- */

static struct {
#define ENI_CL_FUNCTION(required, result, name, parameters) result(*name) parameters;
#include "abi/opencl_symbols.def"
#undef ENI_CL_FUNCTION
} cl;

static cl_command_queue queue;
static cl_kernel kernel;

static void check(cl_int status, const char *what)
{
    if (status != CL_SUCCESS) {
        fprintf(stderr, "%s: error %d\n", what, status);
        exit(1);
    }
}

static void load(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    if (library == NULL) {
        printf("skipped: no libOpenCL.so.1\n");
        exit(77);
    }
#define ENI_CL_FUNCTION(required, result, name, parameters) *(void **)&cl.name = dlsym(library, #name);
#include "abi/opencl_symbols.def"
#undef ENI_CL_FUNCTION
}

/* The device that the library picks as number 0 has this name. */
static cl_device_id device_named(const char *wanted, cl_platform_id *platform)
{
    cl_platform_id platforms[16];
    cl_device_id devices[16];
    cl_uint platform_count = 0;
    check(cl.clGetPlatformIDs(16, platforms, &platform_count), "clGetPlatformIDs");
    for (cl_uint p = 0; p < platform_count; p++) {
        cl_uint count = 0;
        cl.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 16, devices, &count);
        for (cl_uint d = 0; d < count; d++) {
            char name[256];
            check(cl.clGetDeviceInfo(devices[d], CL_DEVICE_NAME, sizeof name, name, NULL), "clGetDeviceInfo");
            if (strcmp(name, wanted) == 0) {
                *platform = platforms[p];
                return devices[d];
            }
        }
    }
    fprintf(stderr, "no device named %s\n", wanted);
    exit(1);
}

static void prepare_by_hand(const char *device_name)
{
    cl_platform_id platform;
    cl_int status;
    const char *text = source;
    static float zeros[ITEMS];
    cl_device_id device = device_named(device_name, &platform);
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_context context = cl.clCreateContext(properties, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    queue = cl.clCreateCommandQueue(context, device, 0, &status);
    check(status, "clCreateCommandQueue");
    cl_program program = cl.clCreateProgramWithSource(context, 1, &text, NULL, &status);
    check(status, "clCreateProgramWithSource");
    check(cl.clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    kernel = cl.clCreateKernel(program, "touch", &status);
    check(status, "clCreateKernel");
    cl_mem buffer = cl.clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof zeros, zeros, &status);
    check(status, "clCreateBuffer");
    check(cl.clSetKernelArg(kernel, 0, sizeof buffer, &buffer), "clSetKernelArg");
}

static void run_by_hand(long count)
{
    const size_t global = ITEMS;
    const size_t local = ITEMS;
    for (long i = 0; i < count; i++) {
        check(cl.clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL), "clEnqueueNDRangeKernel");
        check(cl.clFinish(queue), "clFinish");
    }
}

/* ---- ours ---- */

static enigma_prepared *prepared;

static void must(enigma_status status)
{
    if (status != ENIGMA_OK) {
        fprintf(stderr, "%s\n", enigma_error_message());
        exit(1);
    }
}

static char *prepare_ours(void)
{
    enigma_runtime *runtime;
    enigma_kernel *compiled;
    enigma_field fact;
    static char name[256];
    const size_t size = ITEMS * sizeof(float);
    const enigma_kernel_desc desc = {sizeof desc, "touch", source, 0, NULL, NULL};
    if (enigma_runtime_open("opencl", 0, &runtime) != ENIGMA_OK) {
        printf("skipped: %s\n", enigma_error_message());
        exit(77);
    }
    must(enigma_kernel_compile(runtime, &desc, &compiled));
    must(enigma_prepare(compiled, NULL, 0, &size, 1, &prepared));
    for (size_t i = 0; enigma_runtime_fact(runtime, i, &fact); i++) {
        if (strcmp(fact.key.data, "name") == 0) {
            snprintf(name, sizeof name, "%s", fact.value.as.text.data);
        }
    }
    enigma_kernel_free(compiled);
    enigma_runtime_free(runtime);
    return name;
}

static void run_ours(long count)
{
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    options.grid = (enigma_size3){ITEMS, 1, 1};
    options.threads = (enigma_size3){ITEMS, 1, 1};
    for (long i = 0; i < count; i++) {
        must(enigma_dispatch(prepared, &options));
    }
}

int main(void)
{
    enum { ROUNDS = 51 };
    load();
    const char *name = prepare_ours();
    prepare_by_hand(name);
    printf("device: %s\n", name);
    bench_variant variants[] = {
        {"by hand: clEnqueueNDRangeKernel, clFinish", run_by_hand, 2000, 0, 0, NULL, {0}},
        {"enigma_dispatch, no profiler active", run_ours, 2000, 0, 1.03, NULL, {0}},
    };
    bench_run(variants, 2, ROUNDS);
    int over = bench_report("Dispatch and wait", variants, 2, ROUNDS);
    enigma_prepared_free(prepared);
    return over == 0 ? 0 : 1;
}
