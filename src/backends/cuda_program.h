/* What cuda_program.c and cuda_kernel.c share: a loaded program. */
#ifndef ENI_BACKENDS_CUDA_PROGRAM_H
#define ENI_BACKENDS_CUDA_PROGRAM_H

#include "backends/cuda.h"

typedef struct cuda_program {
    cuda_device *device;
    uint32_t references; /* the caller's, and one for each kernel; one thread at a time */
    cuda_image image;    /* what the module was loaded from */
    cuda_image text;     /* the source text; empty: a binary was given */
    cu_module module;
} cuda_program;

/* ENIGMA_E_NOT_FOUND with the names that there are. In the device's context. */
enigma_status eni_cuda_program_fail_name(const cuda_program *program, const char *name);

#endif
