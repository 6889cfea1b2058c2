/* Rows times panels: the weights of PANEL outputs, in the order in which they are read.

   On processors that multiply pairs of bfloat16, a step reads two inputs. Such a processor adds in float, rounds to the
   nearest, and reads denormal numbers as zero. On other processors, a step reads one input in float. */

#include "vectors.h"
#include "amx.h"

#define VECS 4 /* vectors of a panel: the sums of a single row are enough to keep the arithmetic busy */
#if defined __AVX__ && !defined __AVX512F__
#define ROWS 2 /* rows computed together: their sums, VECS vectors each, stay in registers. This is for 16 registers */
#define EACH_ROWS(x) x(1) x(2)
#else
#define ROWS 6 /* for 32 registers */
#define EACH_ROWS(x) x(1) x(2) x(3) x(4) x(5) x(6)
#endif
#define PANEL (VECS * LANES)
#define DEPTH 16 /* steps in a tile of AMX: panels and rows are padded to whole tiles */

#if defined SCALAR_BF16 && defined __AVX512BF16__ && defined __AVX512VBMI__
#define PAIR 2 /* inputs that a step reads */
typedef uint32_t input;
typedef __m512bh weights;

static inline vec multiply_add(vec sum, weights w, input x) {
    return (vec)_mm512_dpbf16_ps((__m512)sum, w, (__m512bh)_mm512_set1_epi32(x));
}
#else
#define PAIR 1
typedef float input;
typedef vec weights;

static inline vec multiply_add(vec sum, weights w, input x) { return fused(w, (vec){0} + x, sum); }
#endif

typedef float Sums[PANEL]; /* of one row */

/* The loops below have constant lengths when they are inlined, and weights and sums stay in registers. A memcpy from or
   to them would make gcc keep them in memory. */

/* Read or write the weights of a step that have the type of `weights`. */
#if PAIR == 2
static inline void read_wide(weights *to, const char *from) {
    for (int v = 0; v < VECS; v++) to[v] = (weights)_mm512_loadu_si512(from + v * 64);
}
static inline void write_wide(char *to, const weights *from) {
    for (int v = 0; v < VECS; v++) _mm512_storeu_si512(to + v * 64, (__m512i)from[v]);
}
#else
static inline void read_wide(weights *to, const char *from) {
    for (int v = 0; v < VECS; v++) to[v] = *(const floats *)(from + v * sizeof(vec));
}
static inline void write_wide(char *to, const weights *from) {
    for (int v = 0; v < VECS; v++) *(floats *)(to + v * sizeof(vec)) = from[v];
}
#endif

static inline void load_sums(vec (*sums)[VECS], const Sums *from, const int rows) {
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECS; v++) sums[r][v] = *(const floats *)(from[r] + v * LANES);
}
static inline void store_sums(Sums *to, vec (*sums)[VECS], const int rows) {
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECS; v++) *(floats *)(to[r] + v * LANES) = sums[r][v];
}
/* Add the products of one step of `rows` rows, `stride` inputs apart. */
static inline void add_step(vec (*sums)[VECS], const weights *w, const input *x, int64_t stride, const int rows) {
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECS; v++) sums[r][v] = multiply_add(sums[r][v], w[v], x[r * stride]);
}

/* Add bias and residual to the sums of one row with a panel, of which `count` outputs exist, and round. */
static inline void finish_some(scalar *out, const float *sums, const float *bias, const scalar *residual,
                               int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float sum = sums[i];
        if (bias) sum += bias[i];
        out[i] = store(residual ? sum + load(residual[i]) : sum);
    }
}

static inline void finish(scalar *out, const float *sums, const float *bias, const scalar *residual, int64_t count) {
    if (count < PANEL) return finish_some(out, sums, bias, residual, count);
    for (int64_t v = 0; v < VECS; v++) {
        vec sum = *(const floats *)(sums + v * LANES);
        if (bias) sum += *(const floats *)(bias + v * LANES);
        if (residual) sum += load_vec(residual + v * LANES);
        store_vec(out + v * LANES, sum);
    }
}

#define TILE_ROWS 16
#define STRIDE (PANEL * PAIR * sizeof(scalar)) /* bytes from a step of a panel to the next */

/* Tiles 0 to 3 are sums, 4 and 5 rows, 6 and 7 weights. Up to 16 rows have sums for 64 outputs, more have sums for 32
   and use tiles 2, 3 and 5 for the rows from the 17th on. */
static inline void shape_tiles(int64_t rows) {
    int64_t first = rows < TILE_ROWS ? rows : TILE_ROWS, second = rows > TILE_ROWS ? rows - TILE_ROWS : first;
    set_tiles((const uint8_t[]){first, first, second, second, first, second, TILE_ROWS, TILE_ROWS});
}
