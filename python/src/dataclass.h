/* What makes a C type pass for a frozen dataclass: fields, match_args, FrozenInstanceError. Used by event.c, result.c and
 * bench.c, with the GIL. */
#ifndef PYENIGMA_DATACLASS_H
#define PYENIGMA_DATACLASS_H

#include "pyenigma.h"

/* A field as dataclasses.fields() shows it. */
typedef struct py_dataclass_field {
    const char *name;
    const char *annotation;    /* Python source, as under "from __future__ import annotations" */
    const char *default_value; /* a Python literal; NULL: required. "{}" becomes default_factory=dict */
} py_dataclass_field;

/* Gives a type, made without Py_TPFLAGS_IMMUTABLETYPE, what dataclasses looks for, and makes it immutable. The fields are
 * those of a real frozen dataclass made for the purpose. fields ends with a NULL name. */
int py_dataclass_finish(PyTypeObject *type, const char *name, const py_dataclass_field *fields);

/* tp_setattro of immutable objects: dataclasses.FrozenInstanceError. */
int py_frozen_setattr(PyObject *self, PyObject *name, PyObject *value);

/* "Name(a=1, b='x')" of two sequences of equal length: the names (str) and the values. */
PyObject *py_dataclass_repr(const char *name, PyObject *names, PyObject *values);

/* cls(**{fields of self, changed}): what __replace__ of a dataclass does. */
PyObject *py_dataclass_replace(PyObject *self, PyObject *args, PyObject *kwargs, const py_dataclass_field *fields);

#endif
