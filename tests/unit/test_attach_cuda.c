/* The CUDA attacher against a fake CUPTI: what becomes an event, under which path, and that every launch is accounted for. */
#include "attach_cuda.h"

#include "cupti/cupti.h"

#define GPU_WORK(profile) (counts_of(profile).gpu_events)

/* ---- options ---- */

static void test_names(void **state)
{
    (void)state;
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    enigma_profiler *profiler;
    static const char *const wrong[] = {"", "cuda,", "cud", "cudaa", "opencl", "cuda,metal", "CUDA"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        options.attach = wrong[i];
        assert_int_equal(enigma_profiler_create(&options, &profiler), ENIGMA_E_INVALID);
        assert_null(profiler);
        assert_non_null(strstr(enigma_error_message(), "\"cuda\""));
    }
    static const char *const right[] = {"cuda", " cuda ", "cuda, cuda"};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        options.attach = right[i];
        assert_int_equal(enigma_profiler_create(&options, &profiler), ENIGMA_OK);
        enigma_profiler_free(profiler);
    }
}

static void test_older_options(void **state)
{
    (void)state;
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    enigma_profiler *profiler;
    options.struct_size = offsetof(enigma_profiler_options, attach);
    options.attach = (const char *)1; /* what lies after an older caller's struct */
    assert_int_equal(enigma_profiler_create(&options, &profiler), ENIGMA_OK);
    enigma_profiler_free(profiler);
    options.struct_size -= 1;
    assert_int_equal(enigma_profiler_create(&options, &profiler), ENIGMA_E_INVALID);
}

/* ---- kernels, copies, fills ---- */

static void test_kernel(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    enigma_scope outer = enigma_begin("forward");
    uint32_t correlation = call(RUNTIME_KERNEL);
    uint64_t start = now_ns();
    const cupti_kernel_record record = kernel_record(correlation, "_Z3addIfEvPKT_S2_PS0_i", start, 5000);
    tell_kernel(&record);
    enigma_end(outer);
    run_kernel("plain", 1000);
    enigma_profile *profile = stopped(profiler);

    enigma_event event;
    assert_int_equal(enigma_profile_event_count(profile), 3);
    assert_int_equal(
        find(profile, "forward/gpu_dispatch:void add<float>(float const*, float const*, float*, int)", &event), 1);
    assert_string_equal(event.name.data, "gpu_dispatch");
    assert_string_equal(event.category.data, "cuda");
    assert_string_equal(event.kernel_name.data, "void add<float>(float const*, float const*, float*, int)");
    assert_true(event.gpu_time_us == 5.0);
    assert_int_equal(event.gpu_start_ns, start);
    assert_int_equal(event.gpu_end_ns, start + 5000);
    assert_true(event.start_ns <= event.end_ns && event.end_ns <= start + 1000000);
    assert_int_equal(event.grid.x, 512);
    assert_int_equal(event.grid.y, 2);
    assert_int_equal(event.threads.x, 128);
    assert_int_equal(event.is_gpu_work, 1);
    assert_int_equal(event.thread_id, eni_thread_id());
    assert_metadata_int(&event, "registers_per_thread", 24);
    assert_metadata_int(&event, "static_threadgroup_memory_bytes", 1024);
    assert_metadata_int(&event, "dynamic_threadgroup_memory_bytes", 512);
    assert_metadata_int(&event, "stream", STREAM);
    assert_int_equal(metadata(&event, "path_source").type, ENIGMA_NULL);
    enigma_value blocks = metadata(&event, "blocks");
    assert_int_equal(blocks.type, ENIGMA_TUPLE);
    assert_int_equal(blocks.as.items.count, 3);
    assert_int_equal(blocks.as.items.data[0].value.as.integer, 4);

    assert_int_equal(find(profile, "forward", &event), 1);
    assert_true(event.gpu_time_us == 5.0);
    assert_int_equal(find(profile, "gpu_dispatch:plain", NULL), 1);
    assert_int_equal(counts_of(profile).gpu_unfinished, 0);
    assert_int_equal(counts_of(profile).dropped, 0);
    assert_true(fake.get(FAKE_SYNCHRONIZED) > 0);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

static void tell_copy(uint32_t correlation, uint8_t kind, uint64_t bytes, uint64_t ns)
{
    uint64_t room[12] = {0};
    uint64_t start = now_ns();
    const cupti_memcpy_record record = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                                        .copy_kind = kind,
                                        .bytes = bytes,
                                        .start = start,
                                        .end = start + ns,
                                        .context = CONTEXT,
                                        .stream = STREAM,
                                        .correlation = correlation};
    memcpy(room, &record, sizeof record < sizeof room ? sizeof record : sizeof room);
    fake.record(room, sizeof room);
}

static void tell_fill(uint32_t correlation, uint64_t bytes, uint64_t ns)
{
    uint64_t room[11] = {0};
    uint64_t start = now_ns();
    const cupti_memset_record record = {.kind = CUPTI_ACTIVITY_KIND_MEMSET,
                                        .value = 255,
                                        .bytes = bytes,
                                        .start = start,
                                        .end = start + ns,
                                        .context = CONTEXT,
                                        .stream = STREAM + 1,
                                        .correlation = correlation};
    memcpy(room, &record, sizeof record < sizeof room ? sizeof record : sizeof room);
    fake.record(room, sizeof room);
}

static void test_copies_and_fills(void **state)
{
    (void)state;
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    enigma_profiler *profiler;
    enigma_event event;
    options.attach = "cuda";
    options.flags = ENIGMA_PROFILER_PROFILE_MEMORY;
    assert_int_equal(enigma_profiler_create(&options, &profiler), ENIGMA_OK);
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    tell_copy(call(RUNTIME_COPY), 1, 4096, 2000);
    tell_fill(call(RUNTIME_FILL), 512, 700);
    call(RUNTIME_COPY); /* of nothing: no record comes */
    enigma_profile *profile = stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 2);
    assert_int_equal(find(profile, "memcpy", &event), 1);
    assert_true(event.gpu_time_us == 2.0);
    assert_null(event.kernel_name.data);
    assert_metadata_text(&event, "kind", "HtoD");
    assert_metadata_text(&event, "direction", "host to device");
    assert_metadata_int(&event, "bytes", 4096);
    assert_int_equal(event.input_bytes, 4096);
    assert_int_equal(event.output_bytes, 4096);
    assert_int_equal(event.queue_id, 0);
    assert_int_equal(find(profile, "memset", &event), 1);
    assert_metadata_int(&event, "bytes", 512);
    assert_metadata_int(&event, "value", 255);
    assert_int_equal(event.input_bytes, 0);
    assert_int_equal(event.output_bytes, 512);
    assert_int_equal(event.queue_id, 1); /* another stream */
    assert_int_equal(counts_of(profile).gpu_unfinished, 0);
    assert_int_equal(counts_of(profile).dropped, 0);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

/* ---- times and numbers ---- */

static void test_bad_times(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    enigma_event event;
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    cupti_kernel_record record = kernel_record(call(RUNTIME_KERNEL), "zero", 0, 0);
    tell_kernel(&record);
    record = kernel_record(call(RUNTIME_KERNEL), "reversed", now_ns(), 0);
    record.end = record.start - 64;
    tell_kernel(&record);
    record = kernel_record(call(RUNTIME_KERNEL), "running", now_ns(), 0);
    record.end = 0;
    tell_kernel(&record);
    kernel_done(call(RUNTIME_KERNEL), "instant", 0);
    kernel_done(call(RUNTIME_KERNEL), "right", 320);
    enigma_profile *profile = stopped(profiler);
    enigma_counts counts = counts_of(profile);
    assert_int_equal(counts.gpu_events, 5);
    assert_int_equal(counts.gpu_invalid, 2);
    assert_int_equal(counts.gpu_unfinished, 1);
    assert_int_equal(find(profile, "gpu_dispatch:zero", &event), 1);
    assert_int_not_equal(metadata(&event, "gpu_time").type, ENIGMA_NULL);
    assert_true(event.gpu_time_us == 0.0);
    assert_int_equal(find(profile, "gpu_dispatch:running", &event), 1);
    assert_metadata_text(&event, "gpu_time", "unfinished");
    assert_int_equal(find(profile, "gpu_dispatch:instant", &event), 1);
    assert_int_equal(metadata(&event, "gpu_time").type, ENIGMA_NULL);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

static void test_lost(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    enigma_event event;
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    call(RUNTIME_KERNEL); /* its record never comes */
    run_kernel("there", 100);
    enigma_profile *profile = stopped(profiler);
    assert_int_equal(GPU_WORK(profile), 2);
    assert_int_equal(counts_of(profile).gpu_unfinished, 1);
    assert_int_equal(find(profile, "gpu_dispatch", &event), 1);
    assert_metadata_text(&event, "gpu_time", "unfinished");
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

static void test_dropped(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    tell_copy(call(RUNTIME_COPY), 1, 64, 100);
    fake.set(FAKE_BUFFER_LIMIT, 32); /* no record finds room */
    enigma_profile *profile = stopped(profiler);
    fake.set(FAKE_BUFFER_LIMIT, 0);
    assert_int_equal(GPU_WORK(profile), 0);
    assert_int_equal(counts_of(profile).dropped, 1);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

static void test_not_ours(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    uint32_t failed = enter_call(RUNTIME_KERNEL, "fails");
    tell_call(RUNTIME_KERNEL, CUPTI_API_EXIT, failed, "fails", 1);
    eni_cupti_mark(profiler); /* a dispatch of our own backend, which records it itself */
    run_kernel("own", 100);
    eni_cupti_mark(NULL);
    kernel_done(900000, "launched before", 100);
    run_kernel("other", 100);
    enigma_profile *profile = stopped(profiler);
    assert_int_equal(enigma_profile_event_count(profile), 1);
    assert_int_equal(find(profile, "gpu_dispatch:other", NULL), 1);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

static void test_numbers_come_again(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    uint32_t before = __atomic_load_n(&last_correlation, __ATOMIC_RELAXED);
    for (int round = 0; round < 3; round++) {
        __atomic_store_n(&last_correlation, before, __ATOMIC_RELAXED);
        enigma_scope scope = enigma_begin(round == 0 ? "a" : round == 1 ? "b" : "c");
        call(RUNTIME_COPY); /* of nothing: the number waits for a record */
        run_kernel("kernel", 100);
        enigma_end(scope);
        if (round == 1) { /* the copy of this number is real now */
            tell_copy(before + 1, 2, 8, 100);
        }
        enigma_profile_free(snapshot(profiler));
    }
    enigma_profile *profile = stopped(profiler);
    assert_int_equal(find(profile, "a/gpu_dispatch:kernel", NULL), 1);
    assert_int_equal(find(profile, "b/gpu_dispatch:kernel", NULL), 1);
    assert_int_equal(find(profile, "c/gpu_dispatch:kernel", NULL), 1);
    assert_int_equal(find(profile, "b/memcpy", NULL), 1);
    assert_int_equal(GPU_WORK(profile), 4);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

/* ---- places ---- */

static void *launch_elsewhere(void *arg)
{
    (void)arg;
    run_kernel("elsewhere", 1000);
    return NULL;
}

static void in_thread(void *(*body)(void *), void *arg)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, body, arg), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_owner(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    enigma_event event;
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    enigma_scope step = enigma_begin("step");
    enigma_scope inner = enigma_begin("backward");
    in_thread(launch_elsewhere, NULL);
    enigma_end(inner);
    in_thread(launch_elsewhere, NULL);
    enigma_end(step);
    in_thread(launch_elsewhere, NULL);
    enigma_profile *profile = stopped(profiler);
    assert_int_equal(find(profile, "step/backward/gpu_dispatch:elsewhere", &event), 1);
    assert_metadata_text(&event, "path_source", "owner");
    assert_int_not_equal(event.thread_id, eni_thread_id());
    assert_int_equal(find(profile, "step/gpu_dispatch:elsewhere", NULL), 1);
    assert_int_equal(find(profile, "gpu_dispatch:elsewhere", NULL), 1);
    assert_int_equal(find(profile, "step", &event), 1);
    assert_true(event.gpu_time_us == 2.0);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

static void test_nested(void **state)
{
    (void)state;
    enigma_profiler *outer = attached();
    enigma_profiler *inner = attached();
    enigma_profiler *plain;
    assert_int_equal(enigma_profiler_create(NULL, &plain), ENIGMA_OK);
    assert_int_equal(enigma_profiler_start(outer), ENIGMA_OK);
    enigma_scope scope = enigma_begin("s");
    run_kernel("first", 100);
    assert_int_equal(enigma_profiler_start(plain), ENIGMA_OK);
    run_kernel("unseen", 100); /* the innermost records, and it attaches to nothing */
    assert_int_equal(enigma_profiler_start(inner), ENIGMA_OK);
    run_kernel("second", 100);
    in_thread(launch_elsewhere, NULL);
    enigma_profile *of_inner = stopped(inner);
    assert_int_equal(enigma_profiler_stop(plain), ENIGMA_OK);
    run_kernel("third", 100);
    enigma_end(scope);
    enigma_profile *of_outer = stopped(outer);
    assert_int_equal(find(of_inner, "s/gpu_dispatch:second", NULL), 1);
    assert_int_equal(find(of_inner, "s/gpu_dispatch:elsewhere", NULL), 1);
    assert_int_equal(GPU_WORK(of_inner), 2);
    assert_int_equal(find(of_outer, "s/gpu_dispatch:first", NULL), 1);
    assert_int_equal(find(of_outer, "s/gpu_dispatch:third", NULL), 1);
    assert_int_equal(GPU_WORK(of_outer), 2);
    enigma_profile_free(of_inner);
    enigma_profile_free(of_outer);
    enigma_profiler_free(inner);
    enigma_profiler_free(plain);
    enigma_profiler_free(outer);
}

static ENI_THREAD_LOCAL uint64_t context_key; /* the context that a thread is in, as a binding has it */

static uint64_t current_key(void) { return context_key; }

static void move(uint64_t key, enigma_profiler *profiler, enigma_path path, uint64_t scope)
{
    const enigma_context context = {profiler, path, scope};
    enigma_context_publish(key, &context);
}

/* Contexts of a binding that are switched on one thread, as tasks are. */
static void test_contexts(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    enigma_profiler *plain;
    enigma_event event;
    assert_int_equal(enigma_profiler_create(NULL, &plain), ENIGMA_OK);
    enigma_set_context_key(current_key);
    assert_int_equal(enigma_profiler_open(profiler), ENIGMA_OK);
    enigma_path main_path = enigma_path_child(profiler, 0, (enigma_text){"main", 4});
    enigma_path task_path = enigma_path_child(profiler, 0, (enigma_text){"task", 4});
    move(0x1000, profiler, 0, 0); /* the owner */
    enigma_scope scope = enigma_scope_open(profiler, main_path, 0, 0);
    move(0x1000, profiler, main_path, scope.id);
    move(0x2000, profiler, task_path, 0);
    move(0x3000, plain, 0, 0);
    move(0x4000, NULL, 0, 0);
    static const struct {
        uint64_t key;
        const char *kernel;
    } launches[] = {{0x1000, "owner"},   {0x2000, "task"}, {0x1000, "owner"},     {0x3000, "plain"},
                    {0x4000, "nothing"}, {0, "none"},      {0x5000, "never told"}};
    for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++) {
        context_key = launches[i].key;
        run_kernel(launches[i].kernel, 1000);
    }
    context_key = 0x2000;
    enigma_context_publish(0x2000, NULL); /* gone, and its number is another one's */
    run_kernel("gone", 1000);
    enigma_scope_close(profiler, scope);
    move(0x1000, profiler, 0, 0);
    context_key = 0;
    run_kernel("none", 1000);
    assert_int_equal(enigma_profiler_seal(profiler), ENIGMA_OK);
    enigma_set_context_key(NULL);
    enigma_profile *profile = snapshot(profiler);
    assert_int_equal(find(profile, "main/gpu_dispatch:owner", &event), 2);
    assert_int_equal(metadata(&event, "path_source").type, ENIGMA_NULL);
    assert_int_equal(find(profile, "task/gpu_dispatch:task", &event), 1);
    assert_int_equal(metadata(&event, "path_source").type, ENIGMA_NULL);
    static const char *const owners[] = {"main/gpu_dispatch:nothing", "main/gpu_dispatch:none",
                                         "main/gpu_dispatch:never told", "main/gpu_dispatch:gone", "gpu_dispatch:none"};
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++) {
        assert_int_equal(find(profile, owners[i], &event), 1);
        assert_metadata_text(&event, "path_source", "owner");
    }
    assert_int_equal(GPU_WORK(profile), 8);
    assert_int_equal(find(profile, "main", &event), 1);
    assert_true(event.gpu_time_us == 6.0);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
    enigma_profiler_free(plain);
}

enum { CONTEXTS = 200 };

/* Each keeps its place however many there are, up to a limit that this is far from. */
static void test_many_contexts(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    char name[64];
    enigma_set_context_key(current_key);
    assert_int_equal(enigma_profiler_open(profiler), ENIGMA_OK);
    move(0x7f0000, profiler, 0, 0); /* the owner */
    for (uint64_t i = 1; i <= CONTEXTS; i++) {
        int size = snprintf(name, sizeof name, "context %d", (int)i);
        move(0x7f0000 + i * 0x60, profiler, enigma_path_child(profiler, 0, (enigma_text){name, (size_t)size}), 0);
    }
    for (uint64_t i = 1; i <= CONTEXTS; i++) {
        context_key = 0x7f0000 + i * 0x60;
        run_kernel("kernel", 1000);
        enigma_context_publish(context_key, NULL);
    }
    context_key = 0;
    assert_int_equal(enigma_profiler_seal(profiler), ENIGMA_OK);
    enigma_set_context_key(NULL);
    enigma_profile *profile = snapshot(profiler);
    for (int i = 1; i <= CONTEXTS; i++) {
        snprintf(name, sizeof name, "context %d/gpu_dispatch:kernel", i);
        assert_int_equal(find(profile, name, NULL), 1);
    }
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

/* ---- graphs ---- */

static void capture_kernel(uint64_t node)
{
    uint32_t correlation = enter_call(RUNTIME_KERNEL, "captured");
    tell_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, 5, node, 0);
    leave_call(RUNTIME_KERNEL, correlation);
}

static void test_graph(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    enigma_event event;
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    enigma_scope scope = enigma_begin("model");
    enigma_scope layer = enigma_begin("layer");
    capture_kernel(101);
    enigma_end(layer);
    capture_kernel(102);
    enigma_end(scope);
    for (uint64_t node = 101; node <= 102; node++) {
        tell_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, 9, node + 100, node);
    }
    scope = enigma_begin("serve");
    uint32_t replays[3];
    for (int i = 0; i < 3; i++) {
        replays[i] = call(RUNTIME_GRAPH);
    }
    for (int i = 0; i < 3; i++) { /* records of all replays in between each other */
        node_done(replays[i], "one", 1000, 9, 201);
    }
    enigma_profile_free(snapshot(profiler));
    for (int i = 0; i < 3; i++) {
        node_done(replays[i], "two", 500, 9, 202);
        node_done(replays[i], "unknown", 250, 9, 203);
    }
    enigma_end(scope);
    enigma_profile *profile = stopped(profiler);
    assert_int_equal(find(profile, "serve/graph:9", &event), 3);
    assert_int_equal(event.is_gpu_work, 0);
    assert_int_equal(find(profile, "serve/graph:9/model/layer/gpu_dispatch:one", &event), 3);
    assert_int_equal(enigma_profile_call_depth(profile, event.path), 1);
    assert_true(event.gpu_time_us == 1.0);
    assert_int_equal(find(profile, "serve/graph:9/model/gpu_dispatch:two", NULL), 3);
    assert_int_equal(find(profile, "serve/graph:9/gpu_dispatch:unknown", NULL), 3);
    assert_int_equal(GPU_WORK(profile), 9);
    assert_int_equal(counts_of(profile).gpu_unfinished, 0); /* captured launches are no work */
    assert_int_equal(find(profile, "serve", &event), 1);
    assert_true(event.gpu_time_us == 3 * 1.75);
    assert_int_equal(find(profile, "model", &event), 1);
    assert_true(event.gpu_time_us == 0.0);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

static void test_graph_ends(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    enigma_scope scope = enigma_begin("made");
    capture_kernel(301);
    tell_node(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, 5, 302, 0); /* added by a call of its own */
    enigma_end(scope);
    tell_node(CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING, 5, 301, 0);
    uint32_t replay = call(RUNTIME_GRAPH);
    node_done(replay, "k", 100, 6, 301); /* the number is another node's now */
    node_done(replay, "k", 100, 6, 302);
    enigma_profile *profile = stopped(profiler);
    assert_int_equal(find(profile, "graph:6/gpu_dispatch:k", NULL), 1);
    assert_int_equal(find(profile, "graph:6/made/gpu_dispatch:k", NULL), 1);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

/* ---- life ---- */

static void test_late_and_early(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    run_kernel("before", 100);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
        assert_int_equal(fake.get(FAKE_SUBSCRIBED), 1);
        run_kernel("within", 100);
        uint32_t inside = enter_call(RUNTIME_KERNEL, "torn"); /* its exit is never told */
        (void)inside;
        assert_int_equal(enigma_profiler_stop(profiler), ENIGMA_OK);
        assert_int_equal(fake.get(FAKE_SUBSCRIBED), 0);
        run_kernel("between", 100);
    }
    enigma_profile *profile = snapshot(profiler);
    assert_int_equal(find(profile, "gpu_dispatch:within", NULL), 3);
    assert_int_equal(find(profile, "gpu_dispatch:before", NULL) + find(profile, "gpu_dispatch:between", NULL), 0);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

static void test_other_tool(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    fake.set(FAKE_SUBSCRIBE_ERROR, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_E_UNAVAILABLE);
    assert_non_null(strstr(enigma_error_message(), "another tool"));
    assert_null(enigma_profiler_active());
    run_kernel("alone", 100); /* the program runs on */
    fake.set(FAKE_SUBSCRIBE_ERROR, 0);
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    run_kernel("kernel", 100);
    enigma_profile *profile = stopped(profiler);
    assert_int_equal(GPU_WORK(profile), 1);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

static void test_freed_while_active(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    assert_int_equal(enigma_profiler_open(profiler), ENIGMA_OK);
    run_kernel("kernel", 100);
    enigma_profiler_free(profiler);
    assert_int_equal(fake.get(FAKE_SUBSCRIBED), 0);
    run_kernel("kernel", 100);
}

/* A snapshot in the middle has what has come; work whose launching call has not returned waits for that. */
static void test_snapshots(void **state)
{
    (void)state;
    enigma_profiler *profiler = attached();
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    run_kernel("kernel", 100);
    uint32_t inside = enter_call(RUNTIME_COPY, NULL);
    tell_copy(inside, 2, 16, 100);
    for (int i = 0; i < 3; i++) {
        enigma_profile *profile = snapshot(profiler);
        assert_int_equal(GPU_WORK(profile), 1);
        enigma_profile_free(profile);
    }
    leave_call(RUNTIME_COPY, inside);
    enigma_profile *profile = snapshot(profiler);
    assert_int_equal(GPU_WORK(profile), 2);
    enigma_profile_free(profile);
    assert_int_equal(enigma_profiler_stop(profiler), ENIGMA_OK);
    enigma_profiler_free(profiler);
}

static size_t count_threads(void *user, const enigma_dispatch_info *info, enigma_metric *out, size_t capacity)
{
    (void)capacity;
    assert_string_equal(info->kernel_name.data, "void twice<int>(int)");
    ++*(int *)user;
    out[0] = (enigma_metric){"flops", (double)(info->grid.x * info->grid.y * info->grid.z)};
    out[1] = (enigma_metric){"bytes", (double)info->threads.x};
    return 2;
}

static void test_hooks(void **state)
{
    (void)state;
    static const enigma_text name = {"void twice<int>(int)", 0};
    int asked = 0;
    enigma_event event;
    assert_int_equal(enigma_hook_register(name, count_threads, NULL, &asked), ENIGMA_OK);
    enigma_profiler *profiler = attached();
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    run_kernel("_Z5twiceIiEvT_", 1000);
    run_kernel("_Z5twiceIiEvT_", 1000);
    run_kernel("other", 1000);
    assert_int_equal(asked, 0); /* nothing is asked where the kernels are launched */
    enigma_profile *profile = stopped(profiler);
    assert_int_equal(asked, 2);
    assert_int_equal(find(profile, "gpu_dispatch:void twice<int>(int)", &event), 2);
    assert_int_equal(event.metric_count, 2);
    assert_string_equal(event.metrics[0].key, "flops");
    assert_true(event.metrics[0].value == 1024.0);
    enigma_hook_unregister(name);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

static int stop_waiting(void *user)
{
    ++*(int *)user;
    return 1;
}

static void test_interrupt(void **state)
{
    (void)state;
    int asked = 0;
    enigma_profiler *profiler = attached();
    assert_int_equal(enigma_profiler_start(profiler), ENIGMA_OK);
    call(RUNTIME_KERNEL);
    fake.set(FAKE_HOLD, 1); /* the device does not come to an end */
    enigma_set_interrupt(stop_waiting, &asked);
    assert_int_equal(enigma_profiler_stop(profiler), ENIGMA_E_INTERRUPTED);
    enigma_set_interrupt(NULL, NULL);
    long waits = fake.get(FAKE_SYNCHRONIZED);
    fake.set(FAKE_HOLD, 0);
    while (fake.get(FAKE_SYNCHRONIZED) == waits) { /* the thread left behind goes on */
    }
    assert_true(asked > 0);
    assert_null(enigma_profiler_active());
    enigma_profile *profile = snapshot(profiler);
    assert_int_equal(counts_of(profile).gpu_unfinished, 1);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_older_options),
        cmocka_unit_test(test_kernel),
        cmocka_unit_test(test_copies_and_fills),
        cmocka_unit_test(test_bad_times),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_dropped),
        cmocka_unit_test(test_not_ours),
        cmocka_unit_test(test_numbers_come_again),
        cmocka_unit_test(test_owner),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_many_contexts),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_graph_ends),
        cmocka_unit_test(test_late_and_early),
        cmocka_unit_test(test_other_tool),
        cmocka_unit_test(test_freed_while_active),
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_hooks),
        cmocka_unit_test(test_interrupt),
    };
    if (!fake_load("new", &fake) || eni_profiler_attach != &eni_attach_all) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
