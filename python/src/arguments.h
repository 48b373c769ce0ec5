/* Kernel inputs, output sizes and launch sizes: from Python objects to what enigma.h takes. Used by gpu.c, prepared.c,
 * bench.c and testing.c, with the GIL. */
#ifndef PYENIGMA_ARGUMENTS_H
#define PYENIGMA_ARGUMENTS_H

#include "pyenigma.h"

/* One input; owns what its enigma_argument points into. */
typedef struct py_input {
    Py_buffer view; /* held when has_view */
    bool has_view;
    void *managed; /* a DLPack tensor that was taken over, freed by drop; NULL: none */
    void (*drop)(void *managed);
    void *copy;      /* contiguous copy; NULL: the data is used where it lies */
    uint64_t *shape; /* NULL for rank 0 */
    char dtype[32];
} py_input;

/* The inputs and output sizes of a call. Valid until py_arguments_clear, also without the GIL. */
typedef struct py_arguments {
    enigma_argument *inputs;
    py_input *owners;
    size_t input_count;
    size_t *output_sizes;
    size_t output_count;
    bool outputs_listed; /* output_size was a list: outputs go back as one */
} py_arguments;

/* 0, or -1 with an exception; then nothing is left to clear. */
int py_arguments_init(py_arguments *out, PyObject *inputs, PyObject *output_size);
void py_arguments_clear(py_arguments *arguments);

/* A tuple or list of exactly three ints greater than 0; what names it in the error. 0, or -1 with an exception. */
int py_size3(PyObject *value, const char *what, enigma_size3 *out);

/* An int from 0 to UINT32_MAX, not a bool; what names it in the error. 0, or -1 with an exception. */
int py_index32(PyObject *value, const char *what, uint32_t *out);

#endif
