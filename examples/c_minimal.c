/* Scopes without a GPU: what ten lines of C give. Prints the call tree and a table of the rows.
 *
 *     cc c_minimal.c $(pkg-config --cflags --libs enigma) -lm && ./a.out */
#include <math.h>
#include <stdio.h>

#include <enigma.h>

static int print(void *user, const void *data, size_t size) { return fwrite(data, 1, size, user) == size ? 0 : 1; }

static double integrate(int steps)
{
    ENIGMA_SCOPE("integrate"); /* to the end of the block */
    double sum = 0;
    for (int i = 0; i < steps; i++) {
        sum += sqrt(1 - pow((i + 0.5) / steps, 2));
    }
    return 4 * sum / steps;
}

int main(void)
{
    enigma_profiler *profiler = NULL;
    enigma_profile *profile = NULL;
    enigma_result *rows = NULL;
    double pi = 0;

    if (enigma_profiler_create(NULL, &profiler) != ENIGMA_OK || enigma_profiler_start(profiler) != ENIGMA_OK) {
        fprintf(stderr, "%s\n", enigma_error_message());
        return 1;
    }
    enigma_scope refine = enigma_begin("refine");
    for (int steps = 1000; steps <= 1000000; steps *= 10) {
        pi = integrate(steps);
    }
    enigma_end(refine);
    enigma_profiler_stop(profiler);

    if (enigma_profiler_snapshot(profiler, &profile) != ENIGMA_OK ||
        enigma_profile_key_averages(profile, ENIGMA_GROUP_NAME, &rows) != ENIGMA_OK) {
        fprintf(stderr, "%s\n", enigma_error_message());
        return 1;
    }
    printf("pi is about %.6f\n\n", pi);
    enigma_profile_write_tree(profile, print, stdout);
    printf("\n");
    enigma_result_write_table(rows, NULL, print, stdout);

    enigma_result_free(rows);
    enigma_profile_free(profile);
    enigma_profiler_free(profiler);
    return fabs(pi - 3.141593) < 1e-6 ? 0 : 1;
}
