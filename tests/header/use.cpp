// enigma.h in C++, as strict as a user may compile it; run, it shows that ENIGMA_SCOPE ends on unwinding.
#include <enigma.h>

#include <cstdio>
#include <stdexcept>

namespace user {

void thrower()
{
    ENIGMA_SCOPE("thrower");
    throw std::runtime_error("out of here");
}

} // namespace user

static enigma_profiler *start()
{
    enigma_profiler_options options = ENIGMA_PROFILER_OPTIONS_INIT;
    enigma_profiler *profiler = nullptr;
    if (enigma_profiler_create(&options, &profiler) != ENIGMA_OK || enigma_profiler_start(profiler) != ENIGMA_OK) {
        return nullptr;
    }
    return profiler;
}

// The scope after the throw must not lie below the one that was left by it.
int main()
{
    enigma_profiler *profiler = start();
    try {
        user::thrower();
    } catch (const std::runtime_error &) {
        ENIGMA_SCOPE("after");
    }
    enigma_profile *profile = nullptr;
    if (enigma_profiler_stop(profiler) != ENIGMA_OK || enigma_profiler_snapshot(profiler, &profile) != ENIGMA_OK) {
        return 2;
    }
    std::size_t events = enigma_profile_event_count(profile), depths = 0;
    for (std::size_t i = 0; i < events; i++) {
        enigma_event event = {};
        event.struct_size = sizeof event;
        if (enigma_profile_event(profile, i, &event) == ENIGMA_OK) {
            depths += enigma_profile_path_depth(profile, event.path);
        }
    }
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
    std::printf("%zu events, depths %zu\n", events, depths);
    return events == 2 && depths == 2 ? 0 : 1;
}
