/* The DLPack exchange structures, by their documented layout (ABI major version 1), as far as a reader of host memory
 * needs them. Used by arguments.c alone. */
#ifndef PYENIGMA_DLPACK_H
#define PYENIGMA_DLPACK_H

#include <stdint.h>

enum dlpack_device { DLPACK_CPU = 1, DLPACK_CUDA_HOST = 3, DLPACK_ROCM_HOST = 11 };

enum dlpack_code {
    DLPACK_INT = 0,
    DLPACK_UINT = 1,
    DLPACK_FLOAT = 2,
    DLPACK_OPAQUE = 3,
    DLPACK_BFLOAT = 4,
    DLPACK_COMPLEX = 5,
    DLPACK_BOOL = 6
};

typedef struct dlpack_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: compact, row-major */
    uint64_t byte_offset;
} dlpack_tensor;

/* What a capsule named "dltensor" holds. */
typedef struct dlpack_managed {
    dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *self);
} dlpack_managed;

/* What a capsule named "dltensor_versioned" holds. */
typedef struct dlpack_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dlpack_versioned *self);
    uint64_t flags;
    dlpack_tensor tensor;
} dlpack_versioned;

#endif
