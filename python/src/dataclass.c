/* What makes a C type pass for a frozen dataclass. Called by event.c, result.c and bench.c, with the GIL. */
#include "dataclass.h"

#include <string.h>

/* dataclasses.field(...) for one row. */
static PyObject *make_field(PyObject *dataclasses, const py_dataclass_field *row)
{
    PyObject *keywords = PyDict_New(), *none = PyTuple_New(0), *value = NULL, *result = NULL;
    PyObject *function = PyObject_GetAttrString(dataclasses, "field");
    if (keywords == NULL || none == NULL || function == NULL) {
        goto done;
    }
    if (row->default_value != NULL && strcmp(row->default_value, "{}") == 0) {
        if (PyDict_SetItemString(keywords, "default_factory", (PyObject *)&PyDict_Type) < 0) {
            goto done;
        }
    } else if (row->default_value != NULL) {
        PyObject *ast = PyImport_ImportModule("ast");
        value = ast == NULL ? NULL : PyObject_CallMethod(ast, "literal_eval", "s", row->default_value);
        Py_XDECREF(ast);
        if (value == NULL || PyDict_SetItemString(keywords, "default", value) < 0) {
            goto done;
        }
    }
    result = PyObject_Call(function, none, keywords);
done:
    Py_XDECREF(value);
    Py_XDECREF(function);
    Py_XDECREF(none);
    Py_XDECREF(keywords);
    return result;
}

/* [(name, annotation, field), ...] */
static PyObject *make_fields(PyObject *dataclasses, const py_dataclass_field *fields)
{
    PyObject *list = PyList_New(0);
    for (; list != NULL && fields->name != NULL; fields++) {
        PyObject *field = make_field(dataclasses, fields);
        PyObject *entry = field == NULL ? NULL : Py_BuildValue("(ssN)", fields->name, fields->annotation, field);
        if (entry == NULL || PyList_Append(list, entry) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(entry);
    }
    return list;
}

static PyObject *make_model(const char *name, const py_dataclass_field *fields)
{
    PyObject *dataclasses = PyImport_ImportModule("dataclasses");
    PyObject *list = dataclasses == NULL ? NULL : make_fields(dataclasses, fields);
    PyObject *function = list == NULL ? NULL : PyObject_GetAttrString(dataclasses, "make_dataclass");
    PyObject *args = function == NULL ? NULL : Py_BuildValue("(sO)", name, list);
    PyObject *keywords = args == NULL ? NULL : Py_BuildValue("{s:O}", "frozen", Py_True);
    PyObject *model = keywords == NULL ? NULL : PyObject_Call(function, args, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(args);
    Py_XDECREF(function);
    Py_XDECREF(list);
    Py_XDECREF(dataclasses);
    return model;
}

int py_dataclass_finish(PyTypeObject *type, const char *name, const py_dataclass_field *fields)
{
    static const char *const copied[] = {"__dataclass_fields__", "__dataclass_params__", "__match_args__",
                                         "__annotations__"};
    PyObject *model = make_model(name, fields);
    int result = model == NULL ? -1 : 0;
    for (size_t i = 0; result == 0 && i < sizeof(copied) / sizeof(copied[0]); i++) {
        PyObject *value = PyObject_GetAttrString(model, copied[i]);
        result = value == NULL ? -1 : PyObject_SetAttrString((PyObject *)type, copied[i], value);
        Py_XDECREF(value);
    }
    Py_XDECREF(model);
    if (result == 0) {
        type->tp_flags |= Py_TPFLAGS_IMMUTABLETYPE; /* nobody has seen the type yet */
        PyType_Modified(type);
    }
    return result;
}

int py_frozen_setattr(PyObject *self, PyObject *name, PyObject *value)
{
    (void)self;
    PyObject *dataclasses = PyImport_ImportModule("dataclasses");
    PyObject *error = dataclasses == NULL ? NULL : PyObject_GetAttrString(dataclasses, "FrozenInstanceError");
    if (error != NULL) {
        PyErr_Format(error, "cannot %s field %R", value == NULL ? "delete" : "assign to", name);
    }
    Py_XDECREF(error);
    Py_XDECREF(dataclasses);
    return -1;
}

static int append_field(PyObject *parts, PyObject *name, PyObject *value)
{
    PyObject *text = PyUnicode_FromFormat("%U=%R", name, value);
    int result = text == NULL ? -1 : PyList_Append(parts, text);
    Py_XDECREF(text);
    return result;
}

PyObject *py_dataclass_repr(const char *name, PyObject *names, PyObject *values)
{
    PyObject *parts = PyList_New(0), *comma = PyUnicode_FromString(", "), *joined = NULL, *result = NULL;
    int failed = parts == NULL || comma == NULL;
    for (Py_ssize_t i = 0; !failed && i < PySequence_Fast_GET_SIZE(names); i++) {
        failed = append_field(parts, PySequence_Fast_GET_ITEM(names, i), PySequence_Fast_GET_ITEM(values, i)) < 0;
    }
    if (!failed && (joined = PyUnicode_Join(comma, parts)) != NULL) {
        result = PyUnicode_FromFormat("%s(%U)", name, joined);
    }
    Py_XDECREF(joined);
    Py_XDECREF(comma);
    Py_XDECREF(parts);
    return result;
}

PyObject *py_dataclass_replace(PyObject *self, PyObject *args, PyObject *kwargs, const py_dataclass_field *fields)
{
    if (PyTuple_GET_SIZE(args) != 0) {
        PyErr_SetString(PyExc_TypeError, "__replace__() takes keyword arguments only");
        return NULL;
    }
    PyObject *all = PyDict_New(), *result = NULL;
    int failed = all == NULL;
    for (; !failed && fields->name != NULL; fields++) {
        PyObject *value = PyObject_GetAttrString(self, fields->name);
        failed = value == NULL || PyDict_SetItemString(all, fields->name, value) < 0;
        Py_XDECREF(value);
    }
    if (!failed && (kwargs == NULL || PyDict_Update(all, kwargs) == 0)) {
        result = PyObject_Call((PyObject *)Py_TYPE(self), args, all);
    }
    Py_XDECREF(all);
    return result;
}
