/* enigma.h in C, as strict as a user may compile it. */
#include <enigma.h>

static enigma_site site = {"site", 0};

int use(void);
int use(void)
{
    enigma_profiler_options profiler_options = ENIGMA_PROFILER_OPTIONS_INIT;
    enigma_dispatch_options dispatch_options = ENIGMA_DISPATCH_OPTIONS_INIT;
    enigma_benchmark_options benchmark_options = ENIGMA_BENCHMARK_OPTIONS_INIT;
    enigma_profile_kernel_options kernel_options = ENIGMA_PROFILE_KERNEL_OPTIONS_INIT;
    enigma_scripted_options scripted_options = ENIGMA_SCRIPTED_OPTIONS_INIT;
    enigma_scope scope = enigma_begin_site(&site);
    ENIGMA_SCOPE("outer");
    {
        ENIGMA_SCOPE("inner");
    }
    enigma_end(enigma_begin("text"));
    enigma_end(scope);
    return (int)(profiler_options.struct_size + dispatch_options.struct_size + benchmark_options.struct_size +
                 kernel_options.struct_size + scripted_options.struct_size) +
           (enigma_version_number() == 0) + (ENIGMA_E_INVALID == ENIGMA_OK);
}
