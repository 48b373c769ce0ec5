/* Where launches of other code are recorded: asked by src/attach/ on the launching thread, inside of a driver's call, so nothing here
 * takes a lock or touches a profiler. A spot names its profiler by serial number; what it names may be gone. */
#ifndef ENI_RECORD_SPOT_H
#define ENI_RECORD_SPOT_H

#include <stdbool.h>
#include <stdint.h>

#include "enigma.h"

enum eni_spot_source {
    ENI_SPOT_OWN = 0,  /* the calling thread records there itself */
    ENI_SPOT_OWNER = 1 /* nothing is active on it: where the profiler's owner is at this moment */
};

typedef struct eni_spot {
    uint64_t serial; /* eni_profiler_id */
    uint64_t scope;  /* id of the innermost open scope, 0: none */
    enigma_path path;
    uint32_t source;
} eni_spot;

/* False: what the calling thread launches is recorded nowhere. */
bool eni_spot_find(eni_spot *out);

/* A profiler that attaches is live from here on; false: too many are. */
bool eni_spot_open(const enigma_profiler *profiler);
void eni_spot_close(uint64_t serial);

/* The calling thread's own stack of scopes moved, and its active profiler attaches to something. */
void eni_spot_share(void);

#endif
