/* Dense numbers for texts that lie in a profile, so that grouping compares numbers. Equal texts get equal numbers wherever they
 * lie; the same address is looked up without reading the text again (names may be a megabyte long). A zeroed table is empty.
 * Used by rows and tree while they build, on one thread. */
#ifndef ENI_AGGREGATE_IDS_H
#define ENI_AGGREGATE_IDS_H

#include "base/intern.h"

typedef struct eni_ids {
    eni_intern texts;
    eni_map by_address;
} eni_ids;

/* The number of a text, from 0 in order of first use; UINT32_MAX for an absent one. The text must stay where it is. */
enigma_status eni_ids_get(eni_ids *ids, enigma_text text, uint32_t *out);
void eni_ids_free(eni_ids *ids);

#endif
