/* Names for terminals. See shown.h. */
#include "present/shown.h"

#define ELLIPSIS "\xe2\x80\xa6"

/* One code point as shown. */
typedef struct piece {
    char bytes[12];
    uint8_t size, columns;
} piece;

/* Moves a terminal's cursor, hides, or changes the direction of what follows. */
static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x200b && code <= 0x200f) ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || code == 0xfeff;
}

static piece escaped(uint32_t code)
{
    static const char letters[] = "\aa\bb\tt\nn\vv\ff\rr";
    piece out = {.size = 2};
    for (size_t i = 0; i + 1 < sizeof letters; i += 2) {
        if (code == (unsigned char)letters[i]) {
            out.bytes[0] = '\\';
            out.bytes[1] = letters[i + 1];
            out.columns = 2;
            return out;
        }
    }
    int size = snprintf(out.bytes, sizeof out.bytes, code < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)code);
    out.size = out.columns = (uint8_t)size;
    return out;
}

static piece next_piece(const char **at, const char *end)
{
    uint32_t code = eni_utf8_next(at, end);
    if (is_control(code)) {
        return escaped(code);
    }
    piece out;
    out.size = (uint8_t)eni_utf8_put(code, out.bytes);
    out.columns = (uint8_t)eni_utf8_width(code);
    return out;
}

/* How far from `at` the text fits into limit columns; *columns receives those used. */
static const char *fitting(const char *at, const char *end, size_t limit, size_t *columns)
{
    *columns = 0;
    while (at < end) {
        const char *next = at;
        piece one = next_piece(&next, end);
        if (*columns + one.columns > limit) {
            break;
        }
        *columns += one.columns;
        at = next;
    }
    return at;
}

static void append_range(eni_str *out, const char *at, const char *end)
{
    while (at < end) {
        piece one = next_piece(&at, end);
        eni_str_append(out, one.bytes, one.size);
    }
}

/* Where the last pieces of at most limit columns begin. Looks no further back than they can reach. */
static const char *tail_of(const char *begin, const char *end, size_t limit, size_t *columns)
{
    const char *at = (size_t)(end - begin) > limit * 8 ? end - limit * 8 : begin;
    while (at > begin && at < end && ((unsigned char)*at & 0xc0) == 0x80) {
        at++;
    }
    size_t total = 0;
    for (const char *next = at; next < end;) {
        total += next_piece(&next, end).columns;
    }
    while (at < end && total > limit) {
        total -= next_piece(&at, end).columns;
    }
    *columns = total;
    return at;
}

/* ---- names of C++ functions ---- */

/* Where the arguments at the end of "f(int, g(char))" begin; NULL: the text does not end with such. */
static const char *arguments_of(const char *begin, const char *end)
{
    const char *at = end;
    int depth = 0;
    do {
        at--;
        depth += *at == ')' ? 1 : *at == '(' ? -1 : 0;
    } while (at > begin && depth > 0);
    return depth == 0 && at > begin && at < end - 1 && at[-1] != ' ' ? at : NULL;
}

/* Where the result's type "void " stands, alone or after an event's name and a colon; NULL: there is none. */
static const char *result_of(const char *begin, const char *end)
{
    const char *found = memmem(begin, (size_t)(end - begin), "void ", 5);
    bool first = found == begin || (found != NULL && found[-1] == ':' && (found - 1 == begin || found[-2] != ':'));
    return first ? found : NULL;
}

/* "void ns::f<T>(T const*, int)" without result and arguments, "ns::f<T>(...)". False: the text is no such name. */
static bool shorten(eni_str *out, enigma_text text)
{
    const char *begin = text.data, *end = text.data + text.size;
    const char *arguments = end[-1] == ')' ? arguments_of(begin, end) : NULL;
    const char *result = arguments == NULL ? NULL : result_of(begin, arguments);
    if (arguments == NULL || (result == NULL && memmem(begin, text.size, "::", 2) == NULL)) {
        return false;
    }
    if (result != NULL) {
        eni_str_append(out, begin, (size_t)(result - begin));
        begin = result + 5;
    }
    eni_str_append(out, begin, (size_t)(arguments - begin));
    eni_str_puts(out, "(" ELLIPSIS ")");
    return !out->failed;
}

/* ---- any name ---- */

static size_t append_cut(eni_str *out, enigma_text text, size_t limit)
{
    size_t columns, head_columns, tail_columns;
    const char *end = text.data + text.size;
    if (fitting(text.data, end, limit, &columns) == end) {
        append_range(out, text.data, end);
        return columns;
    }
    const char *head_end = fitting(text.data, end, (limit - 1) / 2, &head_columns);
    const char *tail = tail_of(head_end, end, limit - 1 - head_columns, &tail_columns);
    append_range(out, text.data, head_end);
    eni_str_puts(out, ELLIPSIS);
    append_range(out, tail, end);
    return head_columns + 1 + tail_columns;
}

size_t eni_shown_append(eni_str *out, enigma_text text, size_t limit)
{
    size_t columns;
    if (text.size == 0) {
        eni_str_puts(out, text.data == NULL ? "" : "\"\"");
        return text.data == NULL ? 0 : 2;
    }
    eni_str shorter = {NULL, 0, 0, false};
    const char *end = text.data + text.size;
    if (fitting(text.data, end, limit, &columns) != end && shorten(&shorter, text)) {
        text = (enigma_text){shorter.data, shorter.size};
    }
    columns = append_cut(out, text, limit);
    eni_str_free(&shorter);
    return columns;
}

void eni_shown_missing(eni_str *out, const enigma_counts *counts, const char *separator)
{
    const struct {
        uint64_t count;
        const char *one, *many, *why;
    } phrases[] = {
        {counts->dropped, "event", "events", "dropped: out of memory or over a limit"},
        {counts->gpu_invalid, "GPU time", "GPU times",
         "not valid and counted as 0: the event's metadata gpu_time says why"},
        {counts->gpu_unfinished, "GPU event", "GPU events", "not complete when the profile was taken, counted as 0"},
        {counts->gpu_skewed, "GPU event", "GPU events", "starting before the launch: the clocks are off by as much"},
        {counts->open_scopes, "scope", "scopes", "still open, not counted"},
    };
    bool first = true;
    for (size_t i = 0; i < ENI_COUNT_OF(phrases); i++) {
        if (phrases[i].count != 0) {
            eni_str_printf(out, "%s%llu %s %s", first ? "" : separator, (unsigned long long)phrases[i].count,
                           phrases[i].count == 1 ? phrases[i].one : phrases[i].many, phrases[i].why);
            first = false;
        }
    }
}
