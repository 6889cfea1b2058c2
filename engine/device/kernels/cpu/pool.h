/* Loops whose units of work several threads compute. See pool.c. */

#include <stdint.h>

#define WORTH_THREADS 32768 /* loops over more elements than this are shared */

/* Computes the units from `first` to `end` of a loop. `loop` is what they are computed from. */
typedef void (*Units)(const void *loop, int64_t first, int64_t end);

/* Compute `count` units. Threads share them if `is_shared`. A unit depends on no other, and writes what no other does. */
void run_loop(Units units, const void *loop, int64_t count, int is_shared);
