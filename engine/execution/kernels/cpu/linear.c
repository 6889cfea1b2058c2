/* Rows times a matrix. It takes as long as reading the weights or the arithmetic, whichever is longer.

   The weights of PANEL outputs lie in the order in which they are read. ROWS rows go through them at a time. A sum has
   one accumulator from the first input to the last, so a row's result depends neither on other rows nor on the number
   of threads.

   On processors that multiply pairs of bfloat16, a step reads two inputs. Such a processor adds in float, rounds to the
   nearest, and reads denormal numbers as zero. On other processors, a step reads one input in float. Weights of 8 bits
   are widened in registers, without loss. Where the processor has AMX, the same panels can be multiplied by its tiles
   (tiles.h). */

#include "vectors.h"

#define ROWS 6 /* rows computed together: their sums, VECS vectors each, stay in registers */
#if defined __AVX__ && !defined __AVX512F__
#define VECS 2 /* for 16 registers */
#else
#define VECS 4 /* for 32 registers */
#endif
#define PANEL (VECS * LANES)
#define RUN 512 /* steps packed at a time: this part of a panel stays in the cache */
#define CACHE 1048576 /* bytes of rows that stay in the cache while panels pass */
#define BAND 96 /* rows that go through a panel before the next: with so many, reading it takes little of the time */

#define DEPTH 16 /* steps in a tile: panels and rows are padded to whole tiles */
#define MOST 32  /* rows computed together by tiles */

#if defined SCALAR_BF16 && defined __AVX512BF16__ && defined __AVX512VBMI__
#define PAIR 2 /* inputs that a step reads */
typedef uint32_t input;
typedef __m512bh weights;

static uint8_t low_byte[128], high_byte[128]; /* the bytes of 0 to 127 in bfloat16 */
__attribute__((constructor)) static void fill_tables(void) {
    for (int i = 0; i < 128; i++) {
        low_byte[i] = store(i) & 0xff;
        high_byte[i] = store(i) >> 8;
    }
}
static inline __m512i look_up(const uint8_t *table, __m512i x) { /* the index is the lower 7 bits */
    return _mm512_permutex2var_epi8(_mm512_loadu_si512(table), x, _mm512_loadu_si512(table + 64));
}
static inline void widen_bytes(weights *to, const char *from) { /* gives two vectors */
    __m512i x = _mm512_loadu_si512(from), sign = _mm512_and_si512(x, _mm512_set1_epi8((char)0x80));
    __m512i low = look_up(low_byte, x), high = _mm512_or_si512(look_up(high_byte, x), sign);
    to[0] = (weights)_mm512_unpacklo_epi8(low, high);
    to[1] = (weights)_mm512_unpackhi_epi8(low, high);
}
static inline void read_weights(weights *to, const char *from, const int is_int8) {
    for (int v = 0; v < VECS; v++)
        if (!is_int8)
            to[v] = (weights)_mm512_loadu_si512(from + v * 4 * LANES);
        else if (v % 2 == 0)
            widen_bytes(to + v, from + v * 2 * LANES);
}
static inline vec multiply_add(vec sum, weights w, input x) {
    return (vec)_mm512_dpbf16_ps((__m512)sum, w, (__m512bh)_mm512_set1_epi32(x));
}
/* A byte holds sign and magnitude. A pair of bytes lies where widen_bytes turns it into a pair of its output. */
static inline int8_t pack_byte(int8_t x) { return x < 0 ? -x | 0x80 : x; }
static inline int64_t place_byte(int64_t lane) {
    return lane / 32 * 32 + lane % 16 / 4 * 8 + lane % 32 / 16 * 4 + lane % 4;
}
#else
#define PAIR 1
typedef float input;
typedef vec weights;

static inline vec widen_bytes(const char *from) {
#if defined __AVX512F__
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
#elif defined __AVX2__
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
#else
    vec y;
    for (int i = 0; i < LANES; i++) y[i] = ((const int8_t *)from)[i];
    return y;
#endif
}
static inline void read_weights(weights *to, const char *from, const int is_int8) {
    for (int v = 0; v < VECS; v++)
        to[v] = is_int8 ? widen_bytes(from + v * LANES) : load_vec((const scalar *)from + v * LANES);
}
static inline vec multiply_add(vec sum, weights w, input x) { return sum + w * x; }
static inline int8_t pack_byte(int8_t x) { return x; }
static inline int64_t place_byte(int64_t lane) { return lane; }
#endif

typedef struct {
    const char *panels;         /* [panels, steps, PANEL, PAIR]: scalars, or bytes if there are scales */
    const float *scales, *bias; /* [outs], or NULL */
    int64_t steps, outs, by_tiles;
} Linear;

const int64_t linear_pair = PAIR;
#if PAIR == 2 && defined __AMX_BF16__ && defined __linux__
#include "tiles.h"
const int64_t linear_grain = DEPTH * PAIR; /* the inputs are padded to a multiple of this number */
int64_t can_use_tiles(void) { return has_tiles; }
#else
const int64_t linear_grain = PAIR;
int64_t can_use_tiles(void) { return 0; }
static void multiply_tiles(float *to, const input *x, int64_t steps, const char *panel, const char *ahead,
                           int64_t lines, int64_t rows, int64_t *shaped) {}
static void _tile_release(void) {}
#endif

static int64_t step_bytes(int is_int8) { return PANEL * PAIR * (is_int8 ? sizeof(int8_t) : sizeof(scalar)); }
static int64_t steps_of(int64_t ins) { return (ins + linear_grain - 1) / linear_grain * linear_grain / PAIR; }

int64_t packed_bytes(int64_t ins, int64_t outs, int is_int8) {
    return (outs + PANEL - 1) / PANEL * steps_of(ins) * step_bytes(is_int8);
}

/* Pack `lanes` rows of `bytes` bytes into one panel, `step` bytes in each step. */
static inline __attribute__((always_inline)) void pack_panel(char *panel, const char *rows, int64_t lanes,
                                                             int64_t bytes, const int64_t step, const int is_int8) {
    for (int64_t first = 0; first < bytes; first += RUN * step)
        for (int64_t lane = 0; lane < lanes; lane++) {
            const char *from = rows + lane * bytes;
            char *to = panel + (is_int8 ? place_byte(lane) : lane) * step;
            int64_t end = first + RUN * step < bytes ? first + RUN * step : bytes, i = first;
            for (; i + step <= end; i += step) memcpy(to + i * PANEL, from + i, step);
            memcpy(to + i * PANEL, from + i, end - i);
        }
    if (is_int8)
        for (int64_t i = 0; i < (bytes + step - 1) / step * step * PANEL; i++) panel[i] = pack_byte(panel[i]);
}

/* Pack a weight [outs, ins] of scalars or bytes into panels, which hold zeros before. */
void pack(char *panels, const char *weight, int64_t ins, int64_t outs, int is_int8) {
    int64_t panel_bytes = packed_bytes(ins, 1, is_int8), row_bytes = ins * (is_int8 ? 1 : sizeof(scalar));
#pragma omp parallel for if (ins * outs > WORTH_THREADS)
    for (int64_t o = 0; o < outs; o += PANEL) {
        const char *rows = weight + o * row_bytes;
        char *panel = panels + o / PANEL * panel_bytes;
        int64_t lanes = outs - o < PANEL ? outs - o : PANEL;
        if (is_int8) pack_panel(panel, rows, lanes, row_bytes, PAIR, 1);
        else pack_panel(panel, rows, lanes, row_bytes, PAIR * sizeof(scalar), 0);
    }
}

/* Multiply `rows` rows of `steps` steps each with a panel. In each step, also prefetch `lines` cache lines from `ahead`
   on. */
static inline __attribute__((always_inline)) void multiply(vec (*to)[VECS], const input *x, int64_t steps,
                                                           const char *panel, const char *ahead, int64_t lines,
                                                           const int rows, const int is_int8) {
    vec sums[ROWS][VECS] = {0};
    for (int64_t k = 0; k < steps; k++, panel += step_bytes(is_int8)) {
        weights w[VECS];
        read_weights(w, panel, is_int8);
        for (int64_t i = 0; i < lines; i++, ahead += 64) __builtin_prefetch(ahead, 0, 2);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECS; v++) sums[r][v] = multiply_add(sums[r][v], w[v], x[r * steps + k]);
    }
    memcpy(to, sums, rows * sizeof(*sums));
}

static inline void finish(scalar *out, float *sums, const float *scales, const float *bias, const scalar *residual,
                          int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float sum = scales ? sums[i] * scales[i] : sums[i];
        if (bias) sum += bias[i];
        out[i] = store(residual ? sum + load(residual[i]) : sum);
    }
}

/* `finish` for a whole panel. */
static inline void finish_panel(scalar *out, const vec *sums, const float *scales, const float *bias,
                                const scalar *residual) {
    for (int64_t v = 0; v < VECS; v++) {
        vec sum = sums[v];
        if (scales) sum *= *(const floats *)(scales + v * LANES);
        if (bias) sum += *(const floats *)(bias + v * LANES);
        if (residual) sum += load_vec(residual + v * LANES);
        store_vec(out + v * LANES, sum);
    }
}

#define MULTIPLY(rows)                                                              \
    case rows:                                                                      \
        if (l->scales) multiply(sums, x, l->steps, panel, ahead, lines, rows, 1);   \
        else multiply(sums, x, l->steps, panel, ahead, lines, rows, 0);             \
        break;

/* Multiply up to ROWS rows, or MOST by tiles, with the panel that begins at output `o`. */
static void tile(const Linear *l, scalar *out, const input *x, const scalar *residual, int64_t rows, int64_t o,
                 const char *panel, const char *ahead, int64_t lines, int64_t *shaped) {
    vec sums[MOST][VECS];
    if (l->by_tiles) multiply_tiles((float *)sums, x, l->steps, panel, ahead, lines, rows, shaped);
    else switch (rows) { MULTIPLY(1) MULTIPLY(2) MULTIPLY(3) MULTIPLY(4) MULTIPLY(5) MULTIPLY(6) }
    const float *scales = l->scales ? l->scales + o : NULL, *bias = l->bias ? l->bias + o : NULL;
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = r * l->outs + o, count = l->outs - o;
        const scalar *more = residual ? residual + at : NULL;
        if (count >= PANEL) finish_panel(out + at, sums[r], scales, bias, more);
        else finish(out + at, (float *)sums[r], scales, bias, more, count);
    }
}

/* [tokens, steps] to [tokens, outs]: the product times the scales, plus bias and residual, in float, then rounded. */
void linear(const Linear *l, scalar *out, const input *x, const scalar *residual, int64_t tokens) {
    int64_t step = step_bytes(l->scales != NULL), most = l->by_tiles ? MOST : ROWS;
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
