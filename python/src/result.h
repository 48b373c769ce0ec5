/* ProfilerResult for the files that make one. */
#ifndef PYENIGMA_RESULT_H
#define PYENIGMA_RESULT_H

#include "pyenigma.h"

/* Takes the result over, also on failure. */
PyObject *py_result_new(py_state *state, enigma_result *result);

/* Text that the library writes, as a str: an enigma_write_fn (callable without the GIL) and what makes the str. */
typedef struct py_text_sink {
    char *data;
    size_t size, capacity;
    bool failed;
} py_text_sink;
int py_text_sink_write(void *sink, const void *data, size_t size);
/* The str, or NULL with the exception for status; frees the sink's memory either way. */
PyObject *py_text_sink_finish(py_text_sink *sink, enigma_status status);

#endif
