/* The settings of settings.def, read once from the environment. */
#ifndef ENI_BASE_SETTINGS_H
#define ENI_BASE_SETTINGS_H

#include <stdbool.h>

#include "base/error.h"

typedef const char *eni_setting_text;
typedef uint64_t eni_setting_number;
typedef bool eni_setting_flag;

typedef struct eni_settings {
#define ENI_SETTING(type, member, environment, fallback, help) eni_setting_##type member;
#include "base/settings.def"
#undef ENI_SETTING
} eni_settings;

/* The settings as the environment had them at first use. Bad values: ENIGMA_E_INVALID naming variable, value and what is
 * allowed; out is then the defaults. */
enigma_status eni_settings_get(const eni_settings **out);

/* The same for code that cannot fail: the defaults where a value is bad. */
const eni_settings *eni_settings_now(void);

#endif
