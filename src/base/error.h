/* How failures travel: a status up the stack, the detail beside it in the thread.
 *
 * Where something fails: return ENI_FAIL(ENIGMA_E_COMPILE, "kernel %s: %s", name, log);
 * Where a failure passes through: ENI_TRY(call);  With things to undo: goto a label named for what failed. */
#ifndef ENI_BASE_ERROR_H
#define ENI_BASE_ERROR_H

#include "enigma.h"

#define ENI_LIKELY(x) __builtin_expect(!!(x), 1)
#define ENI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define ENI_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define ENI_FAIL(status, ...) eni_error_set((status), 0, NULL, __VA_ARGS__)
#define ENI_TRY(call)                                                                                                  \
    do {                                                                                                               \
        enigma_status eni_try_status_ = (call);                                                                        \
        if (ENI_UNLIKELY(eni_try_status_ != ENIGMA_OK)) {                                                              \
            return eni_try_status_;                                                                                    \
        }                                                                                                              \
    } while (0)
#define ENI_NO_MEMORY() ENI_FAIL(ENIGMA_E_NO_MEMORY, "out of memory")

/* Sets this thread's detail and returns status. errnum and path are for ENIGMA_E_IO (0 and NULL otherwise). Long messages
 * (compiler logs) are kept whole where memory allows. */
enigma_status eni_error_set(enigma_status status, int errnum, const char *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The ENIGMA_E_IO of an errno on a path: the message is "<what> <path>: <strerror>". */
enigma_status eni_error_io(int errnum, const char *what, const char *path);

/* The system's words for an errno, in buffer or constant. */
const char *eni_error_words(int errnum, char *buffer, size_t size);

/* Frees the detail of the calling thread: nothing has failed any more. */
void eni_error_forget(void);

#endif
