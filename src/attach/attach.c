/* The list of attachers, and what record/ calls: names to bits, and one call for all that a profiler attaches to. Any thread. */
#include "attach/attach.h"

#include <string.h>

#include "base/str.h"
#include "record/spot.h"

static const eni_attacher *const attachers[] = {
#define ENI_ATTACHER(name) &eni_attacher_##name,
#include "attach/attachers.def"
#undef ENI_ATTACHER
};

static enigma_status unknown(enigma_text name)
{
    eni_str known = {NULL, 0, 0, false};
    for (size_t i = 0; i < ENI_COUNT_OF(attachers); i++) {
        eni_str_printf(&known, "%s\"%s\"", i == 0 ? "" : ", ", attachers[i]->name);
    }
    enigma_status status =
        ENI_FAIL(ENIGMA_E_INVALID, "attach: \"%.*s\" is none of %s", (int)(name.size < 64 ? name.size : 64), name.data,
                 known.data == NULL ? "" : known.data);
    eni_str_free(&known);
    return status;
}

static enigma_text trimmed(const char *from, const char *to)
{
    while (from < to && *from == ' ') {
        from++;
    }
    while (from < to && to[-1] == ' ') {
        to--;
    }
    return (enigma_text){from, (size_t)(to - from)};
}

static enigma_status parse(const char *names, uint32_t *out)
{
    *out = 0;
    for (const char *at = names, *end; at != NULL; at = *end == '\0' ? NULL : end + 1) {
        end = at + strcspn(at, ",");
        enigma_text name = trimmed(at, end);
        size_t i = 0;
        while (i < ENI_COUNT_OF(attachers) && !eni_text_equal(name, eni_text_of(attachers[i]->name))) {
            i++;
        }
        if (i == ENI_COUNT_OF(attachers)) {
            *out = 0;
            return unknown(name);
        }
        *out |= 1u << i;
    }
    return ENIGMA_OK;
}

/* All of them, also when one fails; the first failure counts. */
static enigma_status end(enigma_profiler *profiler, bool wait)
{
    enigma_status status = ENIGMA_OK;
    eni_spot_close(eni_profiler_id(profiler));
    for (size_t i = 0; i < ENI_COUNT_OF(attachers); i++) {
        enigma_status one = attachers[i]->end(profiler, wait);
        status = status == ENIGMA_OK ? one : status;
    }
    return status;
}

static enigma_status begin(enigma_profiler *profiler, uint32_t attach)
{
    enigma_status status = ENIGMA_OK;
    for (size_t i = 0; i < ENI_COUNT_OF(attachers) && status == ENIGMA_OK; i++) {
        if ((attach >> i & 1) != 0) {
            status = attachers[i]->begin(profiler);
        }
    }
    if (status == ENIGMA_OK && !eni_spot_open(profiler)) {
        status = ENI_FAIL(ENIGMA_E_UNAVAILABLE, "too many profilers attach at once");
    }
    if (status != ENIGMA_OK) {
        end(profiler, false);
    }
    return status;
}

static void drain(enigma_profiler *profiler)
{
    for (size_t i = 0; i < ENI_COUNT_OF(attachers); i++) {
        attachers[i]->drain(profiler);
    }
}

const eni_attach_hooks eni_attach_all = {parse, begin, end, drain};

__attribute__((constructor)) static void set_up(void) { eni_profiler_attach = &eni_attach_all; }
