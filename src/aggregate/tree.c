/* Building the call tree: merge nodes of equal path, add up their events, drop what nothing was recorded in, and lay the rest
 * out in preorder. All linear and without recursion: paths may be thousands deep. See tree.h. */
#include "aggregate/tree.h"

typedef struct building {
    const enigma_profile *profile;
    uint32_t *slot_of;    /* merged node of each call-path node */
    eni_tree_node *slots; /* merged nodes, parents first; node_count of room */
    size_t count;
    uint32_t *first_child, *next_sibling, *last_child, *place; /* by slot */
    bool *wanted;
    eni_metric_table metrics; /* by slot */
} building;

static void add_up(uint64_t *total, uint64_t value)
{
    if (__builtin_add_overflow(*total, value, total)) {
        *total = UINT64_MAX;
    }
}

/* ---- merging ---- */

static enigma_status merge_node(building *build, eni_map *known, uint32_t index)
{
    const eni_node_info *node = &build->profile->nodes[index];
    uint32_t parent = build->slot_of[node->parent];
    /* Path numbers are node numbers, so the top bit is free; a scope "a:b" and a kernel b of "a" stay apart. */
    uint64_t key = (uint64_t)parent << 32 | node->path | (node->runtime ? 1u << 31 : 0u);
    uint32_t *slot = eni_map_put(known, key, (uint32_t)build->count);
    if (slot == NULL) {
        return ENI_NO_MEMORY();
    }
    if (*slot == build->count) {
        build->slots[build->count++] = (eni_tree_node){.label = node->label,
                                                       .parent = parent,
                                                       .depth = build->slots[parent].depth + 1,
                                                       .kind = node->runtime ? ENI_TREE_RUNTIME : ENI_TREE_SCOPE,
                                                       .metrics = *slot};
    }
    build->slot_of[index] = *slot;
    return ENIGMA_OK;
}

static enigma_status merge_nodes(building *build)
{
    eni_map known = {NULL, 0, 0};
    enigma_status status = ENIGMA_OK;
    build->slots[0] = (eni_tree_node){.label = {"", 0}, .parent = ENI_NONE};
    build->slot_of[0] = 0;
    build->count = 1;
    for (size_t i = 1; i < build->profile->node_count && status == ENIGMA_OK; i++) {
        status = merge_node(build, &known, (uint32_t)i);
    }
    eni_map_free(&known);
    return status;
}

/* ---- events ---- */

static enigma_status add_events(building *build)
{
    for (size_t i = 0; i < build->profile->event_count; i++) {
        const eni_event *event = &build->profile->events[i];
        uint32_t slot = build->slot_of[event->node];
        eni_tree_node *node = &build->slots[slot];
        node->calls++;
        add_up(&node->cpu_ns, eni_event_duration_ns(event));
        add_up(&node->gpu_ns, event->gpu_ns);
        add_up(&node->self_ns, event->self_ns);
        const eni_launch *launch = eni_event_launch(build->profile, event);
        if (launch != NULL) {
            node->kind = node->kind == ENI_TREE_RUNTIME ? ENI_TREE_GPU : node->kind;
            add_up(&node->gpu_self_ns, event->gpu_ns);
            add_up(&node->input_bytes, launch->input_bytes);
            add_up(&node->output_bytes, launch->output_bytes);
        }
        if (event->side != 0) {
            uint32_t carried;
            ENI_TRY(eni_metrics_add(&build->metrics, build->profile, event, slot, &carried));
        }
    }
    return ENIGMA_OK;
}

/* ---- order ---- */

static void link_wanted(building *build)
{
    for (size_t i = build->count; i > 1; i--) {
        build->wanted[i - 1] |= build->slots[i - 1].calls > 0;
        build->wanted[build->slots[i - 1].parent] |= build->wanted[i - 1];
    }
    for (uint32_t i = 1; i < build->count; i++) {
        uint32_t parent = build->slots[i].parent;
        if (!build->wanted[i]) {
            continue;
        }
        uint32_t *link = build->last_child[parent] == ENI_NONE ? &build->first_child[parent]
                                                               : &build->next_sibling[build->last_child[parent]];
        *link = i;
        build->last_child[parent] = i;
    }
}

/* The slot after one in preorder, 0: the end. */
static uint32_t preorder_next(const building *build, uint32_t at)
{
    if (build->first_child[at] != ENI_NONE) {
        return build->first_child[at];
    }
    while (at != 0 && build->next_sibling[at] == ENI_NONE) {
        at = build->slots[at].parent;
    }
    return at == 0 ? 0 : build->next_sibling[at];
}

static enigma_status lay_out(building *build, eni_tree *tree)
{
    uint32_t at = 0;
    do {
        if (!eni_grow((void **)&tree->nodes, &tree->capacity, tree->count, sizeof *tree->nodes)) {
            return ENI_NO_MEMORY();
        }
        eni_tree_node *node = &tree->nodes[tree->count];
        *node = build->slots[at];
        build->place[at] = (uint32_t)tree->count++;
        node->parent = at == 0 ? ENI_NONE : build->place[node->parent];
        at = preorder_next(build, at);
    } while (at != 0);
    return ENIGMA_OK;
}

/* ---- building ---- */

static enigma_status build_all(building *build, eni_tree *tree)
{
    size_t links = build->profile->node_count * sizeof(uint32_t);
    ENI_TRY(merge_nodes(build));
    ENI_TRY(eni_metrics_init(&build->metrics, build->count));
    ENI_TRY(add_events(build));
    memset(build->first_child, 0xff, links);
    memset(build->last_child, 0xff, links);
    memset(build->next_sibling, 0xff, links);
    link_wanted(build);
    return lay_out(build, tree);
}

enigma_status eni_tree_build(const enigma_profile *profile, eni_tree *out)
{
    building build = {.profile = profile};
    size_t room = profile->node_count;
    size_t links = room * sizeof(uint32_t);
    *out = (eni_tree){0};
    uint32_t *block = eni_alloc(5 * links);
    build.slots = eni_alloc(room * sizeof *build.slots);
    build.wanted = eni_alloc_zero(room * sizeof *build.wanted);
    enigma_status status =
        ENI_LIKELY(block != NULL && build.slots != NULL && build.wanted != NULL) ? ENIGMA_OK : ENI_NO_MEMORY();
    if (status == ENIGMA_OK) {
        build.slot_of = block;
        build.first_child = block + room;
        build.next_sibling = block + 2 * room;
        build.last_child = block + 3 * room;
        build.place = block + 4 * room;
        status = build_all(&build, out);
        out->metrics = build.metrics;
    }
    eni_free(build.wanted, room * sizeof *build.wanted);
    eni_free(build.slots, room * sizeof *build.slots);
    eni_free(block, 5 * links);
    if (status != ENIGMA_OK) {
        eni_tree_free(out);
    }
    return status;
}

void eni_tree_free(eni_tree *tree)
{
    eni_free(tree->nodes, tree->capacity * sizeof *tree->nodes);
    eni_metrics_free(&tree->metrics);
    *tree = (eni_tree){0};
}
