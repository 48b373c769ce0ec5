/* Vendor libraries, found at run time. */
#ifndef ENI_BASE_DYNLIB_H
#define ENI_BASE_DYNLIB_H

#include "base/error.h"

/* One row of a symbols .def: name in the library and where the pointer goes in the backend's struct of functions. */
typedef struct eni_dynlib_symbol {
    const char *name;
    size_t offset;
    int required;
} eni_dynlib_symbol;

/* Opens the first of names (NULL-terminated list) that is there: a copy already in the process first, then by loading. The
 * libraries stay loaded. out receives the handle. ENIGMA_E_UNAVAILABLE with the loader's words otherwise. */
enigma_status eni_dynlib_open(const char *const *names, void **out);

/* Fills functions (a struct) by the symbol list. ENIGMA_E_UNAVAILABLE names a required symbol that is missing; missing optional
 * ones are NULL. */
enigma_status eni_dynlib_load(void *library, const eni_dynlib_symbol *symbols, size_t count, void *functions);

#endif
