/* Names as people read them in a terminal: control characters escaped, invalid bytes as U+FFFD, long ones cut in the middle. Used
 * by the table and the tree, on the calling thread. */
#ifndef ENI_PRESENT_SHOWN_H
#define ENI_PRESENT_SHOWN_H

#include "base/str.h"
#include "store/profile.h"

/* Appends text in at most limit columns (at least 3): what is wider keeps its beginning and its end around an ellipsis.
 * Of C++ functions that are wider the result's type and the arguments are left out first. An empty text is shown as "", an absent one as nothing. Returns the columns used. */
size_t eni_shown_append(eni_str *out, enigma_text text, size_t limit);

/* Appends what a profile is missing, one phrase each ("3 events dropped (...)"), with a separator between. Nothing when it is
 * whole. */
void eni_shown_missing(eni_str *out, const enigma_counts *counts, const char *separator);

#endif
