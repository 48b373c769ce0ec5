/* The smallest use that needs the library: one scope, one profile. Exit code 0: it has the scope. */
#include <enigma.h>

int main(void)
{
    enigma_profiler *profiler = NULL;
    enigma_profile *profile = NULL;
    size_t events = 0;
    if (enigma_version_number() != ENIGMA_VERSION_MAJOR * 10000 + ENIGMA_VERSION_MINOR * 100 + ENIGMA_VERSION_PATCH ||
        enigma_profiler_create(NULL, &profiler) != ENIGMA_OK || enigma_profiler_start(profiler) != ENIGMA_OK) {
        return 2;
    }
    {
        ENIGMA_SCOPE("consumer");
    }
    if (enigma_profiler_stop(profiler) == ENIGMA_OK && enigma_profiler_snapshot(profiler, &profile) == ENIGMA_OK) {
        events = enigma_profile_event_count(profile);
    }
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
    return events == 1 ? 0 : 1;
}
