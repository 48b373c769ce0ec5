/* Laying slices out so that those on one lane nest: a slice lies inside its parent where it fits there, and otherwise, since
 * viewers drop what overlaps partly, on the first lane of its track that is free. Used by timeline exporters, on one thread. */
#ifndef ENI_PRESENT_LANES_H
#define ENI_PRESENT_LANES_H

#include "store/profile.h"

typedef struct eni_slice {
    uint64_t start_ns, end_ns;
    uint32_t track;
    uint32_t level;  /* outer ones first where both stamps are equal */
    uint32_t id;     /* the caller's, each once */
    uint32_t parent; /* id of the slice it belongs in, ENI_NONE: none */
} eni_slice;

typedef struct eni_place {
    uint32_t slice; /* position in the sorted slices, ENI_NONE: no slice of this id */
    uint32_t lane;  /* of its track, from 0 */
    uint32_t depth; /* on its lane, 1: outermost */
} eni_place;

/* Sorts the slices by track and start, and places them. places: id_count of them; lanes: how many each track needs,
 * track_count of them, zeroed by the caller. */
enigma_status eni_lanes_assign(eni_slice *slices, size_t count, eni_place *places, size_t id_count, uint32_t *lanes);

#endif
