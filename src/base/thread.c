/* Owns the numbers of threads and processes, and the one list of what has to happen around fork. Handlers are added by
 * constructors; the list is read by whichever thread forks. */
#include "base/thread.h"

#include <assert.h>
#include <stddef.h>
#include <signal.h>
#include <unistd.h>

#define HANDLER_LIMIT 32

uint32_t eni_fork_generation;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static eni_mutex lock = ENI_MUTEX_INIT;
static const eni_fork_handler *handlers[HANDLER_LIMIT]; /* by rank */
static int handler_count;
static uint32_t process_id;

static ENI_THREAD_LOCAL uint64_t thread_id; /* 0: not asked for yet in this process */

static void before_fork(void)
{
    eni_lock(&lock);
    for (int i = 0; i < handler_count; i++) {
        if (handlers[i]->before != NULL) {
            handlers[i]->before();
        }
    }
}

static void after_fork_in_parent(void)
{
    for (int i = handler_count - 1; i >= 0; i--) {
        if (handlers[i]->parent != NULL) {
            handlers[i]->parent();
        }
    }
    eni_unlock(&lock);
}

static void after_fork_in_child(void)
{
    /* The handlers may ask who they are, so this goes first. Only the forking thread lives on here. */
    eni_fork_generation++;
    process_id = (uint32_t)getpid();
    thread_id = 0;
    for (int i = handler_count - 1; i >= 0; i--) {
        if (handlers[i]->child != NULL) {
            handlers[i]->child();
        }
    }
    eni_unlock(&lock);
}

static void init(void)
{
    process_id = (uint32_t)getpid();
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

__attribute__((constructor)) static void init_at_load(void) { pthread_once(&once, init); }

void eni_thread_at_fork(const eni_fork_handler *handler)
{
    pthread_once(&once, init);
    eni_lock(&lock);
    assert(handler_count < HANDLER_LIMIT);
    int at = handler_count++;
    while (at > 0 && handlers[at - 1]->rank > handler->rank) {
        handlers[at] = handlers[at - 1];
        at--;
    }
    handlers[at] = handler;
    eni_unlock(&lock);
}

static uint64_t ask_thread_id(void)
{
#if defined(__APPLE__)
    uint64_t id = 0;
    pthread_threadid_np(NULL, &id);
    return id;
#else
    return (uint64_t)gettid();
#endif
}

uint64_t eni_thread_id(void)
{
    if (thread_id == 0) {
        thread_id = ask_thread_id();
    }
    return thread_id;
}

uint32_t eni_process_id(void)
{
    pthread_once(&once, init);
    return process_id;
}

bool eni_thread_start(pthread_t *thread, void *(*work)(void *arg), void *arg)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(thread, NULL, work, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}
