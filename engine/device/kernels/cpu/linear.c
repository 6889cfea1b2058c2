/* Rows times a matrix. It takes as long as reading the weights or the arithmetic, whichever is longer.

   The weights of PANEL outputs lie in the order in which they are read. ROWS rows go through them at a time. All rows
   go through some steps before the next ones. A sum has one accumulator from the first input to the last, so a row's
   result depends neither on other rows nor on the number of threads.

   Where the processor has AMX, the same panels can be multiplied by its tiles (tiles.h). */

#include "operators.h"
#include "pool.h"
#include "panels.h"
#include "inputs.h"

#define PACKED 512    /* steps packed at a time: this part of a panel stays in the cache */
#define AHEAD 64      /* steps from those that are multiplied to those that are fetched from memory meanwhile */
#define BAND 192      /* rows that go through a panel before the next */
#define MAX_ROWS 32   /* rows computed together by tiles */
#define CACHE 1048576 /* bytes of rows that stay in the cache while panels pass, by tiles */
#define STEP (PANEL * PAIR * sizeof(scalar)) /* bytes of a step */

#if PAIR == 2
static inline void read_weights(weights *to, const char *from) { read_wide(to, from); }
static inline int64_t place_of(int64_t output) { return output; }
#elif defined SCALAR_BF16
/* A word holds the weights of two vectors, which a shift and a mask widen where they lie. */
static inline void read_weights(weights *to, const char *from) {
    for (int v = 0; v < VECS; v += 2) {
        words both = *(const unaligned_words *)(from + v / 2 * sizeof(words));
        to[v] = (vec)(both << 16);
        to[v + 1] = (vec)(both & 0xffff0000);
    }
}
static inline int64_t place_of(int64_t output) {
    return output / (2 * LANES) * 2 * LANES + output % LANES * 2 + output / LANES % 2;
}
#else
static inline void read_weights(weights *to, const char *from) {
    for (int v = 0; v < VECS; v++) to[v] = load_vec((const scalar *)from + v * LANES);
}
static inline int64_t place_of(int64_t output) { return output; }
#endif

typedef struct {
    const char *panels; /* [panels, steps, PANEL, PAIR], the outputs of a panel by `place_of` */
    const float *bias;  /* [outs], or NULL */
    int64_t ins, steps, outs, by_tiles;
} Linear;

int64_t can_use_tiles(void) { return has_tiles; }
const char *instructions =
#if AMX
    "AMX";
#elif PAIR == 2
    "AVX-512 BF16";
#elif defined __AVX512F__
    "AVX-512";
#elif defined __AVX2__
    "AVX2";
#else
    "the processor's basic instructions";
#endif
#if AMX
#include "tiles.h"
#define LINEAR_GRAIN (DEPTH * PAIR) /* the inputs are padded to a multiple of this number */
#else
#define LINEAR_GRAIN PAIR
static void multiply_tiles(float *to, const input *x, int64_t steps, const char *panel, const char *ahead,
                           int64_t lines, int64_t rows, int64_t *shaped) {}
#endif

int64_t linear_steps(int64_t ins) { return (ins + LINEAR_GRAIN - 1) / LINEAR_GRAIN * LINEAR_GRAIN / PAIR; }

int64_t packed_bytes(int64_t ins, int64_t outs) { return (outs + PANEL - 1) / PANEL * linear_steps(ins) * STEP; }

/* Pack `lanes` rows of `bytes` bytes into one panel. */
static void pack_panel(char *panel, const char *rows, int64_t lanes, int64_t bytes) {
    const int64_t step = PAIR * sizeof(scalar);
    for (int64_t first = 0; first < bytes; first += PACKED * step)
        for (int64_t lane = 0; lane < lanes; lane++) {
            const char *from = rows + lane * bytes;
            char *to = panel + place_of(lane) * step;
            int64_t end = first + PACKED * step < bytes ? first + PACKED * step : bytes, i = first;
            for (; i + step <= end; i += step) memcpy(to + i * PANEL, from + i, step);
            memcpy(to + i * PANEL, from + i, end - i);
        }
}

typedef struct {
    char *panels;
    const char *weight;
    int64_t ins, outs;
} Packing;

static void pack_panels(const void *loop, int64_t first, int64_t end) {
    const Packing *p = loop;
    int64_t panel_bytes = packed_bytes(p->ins, 1), row_bytes = p->ins * sizeof(scalar);
    for (int64_t panel = first; panel < end; panel++) {
        int64_t o = panel * PANEL, lanes = p->outs - o < PANEL ? p->outs - o : PANEL;
        pack_panel(p->panels + panel * panel_bytes, p->weight + o * row_bytes, lanes, row_bytes);
    }
}

/* Pack a weight [outs, ins] into panels, which hold zeros before. */
void pack(char *panels, const char *weight, int64_t ins, int64_t outs) {
    run_loop(pack_panels, &(Packing){panels, weight, ins, outs}, (outs + PANEL - 1) / PANEL,
             ins * outs > WORTH_THREADS);
}

/* Multiply `rows` rows with `steps` steps of a panel. Add to `to` if `is_more`. Unless `pace` is 0, also fetch the memory
   from `ahead` on, so many bytes at each step. */
INLINE void multiply(Sums *to, const input *x, int64_t stride, const char *panel, int64_t steps, int is_more,
                     const char *ahead, int64_t pace, const int rows) {
    vec sums[ROWS][VECS] = {0};
    if (is_more) load_sums(sums, to, rows);
    if (pace)
        for (const input *end = x + steps; x < end; x++, panel += STEP, ahead += pace) {
            weights w[VECS];
            read_weights(w, panel);
            for (int i = 0; i < (int)STEP; i += 64) __builtin_prefetch(ahead + i, 0, 2);
            add_step(sums, w, x, stride, rows);
        }
    else
        for (const input *end = x + steps; x < end; x++, panel += STEP) {
            weights w[VECS];
            read_weights(w, panel);
            add_step(sums, w, x, stride, rows);
        }
    store_sums(to, sums, rows);
}

#define MULTIPLY(rows) \
    case rows: multiply(to, x, stride, panel, steps, is_more, ahead, pace, rows); break;

static void multiply_rows(Sums *to, const input *x, int64_t stride, const char *panel, int64_t steps, int is_more,
                          const char *ahead, int64_t pace, int64_t rows) {
    switch (rows) { EACH_ROWS(MULTIPLY) }
}

/* The steps that all rows pass before the next. Their weights stay in the first cache. Few rows pass few steps, so that
   the memory is always busy. The rows of a single tile pass all steps: they wait for the weights, and the processor
   fetches these by itself. */
static int64_t run_of(int64_t tiles, int64_t steps) {
    return tiles == 1 ? steps : tiles == 2 ? 16 : 64;
}

/* Multiply `count` rows with a panel. Each of several tiles fetches a part of the weights: if the first one fetched
   all, it would wait for the memory, and the memory would wait for the other tiles. */
static void multiply_panel(const Linear *l, Sums *sums, const input *x, int64_t count, const char *panel) {
    int64_t tiles = (count + ROWS - 1) / ROWS, run = run_of(tiles, l->steps), step = STEP;
    int64_t pace = tiles > 1 ? (step + tiles - 1) / tiles : 0;
    for (int64_t k = 0; k < l->steps; k += run) {
        int64_t steps = l->steps - k < run ? l->steps - k : run;
        const char *ahead = panel + (k + AHEAD) * step;
        for (int64_t t = 0; t < tiles; t++) {
            int64_t row = count * t / tiles, rows = count * (t + 1) / tiles - row;
            multiply_rows(sums + row, x + row * l->steps + k, l->steps, panel + k * step, steps, k > 0,
                          ahead + t * steps * pace, pace, rows);
        }
    }
}

/* Add bias and residual to the sums of some rows with the panel that begins at output `o`, and round. */
static void finish_rows(const Linear *l, scalar *out, const Sums *sums, const scalar *residual, int64_t rows,
                        int64_t o) {
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = r * l->outs + o;
        finish(out + at, sums[r], l->bias ? l->bias + o : NULL, residual ? residual + at : NULL, l->outs - o);
    }
}

/* Multiply `count` rows with the panel that begins at output `o`. */
static void add_panel(const Linear *l, scalar *out, const input *x, const scalar *residual, int64_t count, int64_t o) {
    Sums sums[BAND] __attribute__((aligned(64)));
    multiply_panel(l, sums, x, count, l->panels + o * l->steps * PAIR * (int64_t)sizeof(scalar));
    finish_rows(l, out, sums, residual, count, o);
}

/* As `add_panel`, by tiles. `shaped` is the number of rows that the thread's tiles are shaped for, or 0. */
static void add_panel_by_tiles(const Linear *l, scalar *out, const input *x, const scalar *residual, int64_t count,
                               int64_t o, int64_t *shaped) {
    Sums sums[MAX_ROWS] __attribute__((aligned(64)));
    const char *panel = l->panels + o * l->steps * PAIR * (int64_t)sizeof(scalar);
    int64_t tiles = (count + MAX_ROWS - 1) / MAX_ROWS, step = STEP;
    /* A single tile waits for the weights anyway. Several tiles each prefetch a part of the next panel. */
    int64_t share = tiles > 1 ? (step / 64 + tiles - 1) / tiles : 0;
    for (int64_t t = 0; t < tiles; t++) {
        int64_t row = count * t / tiles, rows = count * (t + 1) / tiles - row;
        multiply_tiles(*sums, x + row * l->steps, l->steps, panel, panel + l->steps * (step + t * share * 64),
                       t * share * 64 < step ? share : 0, rows, shaped);
        finish_rows(l, out + row * l->outs, sums, residual ? residual + row * l->outs : NULL, rows, o);
    }
}

typedef struct {
    const Linear *l;
    scalar *out;
    const input *x;
    const scalar *residual;
    int64_t tokens, bands, panels;
} Product;

/* A unit is a band of rows and a panel. */
static void multiply_units(const void *loop, int64_t first_unit, int64_t end_unit) {
    const Product *p = loop;
    const Linear *l = p->l;
    int64_t shaped = 0;
    for (int64_t unit = first_unit; unit < end_unit; unit++) {
        int64_t b = unit / p->panels, o = unit % p->panels * PANEL;
        int64_t first = p->tokens * b / p->bands, count = p->tokens * (b + 1) / p->bands - first;
        scalar *to = p->out + first * l->outs;
        const input *from = p->x + first * l->steps;
        const scalar *more = p->residual ? p->residual + first * l->outs : NULL;
        if (l->by_tiles) add_panel_by_tiles(l, to, from, more, count, o, &shaped);
        else add_panel(l, to, from, more, count, o);
    }
    if (shaped) release_tiles();
}

int linear(const void *matrix, scalar *out, const scalar *x, const scalar *residual, int64_t tokens) {
    const Linear *l = matrix;
    Inputs inputs;
    if (!prepare_inputs(&inputs, x, tokens, l->ins, l->steps)) return 0;
    int64_t band = l->by_tiles ? (CACHE / (l->steps * sizeof(input)) + MAX_ROWS) / MAX_ROWS * MAX_ROWS : BAND;
    int64_t bands = (tokens + band - 1) / band, panels = (l->outs + PANEL - 1) / PANEL;
    run_loop(multiply_units, &(Product){l, out, inputs.rows, residual, tokens, bands, panels}, bands * panels,
             l->steps * l->outs > WORTH_THREADS);
    free(inputs.copy);
    return 1;
}
