/* Asks the C++ runtime of the process, which knows all that its compilers write; it is loaded where the process has none. Called
 * under the lock of whoever drains. */
#include "attach/demangle.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/dynlib.h"

typedef char *(*demangle_fn)(const char *mangled, char *buffer, size_t *size, int *status);

/* NULL: there is none. */
static demangle_fn find(void)
{
    static const char *const names[] = {"libstdc++.so.6", "libc++abi.so.1", "libc++.so.1", "libc++abi.1.dylib", NULL};
    void *library = NULL, *found = dlsym(RTLD_DEFAULT, "__cxa_demangle");
    demangle_fn function = NULL;
    if (found == NULL && eni_dynlib_open(names, &library) == ENIGMA_OK) {
        found = dlsym(library, "__cxa_demangle");
    }
    memcpy(&function, &found, sizeof function);
    return function;
}

bool eni_demangle(eni_arena *arena, enigma_text mangled, enigma_text *out)
{
    static demangle_fn function;
    static bool looked;
    char *text = NULL;
    int status = 0;
    if (mangled.size > 2 && memcmp(mangled.data, "_Z", 2) == 0) {
        if (!looked) {
            function = find();
            looked = true;
        }
        text = function == NULL ? NULL : function(mangled.data, NULL, NULL, &status);
    }
    enigma_text shown = text == NULL ? mangled : (enigma_text){text, strlen(text)};
    bool ok = eni_arena_text(arena, shown, out);
    free(text);
    return ok;
}
