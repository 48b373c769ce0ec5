/* The call tree of a profile: one node for all call-path nodes of equal path, with what was recorded there. Built and read on one
 * thread; immutable once built. Used by the tree text and by Hatchet.
 *
 * Invariants: nodes lie in preorder, nodes[0] is the root (no name, depth 0) and is always there; a parent has a smaller index
 * than its children; every other node has events, or has nodes below it that have. Siblings differ in (label, kind). */
#ifndef ENI_AGGREGATE_TREE_H
#define ENI_AGGREGATE_TREE_H

#include "aggregate/metrics.h"
#include "store/profile.h"

enum eni_tree_kind {
    ENI_TREE_SCOPE = 0,   /* the user's */
    ENI_TREE_RUNTIME = 1, /* a step of the runtime */
    ENI_TREE_GPU = 2      /* GPU work */
};

typedef struct eni_tree_node {
    enigma_text label;
    uint32_t parent; /* ENI_NONE for the root */
    uint32_t depth;
    uint32_t kind;    /* enum eni_tree_kind */
    uint32_t metrics; /* group in the metric table */
    uint64_t calls;
    uint64_t cpu_ns, gpu_ns; /* durations of its events; GPU time inclusive for scopes */
    uint64_t self_ns;        /* CPU time less that of direct children */
    uint64_t gpu_self_ns;    /* GPU time of its own: that of GPU work, 0 for scopes */
    uint64_t input_bytes, output_bytes;
} eni_tree_node;

typedef struct eni_tree {
    eni_tree_node *nodes;
    size_t count, capacity;
    eni_metric_table metrics;
} eni_tree;

enigma_status eni_tree_build(const enigma_profile *profile, eni_tree *out);
void eni_tree_free(eni_tree *tree);

#endif
