/* Waits for the work of CUDA contexts, through the driver that the process has loaded. The driver's wait cannot be interrupted, so
 * where somebody may interrupt it is done on a thread of its own, which is left behind then. */
#include <time.h>

#include "abi/cuda_abi.h"
#include "attach/cuda.h"
#include "base/dynlib.h"

enum { CHECK_NS = 50000000 };

typedef struct driver {
    cu_result (*push)(cu_context context);
    cu_result (*pop)(cu_context *out);
    cu_result (*synchronize)(void);
} driver;

typedef struct job {
    eni_mutex lock;
    pthread_cond_t changed;
    uint32_t users; /* the waiting thread and the working one */
    bool done;
    driver functions;
    size_t count;
    void *contexts[];
} job;

static enigma_status find_driver(driver *out)
{
    static const char *const names[] = {"libcuda.so.1", NULL};
    static const eni_dynlib_symbol symbols[] = {{"cuCtxPushCurrent_v2", offsetof(driver, push), 1},
                                                {"cuCtxPopCurrent_v2", offsetof(driver, pop), 1},
                                                {"cuCtxSynchronize", offsetof(driver, synchronize), 1}};
    void *library;
    ENI_TRY(eni_dynlib_open(names, &library));
    return eni_dynlib_load(library, symbols, ENI_COUNT_OF(symbols), out);
}

/* What fails here fails for the program as well, at its own next call. */
static void synchronize(const driver *functions, void *const *contexts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cu_context context;
        if (functions->push(contexts[i]) == CUDA_SUCCESS) {
            functions->synchronize();
            functions->pop(&context);
        }
    }
}

static size_t job_size(size_t count) { return sizeof(job) + count * sizeof(void *); }

static void job_drop(job *work)
{
    eni_lock(&work->lock);
    bool last = --work->users == 0;
    eni_unlock(&work->lock);
    if (last) {
        pthread_cond_destroy(&work->changed);
        pthread_mutex_destroy(&work->lock);
        eni_free(work, job_size(work->count));
    }
}

static void *job_run(void *arg)
{
    job *work = arg;
    synchronize(&work->functions, work->contexts, work->count);
    eni_lock(&work->lock);
    work->done = true;
    pthread_cond_signal(&work->changed);
    eni_unlock(&work->lock);
    job_drop(work);
    return NULL;
}

static job *job_new(const driver *functions, void *const *contexts, size_t count)
{
    job *work = eni_alloc_zero(job_size(count));
    pthread_condattr_t steady;
    if (work == NULL) {
        return NULL;
    }
    pthread_mutex_init(&work->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&work->changed, &steady);
    pthread_condattr_destroy(&steady);
    work->users = 1;
    work->functions = *functions;
    work->count = count;
    for (size_t i = 0; i < count; i++) {
        work->contexts[i] = contexts[i];
    }
    return work;
}

static bool job_start(job *work)
{
    pthread_t thread;
    work->users++;
    if (pthread_create(&thread, NULL, job_run, work) != 0) {
        work->users--;
        return false;
    }
    pthread_detach(thread);
    return true;
}

static enigma_status job_wait(job *work)
{
    enigma_status status = ENIGMA_OK;
    eni_lock(&work->lock);
    while (!work->done && status == ENIGMA_OK) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += CHECK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&work->changed, &work->lock, &until);
        if (!work->done) {
            eni_unlock(&work->lock); /* asking may run any code */
            status =
                eni_interrupted() ? ENI_FAIL(ENIGMA_E_INTERRUPTED, "interrupted while waiting for CUDA") : ENIGMA_OK;
            eni_lock(&work->lock);
        }
    }
    eni_unlock(&work->lock);
    return status;
}

enigma_status eni_tap_synchronize(void *const *contexts, size_t count)
{
    driver functions;
    if (count == 0 || find_driver(&functions) != ENIGMA_OK) {
        return ENIGMA_OK; /* there is no driver to wait for: flushing takes what is there */
    }
    job *work = eni_interruptible() ? job_new(&functions, contexts, count) : NULL;
    if (work == NULL || !job_start(work)) {
        synchronize(&functions, contexts, count);
        if (work != NULL) {
            job_drop(work);
        }
        return ENIGMA_OK;
    }
    enigma_status status = job_wait(work);
    job_drop(work);
    return status;
}
