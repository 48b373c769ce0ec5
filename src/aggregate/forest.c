/* Walking forests. See forest.h. */
#include "aggregate/forest.h"

static uint32_t parent_of(const eni_forest *forest, uint32_t at)
{
    return *(const uint32_t *)(const void *)(forest->parents + at * forest->stride);
}

enigma_status eni_forest_init(eni_forest *forest, const uint32_t *parents, size_t stride, size_t count)
{
    *forest = (eni_forest){(const char *)parents, stride, count, NULL, NULL};
    forest->first_child = eni_alloc((count + 1) * sizeof(uint32_t));
    forest->next_sibling = eni_alloc((count + 1) * sizeof(uint32_t));
    if (forest->first_child == NULL || forest->next_sibling == NULL) {
        eni_forest_free(forest);
        return ENI_NO_MEMORY();
    }
    memset(forest->first_child, 0xff, (count + 1) * sizeof(uint32_t));
    for (size_t i = count; i > 0; i--) {
        uint32_t parent = parent_of(forest, (uint32_t)i - 1);
        uint32_t *head = &forest->first_child[parent == ENI_NONE ? count : parent];
        forest->next_sibling[i - 1] = *head;
        *head = (uint32_t)(i - 1);
    }
    return ENIGMA_OK;
}

/* Down by the first child, on by the sibling, up by the parent. */
bool eni_forest_next(const eni_forest *forest, eni_forest_step *step)
{
    if (!step->started || step->entering) {
        uint32_t child = forest->first_child[step->started ? step->at : forest->count];
        step->entering = child != ENI_NONE;
        step->at = child != ENI_NONE ? child : step->at;
        bool more = step->started || step->entering;
        step->started = true;
        return more;
    }
    uint32_t sibling = forest->next_sibling[step->at];
    step->entering = sibling != ENI_NONE;
    step->at = step->entering ? sibling : parent_of(forest, step->at);
    return step->at != ENI_NONE;
}

void eni_forest_free(eni_forest *forest)
{
    eni_free(forest->first_child, (forest->count + 1) * sizeof(uint32_t));
    eni_free(forest->next_sibling, (forest->count + 1) * sizeof(uint32_t));
    *forest = (eni_forest){0};
}
