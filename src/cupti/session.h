/* Inside of cupti/: what its files share. The session is one object for the process. */
#ifndef ENI_CUPTI_SESSION_H
#define ENI_CUPTI_SESSION_H

#include "abi/cupti_abi.h"
#include "cupti/cupti.h"

enum { ENI_CUPTI_CONSUMERS = 8 };

/* The functions of the library; filled once under the session's lock, constant afterwards. */
extern eni_cupti_functions eni_cu_pti;

/* Atomic: filled from the front as consumers start, NULL where one stopped. Read without a lock by all callbacks. */
extern const eni_cupti_consumer *eni_cupti_consumers[ENI_CUPTI_CONSUMERS];
/* Counts sessions, atomic; 0: none yet. What a thread notes about calls that it is in holds for one of them. */
extern uint32_t eni_cupti_epoch;
/* Atomic: whether the library stamps in ticks of our clock; where not, what is added to its ns. */
extern bool eni_cupti_own_clock;
extern int64_t eni_cupti_offset_ns;
/* The generation of the process that uses CUPTI (eni_fork_generation), atomic. */
extern uint32_t eni_cupti_generation;

static inline const eni_cupti_consumer *eni_cupti_consumer_at(int index)
{
    return __atomic_load_n(&eni_cupti_consumers[index], __ATOMIC_ACQUIRE);
}

static inline bool eni_cupti_in_child(void)
{
    return __atomic_load_n(&eni_cupti_generation, __ATOMIC_RELAXED) != eni_fork_generation;
}

/* calls.c: the subscriber's callback, and which calls it is asked for. */
void eni_cupti_calls_load(void); /* once, when the functions are there */
void eni_cupti_calls_enable(cupti_subscriber subscriber, uint32_t families, bool graphs, bool enable);
void eni_cupti_call(void *user, uint32_t domain, uint32_t cbid, const void *data);

/* buffers.c: memory that CUPTI fills. */
void eni_cupti_buffer_requested(uint8_t **buffer, size_t *size, size_t *max_records);
void eni_cupti_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size);
bool eni_cupti_buffers_warm(void); /* keeps one at hand; false: no memory */
extern uint32_t
    eni_cupti_active; /* atomic: CUPTI asked for a buffer or told a call, so there may be something to flush */
void eni_cupti_buffers_trim(void);        /* frees those that CUPTI does not hold */
extern eni_cupti_counts eni_cupti_totals; /* atomic each */
static inline void eni_cupti_count(uint64_t *counter, uint64_t more)
{
    __atomic_fetch_add(counter, more, __ATOMIC_RELAXED);
}

/* records.c: reads what a buffer holds and hands it to the consumers. */
void eni_cupti_records_deliver(uint8_t *buffer, size_t valid_size);

/* cupti.c: takes the two clocks again where the library stamps with a clock of its own. */
void eni_cupti_compare_clocks(void);

#endif
