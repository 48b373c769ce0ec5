/* Memory faulted in ahead. Page faults, not stores, set what a long recording costs; so once lanes ask for blocks of full size, a
 * background thread keeps a few ready, their pages touched. It blocks all signals, holds no lock while it works, and ends by itself
 * when nobody has asked for a while. */
#ifndef ENI_STORE_SUPPLY_H
#define ENI_STORE_SUPPLY_H

#include "base/alloc.h"

#define ENI_SUPPLY_SIZE ((size_t)2 * 1024 * 1024) /* one huge page, where the system has them */

/* A block of ENI_SUPPLY_SIZE bytes, ready or allocated now; free with eni_free. NULL: no memory. */
void *eni_supply_take(void);

#endif
