/* Functions that overflow or hide state do not compile. Forced into every source by the build. */
#ifndef ENI_BASE_BANNED_H
#define ENI_BASE_BANNED_H

#include <stdio.h>
#include <string.h>

#undef strcpy
#define strcpy(a, b) eni_banned_strcpy_use_memcpy_or_eni_str
#undef strcat
#define strcat(a, b) eni_banned_strcat_use_eni_str
#undef strncpy
#define strncpy(a, b, c) eni_banned_strncpy_use_memcpy_or_eni_str
#undef strtok
#define strtok(a, b) eni_banned_strtok
#undef sprintf
#define sprintf(...) eni_banned_sprintf_use_snprintf
#undef vsprintf
#define vsprintf(...) eni_banned_vsprintf_use_vsnprintf
#undef gets
#define gets(a) eni_banned_gets

#endif
