/* backends/opencl_clock.c against a driver made for the test, on the scripted host clock: the true offset between the clocks is known, so
 * the error of every reading can be checked against what it claims. */
#include "support.h"

#include "backends/opencl.h"
#include "base/clock.h"

#define SECOND UINT64_C(1000000000)

/* How the driver behaves. Device time = host time + offset + drift. */
static struct {
    int64_t offset_ns;
    double drift_ppm;
    uint64_t enqueue_ns;   /* an enqueue call takes up to so long, twice: before and after QUEUED is stamped */
    uint64_t run_ns;       /* from the enqueue to START, and from END until completion is seen */
    int64_t queued_lie_ns; /* QUEUED is of a clock that is off by so much */
    int64_t timer_lie_ns;  /* so is the timer */
    bool has_timer, busy;
    uint32_t seed, markers, timers, live_events;
} driver;

typedef struct fake_event {
    uint64_t queued, start, end;
} fake_event;

static uint64_t device_now(void)
{
    uint64_t host = eni_clock_now_ns();
    return host + (uint64_t)driver.offset_ns + (uint64_t)(int64_t)((double)host * driver.drift_ppm / 1e6);
}

static void pass(uint64_t most)
{
    driver.seed = driver.seed * 1664525u + 1013904223u;
    enigma_scripted_clock_advance(most == 0 ? 0 : (driver.seed >> 8) % most);
}

static cl_int fake_marker(cl_command_queue queue, cl_uint count, const cl_event *wait, cl_event *out)
{
    (void)queue, (void)count, (void)wait;
    fake_event *event = malloc(sizeof *event);
    pass(driver.enqueue_ns);
    event->queued = device_now() + (uint64_t)driver.queued_lie_ns;
    pass(driver.enqueue_ns);
    driver.markers++;
    driver.live_events++;
    *out = (cl_event)event;
    return CL_SUCCESS;
}

static cl_int fake_flush(cl_command_queue queue)
{
    (void)queue;
    return CL_SUCCESS;
}

static cl_int fake_event_info(cl_event handle, cl_uint name, size_t size, void *value, size_t *out)
{
    (void)name, (void)size, (void)out;
    fake_event *event = (fake_event *)handle;
    *(cl_int *)value = driver.busy ? 1 : CL_COMPLETE;
    if (!driver.busy) {
        pass(driver.run_ns);
        event->start = event->end = device_now();
        pass(driver.run_ns);
    }
    return CL_SUCCESS;
}

static cl_int fake_profiling(cl_event handle, cl_uint name, size_t size, void *value, size_t *out)
{
    (void)size, (void)out;
    const fake_event *event = (const fake_event *)handle;
    *(cl_ulong *)value = name == CL_PROFILING_COMMAND_QUEUED  ? event->queued
                         : name == CL_PROFILING_COMMAND_START ? event->start
                                                              : event->end;
    return CL_SUCCESS;
}

static cl_int fake_release(cl_event event)
{
    driver.live_events--;
    free(event);
    return CL_SUCCESS;
}

static cl_int fake_timer(cl_device_id device, cl_ulong *device_time, cl_ulong *host_time)
{
    (void)device;
    if (!driver.has_timer) {
        return -59; /* CL_INVALID_OPERATION, as some drivers answer */
    }
    driver.timers++;
    pass(300);
    *device_time = device_now() + (uint64_t)driver.timer_lie_ns;
    *host_time = 12345; /* of a clock that nobody knows */
    pass(300);
    return CL_SUCCESS;
}

static opencl_device device;

static int set_up(void **state)
{
    (void)state;
    memset(&driver, 0, sizeof driver);
    driver.offset_ns = INT64_C(987654321012345);
    driver.enqueue_ns = 10000;
    driver.run_ns = 15000;
    driver.seed = 1;
    eni_cl = (eni_opencl_functions){.clEnqueueMarkerWithWaitList = fake_marker,
                                    .clFlush = fake_flush,
                                    .clGetEventInfo = fake_event_info,
                                    .clGetEventProfilingInfo = fake_profiling,
                                    .clReleaseEvent = fake_release,
                                    .clGetDeviceAndHostTimer = fake_timer};
    memset(&device, 0, sizeof device);
    pthread_mutex_init(&device.clock.lock, NULL);
    enigma_scripted_clock_begin(SECOND);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(driver.live_events, 0);
    enigma_scripted_clock_end();
    pthread_mutex_destroy(&device.clock.lock);
    return 0;
}

/* One pair; its error must lie within what it claims, and within the bound. */
static void assert_pair_within(uint64_t bound_ns)
{
    eni_clock_pair pair;
    assert_int_equal(eni_opencl_clock_pair(&device, 0, &pair), ENIGMA_OK);
    uint64_t host = eni_clock_ns(pair.host_ticks);
    uint64_t truth = host + (uint64_t)driver.offset_ns + (uint64_t)(int64_t)((double)host * driver.drift_ppm / 1e6);
    int64_t error = (int64_t)(pair.device_ticks - truth);
    uint64_t size = (uint64_t)(error < 0 ? -error : error);
    assert_true(size <= pair.uncertainty_ns);
    assert_true(size <= bound_ns);
}

/* Ten minutes, a pair each 100 ms. */
static void run_ten_minutes(uint64_t bound_ns)
{
    for (int i = 0; i < 6000; i++) {
        assert_pair_within(bound_ns);
        enigma_scripted_clock_advance(SECOND / 10);
    }
}

static void brackets_of_enqueues_are_narrowed_down(void **state)
{
    (void)state;
    assert_pair_within(1500);
    assert_int_equal(device.clock.source, OPENCL_CLOCK_QUEUED);
    assert_true(driver.markers <= 60); /* bounded */
    run_ten_minutes(10000);
}

static void drift_stays_below_the_bound(void **state)
{
    (void)state;
    static const double drifts[] = {45.0, -45.0, 120.0, -120.0}; /* the last two are more than is expected */
    for (size_t i = 0; i < 4; i++) {
        device.clock = (opencl_clock){.lock = device.clock.lock};
        driver.drift_ppm = drifts[i];
        if (i < 2) {
            run_ten_minutes(20000);
            continue;
        }
        for (int k = 0; k < 6000; k++) { /* the claim may then be too narrow, but the error stays that of one bracket */
            eni_clock_pair pair;
            assert_int_equal(eni_opencl_clock_pair(&device, 0, &pair), ENIGMA_OK);
            uint64_t host = eni_clock_ns(pair.host_ticks);
            int64_t error = (int64_t)(pair.device_ticks - host - (uint64_t)driver.offset_ns) -
                            (int64_t)((double)host * driver.drift_ppm / 1e6);
            assert_true(error > -20000 && error < 20000);
            enigma_scripted_clock_advance(SECOND / 10);
        }
    }
}

static void dispatches_refresh_the_readings(void **state)
{
    (void)state;
    assert_pair_within(1500);
    for (int i = 0; i < 2000; i++) {
        uint64_t before = eni_clock_now_ns();
        pass(2000);
        uint64_t queued = device_now();
        pass(2000);
        uint64_t after = eni_clock_now_ns();
        eni_opencl_clock_note(
            &device.clock, &(opencl_sighting){.before = before, .after = after, .complete = after, .queued = queued});
        enigma_scripted_clock_advance(1000000);
    }
    uint32_t markers = driver.markers;
    assert_pair_within(1500);
    assert_true(driver.markers - markers <= 2); /* hardly any of its own was needed */
}

static void a_timer_is_preferred_where_it_tells_the_same(void **state)
{
    (void)state;
    driver.has_timer = true;
    assert_pair_within(600);
    assert_int_equal(device.clock.source, OPENCL_CLOCK_TIMER);
    uint32_t markers = driver.markers;
    run_ten_minutes(2000);
    assert_int_equal(driver.markers, markers);
}

static void a_timer_of_another_clock_is_not_believed(void **state)
{
    (void)state;
    driver.has_timer = true;
    driver.timer_lie_ns = 3000000;
    assert_pair_within(1500);
    assert_int_equal(device.clock.source, OPENCL_CLOCK_QUEUED);
}

static void queued_stamps_of_another_clock_are_not_believed(void **state)
{
    (void)state;
    driver.queued_lie_ns = -5000000;
    driver.enqueue_ns = 2000;
    driver.run_ns = 3000;
    assert_pair_within(3000);
    assert_int_equal(device.clock.source, OPENCL_CLOCK_EXECUTION);
    run_ten_minutes(10000);
}

static void a_busy_device_is_not_waited_for(void **state)
{
    (void)state;
    eni_clock_pair pair;
    driver.busy = true;
    assert_int_equal(eni_opencl_clock_pair(&device, 0, &pair), ENIGMA_E_UNAVAILABLE);
    driver.busy = false;
    assert_pair_within(1500);
    driver.busy = true;
    enigma_scripted_clock_advance(SECOND / 10);
    assert_pair_within(7000); /* the last reading still bounds it */
}

static void a_clock_that_was_set_is_found_again(void **state)
{
    (void)state;
    assert_pair_within(1500);
    driver.offset_ns -= 777777777;
    enigma_scripted_clock_advance(SECOND / 10);
    assert_pair_within(20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(brackets_of_enqueues_are_narrowed_down, set_up, tear_down),
        cmocka_unit_test_setup_teardown(drift_stays_below_the_bound, set_up, tear_down),
        cmocka_unit_test_setup_teardown(dispatches_refresh_the_readings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_timer_is_preferred_where_it_tells_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_timer_of_another_clock_is_not_believed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(queued_stamps_of_another_clock_are_not_believed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_busy_device_is_not_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_clock_that_was_set_is_found_again, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("opencl_clock", tests, NULL, NULL);
}
