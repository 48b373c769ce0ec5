/* Growing text and UTF-8. A zeroed eni_str is empty and ready. Appending never fails visibly: out of memory sets failed,
 * which the owner checks once at the end. */
#ifndef ENI_BASE_STR_H
#define ENI_BASE_STR_H

#include <stdarg.h>

#include "base/alloc.h"

typedef struct eni_str {
    char *data; /* ends with a NUL once anything was appended */
    size_t size, capacity;
    bool failed;
} eni_str;

void eni_str_append(eni_str *str, const void *data, size_t size);
void eni_str_puts(eni_str *str, const char *text);
void eni_str_putc(eni_str *str, char c);
void eni_str_append_utf8(eni_str *str, enigma_text text); /* invalid pieces as U+FFFD, as readers will see them */
void eni_str_printf(eni_str *str, const char *format, ...) __attribute__((format(printf, 2, 3)));
void eni_str_free(eni_str *str);

/* vsnprintf in the C locale, whatever the program has set: a decimal point stays a point. */
int eni_str_format(char *buffer, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* The shortest decimal digits that read back as the same finite double, with a NUL; the size without it. */
#define ENI_DOUBLE_BYTES 32
size_t eni_str_double(double value, char out[ENI_DOUBLE_BYTES]);

/* Decimal digits without a NUL; where they end. us: microseconds with exactly three decimals from ns, "12.345". */
#define ENI_U64_BYTES 20
#define ENI_US_BYTES 21
char *eni_str_u64(uint64_t value, char *out);
char *eni_str_us(uint64_t ns, char *out);

/* An input text with its size made exact: size 0 means "ends with a NUL", data NULL stays absent (size 0). */
enigma_text eni_text_in(enigma_text text);
enigma_text eni_text_of(const char *text); /* NULL: absent */
bool eni_text_equal(enigma_text a, enigma_text b);
int eni_text_compare(enigma_text a, enigma_text b); /* bytewise, absent first */
uint64_t eni_text_hash(enigma_text text);

/* Decodes one code point at *at (below end) and moves *at past it: U+FFFD for each maximal invalid piece. The two bytes
 * C0 80 and surrogates are invalid too. */
uint32_t eni_utf8_next(const char **at, const char *end);
size_t eni_utf8_put(uint32_t code, char out[4]); /* bytes written */
/* How many columns a terminal gives the code point: 0 combining, 2 wide, else 1. */
int eni_utf8_width(uint32_t code);

#endif
