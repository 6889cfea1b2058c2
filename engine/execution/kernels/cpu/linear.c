/* Rows times a matrix. It takes as long as reading the weights or the arithmetic, whichever is longer.

   The weights of PANEL outputs lie in the order in which they are read. ROWS rows go through them at a time. A sum has
   one accumulator from the first input to the last, so a row's result depends neither on other rows nor on the number
   of threads.

   Where the processor has AMX, the same panels can be multiplied by its tiles (tiles.h). */

#include "panels.h"

#define RUN 512 /* steps packed at a time: this part of a panel stays in the cache */
#define CACHE 1048576 /* bytes of rows that stay in the cache while panels pass */
#define BAND 96 /* rows that go through a panel before the next: with so many, reading it takes little of the time */
#define MOST 32 /* rows computed together by tiles */
#define STEP (PANEL * PAIR * sizeof(scalar)) /* bytes of a step */

static inline void read_weights(weights *to, const char *from) {
#if PAIR == 2
    memcpy(to, from, STEP);
#else
    for (int v = 0; v < VECS; v++) to[v] = load_vec((const scalar *)from + v * LANES);
#endif
}

typedef struct {
    const char *panels; /* [panels, steps, PANEL, PAIR] */
    const float *bias;  /* [outs], or NULL */
    int64_t steps, outs, by_tiles;
} Linear;

const int64_t linear_pair = PAIR;
int64_t can_use_tiles(void) { return has_tiles; }
#if AMX
#include "tiles.h"
const int64_t linear_grain = DEPTH * PAIR; /* the inputs are padded to a multiple of this number */
#else
const int64_t linear_grain = PAIR;
static void multiply_tiles(float *to, const input *x, int64_t steps, const char *panel, const char *ahead,
                           int64_t lines, int64_t rows, int64_t *shaped) {}
#endif

static int64_t steps_of(int64_t ins) { return (ins + linear_grain - 1) / linear_grain * linear_grain / PAIR; }

int64_t packed_bytes(int64_t ins, int64_t outs) { return (outs + PANEL - 1) / PANEL * steps_of(ins) * STEP; }

/* Pack `lanes` rows of `bytes` bytes into one panel. */
static void pack_panel(char *panel, const char *rows, int64_t lanes, int64_t bytes) {
    const int64_t step = PAIR * sizeof(scalar);
    for (int64_t first = 0; first < bytes; first += RUN * step)
        for (int64_t lane = 0; lane < lanes; lane++) {
            const char *from = rows + lane * bytes;
            char *to = panel + lane * step;
            int64_t end = first + RUN * step < bytes ? first + RUN * step : bytes, i = first;
            for (; i + step <= end; i += step) memcpy(to + i * PANEL, from + i, step);
            memcpy(to + i * PANEL, from + i, end - i);
        }
}

/* Pack a weight [outs, ins] into panels, which hold zeros before. */
void pack(char *panels, const char *weight, int64_t ins, int64_t outs) {
    int64_t panel_bytes = packed_bytes(ins, 1), row_bytes = ins * sizeof(scalar);
#pragma omp parallel for if (ins * outs > WORTH_THREADS)
    for (int64_t o = 0; o < outs; o += PANEL)
        pack_panel(panels + o / PANEL * panel_bytes, weight + o * row_bytes, outs - o < PANEL ? outs - o : PANEL,
                   row_bytes);
}

/* Multiply `rows` rows of `steps` steps each with a panel. In each step, also prefetch `lines` cache lines from `ahead`
   on. */
static inline __attribute__((always_inline)) void multiply(vec (*to)[VECS], const input *x, int64_t steps,
                                                           const char *panel, const char *ahead, int64_t lines,
                                                           const int rows) {
    vec sums[ROWS][VECS] = {0};
    for (int64_t k = 0; k < steps; k++, panel += STEP) {
        weights w[VECS];
        read_weights(w, panel);
        for (int64_t i = 0; i < lines; i++, ahead += 64) __builtin_prefetch(ahead, 0, 2);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECS; v++) sums[r][v] = multiply_add(sums[r][v], w[v], x[r * steps + k]);
    }
    memcpy(to, sums, rows * sizeof(*sums));
}

#define MULTIPLY(rows) \
    case rows: multiply(sums, x, l->steps, panel, ahead, lines, rows); break;

/* Multiply up to ROWS rows, or MOST by tiles, with the panel that begins at output `o`. */
static void tile(const Linear *l, scalar *out, const input *x, const scalar *residual, int64_t rows, int64_t o,
                 const char *panel, const char *ahead, int64_t lines, int64_t *shaped) {
    vec sums[MOST][VECS];
    if (l->by_tiles) multiply_tiles((float *)sums, x, l->steps, panel, ahead, lines, rows, shaped);
    else switch (rows) { MULTIPLY(1) MULTIPLY(2) MULTIPLY(3) MULTIPLY(4) MULTIPLY(5) MULTIPLY(6) }
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = r * l->outs + o;
        finish(out + at, (float *)sums[r], l->bias ? l->bias + o : NULL, residual ? residual + at : NULL, l->outs - o);
    }
}

/* [tokens, steps] to [tokens, outs]: the product plus bias and residual, in float, then rounded. */
void linear(const Linear *l, scalar *out, const input *x, const scalar *residual, int64_t tokens) {
    int64_t step = STEP, most = l->by_tiles ? MOST : ROWS;
    int64_t band = l->by_tiles ? (CACHE / (l->steps * sizeof(input)) + MOST) / MOST * MOST : BAND;
    int64_t bands = (tokens + band - 1) / band;
#pragma omp parallel if (l->steps * l->outs > WORTH_THREADS)
    {
        int64_t shaped = 0;
#pragma omp for collapse(2) schedule(guided)
        for (int64_t b = 0; b < bands; b++)
            for (int64_t o = 0; o < l->outs; o += PANEL) {
                const char *panel = l->panels + o / PANEL * l->steps * step;
                int64_t first = tokens * b / bands, count = tokens * (b + 1) / bands - first;
                int64_t tiles = (count + most - 1) / most;
                /* A single tile waits for the weights anyway. Several tiles each prefetch a part of the next panel. */
                int64_t share = tiles > 1 ? (step / 64 + tiles - 1) / tiles : 0;
                for (int64_t t = 0; t < tiles; t++) {
                    int64_t row = first + count * t / tiles, rows = first + count * (t + 1) / tiles - row;
                    tile(l, out + row * l->outs, x + row * l->steps, residual ? residual + row * l->outs : NULL, rows,
                         o, panel, panel + l->steps * (step + t * share * 64), t * share * 64 < step ? share : 0,
                         &shaped);
                }
            }
        if (shaped) _tile_release();
    }
}
