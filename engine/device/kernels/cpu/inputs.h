/* The rows that a matrix multiplication reads: as they are, or else copied, widened and padded. */

#include <stdlib.h>

typedef struct {
    const input *rows; /* [tokens, steps] */
    input *copy;       /* to free, or NULL */
} Inputs;

typedef struct {
    input *to;
    const scalar *from;
    int64_t ins, steps;
} Copying;

static void copy_rows(const void *loop, int64_t first, int64_t end) {
    const Copying *c = loop;
    for (int64_t row = first; row < end; row++) {
        const scalar *from = c->from + row * c->ins;
        input *to = c->to + row * c->steps;
        memset(to, 0, c->steps * sizeof(input));
#if PAIR == 2
        memcpy(to, from, c->ins * sizeof(scalar));
#else
        for (int64_t i = 0; i < c->ins; i++) to[i] = load(from[i]);
#endif
    }
}

/* Rows [tokens, ins], padded with zeros to `steps` steps. Returns whether there was memory for them. */
static int prepare_inputs(Inputs *inputs, const scalar *x, int64_t tokens, int64_t ins, int64_t steps) {
    if (PAIR * sizeof(scalar) == sizeof(input) && steps * PAIR == ins) {
        *inputs = (Inputs){(const input *)x, NULL};
        return 1;
    }
    input *copy = malloc((tokens * steps + 1) * sizeof(input));
    if (copy) run_loop(copy_rows, &(Copying){copy, x, ins, steps}, tokens, tokens * steps > WORTH_THREADS);
    *inputs = (Inputs){copy, copy};
    return copy != NULL;
}
