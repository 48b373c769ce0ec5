/* Attaching: GPU work that other code in the process launches becomes events of the profilers that asked for it. record/ calls the
 * table in attach.c where such a profiler starts, is looked at and ends; each attacher listens to one vendor's launches. */
#ifndef ENI_ATTACH_ATTACH_H
#define ENI_ATTACH_ATTACH_H

#include "record/profiler.h"

typedef struct eni_attacher {
    const char *name;
    /* A profiler goes live, or ends; as in eni_attach_hooks. */
    enigma_status (*begin)(enigma_profiler *profiler);
    enigma_status (*end)(enigma_profiler *profiler, bool wait);
    void (*drain)(enigma_profiler *profiler);
} eni_attacher;

#define ENI_ATTACHER(name) extern const eni_attacher eni_attacher_##name;
#include "attach/attachers.def"
#undef ENI_ATTACHER

extern const eni_attach_hooks eni_attach_all; /* what record/ is given */

#endif
