/* The demo in C: the Poisson equation -div grad u = f on the unit square, u = 0 on its edge, for two right-hand sides at
 * once.
 *
 * Each is solved by conjugate gradients on 256 x 256 points, by a thread with a runtime of its own. Vectors and scalars
 * stay on the device; only every 20th iteration looks at the residual. The right-hand sides are given by formulas
 * (charges, waves). The results are compared with the same method in plain double arithmetic on the CPU.
 *
 * Prints rows by name and by call path, the tree and a benchmark line, and writes an .enigma file, a Chrome trace and a
 * Hatchet file to the folder given (default: the current one). Exits with 77 where there is no device. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <enigma.h>

#define SIDE 256
#define POINTS (SIDE * SIDE)
#define GROUP 64
#define GROUPS 64      /* of a dot product, so many sums */
#define BATCH 20       /* iterations between two looks at the residual */
#define LIMIT 2000     /* iterations */
#define TOLERANCE 1e-5 /* of the residual, relative to the right-hand side */
#define NO_DEVICE 77

#define TEXT_OF(...) #__VA_ARGS__
#define NUMBER_TEXT(number) TEXT_OF(number)

static const char compiler_options[] =
    "-DSIDE=" NUMBER_TEXT(SIDE) " -DGROUP=" NUMBER_TEXT(GROUP) " -DGROUPS=" NUMBER_TEXT(GROUPS);

/* clang-format off */
static const char source[] = TEXT_OF(
    /* The sum of a group's values, in each of its work-items. */
    float group_sum(float value, __local float *room)
    {
        size_t l = get_local_id(0);
        room[l] = value;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (size_t reach = GROUP / 2; reach > 0; reach /= 2) {
            if (l < reach) { room[l] += room[l + reach]; }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        return room[0];
    }

    /* q = A p with the five-point stencil. */
    __kernel void laplacian(__global const float *p, __global float *q)
    {
        int x = get_global_id(0); int y = get_global_id(1); int i = y * SIDE + x;
        float west = x > 0 ? p[i - 1] : 0; float east = x < SIDE - 1 ? p[i + 1] : 0;
        float north = y > 0 ? p[i - SIDE] : 0; float south = y < SIDE - 1 ? p[i + SIDE] : 0;
        q[i] = 4 * p[i] - west - east - north - south;
    }

    /* a.b, a sum for each group. */
    __kernel void dot_product(__global const float *a, __global const float *b, __global float *sums)
    {
        __local float room[GROUP];
        float sum = 0;
        for (size_t i = get_global_id(0); i < SIDE * SIDE; i += GROUP * GROUPS) { sum += a[i] * b[i]; }
        sum = group_sum(sum, room);
        if (get_local_id(0) == 0) { sums[get_group_id(0)] = sum; }
    }

    /* alpha = r.r / p.q; scalars: r.r, alpha, beta. A single group, as many work-items as sums. */
    __kernel void step_length(__global const float *sums, __global float *scalars)
    {
        __local float room[GROUP];
        float pq = group_sum(sums[get_local_id(0)], room);
        if (get_local_id(0) == 0) { scalars[1] = pq > 0 ? scalars[0] / pq : 0; }
    }

    /* beta = r.r now / r.r before. */
    __kernel void step_turn(__global const float *sums, __global float *scalars)
    {
        __local float room[GROUP];
        float rr = group_sum(sums[get_local_id(0)], room);
        if (get_local_id(0) == 0) {
            scalars[2] = scalars[0] > 0 ? rr / scalars[0] : 0;
            scalars[0] = rr;
        }
    }

    /* u += alpha p, r -= alpha q. */
    __kernel void update(__global const float *p, __global const float *q, __global const float *scalars,
                         __global float *u, __global float *r)
    {
        size_t i = get_global_id(0);
        u[i] += scalars[1] * p[i];
        r[i] -= scalars[1] * q[i];
    }

    /* p = r + beta p. */
    __kernel void direction(__global const float *r, __global const float *scalars, __global float *p)
    {
        size_t i = get_global_id(0);
        p[i] = r[i] + scalars[2] * p[i];
    });
/* clang-format on */

_Static_assert(GROUP == GROUPS, "step_length and step_turn add the sums of a dot product in one group");

/* ---- small things ---- */

/* Ends the program when something failed, with the library's words. */
static void check(enigma_status status, const char *what)
{
    if (status != ENIGMA_OK) {
        fprintf(stderr, "demo_poisson: %s: %s\n", what, enigma_error_message());
        exit(status == ENIGMA_E_UNAVAILABLE ? NO_DEVICE : 1);
    }
}

static int print(void *user, const void *data, size_t size) { return fwrite(data, 1, size, user) == size ? 0 : 1; }

static enigma_text text(const char *data) { return (enigma_text){data, strlen(data)}; }

static void *allocate(size_t size)
{
    void *memory = calloc(1, size);
    if (memory == NULL) {
        fprintf(stderr, "demo_poisson: out of memory\n");
        exit(1);
    }
    return memory;
}

/* ---- what each kernel does, told to the profiler by hooks ---- */

typedef struct work {
    const char *kernel;
    double flops, bytes; /* of one point; bytes: each array once */
} work;

static const work works[] = {{"laplacian", 5, 8}, {"dot_product", 2, 8}, {"update", 4, 24}, {"direction", 2, 12}};
enum { WORKS = sizeof works / sizeof works[0] };
#define ITERATION_FLOPS (15.0 * POINTS) /* a dot product runs twice */
#define ITERATION_BYTES (60.0 * POINTS)

static size_t work_hook(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity)
{
    const work *one = user;
    (void)info; /* one of a dot product's work-items adds several points, so the grid does not tell */
    if (capacity < 2) {
        return 0;
    }
    out[0] = (enigma_metric){"flops", one->flops * POINTS};
    out[1] = (enigma_metric){"bytes", one->bytes * POINTS};
    return 2;
}

/* ---- right-hand sides, and the CPU's solution ---- */

typedef double (*formula)(double x, double y);

static double charges(double x, double y)
{
    double a = (x - 0.3) * (x - 0.3) + (y - 0.6) * (y - 0.6), b = (x - 0.7) * (x - 0.7) + (y - 0.35) * (y - 0.35);
    return exp(-400 * a) - exp(-400 * b);
}

static double waves(double x, double y) { return sin(9 * x + 2 * y) * y + 0.5 * cos(14 * x * y); }

/* f at the points, times the square of their distance. */
static void assemble(formula f, double *b)
{
    ENIGMA_SCOPE("assemble");
    double h = 1.0 / (SIDE + 1);
    for (int i = 0; i < POINTS; i++) {
        b[i] = h * h * f((i % SIDE + 1) * h, (i / SIDE + 1) * h);
    }
}

static double dot(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < POINTS; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void cpu_laplacian(const double *p, double *q)
{
    for (int i = 0; i < POINTS; i++) {
        int x = i % SIDE, y = i / SIDE;
        q[i] = 4 * p[i] - (x > 0 ? p[i - 1] : 0) - (x < SIDE - 1 ? p[i + 1] : 0) - (y > 0 ? p[i - SIDE] : 0) -
               (y < SIDE - 1 ? p[i + SIDE] : 0);
    }
}

static void cpu_solve(const double *b, double *u)
{
    ENIGMA_SCOPE("reference on the CPU");
    double *r = allocate(POINTS * sizeof *r), *p = allocate(POINTS * sizeof *p), *q = allocate(POINTS * sizeof *q);
    memcpy(r, b, POINTS * sizeof *r);
    memcpy(p, b, POINTS * sizeof *p);
    double rr = dot(r, r), enough = 1e-18 * rr;
    for (int k = 0; k < LIMIT && rr > enough; k++) {
        cpu_laplacian(p, q);
        double alpha = rr / dot(p, q), before = rr;
        for (int i = 0; i < POINTS; i++) {
            u[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        rr = dot(r, r);
        for (int i = 0; i < POINTS; i++) {
            p[i] = r[i] + rr / before * p[i];
        }
    }
    free(q);
    free(p);
    free(r);
}

/* ---- the device's solution ---- */

enum { P, Q, R, U, SUMS, SCALARS, BUFFERS };
enum { LAPLACIAN, DOT_PQ, STEP_LENGTH, UPDATE, DOT_RR, STEP_TURN, DIRECTION, KERNELS };

typedef struct solver {
    enigma_runtime *runtime;
    enigma_buffer *buffers[BUFFERS];
    enigma_prepared *kernels[KERNELS];
} solver;

/* The kernels of an iteration in their order, and the buffers that each takes. */
static const struct {
    const char *name;
    int count, buffers[5];
    enigma_size3 grid, threads;
} steps[KERNELS] = {
    [LAPLACIAN] = {"laplacian", 2, {P, Q}, {SIDE, SIDE, 1}, {GROUP, 1, 1}},
    [DOT_PQ] = {"dot_product", 3, {P, Q, SUMS}, {GROUP * GROUPS, 1, 1}, {GROUP, 1, 1}},
    [STEP_LENGTH] = {"step_length", 2, {SUMS, SCALARS}, {GROUP, 1, 1}, {GROUP, 1, 1}},
    [UPDATE] = {"update", 5, {P, Q, SCALARS, U, R}, {POINTS, 1, 1}, {GROUP, 1, 1}},
    [DOT_RR] = {"dot_product", 3, {R, R, SUMS}, {GROUP * GROUPS, 1, 1}, {GROUP, 1, 1}},
    [STEP_TURN] = {"step_turn", 2, {SUMS, SCALARS}, {GROUP, 1, 1}, {GROUP, 1, 1}},
    [DIRECTION] = {"direction", 3, {R, SCALARS, P}, {POINTS, 1, 1}, {GROUP, 1, 1}},
};

static void prepare(solver *s, int step)
{
    enigma_kernel_desc desc = {sizeof desc, steps[step].name, source, 0, NULL, compiler_options};
    enigma_argument inputs[5] = {{0}};
    enigma_kernel *kernel = NULL;
    for (int i = 0; i < steps[step].count; i++) {
        inputs[i].kind = ENIGMA_ARGUMENT_BUFFER;
        inputs[i].buffer = s->buffers[steps[step].buffers[i]];
    }
    check(enigma_kernel_compile(s->runtime, &desc, &kernel), steps[step].name);
    check(enigma_prepare(kernel, inputs, (size_t)steps[step].count, NULL, 0, &s->kernels[step]), steps[step].name);
    enigma_kernel_free(kernel);
}

/* Everything starts at 0 but r and p, which are b, and r.r. */
static void solver_open(solver *s, const double *b)
{
    ENIGMA_SCOPE("prepare");
    float *single = allocate(POINTS * sizeof *single);
    float scalars[3] = {(float)dot(b, b), 0, 0};
    for (int i = 0; i < POINTS; i++) {
        single[i] = (float)b[i];
    }
    const struct {
        size_t size;
        const void *data;
    } contents[BUFFERS] = {
        [P] = {POINTS * sizeof(float), single},  [Q] = {POINTS * sizeof(float), NULL},
        [R] = {POINTS * sizeof(float), single},  [U] = {POINTS * sizeof(float), NULL},
        [SUMS] = {GROUPS * sizeof(float), NULL}, [SCALARS] = {sizeof scalars, scalars},
    };
    check(enigma_runtime_open("opencl", ENIGMA_DEVICE_DEFAULT, &s->runtime), "runtime");
    for (int i = 0; i < BUFFERS; i++) {
        check(enigma_buffer_create(s->runtime, contents[i].size, contents[i].data, &s->buffers[i]), "buffer");
    }
    for (int i = 0; i < KERNELS; i++) {
        prepare(s, i);
    }
    free(single);
}

static void solver_close(solver *s)
{
    for (int i = 0; i < KERNELS; i++) {
        enigma_prepared_free(s->kernels[i]);
    }
    for (int i = 0; i < BUFFERS; i++) {
        enigma_buffer_free(s->buffers[i]);
    }
    enigma_runtime_free(s->runtime);
}

static void launch(solver *s, int step)
{
    enigma_dispatch_options options = ENIGMA_DISPATCH_OPTIONS_INIT;
    options.flags = ENIGMA_DISPATCH_ASYNC;
    options.grid = steps[step].grid;
    options.threads = steps[step].threads;
    check(enigma_dispatch(s->kernels[step], &options), steps[step].name);
}

/* A batch of iterations, queued without waiting; gives r.r, for which it waits. */
static double iterate(solver *s)
{
    enigma_metric metrics[] = {
        {"flops", BATCH * ITERATION_FLOPS}, {"bytes", BATCH * ITERATION_BYTES}, {"iterations", BATCH}};
    enigma_scope_desc desc = {
        .struct_size = sizeof desc, .name = text("iterate"), .metrics = metrics, .metric_count = 3};
    enigma_scope scope = enigma_begin_desc(&desc);
    float rr = 0;
    for (int k = 0; k < BATCH; k++) {
        for (int step = 0; step < KERNELS; step++) {
            launch(s, step);
        }
    }
    check(enigma_buffer_read(s->buffers[SCALARS], 0, &rr, sizeof rr), "read");
    enigma_end(scope);
    return rr;
}

/* ---- a problem, solved by a thread ---- */

typedef struct problem {
    const char *name;
    formula f;
    enigma_profiler *profiler;
    int iterations;
    double residual, difference; /* relative; difference: from the CPU's solution */
} problem;

static double compare(solver *s, const double *expected)
{
    ENIGMA_SCOPE("compare");
    float *u = allocate(POINTS * sizeof *u);
    double largest = 0, difference = 0;
    check(enigma_buffer_read(s->buffers[U], 0, u, POINTS * sizeof *u), "read");
    for (int i = 0; i < POINTS; i++) {
        largest = fmax(largest, fabs(expected[i]));
        difference = fmax(difference, fabs(expected[i] - u[i]));
    }
    free(u);
    return difference / largest;
}

static void solve(problem *self)
{
    double *b = allocate(POINTS * sizeof *b), *expected = allocate(POINTS * sizeof *expected);
    solver s = {NULL, {NULL}, {NULL}};
    assemble(self->f, b);
    solver_open(&s, b);
    double bb = dot(b, b), rr = bb;
    while (self->iterations < LIMIT && rr > TOLERANCE * TOLERANCE * bb) {
        rr = iterate(&s);
        self->iterations += BATCH;
    }
    self->residual = sqrt(rr / bb);
    cpu_solve(b, expected);
    self->difference = compare(&s, expected);
    solver_close(&s);
    free(expected);
    free(b);
}

/* A profiler is active on those threads that start it. */
static void *run(void *argument)
{
    problem *self = argument;
    check(enigma_profiler_start(self->profiler), "start");
    enigma_scope scope = enigma_begin(self->name);
    solve(self);
    enigma_end(scope);
    check(enigma_profiler_stop(self->profiler), "stop");
    return NULL;
}

/* ---- what was measured ---- */

static void print_rows(const enigma_profile *profile, enum enigma_group group, const char *title)
{
    enigma_result *rows = NULL;
    printf("\n%s\n\n", title);
    check(enigma_profile_key_averages(profile, group, &rows), "rows");
    check(enigma_result_write_table(rows, NULL, print, stdout), "table");
    enigma_result_free(rows);
}

static void print_benchmark(void)
{
    solver s = {NULL, {NULL}, {NULL}};
    enigma_benchmark_options options = ENIGMA_BENCHMARK_OPTIONS_INIT;
    enigma_benchmark *benchmark = NULL;
    double *b = allocate(POINTS * sizeof *b);
    assemble(charges, b);
    solver_open(&s, b);
    options.grid = steps[LAPLACIAN].grid;
    options.threads = steps[LAPLACIAN].threads;
    options.flops = works[0].flops * POINTS;
    options.bytes_moved = works[0].bytes * POINTS;
    check(enigma_benchmark_kernel(s.kernels[LAPLACIAN], &options, &benchmark), "benchmark");
    printf("\nBenchmark, device time only\n\n");
    check(enigma_benchmark_write_summary(benchmark, print, stdout), "summary");
    printf("\n");
    enigma_benchmark_free(benchmark);
    solver_close(&s);
    free(b);
}

static void write_files(const enigma_profile *profile, const char *folder)
{
    char path[4096];
    printf("\nFiles\n\n");
    snprintf(path, sizeof path, "%s/demo_poisson.trace.json", folder);
    check(enigma_export_file(profile, "chrome", path), "export");
    printf("  %s\n    open https://ui.perfetto.dev and drop it there, or load it in chrome://tracing\n", path);
    snprintf(path, sizeof path, "%s/demo_poisson.hatchet.json", folder);
    check(enigma_export_file(profile, "hatchet", path), "export");
    printf("  %s\n    python -c \"import hatchet, json; "
           "print(hatchet.GraphFrame.from_literal(json.load(open('%s'))).tree('time (inc)'))\"\n",
           path, path);
    snprintf(path, sizeof path, "%s/demo_poisson.enigma", folder);
    check(enigma_profile_save(profile, path), "save");
    printf("  %s\n    enigma report %s --by path\n", path, path);
}

static void show(enigma_profiler *profiler, const char *folder)
{
    enigma_profile *profile = NULL;
    check(enigma_profiler_snapshot(profiler, &profile), "snapshot");
    print_rows(profile, ENIGMA_GROUP_NAME, "Rows by name");
    print_rows(profile, ENIGMA_GROUP_CALL_PATH, "Rows by call path");
    printf("\nCall tree\n\n");
    check(enigma_profile_write_tree(profile, print, stdout), "tree");
    print_benchmark();
    write_files(profile, folder);
    enigma_profile_free(profile);
}

/* ---- the program ---- */

static void print_device(void)
{
    enigma_runtime *runtime = NULL;
    enigma_field fact;
    check(enigma_runtime_open("opencl", ENIGMA_DEVICE_DEFAULT, &runtime), "runtime");
    for (size_t i = 0; enigma_runtime_fact(runtime, i, &fact); i++) {
        if (strcmp(fact.key.data, "name") == 0 && fact.value.type == ENIGMA_TEXT) {
            printf("Poisson equation, conjugate gradients, %d x %d points, on %s\n\n", SIDE, SIDE,
                   fact.value.as.text.data);
        }
    }
    enigma_runtime_free(runtime);
}

int main(int argc, char **argv)
{
    enigma_profiler *profiler = NULL;
    print_device();
    check(enigma_profiler_create(NULL, &profiler), "profiler");
    problem problems[] = {{"charges", charges, profiler, 0, 0, 0}, {"waves", waves, profiler, 0, 0, 0}};
    enum { PROBLEMS = sizeof problems / sizeof problems[0] };
    pthread_t threads[PROBLEMS];
    for (int i = 0; i < WORKS; i++) {
        check(enigma_hook_register(text(works[i].kernel), work_hook, NULL, (void *)(uintptr_t)&works[i]), "hook");
    }
    for (int i = 0; i < PROBLEMS; i++) {
        if (pthread_create(&threads[i], NULL, run, &problems[i]) != 0) {
            fprintf(stderr, "demo_poisson: no thread\n");
            return 1;
        }
    }
    int good = 1;
    for (int i = 0; i < PROBLEMS; i++) {
        pthread_join(threads[i], NULL);
        int right = problems[i].residual <= TOLERANCE && problems[i].difference < 1e-3;
        printf("%-8s  %d iterations, relative residual %.1e, largest difference from the CPU's solution %.1e: %s\n",
               problems[i].name, problems[i].iterations, problems[i].residual, problems[i].difference,
               right ? "correct" : "WRONG");
        good = good && right;
    }
    show(profiler, argc > 1 ? argv[1] : ".");
    for (int i = 0; i < WORKS; i++) {
        enigma_hook_unregister(text(works[i].kernel));
    }
    enigma_profiler_free(profiler);
    return good ? 0 : 1;
}
