/* Which events make one row: by the values of (name, kernel) or (node path, kernel), never by printed text. A group is a
 * property of the node. Used by rows while they build, on one thread. */
#ifndef ENI_AGGREGATE_GROUPS_H
#define ENI_AGGREGATE_GROUPS_H

#include "store/profile.h"

typedef struct eni_group {
    enigma_text name; /* the row's: the event's name, or the node path joined with "/" */
    enigma_text kernel;
    const enigma_text *path; /* by call path: the node path, root first; else NULL */
    uint32_t path_count;
    uint32_t node;  /* of its first event */
    uint32_t first; /* order of first appearance */
    uint64_t calls, gpu_calls; /* its events; those that are GPU work */
} eni_group;

typedef struct eni_groups {
    eni_group *items; /* by name, then kernel, then first appearance */
    size_t count, capacity;
    uint32_t *of_node; /* the group of each node, ENI_NONE for nodes without events */
    size_t node_count;
    bool nested; /* an event may lie below another of its group */
} eni_groups;

/* Finds the groups of a profile's events; texts that are made go to arena. */
enigma_status eni_groups_find(const enigma_profile *profile, enum enigma_group group, eni_arena *arena,
                              eni_groups *out);
/* Of groups in order: one merged group for each name that several have; kernel and path stay where all agree. */
enigma_status eni_groups_merge(const enigma_profile *profile, const eni_groups *from, eni_groups *out);
void eni_groups_free(eni_groups *groups);

#endif
