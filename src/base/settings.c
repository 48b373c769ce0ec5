/* Reads the environment once, at first use, into the settings. The texts are copied, since the environment may change
 * under us; into fixed room, since settings are read before the allocator can be. Any thread. */
#include "base/settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <strings.h>

#define TEXT_BYTES 1024

static eni_settings settings;
static enigma_status status;
static char reason[512]; /* why status is not OK: the first bad value */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void reject(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void reject(const char *format, ...)
{
    if (status == ENIGMA_OK) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(reason, sizeof reason, format, arguments);
        va_end(arguments);
        status = ENIGMA_E_INVALID;
    }
}

static void read_text(const char *name, const char *value, char *room, eni_setting_text *out)
{
    size_t size = strlen(value);
    if (size >= TEXT_BYTES) {
        reject("%s is %zu bytes long; at most %d are allowed", name, size, TEXT_BYTES - 1);
        return;
    }
    memcpy(room, value, size + 1);
    *out = room;
}

static void read_number(const char *name, const char *value, char *room, eni_setting_number *out)
{
    (void)room;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (errno != 0 || *end != '\0' || *value < '0' || *value > '9') {
        reject("%s=\"%.100s\": a whole number from 0 to %llu is allowed", name, value, ~0ull);
        return;
    }
    *out = number;
}

static bool is_one_of(const char *value, const char *const *words)
{
    while (*words != NULL && strcasecmp(value, *words) != 0) {
        words++;
    }
    return *words != NULL;
}

/* settings.def may hold no flag at present. */
__attribute__((unused)) static void read_flag(const char *name, const char *value, char *room, eni_setting_flag *out)
{
    (void)room;
    static const char *const yes[] = {"1", "true", "yes", "on", NULL}, *const no[] = {"0", "false", "no", "off", NULL};
    if (is_one_of(value, yes)) {
        *out = true;
    } else if (is_one_of(value, no)) {
        *out = false;
    } else {
        reject("%s=\"%.100s\": 1, true, yes, on and 0, false, no, off are allowed", name, value);
    }
}

/* A variable that is set to nothing counts as not set. */
static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || *value == '\0' ? NULL : value;
}

static void set_defaults(void)
{
    settings = (eni_settings){
#define ENI_SETTING(type, member, variable, fallback, help) .member = fallback,
#include "base/settings.def"
#undef ENI_SETTING
    };
}

static void init(void)
{
    set_defaults();
#define ENI_SETTING(type, member, variable, fallback, help)                                                            \
    {                                                                                                                  \
        static char room[TEXT_BYTES];                                                                                  \
        const char *value = environment(variable);                                                                     \
        if (value != NULL) {                                                                                           \
            read_##type(variable, value, room, &settings.member);                                                      \
        }                                                                                                              \
    }
#include "base/settings.def"
#undef ENI_SETTING
    if (status != ENIGMA_OK) {
        set_defaults();
    }
}

const eni_settings *eni_settings_now(void)
{
    pthread_once(&once, init);
    return &settings;
}

enigma_status eni_settings_get(const eni_settings **out)
{
    *out = eni_settings_now();
    return status == ENIGMA_OK ? ENIGMA_OK : ENI_FAIL(status, "%s", reason);
}

/* ---- The list, for people -------------------------------------------------------------------------------------------- */

#define SHOWN_text(fallback) fallback
#define SHOWN_number(fallback) #fallback
#define SHOWN_flag(fallback) #fallback

static const enigma_setting_info infos[] = {
#define ENI_SETTING(type, member, variable, fallback, help) {variable, #type, SHOWN_##type(fallback), help},
#include "base/settings.def"
#undef ENI_SETTING
};

const enigma_setting_info *enigma_setting_at(size_t index)
{
    return index < ENI_COUNT_OF(infos) ? &infos[index] : NULL;
}
