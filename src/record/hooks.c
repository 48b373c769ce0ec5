/* Kernel hooks: one process-wide table, asked by whoever records a dispatch. A hook is called with no lock held; what is replaced
 * or unregistered meanwhile is released when its last call returns. */
#include <string.h>

#include "base/str.h"
#include "base/thread.h"
#include "record/profiler.h"

typedef struct eni_hook {
    char *name;
    size_t name_size;
    enigma_hook_fn call;
    enigma_release_fn release;
    void *user;
    uint32_t users; /* the table and the calls that run; under the lock */
    struct eni_hook *next;
} eni_hook;

static eni_mutex hooks_lock = ENI_MUTEX_INIT;
static eni_hook *hooks;
static uint32_t hook_count; /* atomic: the fast answer "none" */
static ENI_THREAD_LOCAL int inside;

static struct {
    enigma_interrupt_fn check;
    void *user;
} interrupt;

static void fork_before(void) { eni_lock(&hooks_lock); }
static void fork_after(void) { eni_unlock(&hooks_lock); }

__attribute__((constructor)) static void fork_register(void)
{
    static const eni_fork_handler handler = {ENI_FORK_RANK_RECORD + 1, fork_before, fork_after, fork_after};
    eni_thread_at_fork(&handler);
}

static eni_hook **find(enigma_text name)
{
    eni_hook **at = &hooks;
    while (*at != NULL && !eni_text_equal((enigma_text){(*at)->name, (*at)->name_size}, name)) {
        at = &(*at)->next;
    }
    return at;
}

/* Gives up one use; the last one releases, outside the lock. */
static void drop(eni_hook *entry)
{
    if (entry == NULL) {
        return;
    }
    eni_lock(&hooks_lock);
    bool last = --entry->users == 0;
    eni_unlock(&hooks_lock);
    if (last) {
        if (entry->release != NULL) {
            entry->release(entry->user);
        }
        eni_free(entry->name, entry->name_size + 1);
        ENI_DELETE(entry);
    }
}

static eni_hook *hook_create(enigma_text name, enigma_hook_fn call, enigma_release_fn release, void *user)
{
    eni_hook *entry = ENI_NEW(eni_hook);
    char *copy = eni_alloc(name.size + 1);
    if (entry == NULL || copy == NULL) {
        ENI_DELETE(entry);
        eni_free(copy, name.size + 1);
        return NULL;
    }
    memcpy(copy, name.data, name.size);
    copy[name.size] = 0;
    *entry = (eni_hook){copy, name.size, call, release, user, 1, NULL};
    return entry;
}

/* Takes what is there out of the table, and puts entry (NULL: nothing) in its place. */
static eni_hook *exchange(enigma_text name, eni_hook *entry)
{
    eni_lock(&hooks_lock);
    eni_hook **at = find(name);
    eni_hook *old = *at;
    if (entry != NULL) {
        entry->next = old == NULL ? NULL : old->next;
        *at = entry;
    } else if (old != NULL) {
        *at = old->next;
    }
    int change = (entry != NULL) - (old != NULL);
    __atomic_store_n(&hook_count, (uint32_t)((int)hook_count + change), __ATOMIC_RELAXED);
    eni_unlock(&hooks_lock);
    return old;
}

enigma_status enigma_hook_register(enigma_text kernel_name, enigma_hook_fn call, enigma_release_fn release, void *user)
{
    if (kernel_name.data == NULL || call == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "a hook needs a kernel name and a function");
    }
    enigma_text name = eni_text_in(kernel_name);
    eni_hook *entry = hook_create(name, call, release, user);
    if (entry == NULL) {
        return ENI_NO_MEMORY();
    }
    drop(exchange(name, entry));
    return ENIGMA_OK;
}

void enigma_hook_unregister(enigma_text kernel_name)
{
    if (kernel_name.data != NULL) {
        drop(exchange(eni_text_in(kernel_name), NULL));
    }
}

static eni_hook *take(enigma_text name)
{
    eni_lock(&hooks_lock);
    eni_hook *entry = *find(name);
    if (entry != NULL) {
        entry->users++;
    }
    eni_unlock(&hooks_lock);
    return entry;
}

size_t eni_hooks_ask(const enigma_dispatch_info *info, enigma_metric *out, size_t capacity, eni_hook **asked)
{
    *asked = NULL;
    if (__atomic_load_n(&hook_count, __ATOMIC_RELAXED) == 0 || inside || (*asked = take(info->kernel_name)) == NULL) {
        return 0;
    }
    inside = 1;
    size_t count = (*asked)->call((*asked)->user, info, out, capacity);
    inside = 0;
    return count < capacity ? count : capacity;
}

void eni_hooks_done(eni_hook *asked) { drop(asked); }

/* ---- interrupting waits ---- */

void enigma_set_interrupt(enigma_interrupt_fn check, void *user)
{
    interrupt.check = check;
    interrupt.user = user;
}

bool eni_interruptible(void) { return interrupt.check != NULL; }

bool eni_interrupted(void) { return interrupt.check != NULL && interrupt.check(interrupt.user) != 0; }
