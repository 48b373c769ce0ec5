/* Where NVIDIA's toolkit libraries lie. They come with a toolkit, with Python packages or with a framework, rarely in the loader's
 * own path. Called while a library is loaded, on any thread. */
#ifndef ENI_CUPTI_LOCATE_H
#define ENI_CUPTI_LOCATE_H

#include "base/error.h"

/* Opens the first of names (NULL-terminated, best first): a copy already in the process; beside the CUDA libraries that the process
 * has loaded, since those fit each other; in the loader's path; under CUDA_HOME, CUDA_PATH and /usr/local/cuda*; in the Python
 * packages beside this library. ENIGMA_E_UNAVAILABLE names what was looked for. */
enigma_status eni_cuda_locate(const char *const *names, void **out);

#endif
