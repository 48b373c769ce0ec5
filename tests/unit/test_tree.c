/* The call tree: merging, order, pruning, own and inclusive figures, and depth. Cases A13, C14, G05, G07. */
#include "aggregate/tree.h"

#include "../api/recording.h"

static eni_tree tree_built(const enigma_profile *profile)
{
    eni_tree tree;
    assert_int_equal(eni_tree_build(profile, &tree), ENIGMA_OK);
    assert_int_equal(tree.nodes[0].parent, ENI_NONE);
    for (size_t i = 1; i < tree.count; i++) { /* preorder */
        assert_true(tree.nodes[i].parent < i && tree.nodes[i].depth == tree.nodes[tree.nodes[i].parent].depth + 1);
        assert_true(tree.nodes[i].depth <= tree.nodes[i - 1].depth + 1);
    }
    return tree;
}

static void assert_node(const eni_tree *tree, size_t index, const char *label, uint32_t depth, uint64_t calls)
{
    assert_true(index < tree->count);
    assert_string_equal(tree->nodes[index].label.data, label);
    assert_int_equal(tree->nodes[index].depth, depth);
    assert_int_equal(tree->nodes[index].calls, calls);
}

static void figures_of_nodes(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    for (int i = 0; i < 3; i++) {
        enigma_scope outer = begin_with("outer", "flops", 100, "x", i), inner = enigma_begin("inner");
        advance(1000);
        add_work(&(work){.kernel = "k",
                         .cpu_ns = 500,
                         .gpu_start = 5000,
                         .gpu_end = 5300,
                         .key = "flops",
                         .value = 100,
                         .input_bytes = 10,
                         .output_bytes = 20});
        enigma_end(inner);
        advance(2000);
        enigma_end(outer);
    }
    enigma_profile *profile = recording_end(p);
    eni_tree tree = tree_built(profile);
    assert_int_equal(tree.count, 4);
    assert_node(&tree, 1, "outer", 1, 3);
    assert_node(&tree, 2, "inner", 2, 3);
    assert_node(&tree, 3, "gpu_dispatch:k", 3, 3);
    const eni_tree_node *n = tree.nodes;
    assert_true(n[1].cpu_ns == 10500 && n[1].self_ns == 6000 && n[1].gpu_ns == 900 && n[1].gpu_self_ns == 0);
    assert_true(n[2].cpu_ns == 4500 && n[2].self_ns == 3000 && n[2].gpu_ns == 900);
    assert_true(n[3].gpu_self_ns == 900 && n[3].input_bytes == 30 && n[3].output_bytes == 60 &&
                n[3].kind == ENI_TREE_GPU);
    const eni_metric_total *flops = eni_metrics_first(&tree.metrics, n[1].metrics);
    assert_true(eni_sum_get(&flops->sum) == 300 && eni_sum_get(&eni_metrics_next(&tree.metrics, flops)->sum) == 3);
    assert_null(eni_metrics_first(&tree.metrics, n[2].metrics));
    eni_tree_free(&tree);
    enigma_profile_free(profile);
}

static void order_is_that_of_first_begin(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    for (int i = 0; i < 2; i++) {
        enigma_scope b = enigma_begin("b");
        enigma_end(enigma_begin("z"));
        enigma_end(enigma_begin("a"));
        enigma_end(b);
        enigma_end(enigma_begin("a"));
    }
    enigma_profile *profile = recording_end(p);
    eni_tree tree = tree_built(profile);
    assert_int_equal(tree.count, 5);
    assert_node(&tree, 1, "b", 1, 2);
    assert_node(&tree, 2, "z", 2, 2);
    assert_node(&tree, 3, "a", 2, 2);
    assert_node(&tree, 4, "a", 1, 2);
    eni_tree_free(&tree);
    enigma_profile_free(profile);
}

/* A path that was only asked for is not shown; one above events is, with no calls. */
static void nodes_without_events(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_path outer = enigma_path_child(p, 0, (enigma_text){"outer", 0});
    enigma_path_child(p, outer, (enigma_text){"never", 0});
    enigma_scope_close(p, enigma_scope_open(p, enigma_path_child(p, outer, (enigma_text){"inner", 0}), 0, 0));
    enigma_profile *profile = recording_end(p);
    eni_tree tree = tree_built(profile);
    assert_int_equal(tree.count, 3);
    assert_node(&tree, 1, "outer", 1, 0);
    assert_node(&tree, 2, "inner", 2, 1);
    eni_tree_free(&tree);
    written text = tree_of(profile);
    assert_non_null(strstr(text.data, "\nouter  calls 0  cpu -  gpu -\n  inner  calls 1  cpu 0.000  gpu 0.000\n"));
    free(text.data);
    enigma_profile_free(profile);
}

static void siblings_differ_in_label_and_kind(void **state)
{
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_end(enigma_begin("a:b"));
    add_work(&(work){.name = "a", .kernel = "b", .gpu_start = 5, .gpu_end = 6});
    add_work(&(work){.name = "a:b", .gpu_start = 5, .gpu_end = 6}); /* the same label again: merged with the last */
    enigma_profile *profile = recording_end(p);
    eni_tree tree = tree_built(profile);
    assert_int_equal(tree.count, 3);
    assert_true(tree.nodes[1].kind == ENI_TREE_SCOPE && tree.nodes[2].kind == ENI_TREE_GPU && tree.nodes[2].calls == 2);
    eni_tree_free(&tree);
    enigma_profile_free(profile);
}

static void an_empty_profile_has_a_root(void **state)
{
    (void)state;
    enigma_profile *profile = recording_end(recording_begin(RECORDING_START));
    eni_tree tree = tree_built(profile);
    assert_int_equal(tree.count, 1);
    eni_tree_free(&tree);
    enigma_profile_free(profile);
}

static void g07_depth_is_no_recursion(void **state)
{
    enum { DEEP = 100000 };
    (void)state;
    enigma_profiler *p = recording_begin(RECORDING_START);
    enigma_path path = 0;
    for (int i = 0; i < DEEP; i++) {
        path = enigma_path_child(p, path, (enigma_text){"f", 0});
    }
    enigma_scope_close(p, enigma_scope_open(p, path, 0, 0));
    enigma_profile *profile = recording_end(p);
    eni_tree tree = tree_built(profile);
    assert_int_equal(tree.count, DEEP + 1);
    assert_node(&tree, DEEP, "f", DEEP, 1);
    eni_tree_free(&tree);
    enigma_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_of_nodes),
        cmocka_unit_test(order_is_that_of_first_begin),
        cmocka_unit_test(nodes_without_events),
        cmocka_unit_test(siblings_differ_in_label_and_kind),
        cmocka_unit_test(an_empty_profile_has_a_root),
        cmocka_unit_test(g07_depth_is_no_recursion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
