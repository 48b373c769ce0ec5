/* Names of C++ functions as people write them. */
#ifndef ENI_ATTACH_DEMANGLE_H
#define ENI_ATTACH_DEMANGLE_H

#include "base/arena.h"

/* The name in memory of arena: demangled where it is a mangled one and there is a C++ runtime to ask, else as it is. False: no memory.
 * May load a library: not in a driver's call. */
bool eni_demangle(eni_arena *arena, enigma_text mangled, enigma_text *out);

#endif
