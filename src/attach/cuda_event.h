/* From a matched record to an event. Called by cuda_drain.c alone. */
#ifndef ENI_ATTACH_CUDA_EVENT_H
#define ENI_ATTACH_CUDA_EVENT_H

#include "attach/cuda.h"

/* A record and its launch, on the way to become an event: hooks are asked in between, with no lock held. */
typedef struct eni_tap_item {
    eni_tap_record record;
    eni_tap_note note;
    eni_tap_shape shape;
    uint64_t thread_id;
    enigma_text kernel; /* demangled, absent: not told. Lives as long as there are drainers */
    enigma_path made;   /* of a node of a graph: where it was made in the same profiler, 0: not known */
    uint64_t made_in;   /* serial of the profiler that made is of */
} eni_tap_item;

/* Fills in what the shape says. False: no memory. Under the drain lock. */
bool eni_tap_item_describe(eni_tap_drain *drain, eni_tap_item *item);
/* Asks the kernel's hook; with no lock held. eni_hooks_done(*hook) is owed. */
size_t eni_tap_item_ask(const eni_tap_item *item, enigma_metric metrics[ENI_HOOK_METRICS], eni_hook **hook);
/* Writes the event, and that of its graph's replay before the first of it. Under the drain lock. */
void eni_tap_item_write(eni_tap_drain *drain, const eni_tap_item *item, const enigma_metric *metrics,
                        size_t metric_count);
/* A kernel whose record never came. Under the drain lock. */
void eni_tap_unfinished_write(eni_tap_drain *drain, eni_tap_session *session, const eni_tap_note *note,
                              uint64_t thread_id);

/* cuda_drain.c: where the id of a graph's replay event is kept; NULL: that launch is forgotten. */
uint64_t *eni_tap_replay_of(eni_tap_drain *drain, uint32_t correlation);

#endif
