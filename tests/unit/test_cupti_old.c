/* The CUPTI session over an old CUPTI: no clock of ours in it, no numbers of graphs. */
#include "support.h"

#include "../fakecuda/fake.h"
#include "base/clock.h"
#include "cupti/cupti.h"

static fake_libraries fake;
static eni_cupti_record last;
static eni_cupti_graph_event change;

static void on_record(const eni_cupti_record *record) { last = *record; }
static void on_graph(const eni_cupti_graph_event *event) { change = *event; }

static const eni_cupti_consumer consumer = {
    .records = ENI_CUPTI_MEMSET, .launches = ENI_CUPTI_MEMSET, .record = on_record, .graph = on_graph};

/* The library stamps with the calendar's clock; records come on the host's. */
static void stamps_are_moved_to_our_clock(void **state)
{
    (void)state;
    union {
        cupti_memset_record fill;
        uint8_t bytes[88];
    } fill = {.fill = {.kind = CUPTI_ACTIVITY_KIND_MEMSET}};
    const cupti_call call = {.site = CUPTI_API_ENTER};
    struct timespec now;
    assert_int_equal(eni_cupti_start(&consumer), ENIGMA_OK);
    assert_int_equal(eni_cupti_version(), 15);
    fake.call(1, 216, &call);
    uint64_t before = eni_clock_real_ns();
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t after = eni_clock_real_ns();
    fill.fill.start = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    fill.fill.end = fill.fill.start + 640;
    fake.record(&fill, sizeof fill);
    eni_cupti_flush(NULL, NULL, 0);
    assert_int_equal(last.time, ENI_CUPTI_TIME_VALID);
    assert_int_equal(last.end_ns - last.start_ns, 640);
    const uint64_t slack = 20000000; /* the machine may stop this thread between two readings */
    assert_true(last.start_ns + slack >= before && last.start_ns <= after + slack);
    fill.fill.start = 0;
    fake.record(&fill, sizeof fill);
    eni_cupti_flush(NULL, NULL, 0);
    assert_int_equal(last.time, ENI_CUPTI_TIME_ZERO);
    eni_cupti_stop(&consumer);
}

static void graphs_without_numbers_have_none(void **state)
{
    (void)state;
    const cupti_graph graph = {.graph = (void *)3, .node = (void *)21, .node_type = 2};
    const cupti_resource resource = {.descriptor = &graph};
    assert_int_equal(eni_cupti_start(&consumer), ENIGMA_OK);
    change.node = 99;
    fake.call(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, &resource);
    assert_int_equal(change.change, ENI_CUPTI_NODE_CREATED);
    assert_int_equal(change.node, 0);
    assert_int_equal(change.graph, 0);
    assert_int_equal(change.node_type, 2);
    eni_cupti_stop(&consumer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stamps_are_moved_to_our_clock),
        cmocka_unit_test(graphs_without_numbers_have_none),
    };
    if (!fake_load("old", &fake)) {
        return 1;
    }
    return cmocka_run_group_tests_name("cupti_old", tests, NULL, NULL);
}
