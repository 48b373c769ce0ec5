/* The process's one CUPTI session: activity records of GPU work (kernels, copies, fills) and callbacks at the launches. Shared by
 * the CUDA backend and by whatever attaches to other libraries' work; CUPTI takes a single subscriber for the process.
 *
 * A consumer is a constant struct of functions in static storage. Its functions run on whatever thread CUPTI calls: launches on the
 * launching thread, inside the driver's call; records on a thread of CUPTI's or in eni_cupti_flush, possibly on several threads at
 * once. They must not block on anything but a lock of their own that is held briefly and never around a call of this header or of
 * CUDA, must not take an interpreter's lock, and must not call CUDA or eni_cupti_*. A call that began before
 * eni_cupti_stop may still be running when it returns.
 *
 * Locks: the session's own (start, stop, flush), outside of any lock that a consumer's functions take; no lock is taken on the
 * launch path. In a forked child all of it refuses. */
#ifndef ENI_CUPTI_CUPTI_H
#define ENI_CUPTI_CUPTI_H

#include <stdbool.h>

#include "base/error.h"
#include "base/thread.h"

/* Bits: what a consumer wants to see. */
enum eni_cupti_family {
    ENI_CUPTI_KERNEL = 1 << 0, /* kernels, also those of graphs */
    ENI_CUPTI_MEMCPY = 1 << 1, /* copies, also between devices */
    ENI_CUPTI_MEMSET = 1 << 2,
    ENI_CUPTI_GRAPH = 1 << 3 /* launches alone: of whole graphs. The records of their nodes come as the three above */
};

enum eni_cupti_time {
    ENI_CUPTI_TIME_VALID = 0,
    ENI_CUPTI_TIME_ZERO = 1,      /* CUPTI could not take a stamp */
    ENI_CUPTI_TIME_REVERSED = 2,  /* end is before start */
    ENI_CUPTI_TIME_UNFINISHED = 3 /* handed out by a forced flush while it ran: no end, and no second record follows */
};

/* One piece of GPU work that is over. */
typedef struct eni_cupti_record {
    uint32_t family;           /* KERNEL, MEMCPY or MEMSET */
    uint32_t time;             /* enum eni_cupti_time */
    uint64_t start_ns, end_ns; /* host clock (eni_clock_ns); meaningful where time is VALID */
    uint32_t correlation;      /* that of the launch that caused it; of a graph's nodes, the launch of the graph */
    uint32_t device, context, stream; /* CUPTI's numbers; the device's is CUDA's index */
    uint32_t graph;                   /* id of the executable graph, 0: none */
    uint64_t graph_node;              /* id of its node, 0: none */
    union {
        struct {
            const char *name; /* as the linker has it (mangled); valid during the call */
            uint32_t grid[3], block[3];
            uint32_t registers, static_bytes, dynamic_bytes;
        } kernel;
        struct {
            uint64_t bytes;
            uint32_t kind;                         /* enum eni_cupti_copy */
            uint32_t source_device, target_device; /* the same but for copies between devices */
        } copy;
        struct {
            uint64_t bytes;
            uint32_t value;
        } fill;
    } as;
} eni_cupti_record;

/* CUpti_ActivityMemcpyKind */
enum eni_cupti_copy {
    ENI_CUPTI_COPY_UNKNOWN = 0,
    ENI_CUPTI_COPY_HTOD = 1,
    ENI_CUPTI_COPY_DTOH = 2,
    ENI_CUPTI_COPY_HTOA = 3,
    ENI_CUPTI_COPY_ATOH = 4,
    ENI_CUPTI_COPY_ATOA = 5,
    ENI_CUPTI_COPY_ATOD = 6,
    ENI_CUPTI_COPY_DTOA = 7,
    ENI_CUPTI_COPY_DTOD = 8,
    ENI_CUPTI_COPY_HTOH = 9,
    ENI_CUPTI_COPY_PTOP = 10
};

/* A call that launches GPU work, seen as it is entered and as it is left, on its thread. The outermost call alone: the driver call
 * that a runtime call makes is not told. Enter and exit of one call have the same correlation. */
typedef struct eni_cupti_launch {
    uint32_t family; /* one bit */
    uint32_t correlation;
    uint32_t cbid;
    bool runtime;        /* a call of the runtime API, else of the driver's */
    bool failed;         /* at exit: it returned an error, and no record follows */
    uint32_t context_id; /* CUPTI's number; 0: no context yet */
    void *context;       /* CUcontext; NULL: none yet */
    void *stream;        /* handle; KERNEL and GRAPH alone. NULL: the default stream */
    const void *
        function; /* KERNEL: CUfunction, or the host function of the runtime API; GRAPH: the executable graph's handle */
    const char *name; /* KERNEL: mangled; NULL: not told; valid during the call */
    void *mark;       /* this thread's eni_cupti_mark; NULL: a launch of other code */
} eni_cupti_launch;

enum eni_cupti_graph_change {
    ENI_CUPTI_NODE_CREATED =
        0,                     /* also by a launch while its stream is captured, between that launch's enter and exit */
    ENI_CUPTI_NODE_CLONED = 1, /* into another graph or an executable one; its records carry the clone's id */
    ENI_CUPTI_NODE_DESTROYED = 2, /* of a graph; ids are not reused while the node lives */
    ENI_CUPTI_EXEC_CREATED = 3,
    ENI_CUPTI_EXEC_DESTROYED = 4,
    ENI_CUPTI_GRAPH_DESTROYED = 5
};

typedef struct eni_cupti_graph_event {
    uint32_t change;
    uint32_t graph;          /* id of the graph, of EXEC_* of the executable one; 0: not told */
    uint64_t node, original; /* NODE_*: ids; original of CLONED alone */
    uint32_t node_type;      /* CUgraphNodeType: 0 kernel, 1 memcpy, 2 memset, 3 host, ... */
} eni_cupti_graph_event;

/* Any function may be NULL. */
typedef struct eni_cupti_consumer {
    uint32_t records;          /* families (bits) whose records are wanted */
    uint32_t launches;         /* families whose launches are wanted */
    void (*batch_begin)(void); /* around the records of one buffer, on one thread: to lock once */
    void (*record)(const eni_cupti_record *record);
    void (*batch_end)(void);
    void (*enter)(const eni_cupti_launch *launch);
    void (*leave)(const eni_cupti_launch *launch);
    void (*graph)(const eni_cupti_graph_event *event);
} eni_cupti_consumer;

/* Starts the session, or joins it. Starts of one consumer are counted. ENIGMA_E_UNAVAILABLE: there is no CUPTI, it is too old, or
 * another tool holds it; the message says which. ENIGMA_E_STATE: in a child of a process that used it. */
enigma_status eni_cupti_start(const eni_cupti_consumer *consumer);
/* Ends one start; the last one of all ends the session, and other tools can have CUPTI. What was not flushed before is lost. */
void eni_cupti_stop(const eni_cupti_consumer *consumer);

/* Whether a start would find a CUPTI that is free, without starting anything. */
enigma_status eni_cupti_probe(void);

/* Has CUPTI hand out what is complete. done NULL: once. Else again and again until done says so, for patience_ns at most; then what
 * is not complete is forced out as well (ENI_CUPTI_TIME_UNFINISHED). done runs without a lock. True: done said so (NULL: true).
 * Not from a consumer's function; the GPU work should be over (synchronised) before. */
bool eni_cupti_flush(bool (*done)(void *user), void *user, uint64_t patience_ns);

/* Since the process began. */
typedef struct eni_cupti_counts {
    uint64_t records;                    /* handed to consumers */
    uint64_t dropped;                    /* by CUPTI: no buffer took them */
    uint64_t zero, reversed, unfinished; /* of the records, by their time */
    uint64_t foreign;                    /* records of other kinds or shorter than known */
    uint64_t starved;                    /* times that no memory was left for a buffer */
} eni_cupti_counts;
void eni_cupti_get_counts(eni_cupti_counts *out);

/* cuptiGetVersion of the library in use (130001: CUDA 13.0 Update 1; below 13.0: 14 to 28); 0: not loaded. */
uint32_t eni_cupti_version(void);

/* Launches of the calling thread carry this mark until it is set to NULL again. */
extern ENI_THREAD_LOCAL void *eni_cupti_mark_;
static inline void eni_cupti_mark(void *mark) { eni_cupti_mark_ = mark; }

#endif
