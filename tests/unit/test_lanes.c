/* Laying out slices: whatever comes, what is on one lane nests, parents hold their children where they fit, and no lane is
 * opened without need. Case C17. */
#include "present/lanes.h"

#include "support.h"

#define MOST 200

typedef struct layout {
    eni_slice slices[MOST];
    eni_place places[MOST];
    uint32_t lanes[4];
    size_t count;
} layout;

static void put(layout *l, uint32_t track, uint64_t start, uint64_t end, uint32_t parent)
{
    uint32_t level = parent == ENI_NONE ? 1 : l->slices[parent].level + 1;
    l->slices[l->count] = (eni_slice){start, end, track, level, (uint32_t)l->count, parent};
    l->count++;
}

static void assign(layout *l)
{
    memset(l->lanes, 0, sizeof l->lanes);
    assert_int_equal(eni_lanes_assign(l->slices, l->count, l->places, l->count, l->lanes), ENIGMA_OK);
}

static uint32_t lane(const layout *l, uint32_t id) { return l->places[id].lane; }

static const eni_slice *slice(const layout *l, uint32_t id) { return &l->slices[l->places[id].slice]; }

/* No two slices of one lane overlap partly. */
static void assert_nested(const layout *l)
{
    for (uint32_t a = 0; a < l->count; a++) {
        const eni_slice *x = slice(l, a);
        assert_int_equal(x->id, a);
        assert_true(lane(l, a) < l->lanes[x->track]);
        for (uint32_t b = 0; b < l->count; b++) {
            const eni_slice *y = slice(l, b);
            bool partly = x->start_ns < y->start_ns && y->start_ns < x->end_ns && x->end_ns < y->end_ns;
            assert_false(partly && x->track == y->track && lane(l, a) == lane(l, b));
        }
    }
}

static void nested_scopes_need_one_lane(void **state)
{
    static layout l;
    (void)state;
    l.count = 0;
    put(&l, 0, 0, 100, ENI_NONE);
    put(&l, 0, 0, 100, 0); /* as long as its parent */
    put(&l, 0, 10, 20, 1);
    put(&l, 0, 20, 30, 1); /* touches its sibling */
    put(&l, 0, 30, 30, 1);
    put(&l, 0, 30, 30, 4); /* a point in a point */
    put(&l, 0, 30, 100, 1);
    put(&l, 0, 100, 100, 0);
    put(&l, 0, 100, 120, ENI_NONE);
    put(&l, 1, 5, 500, ENI_NONE);
    assign(&l);
    assert_nested(&l);
    assert_true(l.lanes[0] == 1 && l.lanes[1] == 1);
    assert_true(l.places[0].depth == 1 && l.places[1].depth == 2 && l.places[2].depth == 3 && l.places[5].depth == 4);
}

static void c17_overlaps_take_a_lane(void **state)
{
    static layout l;
    (void)state;
    l.count = 0;
    put(&l, 0, 0, 100, ENI_NONE);
    put(&l, 0, 99, 200, ENI_NONE);  /* by one */
    put(&l, 0, 150, 160, ENI_NONE); /* inside the second, but not its child */
    put(&l, 0, 200, 300, ENI_NONE); /* lane 0 is free again */
    put(&l, 0, 210, 320, 3);        /* a task that outlives who made it */
    put(&l, 0, 220, 230, 4);        /* stays with its parent */
    assign(&l);
    assert_nested(&l);
    assert_true(lane(&l, 0) == 0 && lane(&l, 1) == 1 && lane(&l, 2) == 0 && lane(&l, 3) == 0 && lane(&l, 4) == 1);
    assert_true(lane(&l, 5) == 1 && l.places[5].depth == 2);
    assert_int_equal(l.lanes[0], 2);
}

static void points_take_no_lane(void **state)
{
    static layout l;
    (void)state;
    l.count = 0;
    put(&l, 0, 10, 10, ENI_NONE);
    put(&l, 0, 10, 50, ENI_NONE);
    put(&l, 0, 20, 20, ENI_NONE);
    put(&l, 0, 10, 10, ENI_NONE);
    assign(&l);
    assert_nested(&l);
    assert_int_equal(l.lanes[0], 1);
}

static uint32_t dice(uint64_t *seed, uint32_t sides)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % sides;
}

static void random_slices_nest(void **state)
{
    static layout l;
    uint64_t seed = 17;
    (void)state;
    for (int round = 0; round < 300; round++) {
        uint32_t span = 1 + dice(&seed, 60);
        size_t count = 1 + dice(&seed, MOST - 1);
        l.count = 0;
        for (uint32_t i = 0; i < count; i++) {
            uint64_t start = dice(&seed, span);
            uint32_t parent = i == 0 || dice(&seed, 3) == 0 ? ENI_NONE : dice(&seed, i);
            put(&l, dice(&seed, 4), start, start + dice(&seed, span), parent);
        }
        assign(&l);
        assert_nested(&l);
    }
}

static void out_of_memory_leaves_nothing(void **state)
{
    static layout l;
    (void)state;
    for (long left = 0; left < 4; left++) {
        failing_allocator failing = {.left = left};
        l.count = 0;
        put(&l, 0, 0, 100, ENI_NONE);
        put(&l, 0, 50, 150, ENI_NONE);
        put(&l, 0, 160, 170, ENI_NONE);
        assert_int_equal(enigma_set_allocator(failing_resize, &failing), ENIGMA_OK);
        memset(l.lanes, 0, sizeof l.lanes);
        enigma_status status = eni_lanes_assign(l.slices, l.count, l.places, l.count, l.lanes);
        assert_int_equal(status, left < 3 ? ENIGMA_E_NO_MEMORY : ENIGMA_OK);
        assert_int_equal(failing.blocks, 0);
        assert_int_equal(enigma_set_allocator(NULL, NULL), ENIGMA_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_scopes_need_one_lane),  cmocka_unit_test(c17_overlaps_take_a_lane),
        cmocka_unit_test(points_take_no_lane),          cmocka_unit_test(random_slices_nest),
        cmocka_unit_test(out_of_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
