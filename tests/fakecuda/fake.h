/* A CUDA driver, NVRTC and CUPTI without a GPU, for tests: libraries with the names of the real ones that run kernels on the CPU. Kernels
 * are CUDA C text within what a C compiler takes; `fake_nvrtc` compiles them with cc, and the driver runs them on a thread for each
 * stream. `new/` is like CUDA 13, `old/` like 11 (without the functions that came later), `broken/` lacks what is needed.
 *
 * A test loads the three by fake_load before the library under test looks for them, since a copy in the process goes first, and
 * steers them by name. */
#ifndef TESTS_FAKECUDA_FAKE_H
#define TESTS_FAKECUDA_FAKE_H

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/cuda_abi.h"
#include "abi/cupti_abi.h"

/* What can be set, and what can be read back. Counters are read alone. */
enum fake_setting {
    FAKE_INIT_ERROR,      /* cuInit's result */
    FAKE_DEVICES,         /* 1 */
    FAKE_LAUNCH_ERROR,    /* result of the next launch, once */
    FAKE_STICKY_ERROR,    /* result of all queries and waits from now on */
    FAKE_LOAD_ERROR,      /* result of the next module load, once */
    FAKE_HOLD,            /* 1: streams run nothing until it is 0 again */
    FAKE_CAPABILITY,      /* of the device: 90 */
    FAKE_ARCH_LIMIT,      /* newest architecture that NVRTC knows: 90 */
    FAKE_ARCH,            /* what was last compiled for: 90 for sm_90, -90 for compute_90 */
    FAKE_GATES,           /* counter: waits on memory */
    FAKE_EVENTS,          /* counter: events recorded */
    FAKE_LAUNCHES,        /* counter */
    FAKE_EVENTS_ALIVE,    /* counter: events that are not destroyed */
    FAKE_CONTEXT_DEPTH,   /* contexts on this thread's stack */
    FAKE_SUBSCRIBE_ERROR, /* of CUPTI: result of subscribing */
    FAKE_ENABLE_ERROR,    /* result of enabling an activity */
    FAKE_KERNEL_BYTES,    /* size of a kernel record: 216 */
    FAKE_BUFFER_LIMIT,    /* bytes of a buffer that are used at most; 0: all */
    FAKE_NEXT_TIME,       /* enum fake_time, of the next kernel's record, once */
    FAKE_SKEW_NS,         /* how far the stamps of kernels that ran are off */
    FAKE_FLUSHES,         /* counter */
    FAKE_SUBSCRIBED,      /* whether there is a subscriber */
    FAKE_BUFFERS_OUT,     /* counter: buffers that CUPTI holds */
    FAKE_SYNCHRONIZED,    /* counter: waits for a whole context; they hold while FAKE_HOLD is 1 */
    FAKE_SETTINGS
};

enum fake_time {
    FAKE_TIME_RIGHT,
    FAKE_TIME_ZERO,
    FAKE_TIME_REVERSED,
    FAKE_TIME_RUNNING, /* only a forced flush brings it, without an end */
    FAKE_TIME_LOST,    /* no record at all */
    FAKE_TIME_LATE     /* comes with the third flush from then on */
};

/* What the three libraries share; the driver's has it. */
typedef struct fake_kernel_run {
    uint32_t correlation, grid[3], block[3];
    uint64_t start, end; /* of the device's clock */
    const char *name;
    int registers;
} fake_kernel_run;

typedef struct fake_hooks {
    void (*call)(uint32_t cbid, uint32_t site, const void *parameters, const char *symbol, uint32_t correlation,
                 const int32_t *result);
    void (*kernel)(const fake_kernel_run *run);
} fake_hooks;

long fake_get(enum fake_setting setting);
void fake_set(enum fake_setting setting, long value);
void fake_add(enum fake_setting setting, long more);
uint64_t fake_device_clock(void);
extern fake_hooks fake_hook;

/* CUPTI: as if the driver had made the call or the change, where it is enabled, and a record whose times stand as they are. */
void fake_cupti_call(uint32_t domain, uint32_t cbid, const void *data);
void fake_cupti_record(const void *record, size_t size);
bool fake_cupti_enabled(uint32_t domain, uint32_t cbid);

/* ---- for tests ---- */

typedef struct fake_libraries {
    long (*get)(enum fake_setting setting);
    void (*set)(enum fake_setting setting, long value);
    void (*call)(uint32_t domain, uint32_t cbid, const void *data);
    void (*record)(const void *record, size_t size);
    bool (*enabled)(uint32_t domain, uint32_t cbid);
} fake_libraries;

static inline void *fake_open(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/fakecuda/%s/%s", ENIGMA_BUILD_DIR, folder, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
    }
    return library;
}

static inline void fake_find(void *library, const char *name, void *out)
{
    void *address = dlsym(library, name);
    memcpy(out, &address, sizeof address);
}

/* Loads the libraries of a folder and gives their controls. The program begins anew with a host clock whose ticks are ns, so that
 * times that a test puts into records are those that come out. */
static inline bool fake_load(const char *folder, fake_libraries *out)
{
    if (getenv("ENIGMA_CLOCK") == NULL) {
        setenv("ENIGMA_CLOCK", "monotonic", 1);
        execl("/proc/self/exe", program_invocation_name, (char *)NULL);
        return false;
    }
    void *driver = fake_open(folder, "libcuda.so.1");
    void *compiler = fake_open(folder, "libnvrtc.so.13");
    void *cupti = fake_open(folder, "libcupti.so.13");
    if (driver == NULL || compiler == NULL || cupti == NULL) {
        return false;
    }
    fake_find(driver, "fake_get", &out->get);
    fake_find(driver, "fake_set", &out->set);
    fake_find(cupti, "fake_cupti_call", &out->call);
    fake_find(cupti, "fake_cupti_record", &out->record);
    fake_find(cupti, "fake_cupti_enabled", &out->enabled);
    return true;
}

#endif
