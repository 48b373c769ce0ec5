/* Growing text, comparison of texts, UTF-8, and printf that does not depend on the program's locale. No state but the C
 * locale's handle; any thread. */
#include "base/str.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

#define REPLACEMENT 0xfffdu

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* A program that set a locale with decimal commas must not change what we write. */
static locale_t enter_c_locale(void)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale == (locale_t)0 ? (locale_t)0 : uselocale(c_locale);
}

static void leave_c_locale(locale_t before)
{
    if (before != (locale_t)0) {
        uselocale(before);
    }
}

int eni_str_format(char *buffer, size_t size, const char *format, va_list arguments)
{
    locale_t before = enter_c_locale();
    int length = vsnprintf(buffer, size, format, arguments);
    leave_c_locale(before);
    return length;
}

char *eni_str_u64(uint64_t value, char *out)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748"
                                "49505152535455565758596061626364656667686970717273747576777879808182838485868788899091929394959697"
                                "9899";
    char digits[ENI_U64_BYTES];
    size_t at = sizeof digits;
    for (; value >= 100; value /= 100) {
        at -= 2;
        memcpy(&digits[at], &pairs[value % 100 * 2], 2);
    }
    if (value >= 10) {
        at -= 2;
        memcpy(&digits[at], &pairs[value * 2], 2);
    } else {
        digits[--at] = (char)('0' + value);
    }
    memcpy(out, &digits[at], sizeof digits - at);
    return out + (sizeof digits - at);
}

char *eni_str_us(uint64_t ns, char *out)
{
    unsigned rest = (unsigned)(ns % 1000);
    out = eni_str_u64(ns / 1000, out);
    *out++ = '.';
    *out++ = (char)('0' + rest / 100);
    *out++ = (char)('0' + rest / 10 % 10);
    *out++ = (char)('0' + rest % 10);
    return out;
}

/* What has 15 digits or fewer and no fraction is written as a whole number; most counts are. -0.0 is not. */
static bool is_whole(double value)
{
    return fabs(value) < 1e15 && (double)(int64_t)value == value && (value != 0.0 || !signbit(value));
}

size_t eni_str_double(double value, char out[ENI_DOUBLE_BYTES])
{
    if (is_whole(value)) {
        out[0] = '-';
        char *end = eni_str_u64((uint64_t)fabs(value), value < 0 ? out + 1 : out);
        *end = '\0';
        return (size_t)(end - out);
    }
    locale_t before = enter_c_locale();
    int size = 0;
    for (int digits = 15; digits <= 17; digits++) { /* 17 always suffice */
        size = snprintf(out, ENI_DOUBLE_BYTES, "%.*g", digits, value);
        if (strtod(out, NULL) == value) {
            break;
        }
    }
    leave_c_locale(before);
    return (size_t)size;
}

static bool reserve(eni_str *str, size_t size)
{
    size_t wanted;
    if (str->failed || __builtin_add_overflow(str->size, size, &wanted) || wanted == SIZE_MAX ||
        !eni_grow((void **)&str->data, &str->capacity, wanted, 1)) {
        str->failed = true;
        return false;
    }
    return true;
}

void eni_str_append(eni_str *str, const void *data, size_t size)
{
    if (reserve(str, size)) {
        if (size != 0) {
            memcpy(str->data + str->size, data, size);
        }
        str->size += size;
        str->data[str->size] = '\0';
    }
}

void eni_str_puts(eni_str *str, const char *text) { eni_str_append(str, text, strlen(text)); }

void eni_str_putc(eni_str *str, char c) { eni_str_append(str, &c, 1); }

void eni_str_printf(eni_str *str, const char *format, ...)
{
    char small[256];
    va_list arguments;
    va_start(arguments, format);
    int size = eni_str_format(small, sizeof small, format, arguments);
    va_end(arguments);
    if (size < 0) {
        str->failed = true;
    } else if ((size_t)size < sizeof small) {
        eni_str_append(str, small, (size_t)size);
    } else if (reserve(str, (size_t)size)) {
        va_start(arguments, format);
        eni_str_format(str->data + str->size, (size_t)size + 1, format, arguments);
        va_end(arguments);
        str->size += (size_t)size;
    }
}

void eni_str_free(eni_str *str)
{
    eni_free(str->data, str->capacity);
    *str = (eni_str){0};
}

enigma_text eni_text_in(enigma_text text)
{
    if (text.data == NULL) {
        return (enigma_text){NULL, 0};
    }
    return text.size == 0 ? (enigma_text){text.data, strlen(text.data)} : text;
}

enigma_text eni_text_of(const char *text) { return (enigma_text){text, text == NULL ? 0 : strlen(text)}; }

bool eni_text_equal(enigma_text a, enigma_text b)
{
    if (a.data == NULL || b.data == NULL) {
        return a.data == b.data;
    }
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

int eni_text_compare(enigma_text a, enigma_text b)
{
    if (a.data == NULL || b.data == NULL) {
        return (a.data != NULL) - (b.data != NULL);
    }
    size_t common = a.size < b.size ? a.size : b.size;
    int order = common == 0 ? 0 : memcmp(a.data, b.data, common);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

/* FNV-1a over eight bytes at a time, with a final mix so that low bits depend on all. */
uint64_t eni_text_hash(enigma_text text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ text.size;
    const char *at = text.data;
    size_t left = text.data == NULL ? 0 : text.size;
    for (; left >= 8; left -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    uint64_t tail = 0;
    if (left != 0) {
        memcpy(&tail, at, left);
    }
    hash = (hash ^ tail) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* What a lead byte announces: how many bytes follow, and what the first of them may be (that keeps out overlong forms,
 * surrogates and code points above 10FFFF). count 0: no lead byte. */
typedef struct lead {
    unsigned count, low, high;
} lead;

static lead lead_of(unsigned byte)
{
    if (byte >= 0xc2 && byte <= 0xdf) {
        return (lead){1, 0x80, 0xbf};
    }
    if (byte >= 0xe0 && byte <= 0xef) {
        return (lead){2, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
    }
    if (byte >= 0xf0 && byte <= 0xf4) {
        return (lead){3, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
    }
    return (lead){0, 0, 0};
}

uint32_t eni_utf8_next(const char **at, const char *end)
{
    const unsigned char *next = (const unsigned char *)*at;
    const unsigned char *stop = (const unsigned char *)end;
    uint32_t byte = *next++;
    uint32_t code = byte;
    if (byte >= 0x80) {
        lead rule = lead_of(byte);
        bool valid = rule.count != 0;
        code = byte & (0x3fu >> rule.count);
        for (unsigned i = 0; valid && i < rule.count; i++) {
            valid = next < stop && *next >= (i == 0 ? rule.low : 0x80) && *next <= (i == 0 ? rule.high : 0xbf);
            if (valid) {
                code = code << 6 | (*next++ & 0x3fu);
            }
        }
        if (!valid) {
            code = REPLACEMENT;
        }
    }
    *at = (const char *)next;
    return code;
}

size_t eni_utf8_put(uint32_t code, char out[4])
{
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        code = REPLACEMENT;
    }
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t count = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char marks[] = {0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(marks[count] | code >> (6 * count));
    for (size_t i = 1; i <= count; i++) {
        out[i] = (char)(0x80 | (code >> (6 * (count - i)) & 0x3f));
    }
    return count + 1;
}

void eni_str_append_utf8(eni_str *str, enigma_text text)
{
    for (const char *at = text.data, *end = text.data + text.size; at < end;) {
        char bytes[4];
        eni_str_append(str, bytes, eni_utf8_put(eni_utf8_next(&at, end), bytes));
    }
}

static const struct width_range {
    uint32_t first, last;
    int columns;
} width_ranges[] = {
#define ENI_WIDTH(first, last, columns) {first, last, columns},
#include "base/utf8_width.def"
#undef ENI_WIDTH
};

int eni_utf8_width(uint32_t code)
{
    if (code < width_ranges[0].first) {
        return 1;
    }
    size_t low = 0, high = ENI_COUNT_OF(width_ranges); /* the range, if any, is in [low, high) */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (code > width_ranges[middle].last) {
            low = middle + 1;
        } else if (code < width_ranges[middle].first) {
            high = middle;
        } else {
            return width_ranges[middle].columns;
        }
    }
    return 1;
}
