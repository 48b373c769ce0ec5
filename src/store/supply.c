/* The background thread of supply.h. */
#include "store/supply.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/thread.h"

#define READY 4         /* blocks kept ready */
#define IDLE_SECONDS 2  /* after which the thread gives them back and ends */
#define PAGE 4096u

static struct {
    eni_mutex lock;
    pthread_cond_t asked;
    void *blocks[READY];
    unsigned count;
    bool running, wanted; /* wanted: asked since the thread last looked */
} supply = {.lock = ENI_MUTEX_INIT, .asked = PTHREAD_COND_INITIALIZER};

static void touch(void *block)
{
    volatile char *bytes = block;
    for (size_t at = 0; at < ENI_SUPPLY_SIZE; at += PAGE) {
        bytes[at] = 0;
    }
}

/* Waits until blocks are wanted; false: nobody asked for IDLE_SECONDS. The lock is held. */
static bool wait_for_room(void)
{
    while (supply.count == READY) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += IDLE_SECONDS;
        supply.wanted = false;
        if (pthread_cond_timedwait(&supply.asked, &supply.lock, &until) == ETIMEDOUT && !supply.wanted) {
            return false;
        }
    }
    return true;
}

static void *work(void *unused)
{
    (void)unused;
    eni_lock(&supply.lock);
    while (wait_for_room()) {
        eni_unlock(&supply.lock);
        void *block = eni_alloc(ENI_SUPPLY_SIZE);
        if (block != NULL) {
            touch(block);
        }
        eni_lock(&supply.lock);
        if (block == NULL) {
            break;
        }
        supply.blocks[supply.count++] = block;
    }
    while (supply.count > 0) {
        eni_free(supply.blocks[--supply.count], ENI_SUPPLY_SIZE);
    }
    supply.running = false;
    eni_unlock(&supply.lock);
    return NULL;
}

/* The lock is held. Where no thread can be had, blocks are allocated when they are asked for. */
static void start(void)
{
    pthread_t thread;
    supply.running = eni_thread_start(&thread, work, NULL);
    if (supply.running) {
        pthread_detach(thread);
    }
}

void *eni_supply_take(void)
{
    void *block = NULL;
    eni_lock(&supply.lock);
    if (!supply.running) {
        start();
    }
    supply.wanted = true;
    if (supply.count > 0) {
        block = supply.blocks[--supply.count];
    }
    pthread_cond_signal(&supply.asked);
    eni_unlock(&supply.lock);
    return block != NULL ? block : eni_alloc(ENI_SUPPLY_SIZE);
}

static void fork_before(void) { eni_lock(&supply.lock); }
static void fork_parent(void) { eni_unlock(&supply.lock); }

/* The thread does not exist in the child; what it had ready is the child's. */
static void fork_child(void)
{
    supply.running = false;
    pthread_cond_init(&supply.asked, NULL);
    eni_unlock(&supply.lock);
}

__attribute__((constructor)) static void fork_register(void)
{
    static const eni_fork_handler handler = {ENI_FORK_RANK_STORE + 1, fork_before, fork_parent, fork_child};
    eni_thread_at_fork(&handler);
}
