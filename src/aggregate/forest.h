/* A forest given by the parent of each of its members (events, call-path nodes), walked depth first without recursion: it may be as
 * deep as it has members. Used by groups and sums while they build, on one thread. */
#ifndef ENI_AGGREGATE_FOREST_H
#define ENI_AGGREGATE_FOREST_H

#include "store/profile.h"

typedef struct eni_forest {
    const char *parents; /* uint32_t each, ENI_NONE for roots; no circles */
    size_t stride, count;
    uint32_t *first_child, *next_sibling; /* first_child[count]: the first root */
} eni_forest;

typedef struct eni_forest_step { /* start zeroed */
    uint32_t at;
    bool entering, started; /* entering: before its children; each is left again after them */
} eni_forest_step;

/* The parents lie stride bytes apart and are lent. */
enigma_status eni_forest_init(eni_forest *forest, const uint32_t *parents, size_t stride, size_t count);
bool eni_forest_next(const eni_forest *forest, eni_forest_step *step); /* siblings in order; false at the end */
void eni_forest_free(eni_forest *forest);

#endif
