/* Locks, thread-locals and one list of what must survive fork.
 *
 * Every lock of the library that a thread may hold while another forks is an eni_mutex known to the fork handlers: they
 * take all of them in rank order before fork and release them on both sides, so that the child starts with none held. */
#ifndef ENI_BASE_THREAD_H
#define ENI_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define ENI_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))

typedef pthread_mutex_t eni_mutex;
#define ENI_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
static inline void eni_lock(eni_mutex *mutex) { pthread_mutex_lock(mutex); }
static inline void eni_unlock(eni_mutex *mutex) { pthread_mutex_unlock(mutex); }

/* The system's number of the calling thread (gettid on Linux), cached. */
uint64_t eni_thread_id(void);
uint32_t eni_process_id(void); /* getpid, cached until fork */

/* Starts a thread of the library's own: all signals blocked, so that the program's handlers never run on it. False: there is none to
 * be had; the caller does the work itself. Join it. */
bool eni_thread_start(pthread_t *thread, void *(*work)(void *arg), void *arg);

/* Registers what has to happen around fork for one module; called from constructors, in any order. before runs in the
 * parent, lower ranks first; parent and child run after, higher ranks first. Any may be NULL. */
typedef struct eni_fork_handler {
    int rank;
    void (*before)(void);
    void (*parent)(void);
    void (*child)(void);
} eni_fork_handler;
void eni_thread_at_fork(const eni_fork_handler *handler); /* handler: static storage */

/* The order in which locks may be taken, outermost first; who holds the clock's takes no other. */
enum eni_fork_rank {
    ENI_FORK_RANK_GPU = 100,
    ENI_FORK_RANK_CUPTI = 150,
    ENI_FORK_RANK_ATTACH = 200,
    ENI_FORK_RANK_RECORD = 300,
    ENI_FORK_RANK_STORE = 500,
    ENI_FORK_RANK_CLOCK = 900
};

/* Counts forks: 0 in the first process. An object made in another generation belongs to an ancestor. */
extern uint32_t eni_fork_generation;

#endif
