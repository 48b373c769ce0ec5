/* The CUPTI session over a fake CUPTI: what may go wrong at its start, records of all kinds, launches, buffers, flushing, graphs, fork. */
#include "support.h"

#include <pthread.h>

#include "../fakecuda/fake.h"
#include "base/clock.h"
#include "cupti/session.h"

enum { SEEN_LIMIT = 100000 };

static fake_libraries fake;

/* What a consumer was told. */
static struct {
    eni_mutex lock;
    eni_cupti_record records[SEEN_LIMIT];
    char name[64]; /* of the last kernel */
    size_t count, begun, ended;
    eni_cupti_launch enters[64], leaves[64];
    size_t enter_count, leave_count;
    eni_cupti_graph_event graphs[16];
    size_t graph_count;
} seen = {.lock = ENI_MUTEX_INIT};

static void forget(void)
{
    seen.count = seen.begun = seen.ended = seen.enter_count = seen.leave_count = seen.graph_count = 0;
}

static void on_begin(void)
{
    eni_lock(&seen.lock);
    seen.begun++;
}

static void on_end(void)
{
    seen.ended++;
    eni_unlock(&seen.lock);
}

static void on_record(const eni_cupti_record *record)
{
    if (record->family == ENI_CUPTI_KERNEL && record->as.kernel.name != NULL) {
        snprintf(seen.name, sizeof seen.name, "%s", record->as.kernel.name);
    }
    seen.records[seen.count % SEEN_LIMIT] = *record;
    seen.count++;
}

static void on_enter(const eni_cupti_launch *launch) { seen.enters[seen.enter_count++ % 64] = *launch; }
static void on_leave(const eni_cupti_launch *launch) { seen.leaves[seen.leave_count++ % 64] = *launch; }
static void on_graph(const eni_cupti_graph_event *event) { seen.graphs[seen.graph_count++ % 16] = *event; }

static const eni_cupti_consumer all = {
    .records = ENI_CUPTI_KERNEL | ENI_CUPTI_MEMCPY | ENI_CUPTI_MEMSET,
    .launches = ENI_CUPTI_KERNEL | ENI_CUPTI_MEMCPY | ENI_CUPTI_MEMSET | ENI_CUPTI_GRAPH,
    .batch_begin = on_begin,
    .record = on_record,
    .batch_end = on_end,
    .enter = on_enter,
    .leave = on_leave,
    .graph = on_graph,
};

static void start(const eni_cupti_consumer *consumer)
{
    forget();
    if (eni_cupti_start(consumer) != ENIGMA_OK) {
        fail_msg("%s", enigma_error_message());
    }
}

/* A kernel's record with times as they are. */
static cupti_kernel_record kernel_record(uint32_t correlation, uint64_t from, uint64_t to)
{
    return (cupti_kernel_record){.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                 .registers = 40,
                                 .start = from,
                                 .end = to,
                                 .device = 1,
                                 .context = 2,
                                 .stream = 3,
                                 .grid = {4, 5, 6},
                                 .block = {7, 8, 9},
                                 .static_bytes = 100,
                                 .dynamic_bytes = 200,
                                 .correlation = correlation,
                                 .name = "_Z4workPf",
                                 .graph_node = 11,
                                 .graph = 12};
}

/* Tells the record in the size that the version at hand has. */
static void send_kernel(const cupti_kernel_record *record)
{
    uint8_t bytes[216] = {0};
    memcpy(bytes, record, sizeof *record);
    fake.record(bytes, (size_t)fake.get(FAKE_KERNEL_BYTES));
}

static void send_times(uint32_t correlation, uint64_t from, uint64_t to)
{
    cupti_kernel_record record = kernel_record(correlation, from, to);
    send_kernel(&record);
}

/* Tells a call, so that there is something to flush. */
static void tell_call(uint32_t domain, uint32_t cbid, uint32_t site, uint32_t correlation, const void *parameters)
{
    static const int32_t good = 0;
    const cupti_call call = {.site = site,
                             .parameters = parameters,
                             .return_value = site == CUPTI_API_EXIT ? &good : NULL,
                             .symbol_name = "_Z4workPf",
                             .context_id = 1,
                             .correlation = correlation};
    fake.call(domain, cbid, &call);
}

static void tell_launch(uint32_t correlation)
{
    const cupti_driver_launch launch = {.function = &fake, .stream = &seen};
    tell_call(1, 307, CUPTI_API_ENTER, correlation, &launch);
    tell_call(1, 307, CUPTI_API_EXIT, correlation, &launch);
}

/* ---- tests ---- */

static void what_prevents_a_start_is_said(void **state)
{
    (void)state;
    static const struct {
        long error;
        const char *words;
    } cases[] = {{CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "another tool"},
                 {CUPTI_ERROR_MAX_LIMIT_REACHED, "another tool"},
                 {CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "NVreg_RestrictProfilingToAdminUsers"},
                 {CUPTI_ERROR_NOT_INITIALIZED, "CUPTI_ERROR_NOT_INITIALIZED"}};
    for (size_t i = 0; i < ENI_COUNT_OF(cases); i++) {
        fake.set(FAKE_SUBSCRIBE_ERROR, cases[i].error);
        assert_int_equal(eni_cupti_start(&all), ENIGMA_E_UNAVAILABLE);
        assert_non_null(strstr(enigma_error_message(), cases[i].words));
        assert_int_equal(eni_cupti_probe(), ENIGMA_E_UNAVAILABLE);
    }
    fake.set(FAKE_SUBSCRIBE_ERROR, 0);
    fake.set(FAKE_ENABLE_ERROR, 21);
    assert_int_equal(eni_cupti_start(&all), ENIGMA_E_UNAVAILABLE);
    assert_non_null(strstr(enigma_error_message(), "cuptiActivityEnable"));
    fake.set(FAKE_ENABLE_ERROR, 0);
    assert_int_equal(fake.get(FAKE_SUBSCRIBED), 0); /* the failed start left nothing */
    assert_int_equal(eni_cupti_probe(), ENIGMA_OK);
    assert_int_equal(fake.get(FAKE_SUBSCRIBED), 0);
    assert_int_equal(eni_cupti_version(), 130001);
}

static void nothing_is_flushed_before_the_first_call(void **state)
{
    (void)state;
    start(&all);
    long before = fake.get(FAKE_FLUSHES);
    assert_true(eni_cupti_flush(NULL, NULL, 0));
    assert_int_equal(fake.get(FAKE_FLUSHES), before);
    tell_launch(1);
    assert_true(eni_cupti_flush(NULL, NULL, 0));
    assert_int_equal(fake.get(FAKE_FLUSHES), before + 1);
    eni_cupti_stop(&all);
}

static void kernels_are_read_whatever_the_version(void **state)
{
    (void)state;
    static const long sizes[] = {160, 184, 216};
    start(&all);
    tell_launch(1);
    for (size_t i = 0; i < ENI_COUNT_OF(sizes); i++) {
        forget();
        fake.set(FAKE_KERNEL_BYTES, sizes[i]);
        send_times(77, 1000, 1608);
        send_times(78, 2000, 2000);
        eni_cupti_flush(NULL, NULL, 0);
        assert_int_equal(seen.count, 2);
        assert_int_equal(seen.begun, 1);
        assert_int_equal(seen.ended, 1);
        const eni_cupti_record *r = &seen.records[0];
        assert_int_equal(r->family, ENI_CUPTI_KERNEL);
        assert_int_equal(r->time, ENI_CUPTI_TIME_VALID);
        assert_int_equal(r->start_ns, 1000); /* CUPTI has our clock: nothing is added */
        assert_int_equal(r->end_ns, 1608);
        assert_int_equal(r->correlation, 77);
        assert_int_equal(r->device, 1);
        assert_int_equal(r->context, 2);
        assert_int_equal(r->stream, 3);
        assert_int_equal(r->graph, 12);
        assert_int_equal(r->graph_node, 11);
        assert_int_equal(r->as.kernel.grid[2], 6);
        assert_int_equal(r->as.kernel.block[0], 7);
        assert_int_equal(r->as.kernel.registers, 40);
        assert_int_equal(r->as.kernel.static_bytes, 100);
        assert_int_equal(r->as.kernel.dynamic_bytes, 200);
        assert_string_equal(seen.name, "_Z4workPf");
        assert_int_equal(seen.records[1].time, ENI_CUPTI_TIME_VALID); /* no time at all is a time */
    }
    eni_cupti_stop(&all);
}

static void copies_and_fills_are_read(void **state)
{
    (void)state;
    union {
        cupti_memcpy_record copy;
        cupti_peer_record peer;
        uint8_t bytes[96];
    } copy = {.copy = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                       .copy_kind = ENI_CUPTI_COPY_HTOD,
                       .bytes = 4096,
                       .start = 5,
                       .end = 9,
                       .device = 1,
                       .correlation = 31,
                       .graph_node = 6,
                       .graph = 7}},
      peer = {.peer = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY2,
                       .copy_kind = ENI_CUPTI_COPY_PTOP,
                       .bytes = 512,
                       .start = 5,
                       .end = 9,
                       .source_device = 2,
                       .target_device = 3,
                       .correlation = 32}};
    union {
        cupti_memset_record fill;
        uint8_t bytes[88];
    } fill = {.fill = {.kind = CUPTI_ACTIVITY_KIND_MEMSET,
                       .value = 255,
                       .bytes = 64,
                       .start = 5,
                       .end = 9,
                       .stream = 4,
                       .correlation = 33}};
    uint32_t foreign[24] = {8};
    eni_cupti_counts before, after;
    start(&all);
    tell_launch(1);
    eni_cupti_get_counts(&before);
    fake.record(&copy, sizeof copy);
    fake.record(&foreign, sizeof foreign);
    fake.record(&peer, sizeof peer);
    fake.record(&fill, sizeof fill);
    eni_cupti_flush(NULL, NULL, 0);
    eni_cupti_get_counts(&after);
    assert_int_equal(seen.count, 3);
    assert_int_equal(after.records - before.records, 3);
    assert_int_equal(after.foreign - before.foreign, 1);
    assert_int_equal(seen.records[0].family, ENI_CUPTI_MEMCPY);
    assert_int_equal(seen.records[0].correlation, 31);
    assert_int_equal(seen.records[0].graph_node, 6);
    assert_int_equal(seen.records[0].graph, 7);
    assert_int_equal(seen.records[0].as.copy.bytes, 4096);
    assert_int_equal(seen.records[0].as.copy.kind, ENI_CUPTI_COPY_HTOD);
    assert_int_equal(seen.records[0].as.copy.source_device, 1);
    assert_int_equal(seen.records[1].correlation, 32);
    assert_int_equal(seen.records[1].as.copy.source_device, 2);
    assert_int_equal(seen.records[1].as.copy.target_device, 3);
    assert_int_equal(seen.records[2].family, ENI_CUPTI_MEMSET);
    assert_int_equal(seen.records[2].correlation, 33);
    assert_int_equal(seen.records[2].as.fill.value, 255);
    assert_int_equal(seen.records[2].as.fill.bytes, 64);
    eni_cupti_stop(&all);
}

static void times_that_cannot_be_are_said_and_counted(void **state)
{
    (void)state;
    eni_cupti_counts before, after;
    start(&all);
    tell_launch(1);
    eni_cupti_get_counts(&before);
    send_times(1, 0, 0);
    send_times(2, 0, 50);
    send_times(3, 100, 60);
    send_times(4, 100, 0);
    eni_cupti_flush(NULL, NULL, 0);
    eni_cupti_get_counts(&after);
    assert_int_equal(seen.count, 4);
    assert_int_equal(seen.records[0].time, ENI_CUPTI_TIME_ZERO);
    assert_int_equal(seen.records[1].time, ENI_CUPTI_TIME_ZERO);
    assert_int_equal(seen.records[2].time, ENI_CUPTI_TIME_REVERSED);
    assert_int_equal(seen.records[3].time, ENI_CUPTI_TIME_UNFINISHED);
    assert_int_equal(after.zero - before.zero, 2);
    assert_int_equal(after.reversed - before.reversed, 1);
    assert_int_equal(after.unfinished - before.unfinished, 1);
    eni_cupti_stop(&all);
}

static void many_records_come_in_order_over_many_buffers(void **state)
{
    (void)state;
    eni_cupti_counts before, after;
    start(&all);
    tell_launch(1);
    eni_cupti_get_counts(&before);
    for (uint32_t i = 0; i < 20000; i++) {
        send_times(i + 1, i + 1, i + 2);
    }
    eni_cupti_flush(NULL, NULL, 0);
    assert_int_equal(seen.count, 20000);
    assert_true(seen.begun > 1);
    for (uint32_t i = 0; i < 20000; i++) {
        assert_int_equal(seen.records[i].correlation, i + 1);
    }
    forget();
    fake.set(FAKE_BUFFER_LIMIT, 100); /* no record fits */
    send_times(1, 1, 2);
    send_times(2, 1, 2);
    eni_cupti_flush(NULL, NULL, 0);
    fake.set(FAKE_BUFFER_LIMIT, 0);
    eni_cupti_get_counts(&after);
    assert_int_equal(seen.count, 0);
    assert_int_equal(after.dropped - before.dropped, 2);
    eni_cupti_stop(&all);
    assert_int_equal(fake.get(FAKE_BUFFERS_OUT), 0);
}

static void without_memory_a_buffer_is_there_all_the_same(void **state)
{
    (void)state;
    failing_allocator allocator;
    uint8_t *buffers[4];
    size_t size, most;
    eni_cupti_counts before, after;
    failing_begin(&allocator);
    start(&all);
    tell_launch(1);
    eni_cupti_get_counts(&before);
    eni_cupti_buffer_requested(&buffers[0], &size, &most); /* the one that is kept at hand */
    assert_int_equal(size, 1 << 20);
    allocator.left = 0;
    for (int i = 1; i < 4; i++) {
        eni_cupti_buffer_requested(&buffers[i], &size, &most);
        assert_non_null(buffers[i]);
        assert_true(size >= 65536);
        assert_int_equal((uintptr_t)buffers[i] & 7, 0);
        cupti_kernel_record record = kernel_record(1, 1, 2);
        memcpy(buffers[i], &record, sizeof record);
    }
    allocator.left = -1;
    for (int i = 0; i < 4; i++) {
        eni_cupti_buffer_completed(NULL, 0, buffers[i], size, i == 0 ? 0 : 216);
    }
    eni_cupti_get_counts(&after);
    assert_int_equal(after.starved - before.starved, 3);
    assert_int_equal(seen.count, 0); /* what lies in shared memory is not trusted */
    send_times(5, 1, 2);
    eni_cupti_flush(NULL, NULL, 0);
    assert_int_equal(seen.count, 1);
    eni_cupti_stop(&all);
    failing_end(&allocator);
}

static void buffers_that_come_back_late_are_freed(void **state)
{
    (void)state;
    failing_allocator allocator;
    uint8_t *buffer;
    size_t size, most;
    failing_begin(&allocator);
    start(&all);
    tell_launch(1);
    eni_cupti_buffer_requested(&buffer, &size, &most);
    eni_cupti_stop(&all); /* CUPTI still holds it: it must stay */
    memset(buffer, 0, size);
    eni_cupti_buffer_completed(NULL, 0, buffer, size, 0);
    start(&all);
    eni_cupti_stop(&all);
    failing_end(&allocator);
}

static void only_the_outermost_call_is_told(void **state)
{
    (void)state;
    const cupti_runtime_launch outer = {.function = &seen, .stream = (void *)(uintptr_t)0x50};
    const cupti_driver_launch inner = {.function = &fake, .stream = (void *)(uintptr_t)0x60};
    int mark;
    start(&all);
    eni_cupti_mark(&mark);
    tell_call(2, 211, CUPTI_API_ENTER, 10, &outer);
    tell_call(2, 505, CUPTI_API_ENTER, 11, &outer);
    tell_call(1, 307, CUPTI_API_ENTER, 12, &inner);
    tell_call(1, 307, CUPTI_API_EXIT, 12, &inner);
    tell_call(2, 505, CUPTI_API_EXIT, 11, &outer);
    tell_call(2, 211, CUPTI_API_EXIT, 10, &outer);
    eni_cupti_mark(NULL);
    tell_call(1, 307, CUPTI_API_ENTER, 13, &inner);
    tell_call(1, 307, CUPTI_API_EXIT, 13, &inner);
    assert_int_equal(seen.enter_count, 2);
    assert_int_equal(seen.leave_count, 2);
    assert_int_equal(seen.enters[0].correlation, 10);
    assert_int_equal(seen.leaves[0].correlation, 10);
    assert_true(seen.enters[0].runtime);
    assert_ptr_equal(seen.enters[0].function, &seen);
    assert_ptr_equal(seen.enters[0].stream, (void *)(uintptr_t)0x50);
    assert_ptr_equal(seen.enters[0].mark, &mark);
    assert_string_equal(seen.enters[0].name, "_Z4workPf");
    assert_int_equal(seen.enters[1].correlation, 13);
    assert_false(seen.enters[1].runtime);
    assert_ptr_equal(seen.enters[1].function, &fake);
    assert_ptr_equal(seen.enters[1].stream, (void *)(uintptr_t)0x60);
    assert_null(seen.enters[1].mark);
    eni_cupti_stop(&all);
}

static void all_ways_to_launch_are_known(void **state)
{
    (void)state;
    const cupti_launch_config config = {.stream = (void *)(uintptr_t)0x70};
    const cupti_extended_launch extended = {.config = &config, .function = &seen};
    const cupti_graph_launch graph = {.exec = &fake, .stream = (void *)(uintptr_t)0x80};
    const cupti_driver_launch plain = {.function = &seen, .stream = (void *)(uintptr_t)0x90};
    const struct {
        uint32_t domain, cbid, family;
        const void *parameters, *function;
        uintptr_t stream;
    } calls[] = {{1, 442, ENI_CUPTI_KERNEL, &plain, &seen, 0x90},
                 {1, 477, ENI_CUPTI_KERNEL, &plain, &seen, 0x90},
                 {1, 652, ENI_CUPTI_KERNEL, &extended, &seen, 0x70},
                 {1, 653, ENI_CUPTI_KERNEL, &extended, &seen, 0x70},
                 {2, 430, ENI_CUPTI_KERNEL, &extended, &seen, 0x70},
                 {1, 514, ENI_CUPTI_GRAPH, &graph, &fake, 0x80},
                 {1, 515, ENI_CUPTI_GRAPH, &graph, &fake, 0x80},
                 {2, 311, ENI_CUPTI_GRAPH, &graph, &fake, 0x80},
                 {1, 115, ENI_CUPTI_KERNEL, NULL, NULL, 0},
                 {1, 277, ENI_CUPTI_MEMCPY, NULL, NULL, 0},
                 {2, 41, ENI_CUPTI_MEMCPY, NULL, NULL, 0},
                 {1, 216, ENI_CUPTI_MEMSET, NULL, NULL, 0},
                 {2, 51, ENI_CUPTI_MEMSET, NULL, NULL, 0}};
    start(&all);
    for (uint32_t i = 0; i < ENI_COUNT_OF(calls); i++) {
        tell_call(calls[i].domain, calls[i].cbid, CUPTI_API_ENTER, i + 1, calls[i].parameters);
        tell_call(calls[i].domain, calls[i].cbid, CUPTI_API_EXIT, i + 1, calls[i].parameters);
        assert_int_equal(seen.enter_count, i + 1);
        const eni_cupti_launch *launch = &seen.enters[i];
        assert_int_equal(launch->family, calls[i].family);
        assert_int_equal(launch->cbid, calls[i].cbid);
        assert_ptr_equal(launch->function, calls[i].function);
        assert_int_equal((uintptr_t)launch->stream, calls[i].stream);
    }
    assert_false(fake.enabled(1, 527)); /* a function on the host is no GPU work */
    assert_false(fake.enabled(2, 284));
    eni_cupti_stop(&all);
    assert_false(fake.enabled(1, 307));
}

static void calls_that_began_or_failed_otherwise_do_no_harm(void **state)
{
    (void)state;
    const cupti_driver_launch launch = {.function = &fake};
    const int32_t bad = 701;
    start(&all);
    tell_call(1, 307, CUPTI_API_EXIT, 1, &launch); /* entered before the session */
    assert_int_equal(seen.leave_count, 0);
    tell_call(1, 307, CUPTI_API_ENTER, 2, &launch);
    const cupti_call failing = {.site = CUPTI_API_EXIT, .parameters = &launch, .return_value = &bad, .correlation = 2};
    fake.call(1, 307, &failing);
    assert_int_equal(seen.leave_count, 1);
    assert_true(seen.leaves[0].failed);
    tell_call(2, 211, CUPTI_API_ENTER, 3, NULL); /* left after the session */
    eni_cupti_stop(&all);
    start(&all);
    tell_launch(4);
    assert_int_equal(seen.enter_count, 1);
    assert_int_equal(seen.enters[0].correlation, 4);
    assert_false(seen.leaves[0].failed);
    eni_cupti_stop(&all);
}

static bool has_two(void *user)
{
    (void)user;
    return seen.count >= 2;
}

static void flushing_goes_on_until_all_is_there(void **state)
{
    (void)state;
    start(&all);
    tell_launch(1);
    long before = fake.get(FAKE_FLUSHES);
    send_times(1, 1, 2);
    assert_false(eni_cupti_flush(has_two, NULL, 0)); /* once, then by force */
    assert_int_equal(fake.get(FAKE_FLUSHES), before + 2);
    assert_int_equal(seen.count, 1);
    send_times(2, 1, 2);
    assert_true(eni_cupti_flush(has_two, NULL, UINT64_MAX));
    assert_int_equal(fake.get(FAKE_FLUSHES), before + 3);
    eni_cupti_stop(&all);
}

static void changes_of_graphs_are_told(void **state)
{
    (void)state;
    const cupti_graph graph = {.graph = (void *)3, .node = (void *)21, .original_node = (void *)20, .exec = (void *)4};
    const cupti_resource resource = {.descriptor = &graph};
    static const struct {
        uint32_t cbid, change, graph;
        uint64_t node, original;
    } changes[] = {{CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, ENI_CUPTI_NODE_CREATED, 3, 21, 0},
                   {CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, ENI_CUPTI_NODE_CLONED, 3, 21, 20},
                   {CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING, ENI_CUPTI_NODE_DESTROYED, 3, 21, 0},
                   {CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, ENI_CUPTI_EXEC_CREATED, 4, 0, 0},
                   {CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING, ENI_CUPTI_EXEC_DESTROYED, 4, 0, 0},
                   {CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING, ENI_CUPTI_GRAPH_DESTROYED, 3, 0, 0}};
    start(&all);
    for (size_t i = 0; i < ENI_COUNT_OF(changes); i++) {
        fake.call(CUPTI_CB_DOMAIN_RESOURCE, changes[i].cbid, &resource);
        assert_int_equal(seen.graph_count, i + 1);
        assert_int_equal(seen.graphs[i].change, changes[i].change);
        assert_int_equal(seen.graphs[i].graph, changes[i].graph);
        assert_int_equal(seen.graphs[i].node, changes[i].node);
        assert_int_equal(seen.graphs[i].original, changes[i].original);
    }
    eni_cupti_stop(&all);
}

static size_t kernels_told;
static void count_kernel(const eni_cupti_record *record)
{
    assert_int_equal(record->family, ENI_CUPTI_KERNEL);
    kernels_told++;
}
static const eni_cupti_consumer kernels_alone = {.records = ENI_CUPTI_KERNEL, .record = count_kernel};

static void consumers_come_and_go(void **state)
{
    (void)state;
    union {
        cupti_memset_record fill;
        uint8_t bytes[88];
    } fill = {.fill = {.kind = CUPTI_ACTIVITY_KIND_MEMSET, .start = 5, .end = 9}};
    start(&kernels_alone);
    assert_false(fake.enabled(1, 307)); /* it wants no launches */
    start(&all);
    start(&all);
    assert_true(fake.enabled(1, 307));
    send_times(1, 1, 2);
    fake.record(&fill, sizeof fill);
    tell_launch(1);
    eni_cupti_flush(NULL, NULL, 0);
    assert_int_equal(kernels_told, 1);
    assert_int_equal(seen.count, 2);
    eni_cupti_stop(&all);
    send_times(2, 1, 2);
    eni_cupti_flush(NULL, NULL, 0);
    assert_int_equal(seen.count, 3); /* it was started twice */
    eni_cupti_stop(&all);
    send_times(3, 1, 2);
    eni_cupti_flush(NULL, NULL, 0);
    assert_int_equal(seen.count, 3);
    assert_int_equal(kernels_told, 3);
    assert_int_equal(fake.get(FAKE_SUBSCRIBED), 1);
    eni_cupti_stop(&kernels_alone);
    assert_int_equal(fake.get(FAKE_SUBSCRIBED), 0);
    for (int i = 0; i < 100; i++) {
        start(&all);
        tell_launch(1);
        send_times(1, 1, 2);
        eni_cupti_flush(NULL, NULL, 0);
        assert_int_equal(seen.count, 1);
        eni_cupti_stop(&all);
    }
    assert_int_equal(fake.get(FAKE_SUBSCRIBED), 0);
}

static void the_child_of_a_fork_refuses(void **state)
{
    (void)state;
    int status;
    start(&all);
    pid_t child = fork();
    if (child == 0) {
        tell_launch(1);
        bool refused = eni_cupti_start(&all) == ENIGMA_E_STATE && strstr(enigma_error_message(), "fork") != NULL;
        _exit(refused && seen.enter_count == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    tell_launch(2);
    assert_int_equal(seen.enter_count, 1);
    eni_cupti_stop(&all);
}

/* ---- threads ---- */

static uint64_t entered, recorded; /* atomic */
static void count_enter(const eni_cupti_launch *launch)
{
    (void)launch;
    __atomic_fetch_add(&entered, 1, __ATOMIC_RELAXED);
}
static void count_record(const eni_cupti_record *record)
{
    (void)record;
    __atomic_fetch_add(&recorded, 1, __ATOMIC_RELAXED);
}
static const eni_cupti_consumer counting = {
    .records = ENI_CUPTI_KERNEL, .launches = ENI_CUPTI_KERNEL, .record = count_record, .enter = count_enter};

static void *launch_many(void *user)
{
    (void)user;
    for (uint32_t i = 0; i < 2000; i++) {
        tell_launch(i + 1);
        send_times(i + 1, 1, 2);
    }
    return NULL;
}

static void threads_launch_while_others_flush_and_join(void **state)
{
    (void)state;
    pthread_t threads[3];
    start(&counting);
    for (int i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, launch_many, NULL);
    }
    for (int i = 0; i < 50; i++) {
        eni_cupti_flush(NULL, NULL, 0);
        assert_int_equal(eni_cupti_start(&kernels_alone), ENIGMA_OK);
        eni_cupti_stop(&kernels_alone);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    eni_cupti_flush(NULL, NULL, 0);
    assert_int_equal(__atomic_load_n(&entered, __ATOMIC_RELAXED), 6000);
    assert_int_equal(__atomic_load_n(&recorded, __ATOMIC_RELAXED), 6000);
    eni_cupti_stop(&counting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_prevents_a_start_is_said),
        cmocka_unit_test(nothing_is_flushed_before_the_first_call),
        cmocka_unit_test(kernels_are_read_whatever_the_version),
        cmocka_unit_test(copies_and_fills_are_read),
        cmocka_unit_test(times_that_cannot_be_are_said_and_counted),
        cmocka_unit_test(many_records_come_in_order_over_many_buffers),
        cmocka_unit_test(without_memory_a_buffer_is_there_all_the_same),
        cmocka_unit_test(buffers_that_come_back_late_are_freed),
        cmocka_unit_test(only_the_outermost_call_is_told),
        cmocka_unit_test(all_ways_to_launch_are_known),
        cmocka_unit_test(calls_that_began_or_failed_otherwise_do_no_harm),
        cmocka_unit_test(flushing_goes_on_until_all_is_there),
        cmocka_unit_test(changes_of_graphs_are_told),
        cmocka_unit_test(consumers_come_and_go),
        cmocka_unit_test(the_child_of_a_fork_refuses),
        cmocka_unit_test(threads_launch_while_others_flush_and_join),
    };
    if (!fake_load("new", &fake)) {
        return 1;
    }
    return cmocka_run_group_tests_name("cupti", tests, NULL, NULL);
}
