/* Finds vendor libraries at run time. Called by the backends' load functions, under their once. */
#include "base/dynlib.h"

#include <dlfcn.h>

#include "base/log.h"
#include "base/str.h"

/* Never unloaded: drivers keep threads and exit handlers. */
#define OPEN_FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

static void *open_first(const char *const *names, int flags, eni_str *words)
{
    for (; *names != NULL; names++) {
        void *library = dlopen(*names, flags);
        if (library != NULL) {
            eni_log(ENI_LOG_INFO, "found %s", *names);
            return library;
        }
        const char *why = dlerror();
        if (words != NULL) {
            eni_str_printf(words, "%s%s", words->size == 0 ? "" : "; ", why == NULL ? *names : why);
        }
    }
    return NULL;
}

enigma_status eni_dynlib_open(const char *const *names, void **out)
{
    *out = open_first(names, OPEN_FLAGS | RTLD_NOLOAD, NULL);
    if (*out != NULL) {
        return ENIGMA_OK;
    }
    eni_str words = {0};
    *out = open_first(names, OPEN_FLAGS, &words);
    enigma_status status = ENIGMA_OK;
    if (*out == NULL) {
        status = ENI_FAIL(ENIGMA_E_UNAVAILABLE, "%s", words.failed || words.data == NULL ? "no library" : words.data);
    }
    eni_str_free(&words);
    return status;
}

enigma_status eni_dynlib_load(void *library, const eni_dynlib_symbol *symbols, size_t count, void *functions)
{
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL && symbols[i].required) {
            const char *why = dlerror();
            return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "the library has no function %s (%s)", symbols[i].name,
                            why == NULL ? "it is NULL" : why);
        }
        memcpy((char *)functions + symbols[i].offset, &address, sizeof address);
    }
    return ENIGMA_OK;
}
