/* Grouping events into rows. See groups.h. */
#include "aggregate/groups.h"

#include <stdlib.h>

#include "aggregate/forest.h"
#include "aggregate/ids.h"

static enigma_status groups_init(eni_groups *groups, size_t node_count)
{
    *groups = (eni_groups){0};
    groups->of_node = eni_alloc(node_count * sizeof *groups->of_node);
    if (groups->of_node == NULL) {
        return ENI_NO_MEMORY();
    }
    groups->node_count = node_count;
    memset(groups->of_node, 0xff, node_count * sizeof *groups->of_node);
    return ENIGMA_OK;
}

void eni_groups_free(eni_groups *groups)
{
    eni_free(groups->items, groups->capacity * sizeof *groups->items);
    eni_free(groups->of_node, groups->node_count * sizeof *groups->of_node);
    *groups = (eni_groups){0};
}

/* ---- finding ---- */

typedef struct finder {
    const enigma_profile *profile;
    enum enigma_group group;
    eni_groups *groups;
    eni_ids names, kernels;
    eni_map numbers; /* (name or path) << 32 | kernel to the group's number */
} finder;

/* Gives a node its group. */
static enigma_status find_node(finder *find, uint32_t index)
{
    const eni_node_info *node = &find->profile->nodes[index];
    eni_groups *groups = find->groups;
    uint32_t name = node->path, kernel;
    if (find->group == ENIGMA_GROUP_NAME) {
        ENI_TRY(eni_ids_get(&find->names, node->name, &name));
    }
    ENI_TRY(eni_ids_get(&find->kernels, node->kernel, &kernel));
    uint32_t *number = eni_map_put(&find->numbers, (uint64_t)name << 32 | kernel, ENI_NONE);
    if (number == NULL || !eni_grow((void **)&groups->items, &groups->capacity, groups->count, sizeof *groups->items)) {
        return ENI_NO_MEMORY();
    }
    if (*number == ENI_NONE) {
        *number = (uint32_t)groups->count++;
        groups->items[*number] =
            (eni_group){.name = node->name, .kernel = node->kernel, .node = index, .first = *number};
    }
    groups->of_node[index] = *number;
    return ENIGMA_OK;
}

static int by_first(const void *a, const void *b)
{
    const eni_node_info *const *x = a, *const *y = b;
    return ((*x)->first > (*y)->first) - ((*x)->first < (*y)->first);
}

#define FEW_NODES 16 /* with more events to a node on average it is the nodes that are sorted */

/* The nodes that have events, in order of their first. */
static size_t list_used(const enigma_profile *profile, const eni_node_info **used)
{
    size_t count = 0;
    bool few = profile->node_count < profile->event_count / FEW_NODES;
    for (size_t i = 0; few && i < profile->node_count; i++) {
        if (profile->nodes[i].calls > 0) {
            used[count++] = &profile->nodes[i];
        }
    }
    if (few && count > 1) {
        qsort(used, count, sizeof *used, by_first);
    }
    for (size_t i = 0; !few && i < profile->event_count; i++) {
        const eni_node_info *node = &profile->nodes[profile->events[i].node];
        if (node->first == i) {
            used[count++] = node;
        }
    }
    return count;
}

static enigma_status find_all(finder *find)
{
    eni_groups *groups = find->groups;
    const enigma_profile *profile = find->profile;
    const eni_node_info **used = eni_alloc(profile->node_count * sizeof *used);
    if (used == NULL) {
        return ENI_NO_MEMORY();
    }
    enigma_status status = ENIGMA_OK;
    size_t count = list_used(profile, used);
    for (size_t i = 0; i < count && status == ENIGMA_OK; i++) {
        uint32_t node = (uint32_t)(used[i] - profile->nodes);
        status = find_node(find, node);
        if (status == ENIGMA_OK) {
            groups->items[groups->of_node[node]].calls += used[i]->calls;
            groups->items[groups->of_node[node]].gpu_calls += used[i]->gpu_calls;
        }
    }
    eni_free(used, profile->node_count * sizeof *used);
    return status;
}

/* ---- recursion ---- */

/* Whether some node lies below another of its group: open counts the nodes of each group that are entered. */
static bool walk_nodes(const eni_groups *groups, const eni_forest *forest, uint32_t *open)
{
    eni_forest_step step = {0};
    while (eni_forest_next(forest, &step)) {
        uint32_t group = groups->of_node[step.at];
        if (group == ENI_NONE) {
            continue;
        }
        open[group] += step.entering ? 1 : UINT32_MAX;
        if (step.entering && open[group] > 1) {
            return true;
        }
    }
    return false;
}

static enigma_status find_nested(const enigma_profile *profile, eni_groups *groups)
{
    groups->nested = !profile->follow;
    if (groups->count == 0 || !profile->follow) {
        return ENIGMA_OK;
    }
    eni_forest forest;
    ENI_TRY(eni_forest_init(&forest, &profile->nodes[0].parent, sizeof(eni_node_info), profile->node_count));
    uint32_t *open = eni_alloc_zero(groups->count * sizeof *open);
    enigma_status status = open == NULL ? ENI_NO_MEMORY() : ENIGMA_OK;
    if (status == ENIGMA_OK) {
        groups->nested = walk_nodes(groups, &forest, open);
    }
    eni_free(open, groups->count * sizeof *open);
    eni_forest_free(&forest);
    return status;
}

/* ---- call paths ---- */

/* Paths as lists, deepest first, so that the list of a node serves all nodes above it. */
static enigma_status list_of(const enigma_profile *profile, uint32_t node, eni_arena *arena, const enigma_text **lists)
{
    uint32_t depth = profile->nodes[node].depth;
    enigma_text *list = eni_arena_alloc(arena, depth * sizeof *list);
    if (list == NULL) {
        return ENI_NO_MEMORY();
    }
    for (uint32_t at = node; profile->nodes[at].depth > 0; at = profile->nodes[at].parent) {
        list[profile->nodes[at].depth - 1] = profile->nodes[at].label;
        if (lists[at] == NULL) {
            lists[at] = list;
        }
    }
    return ENIGMA_OK;
}

static enigma_status join(const enigma_text *list, uint32_t count, eni_arena *arena, enigma_text *out)
{
    size_t size = count > 0 ? count - 1 : 0;
    for (uint32_t i = 0; i < count; i++) {
        size += list[i].size;
    }
    char *at = eni_arena_alloc(arena, size + 1);
    if (at == NULL) {
        return ENI_NO_MEMORY();
    }
    *out = (enigma_text){at, size};
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0) {
            *at++ = '/';
        }
        memcpy(at, list[i].data, list[i].size);
        at += list[i].size;
    }
    *at = '\0';
    return ENIGMA_OK;
}

static enigma_status name_by_path(const enigma_profile *profile, eni_groups *groups, eni_arena *arena,
                                  const enigma_text **lists)
{
    for (size_t i = groups->count; i > 0; i--) {
        eni_group *group = &groups->items[i - 1];
        if (lists[group->node] == NULL && profile->nodes[group->node].depth > 0) {
            ENI_TRY(list_of(profile, group->node, arena, lists));
        }
        group->path = lists[group->node];
        group->path_count = profile->nodes[group->node].depth;
        ENI_TRY(join(group->path, group->path_count, arena, &group->name));
    }
    return ENIGMA_OK;
}

static int deeper_last(const void *a, const void *b)
{
    const eni_group *x = a, *y = b;
    return (x->path_count > y->path_count) - (x->path_count < y->path_count);
}

static enigma_status describe_paths(const enigma_profile *profile, eni_groups *groups, eni_arena *arena)
{
    const enigma_text **lists = eni_alloc_zero(profile->node_count * sizeof *lists);
    if (lists == NULL) {
        return ENI_NO_MEMORY();
    }
    for (size_t i = 0; i < groups->count; i++) {
        groups->items[i].path_count = profile->nodes[groups->items[i].node].depth;
    }
    qsort(groups->items, groups->count, sizeof *groups->items, deeper_last);
    enigma_status status = name_by_path(profile, groups, arena, lists);
    eni_free(lists, profile->node_count * sizeof *lists);
    return status;
}

/* ---- order ---- */

static int by_name(const void *a, const void *b)
{
    const eni_group *x = a, *y = b;
    int order = x->name.data == y->name.data ? 0 : eni_text_compare(x->name, y->name);
    order = order != 0 ? order : eni_text_compare(x->kernel, y->kernel);
    return order != 0 ? order : (x->first > y->first) - (x->first < y->first);
}

/* Sorts the groups and renumbers the nodes. */
static enigma_status put_in_order(eni_groups *groups)
{
    uint32_t *moved = eni_alloc(groups->count * sizeof *moved);
    if (moved == NULL) {
        return ENI_NO_MEMORY();
    }
    qsort(groups->items, groups->count, sizeof *groups->items, by_name);
    for (size_t i = 0; i < groups->count; i++) {
        moved[groups->items[i].first] = (uint32_t)i;
    }
    for (size_t i = 0; i < groups->node_count; i++) {
        if (groups->of_node[i] != ENI_NONE) {
            groups->of_node[i] = moved[groups->of_node[i]];
        }
    }
    eni_free(moved, groups->count * sizeof *moved);
    return ENIGMA_OK;
}

enigma_status eni_groups_find(const enigma_profile *profile, enum enigma_group group, eni_arena *arena, eni_groups *out)
{
    finder find = {.profile = profile, .group = group, .groups = out};
    enigma_status status = groups_init(out, profile->node_count);
    if (status == ENIGMA_OK) {
        status = find_all(&find);
    }
    if (status == ENIGMA_OK) {
        status = find_nested(profile, out);
    }
    if (status == ENIGMA_OK && group == ENIGMA_GROUP_CALL_PATH && out->count > 0) {
        status = describe_paths(profile, out, arena);
    }
    if (status == ENIGMA_OK && out->count > 0) {
        status = put_in_order(out);
    }
    eni_ids_free(&find.names);
    eni_ids_free(&find.kernels);
    eni_map_free(&find.numbers);
    if (status != ENIGMA_OK) {
        eni_groups_free(out);
    }
    return status;
}

/* ---- merging ---- */

/* Where the run of one name that begins at i ends. */
static size_t run_end(const eni_groups *groups, size_t i)
{
    size_t end = i + 1;
    while (end < groups->count && eni_text_equal(groups->items[i].name, groups->items[end].name)) {
        end++;
    }
    return end;
}

static bool same_kernel(enigma_text a, enigma_text b)
{
    return (a.data == NULL) == (b.data == NULL) && eni_text_equal(a, b);
}

static eni_group merged_of(const enigma_profile *profile, const eni_group *run, size_t count)
{
    eni_group merged = run[0];
    for (size_t i = 1; i < count; i++) {
        if (!same_kernel(merged.kernel, run[i].kernel)) {
            merged.kernel = (enigma_text){NULL, 0};
        }
        if (merged.path != NULL && profile->nodes[merged.node].path != profile->nodes[run[i].node].path) {
            merged.path = NULL;
            merged.path_count = 0;
        }
        merged.calls += run[i].calls;
        merged.gpu_calls += run[i].gpu_calls;
    }
    return merged;
}

enigma_status eni_groups_merge(const enigma_profile *profile, const eni_groups *from, eni_groups *out)
{
    ENI_TRY(groups_init(out, from->node_count));
    enigma_status status = ENIGMA_OK;
    uint32_t *moved = eni_alloc(from->count * sizeof *moved);
    if (moved == NULL) {
        status = ENI_NO_MEMORY();
    }
    for (size_t i = 0, end; i < from->count && status == ENIGMA_OK; i = end) {
        end = run_end(from, i);
        uint32_t number = end - i > 1 ? (uint32_t)out->count : ENI_NONE;
        for (size_t k = i; k < end; k++) {
            moved[k] = number;
        }
        if (number == ENI_NONE) {
            continue;
        }
        if (!eni_grow((void **)&out->items, &out->capacity, out->count, sizeof *out->items)) {
            status = ENI_NO_MEMORY();
            break;
        }
        out->items[out->count++] = merged_of(profile, &from->items[i], end - i);
    }
    for (size_t i = 0; i < from->node_count && status == ENIGMA_OK; i++) {
        out->of_node[i] = from->of_node[i] == ENI_NONE ? ENI_NONE : moved[from->of_node[i]];
    }
    if (status == ENIGMA_OK) {
        status = find_nested(profile, out);
    }
    eni_free(moved, from->count * sizeof *moved);
    if (status != ENIGMA_OK) {
        eni_groups_free(out);
    }
    return status;
}
