/* The table of backends, made from backends.def, and the list of device facts that they fill. Called by gpu/ and through
 * section 11 of enigma.h, on any thread; the table is constant. */
#include <assert.h>

#include "backends/backend.h"
#include "base/str.h"

#define ENI_BACKEND(id) extern const eni_backend eni_backend_##id;
#define ENI_BACKEND_NOT_BUILT(id, row_title, row_needs)                                                                \
    static const eni_backend eni_backend_##id = {                                                                      \
        .name = #id, .title = row_title, .needs = row_needs, .automatic = true};
#include "backends/backends.def"
#undef ENI_BACKEND
#undef ENI_BACKEND_NOT_BUILT

static const eni_backend *const table[] = {
#define ENI_BACKEND(id)                                 &eni_backend_##id,
#define ENI_BACKEND_NOT_BUILT(id, row_title, row_needs) &eni_backend_##id,
#include "backends/backends.def"
#undef ENI_BACKEND
#undef ENI_BACKEND_NOT_BUILT
};

/* The same for the public header; filled at load and constant from then on. */
static enigma_backend_info infos[ENI_COUNT_OF(table)];

__attribute__((constructor)) static void fill_infos(void)
{
    for (size_t i = 0; i < ENI_COUNT_OF(table); i++) {
        infos[i] = (enigma_backend_info){table[i]->name, table[i]->title, table[i]->load != NULL, table[i]->needs};
    }
}

const eni_backend *eni_backend_at(size_t index) { return index < ENI_COUNT_OF(table) ? table[index] : NULL; }

static enigma_status fail_unknown(const char *name)
{
    eni_str names = {0};
    for (size_t i = 0; i < ENI_COUNT_OF(table); i++) {
        eni_str_printf(&names, "%s%s", i == 0 ? "" : ", ", table[i]->name);
    }
    enigma_status status = ENI_FAIL(ENIGMA_E_INVALID, "there is no backend \"%s\"; the backends are %s", name,
                                    names.failed ? "opencl" : names.data);
    eni_str_free(&names);
    return status;
}

enigma_status eni_backend_get(const char *name, const eni_backend **out)
{
    *out = NULL;
    for (size_t i = 0; i < ENI_COUNT_OF(table); i++) {
        if (strcmp(table[i]->name, name) != 0) {
            continue;
        }
        if (table[i]->load == NULL) {
            return ENI_FAIL(ENIGMA_E_UNAVAILABLE, "the %s backend is not part of this build of enigma; it will need %s",
                            table[i]->title, table[i]->needs);
        }
        ENI_TRY(table[i]->load());
        *out = table[i];
        return ENIGMA_OK;
    }
    return fail_unknown(name);
}

const enigma_backend_info *enigma_backend_at(size_t index)
{
    return index < ENI_COUNT_OF(infos) ? &infos[index] : NULL;
}

enigma_status enigma_backend_device_count(const char *name, uint32_t *out)
{
    if (out == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "out is NULL");
    }
    *out = 0;
    if (name == NULL) {
        return ENI_FAIL(ENIGMA_E_INVALID, "the backend's name is NULL");
    }
    const eni_backend *backend;
    ENI_TRY(eni_backend_get(name, &backend));
    return backend->device_count(out);
}

/* ---- facts ---- */

static enigma_value *add_fact(eni_facts *facts, const char *key)
{
    if (!eni_grow((void **)&facts->fields, &facts->capacity, facts->count, sizeof *facts->fields)) {
        facts->failed = true;
        return NULL;
    }
    enigma_field *field = &facts->fields[facts->count++];
    *field = (enigma_field){.key = {key, strlen(key)}};
    return &field->value;
}

void eni_facts_text(eni_facts *facts, const char *key, enigma_text text)
{
    enigma_value *value = add_fact(facts, key);
    if (value == NULL) {
        return;
    }
    value->type = ENIGMA_TEXT;
    facts->failed |= !eni_arena_text(&facts->arena, text, &value->as.text);
}

void eni_facts_uint(eni_facts *facts, const char *key, uint64_t number)
{
    enigma_value *value = add_fact(facts, key);
    if (value != NULL) {
        value->type = ENIGMA_INT;
        value->as.integer = number > INT64_MAX ? INT64_MAX : (int64_t)number;
    }
}

void eni_facts_double(eni_facts *facts, const char *key, double number)
{
    enigma_value *value = add_fact(facts, key);
    if (value != NULL) {
        value->type = ENIGMA_DOUBLE;
        value->as.number = number;
    }
}

void eni_facts_bool(eni_facts *facts, const char *key, bool truth)
{
    enigma_value *value = add_fact(facts, key);
    if (value != NULL) {
        value->type = ENIGMA_BOOL;
        value->as.integer = truth;
    }
}

void eni_facts_uint3(eni_facts *facts, const char *key, const uint64_t numbers[3])
{
    enigma_field *items = eni_arena_alloc(&facts->arena, 3 * sizeof *items);
    enigma_value *value = items == NULL ? NULL : add_fact(facts, key);
    if (value == NULL) {
        facts->failed = true;
        return;
    }
    for (int i = 0; i < 3; i++) {
        items[i] = (enigma_field){.value = {.type = ENIGMA_INT}};
        items[i].value.as.integer = numbers[i] > INT64_MAX ? INT64_MAX : (int64_t)numbers[i];
    }
    value->type = ENIGMA_TUPLE;
    value->as.items = (enigma_items){items, 3};
}

void eni_facts_free(eni_facts *facts)
{
    eni_free(facts->fields, facts->capacity * sizeof *facts->fields);
    eni_arena_free(&facts->arena);
    *facts = (eni_facts){0};
}
