/* The contract between gpu/ and a backend: one struct of functions. gpu/ is the only caller; it validates arguments, so a
 * backend may assume what the comments promise, and asserts it.
 *
 * Global preconditions: load() succeeded before anything else is called; a device's functions are called by one thread at
 * a time, except `finish`, `poll`, `wait`, `stamps` and `release` of a ticket and `clock_pair`, which other threads may call
 * meanwhile (each ticket by one of them).
 * Global postconditions: a function that fails returns a status with the driver's words in the thread's detail (ENI_FAIL), sets
 * its out parameter to NULL, and leaves nothing behind. No function prints, exits, or calls back.
 *
 * Objects (device, buffer, program, kernel, ticket) are the backend's own structs, passed as void *. */
#ifndef ENI_BACKENDS_BACKEND_H
#define ENI_BACKENDS_BACKEND_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"

/* A list of device facts, filled by open(). */
typedef struct eni_facts {
    eni_arena arena;
    enigma_field *fields;
    size_t count, capacity;
    bool failed; /* out of memory; checked once by gpu/ */
} eni_facts;
void eni_facts_text(eni_facts *facts, const char *key, enigma_text value);
void eni_facts_uint(eni_facts *facts, const char *key, uint64_t value);
void eni_facts_double(eni_facts *facts, const char *key, double value);
void eni_facts_bool(eni_facts *facts, const char *key, bool value);
void eni_facts_uint3(eni_facts *facts, const char *key, const uint64_t value[3]); /* a tuple */
void eni_facts_free(eni_facts *facts);

/* What gpu/ needs to know of a device; set by open(). */
typedef struct eni_traits {
    double tick_ns;        /* length of a tick of the device's counter */
    uint32_t counter_bits; /* its width, 1 to 64 */
    uint32_t queue_limit;  /* queues numbered below this may be used; made when first used */
    uint32_t device_count; /* devices behind this one runtime; 1 except for the scripted backend */
    bool partial_groups;   /* a grid need not be a multiple of the group */
    bool instant;          /* wait() and finish() return at once: there is nothing to be interrupted in */
    uint64_t max_group_threads;
    uint64_t max_group[3], max_grid[3]; /* threads of a group, threads of the grid; UINT64_MAX: no limit known */
} eni_traits;

enum eni_argument_class {
    ENI_ARGUMENT_UNKNOWN = 0, /* the driver does not tell */
    ENI_ARGUMENT_BUFFER = 1,
    ENI_ARGUMENT_SCALAR = 2,
    ENI_ARGUMENT_OTHER = 3 /* local memory, image, sampler: cannot be bound by prepare() */
};

typedef struct eni_argument_info {
    uint32_t class_;         /* enum eni_argument_class */
    uint64_t size;           /* of a scalar, in bytes; 0: not known */
    const char *name, *type; /* NULL: not known; live as long as the kernel */
} eni_argument_info;

#define ENI_ANY_ARGUMENTS UINT32_MAX

typedef struct eni_kernel_info {
    uint32_t argument_count;            /* ENI_ANY_ARGUMENTS: every list fits, arguments is NULL */
    const eni_argument_info *arguments; /* live as long as the kernel */
    /* facts that become metadata of each dispatch; 0 or negative: the backend has no such value */
    uint64_t max_group_threads, execution_width;
    int64_t static_memory_bytes; /* -1: not known */
    int64_t registers;           /* of a thread; 0: not known */
} eni_kernel_info;

typedef struct eni_launch_request {
    void *kernel;
    enigma_size3 grid, threads; /* valid for the device and kernel */
    uint32_t queue, device;
    bool timed; /* on the queue that takes device stamps */
} eni_launch_request;

/* Device stamps of one launch, in ticks, as the driver gave them; gpu/ judges whether they can be right. */
typedef struct eni_stamps {
    bool available;
    uint64_t submit, start, end; /* submit 0: not known */
    double scheduling_us;        /* negative: the backend has no such value */
} eni_stamps;

/* Whether a stamp of a counter of so many bits is all ones, which is how drivers say that they have none; so is 0. */
static inline bool eni_stamp_is_ones(uint64_t stamp, uint32_t bits)
{
    return stamp == UINT64_MAX || (bits < 64 && stamp == (UINT64_C(1) << bits) - 1);
}

/* Ticks from start to end of a counter of so many bits, both stamps cut to its width: the one place that knows about
 * wrapping. False: end is before start, that is, more than half of the counter's range away. */
static inline bool eni_ticks_between(uint64_t start, uint64_t end, uint32_t bits, uint64_t *out)
{
    uint64_t mask = bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    uint64_t ticks = (end - start) & mask;
    bool reversed = ticks > mask / 2;
    *out = reversed ? 0 : ticks;
    return !reversed;
}

/* Both clocks at one moment. */
typedef struct eni_clock_pair {
    uint64_t device_ticks, host_ticks; /* host_ticks: eni_clock_ticks() */
    uint32_t uncertainty_ns;
} eni_clock_pair;

typedef struct eni_backend {
    const char *name, *title, *needs;
    bool automatic; /* may be chosen when no backend is named */

    /* Finds the vendor's library; repeated calls are cheap. ENIGMA_E_UNAVAILABLE says what was looked for and what to install. */
    enigma_status (*load)(void);
    enigma_status (*device_count)(uint32_t *out);

    enigma_status (*open)(uint32_t index, const void *config, void **device, eni_traits *traits, eni_facts *facts);
    void (*close)(void *device); /* everything made from it is freed before */

    enigma_status (*buffer_create)(void *device, size_t size, const void *data, void **buffer); /* data NULL: zeroed */
    /* Earlier work of the device is complete; data may be reused on return. */
    enigma_status (*buffer_write)(void *buffer, size_t offset, const void *data, size_t size);
    enigma_status (*buffer_read)(void *buffer, size_t offset, void *data, size_t size);
    void (*buffer_free)(void *buffer);

    /* source is text or a binary as is; suffix is the file's (".cl", ".ptx"), NULL for text given directly. ENIGMA_E_COMPILE with the
     * whole build log. */
    enigma_status (*program_build)(void *device, const char *source, size_t size, const char *suffix,
                                   const char *options, void **program);
    void (*program_free)(void *program);

    /* A kernel instance with arguments of its own; info lives as long as it. ENIGMA_E_NOT_FOUND lists the program's kernels. A program
     * may be freed before its kernels. */
    enigma_status (*kernel_create)(void *program, const char *name, void **kernel, const eni_kernel_info **info);
    enigma_status (*kernel_bind_buffer)(void *kernel, uint32_t index, void *buffer);
    enigma_status (*kernel_bind_scalar)(void *kernel, uint32_t index, const void *data, size_t size);
    /* Share of a compute unit's threads that groups of this size can fill, 0 to 1; negative: no such value. */
    double (*kernel_occupancy)(void *kernel, enigma_size3 threads);
    void (*kernel_free)(void *kernel); /* its launches are complete */

    /* Queues a launch after all earlier launches of that queue, timed or not. ticket: receives what poll and wait take; NULL: not
     * wanted, only for untimed launches, and finish() follows. With a ticket the work is submitted without further calls. */
    enigma_status (*launch)(void *device, const eni_launch_request *request, void **ticket);
    /* Blocks until the queue is empty, untimed and timed. */
    enigma_status (*finish)(void *device, uint32_t device_index, uint32_t queue);

    /* Whether a launch is complete: 1 yes, 0 not yet, negative a status: it failed. */
    int (*poll)(void *ticket);
    enigma_status (*wait)(void *ticket);           /* blocks until it is complete; its failure is this one's */
    void (*stamps)(void *ticket, eni_stamps *out); /* of a complete timed launch */
    /* Whether stamps() of a complete timed launch costs nothing more; where not, it is cheaper to ask for many at once, later. NULL:
     * always. Any thread, as for stamps. */
    bool (*stamps_ready)(void *ticket);
    void (*release)(void *ticket);

    /* Both clocks at one moment, by a bounded number of tries. ENIGMA_E_UNAVAILABLE: this device cannot tell. */
    enigma_status (*clock_pair)(void *device, uint32_t device_index, eni_clock_pair *out);

    /* Vendor capture around a region (.gputrace). NULL: this backend has none. */
    enigma_status (*capture_begin)(void *device, const char *path);
    enigma_status (*capture_end)(void *device);
} eni_backend;

/* Rows of backends.def in order. A row that is not built has NULL functions past `needs`. */
const eni_backend *eni_backend_at(size_t index); /* NULL past the end */
/* ENIGMA_E_INVALID lists the names; ENIGMA_E_UNAVAILABLE when it is not built. Calls load(). */
enigma_status eni_backend_get(const char *name, const eni_backend **out);

/* The scripted backend's own controls (section 16), implemented in scripted.c. */
enigma_status eni_scripted_push(void *device, uint32_t device_index, uint32_t queue, const enigma_script *scripts,
                                size_t count);
void eni_scripted_counts(const void *device, uint64_t *untimed, uint64_t *timed);
extern const eni_backend eni_backend_scripted; /* its open() takes an enigma_scripted_options as config */

#endif
