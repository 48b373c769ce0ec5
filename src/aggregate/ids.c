/* Numbers for texts. See ids.h. */
#include "aggregate/ids.h"

enigma_status eni_ids_get(eni_ids *ids, enigma_text text, uint32_t *out)
{
    *out = UINT32_MAX;
    if (text.data == NULL) {
        return ENIGMA_OK;
    }
    uint32_t *number = eni_map_put(&ids->by_address, (uint64_t)(uintptr_t)text.data, UINT32_MAX);
    if (number == NULL) {
        return ENI_NO_MEMORY();
    }
    if (*number == UINT32_MAX) {
        *number = eni_intern_put(&ids->texts, text);
        if (*number == ENI_INTERN_NONE) {
            return ENI_NO_MEMORY();
        }
    }
    *out = *number;
    return ENIGMA_OK;
}

void eni_ids_free(eni_ids *ids)
{
    eni_map_free(&ids->by_address);
    eni_intern_free(&ids->texts);
}
