/* A file that a journal is written into while it records, so that it survives whatever ends the process.
 *
 * The file is an .enigma file from its first moment: a header, then chunks, in the order in which they were asked for, mapped and
 * shared. What lanes write is in the file as it is written; shared streams are kept in memory and copied in as they are published.
 * Space is reserved before it is mapped, so a full disk refuses a chunk and never faults. All functions are called under the journal's
 * lock, but for the chunks themselves, which their owners fill. */
#ifndef ENI_STORE_BACKING_H
#define ENI_STORE_BACKING_H

#include "base/str.h"
#include "store/layout.h"

typedef struct eni_backing eni_backing;

/* Makes the file, replacing one of that name. ENIGMA_E_IO with errno and path. */
enigma_status eni_backing_create(const char *path, uint32_t pid, eni_backing **out);

/* A chunk with room for capacity bytes, zeroed but for its header, which is head with the capacity set. NULL: no space. */
eni_chunk *eni_backing_chunk(eni_backing *backing, const eni_chunk *head, size_t capacity);

/* Copies bytes of a shared stream that begin at offset base of it. False: no space; nothing of them is in the file. */
bool eni_backing_mirror(eni_backing *backing, uint32_t stream, uint64_t base, const void *data, size_t size);

void eni_backing_count_dropped(eni_backing *backing, uint64_t dropped);

/* Nothing is recorded any more: notes when, and gives back what was reserved and not used. The mappings stay. */
void eni_backing_finish(eni_backing *backing, uint64_t end_ticks);

/* In a forked child: what is mapped becomes private, and the file is never touched again. */
void eni_backing_disown(eni_backing *backing);

void eni_backing_free(eni_backing *backing); /* NULL does nothing */

#endif
