/* Rows as a text table. Reads a result, keeps nothing; any thread. */
#include <stddef.h>

#include "aggregate/rates.h"
#include "aggregate/rows.h"
#include "base/intern.h"
#include "base/sink.h"
#include "present/shown.h"

#define NAME_COLUMNS 60
#define KERNEL_COLUMNS 40
#define CELL_BYTES 48

enum column_kind { COLUMN_NAME, COLUMN_KERNEL, COLUMN_COUNT, COLUMN_TIME, COLUMN_RATE };

typedef struct column {
    const char *title;
    enum column_kind kind;
    uint32_t offset; /* of the number in a row */
    size_t width;
} column;

typedef struct text_cell {
    size_t start, size, columns; /* in table.text */
} text_cell;

typedef struct table {
    const enigma_row **rows;
    size_t count;
    column columns[9];
    size_t column_count;
    text_cell *cells; /* name and kernel of each row */
    eni_str text;
} table;

#define IN_ROW(member) ((uint32_t)offsetof(enigma_row, member))

/* ---- columns ---- */

static void put_column(table *t, const char *title, enum column_kind kind, uint32_t offset)
{
    t->columns[t->column_count++] = (column){title, kind, offset, strlen(title)};
}

static void choose_columns(table *t)
{
    bool kernels = false, rates = false;
    for (size_t i = 0; i < t->count; i++) {
        kernels |= t->rows[i]->kernel_name.data != NULL;
        rates |=
            eni_row_metric(t->rows[i], ENI_RATE_FLOPS) != NULL || eni_row_metric(t->rows[i], ENI_RATE_BYTES) != NULL;
    }
    put_column(t, "Name", COLUMN_NAME, 0);
    if (kernels) {
        put_column(t, "Kernel", COLUMN_KERNEL, 0);
    }
    put_column(t, "Calls", COLUMN_COUNT, IN_ROW(calls));
    put_column(t, "CPU total us", COLUMN_TIME, IN_ROW(cpu_total_us));
    put_column(t, "CPU avg us", COLUMN_TIME, IN_ROW(cpu_avg_us));
    put_column(t, "GPU total us", COLUMN_TIME, IN_ROW(gpu_total_us));
    put_column(t, "GPU avg us", COLUMN_TIME, IN_ROW(gpu_avg_us));
    if (rates) {
        put_column(t, "GFLOP/s", COLUMN_RATE, IN_ROW(gflops_per_s));
        put_column(t, "GB/s", COLUMN_RATE, IN_ROW(gbytes_per_s));
    }
}

/* ---- cells ---- */

static text_cell put_text(table *t, enigma_text text, size_t limit)
{
    text_cell cell = {.start = t->text.size};
    cell.columns = eni_shown_append(&t->text, text, limit);
    cell.size = t->text.size - cell.start;
    return cell;
}

/* Name and kernel as one text, to see whether a row looks like an earlier one. */
static uint32_t look_of(eni_intern *looks, eni_str *scratch, const table *t, const text_cell *name,
                        const text_cell *kernel)
{
    scratch->size = 0;
    eni_str_append(scratch, t->text.data + name->start, name->size);
    eni_str_putc(scratch, '\n'); /* in no shown text */
    eni_str_append(scratch, t->text.data + kernel->start, kernel->size);
    return scratch->failed ? ENI_INTERN_NONE : eni_intern_put(looks, (enigma_text){scratch->data, scratch->size});
}

/* Makes the name of a row that looks like an earlier one end in a number. tries[look] is the last number given. */
static bool tell_apart(table *t, text_cell *name, const text_cell *kernel, eni_intern *looks, eni_str *scratch,
                       uint32_t *tries)
{
    size_t known = looks->count;
    uint32_t first = look_of(looks, scratch, t, name, kernel);
    text_cell plain = *name;
    for (uint32_t look = first; look != ENI_INTERN_NONE; look = look_of(looks, scratch, t, name, kernel)) {
        if (looks->count > known) {
            return true;
        }
        char number[16];
        int size = snprintf(number, sizeof number, " #%u", (unsigned)(tries[first]++ + 2));
        *name = (text_cell){t->text.size, 0, plain.columns + (size_t)size};
        for (size_t i = 0; i < plain.size && !t->text.failed; i++) { /* by byte: the text may move */
            eni_str_putc(&t->text, t->text.data[plain.start + i]);
        }
        eni_str_append(&t->text, number, (size_t)size);
        name->size = t->text.size - name->start;
    }
    return false;
}

static enigma_status fill_cells(table *t)
{
    eni_intern looks = {0};
    eni_str scratch = {0};
    enigma_status status = ENIGMA_OK;
    uint32_t *tries = eni_alloc_zero(t->count * sizeof *tries);
    eni_str_putc(&t->text, ' '); /* so that there is a buffer to point into when every name is empty */
    for (size_t i = 0; i < t->count && tries != NULL; i++) {
        text_cell *cells = &t->cells[2 * i];
        cells[0] = put_text(t, t->rows[i]->name, NAME_COLUMNS);
        cells[1] = put_text(t, t->rows[i]->kernel_name, KERNEL_COLUMNS);
        if (t->text.failed || !tell_apart(t, &cells[0], &cells[1], &looks, &scratch, tries)) {
            status = ENI_NO_MEMORY();
            break;
        }
    }
    if (tries == NULL) {
        status = ENI_NO_MEMORY();
    }
    eni_free(tries, t->count * sizeof *tries);
    eni_str_free(&scratch);
    eni_intern_free(&looks);
    return status;
}

/* A number with fixed decimals, rounded, without printf: a table may have a million rows, and a program's locale commas. */
static size_t fixed_text(double number, unsigned decimals, char out[CELL_BYTES])
{
    static const double scales[] = {1.0, 10.0, 100.0, 1000.0};
    uint64_t rest = (uint64_t)((number < 0 ? -number : number) * scales[decimals] + 0.5);
    size_t at = CELL_BYTES;
    for (unsigned digit = 0; digit <= decimals || rest != 0; digit++) {
        if (digit == decimals && decimals != 0) {
            out[--at] = '.';
        }
        out[--at] = (char)('0' + rest % 10);
        rest /= 10;
    }
    if (number < 0) {
        out[--at] = '-';
    }
    memmove(out, out + at, CELL_BYTES - at);
    return CELL_BYTES - at;
}

static size_t scientific_text(double number, char out[CELL_BYTES])
{
    eni_str text = {0};
    eni_str_printf(&text, "%.3e", number);
    size_t size = text.failed || text.size > CELL_BYTES ? 0 : text.size;
    memcpy(out, size == 0 ? "" : text.data, size);
    eni_str_free(&text);
    return size;
}

/* A number as text; the size is the columns. */
static size_t number_text(const column *col, const enigma_row *row, char out[CELL_BYTES])
{
    const void *at = (const char *)row + col->offset;
    double number = col->kind == COLUMN_COUNT ? (double)*(const uint64_t *)at : *(const double *)at;
    double size = number < 0 ? -number : number;
    if (col->kind == COLUMN_RATE && number == 0.0) {
        out[0] = '-';
        return 1;
    }
    if (size >= 1e15 || (col->kind == COLUMN_RATE && size < 0.01)) {
        return scientific_text(number, out);
    }
    return fixed_text(number, col->kind == COLUMN_COUNT ? 0 : col->kind == COLUMN_TIME ? 3 : 2, out);
}

static size_t cell_columns(const table *t, const column *col, size_t row)
{
    char number[CELL_BYTES];
    switch (col->kind) {
    case COLUMN_NAME:
        return t->cells[2 * row].columns;
    case COLUMN_KERNEL:
        return t->cells[2 * row + 1].columns;
    default:
        return number_text(col, t->rows[row], number);
    }
}

static void set_widths(table *t)
{
    for (size_t c = 0; c < t->column_count; c++) {
        for (size_t i = 0; i < t->count; i++) {
            size_t columns = cell_columns(t, &t->columns[c], i);
            t->columns[c].width = columns > t->columns[c].width ? columns : t->columns[c].width;
        }
    }
}

/* ---- writing ---- */

static void repeat(eni_sink *sink, char c, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        eni_sink_putc(sink, c);
    }
}

static bool is_text(const column *col) { return col->kind == COLUMN_NAME || col->kind == COLUMN_KERNEL; }

/* Texts to the left, numbers to the right, two blanks between. The last column is a number, so no line ends in blanks. */
static void write_cell(eni_sink *sink, const column *col, const char *data, size_t size, size_t columns)
{
    repeat(sink, ' ', is_text(col) ? 0 : col->width - columns);
    eni_sink_write(sink, data, size);
    repeat(sink, ' ', is_text(col) ? col->width - columns : 0);
}

static void write_head(eni_sink *sink, const table *t)
{
    for (size_t c = 0; c < t->column_count; c++) {
        size_t size = strlen(t->columns[c].title);
        eni_sink_puts(sink, c == 0 ? "" : "  ");
        write_cell(sink, &t->columns[c], t->columns[c].title, size, size);
    }
    eni_sink_putc(sink, '\n');
    for (size_t c = 0; c < t->column_count; c++) {
        eni_sink_puts(sink, c == 0 ? "" : "  ");
        repeat(sink, '-', t->columns[c].width);
    }
    eni_sink_putc(sink, '\n');
}

static void write_row(eni_sink *sink, const table *t, size_t row)
{
    char number[CELL_BYTES];
    for (size_t c = 0; c < t->column_count; c++) {
        const column *col = &t->columns[c];
        const text_cell *cell = &t->cells[2 * row + (col->kind == COLUMN_KERNEL)];
        eni_sink_puts(sink, c == 0 ? "" : "  ");
        if (is_text(col)) {
            write_cell(sink, col, t->text.data + cell->start, cell->size, cell->columns);
        } else {
            size_t size = number_text(col, t->rows[row], number);
            write_cell(sink, col, number, size, size);
        }
    }
    eni_sink_putc(sink, '\n');
}

static enigma_status write_foot(eni_sink *sink, const table *t, const enigma_counts *counts)
{
    eni_str missing = {0};
    eni_shown_missing(&missing, counts, "\n");
    if (t->count == 0) {
        eni_sink_puts(sink, "(no events)\n");
    }
    if (missing.size > 0) {
        eni_sink_write(sink, missing.data, missing.size);
        eni_sink_putc(sink, '\n');
    }
    enigma_status status = missing.failed ? ENI_NO_MEMORY() : ENIGMA_OK;
    eni_str_free(&missing);
    return status;
}

static enigma_status write_table(table *t, const enigma_counts *counts, enigma_write_fn write, void *user)
{
    eni_sink sink;
    choose_columns(t);
    ENI_TRY(fill_cells(t));
    set_widths(t);
    ENI_TRY(eni_sink_init(&sink, write, user));
    write_head(&sink, t);
    for (size_t i = 0; i < t->count; i++) {
        write_row(&sink, t, i);
    }
    enigma_status status = write_foot(&sink, t, counts);
    enigma_status finished = eni_sink_finish(&sink);
    return status != ENIGMA_OK ? status : finished;
}

enigma_status enigma_result_write_table(const enigma_result *result, const char *sort_by, enigma_write_fn write,
                                        void *user)
{
    table t = {.count = result->row_count};
    t.rows = eni_alloc(t.count * sizeof *t.rows);
    t.cells = eni_alloc(2 * t.count * sizeof *t.cells);
    enigma_status status = t.rows == NULL || t.cells == NULL ? ENI_NO_MEMORY() : ENIGMA_OK;
    if (status == ENIGMA_OK) {
        status = enigma_result_rows(result, sort_by, t.rows, t.count);
    }
    if (status == ENIGMA_OK) {
        status = write_table(&t, &result->profile->counts, write, user);
    }
    eni_str_free(&t.text);
    eni_free(t.cells, 2 * t.count * sizeof *t.cells);
    eni_free(t.rows, t.count * sizeof *t.rows);
    return status;
}
