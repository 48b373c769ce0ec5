/* Any bytes as an image: sealed and read whole, or refused. */
#include <string.h>

#include "store/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_everything(const enigma_profile *profile)
{
    enigma_text names[64];
    enigma_field fact;
    for (size_t i = 0; i < enigma_profile_event_count(profile); i++) {
        enigma_event event = {.struct_size = sizeof event};
        if (enigma_profile_event(profile, i, &event) == ENIGMA_OK) {
            enigma_profile_path_names(profile, event.path, names, 64);
        }
    }
    for (size_t i = 0; enigma_profile_fact(profile, i, &fact); i++) {
    }
}

static int discard(void *user, const void *data, size_t size)
{
    (void)data;
    *(size_t *)user += size;
    return 0;
}

/* Everything that reads profiles, too. */
static void present_everything(const enigma_profile *profile)
{
    size_t written = 0;
    enigma_result *result;
    for (int group = ENIGMA_GROUP_NAME; group <= ENIGMA_GROUP_CALL_PATH; group++) {
        if (enigma_profile_key_averages(profile, (enum enigma_group)group, &result) == ENIGMA_OK) {
            enigma_result_write_table(result, NULL, discard, &written);
            enigma_result_free(result);
        }
    }
    enigma_profile_write_tree(profile, discard, &written);
    const enigma_exporter_info *exporter;
    for (size_t i = 0; (exporter = enigma_exporter_at(i)) != NULL; i++) {
        enigma_export(profile, exporter->name, discard, &written);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enigma_profile *profile;
    uint8_t *image = eni_alloc(size == 0 ? 1 : size);
    if (image == NULL) {
        return 0;
    }
    memcpy(image, data, size);
    if (eni_profile_from_image(image, size, "input", &profile) == ENIGMA_OK) {
        read_everything(profile);
        present_everything(profile);
        enigma_profile_free(profile);
    }
    return 0;
}
