/* Rows times a matrix of whole numbers of 8 or 4 bits, with a scale for each output and group of inputs.

   The numbers of PANEL outputs lie in the order in which they are read. They are widened without loss, multiplied with
   the rows, and added up in float for at most SPAN steps of one group. That sum times the group's scale is added to the
   output. Each row's sums are added in one order, so its result depends neither on other rows nor on the number of
   threads.

   The first rows that pass a run of steps leave its widened numbers for the next rows. With AMX, 16 rows are multiplied
   at once, and numbers are widened before. */

#include "operators.h"
#include "pool.h"
#include "panels.h"
#include "inputs.h"

#define GRAIN 32  /* the inputs are padded to a multiple of this number */
#define SPAN 128  /* steps that are added up before their sum is scaled */
#define RUN 32    /* steps widened at a time for few rows: longer runs leave the memory idle between them */
#define AHEAD 128 /* steps from those that are widened to those that are fetched from memory meanwhile */
#define FEW 64    /* rows whose sums are kept from one run of RUN steps to the next */
#define BAND 512  /* rows that go through a panel before the next */

#if PAIR == 1 && defined __AVX2__ && !defined __AVX512F__
/* Numbers of 4 bits are widened where they lie, as if they had no sign: those of vector v count 16 to the power of v, and
   each number is BIAS too large. The sums are corrected instead. */
#define BIAS 8
#define UNIT(v) (1.0f / (1 << 4 * (v)))
#else
#define BIAS 0
#define UNIT(v) 1.0f
#endif

typedef int8_t bytes __attribute__((vector_size(LANES), aligned(1), may_alias));
static inline vec load_bytes(const int8_t *x) {
#if defined __AVX512F__
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)x)));
#elif defined __AVX2__
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)x)));
#else
    return __builtin_convertvector(__builtin_convertvector(*(const bytes *)x, ints), vec);
#endif
}

#if PAIR == 2
static uint8_t low_byte[128], high_byte[128]; /* the bytes of 0 to 127 in bfloat16 */
static uint16_t of_4_bits[32];                /* the numbers that 4 bits stand for, twice: a fifth bit is not read */
__attribute__((constructor)) static void fill_tables(void) {
    for (int i = 0; i < 128; i++) {
        low_byte[i] = store(i) & 0xff;
        high_byte[i] = store(i) >> 8;
    }
    for (int i = 0; i < 32; i++) of_4_bits[i] = store(i % 16 - 8);
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
static inline void read_weights(weights *to, const char *from, const int bits) {
    if (bits == 16) return read_wide(to, from);
    __m512i packed = bits == 4 ? _mm512_loadu_si512(from) : _mm512_setzero_si512();
    for (int v = 0; v < VECS; v++)
        if (bits == 4) {
            __m512i index = _mm512_srli_epi16(packed, 4 * v), table = _mm512_loadu_si512(of_4_bits);
            to[v] = (weights)_mm512_permutexvar_epi16(index, table);
        } else if (v % 2 == 0) widen_bytes(to + v, from + v * 32);
}
/* A byte holds sign and magnitude. A pair of bytes lies where widen_bytes turns it into a pair of its output. */
static inline uint8_t pack_byte(int8_t x) { return x < 0 ? -x | 0x80 : x; }
static inline int64_t place_byte(int64_t lane) {
    return lane / 32 * 32 + lane % 16 / 4 * 8 + lane % 32 / 16 * 4 + lane % 4;
}
static inline vec sums_of_pairs(const input *x) {
    __m512i pairs = _mm512_loadu_si512(x), second = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff0000));
    return (vec)_mm512_slli_epi32(pairs, 16) + (vec)second;
}
#else
static inline void read_weights(weights *to, const char *from, const int bits) {
    if (bits == 16) read_wide(to, from);
    else if (bits == 8)
        for (int v = 0; v < VECS; v++) to[v] = load_bytes((const int8_t *)from + v * LANES);
    else {
#if defined __AVX512F__
        __m512i packed = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
        __m512 table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
        for (int v = 0; v < VECS; v++) to[v] = (vec)_mm512_permutexvar_ps(_mm512_srli_epi32(packed, 4 * v), table);
#elif defined __AVX2__
        __m256i packed = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));
        for (int v = 0; v < VECS; v++)
            to[v] = (vec)_mm256_cvtepi32_ps(_mm256_and_si256(packed, _mm256_set1_epi32(15 << 4 * v)));
#else
        for (int v = 0; v < VECS; v++)
            for (int i = 0; i < LANES; i++)
                to[v][i] = (((const uint8_t *)from)[i * VECS / 2 + v / 2] >> v % 2 * 4 & 15) - 8;
#endif
    }
}
static inline uint8_t pack_byte(int8_t x) { return x; }
static inline int64_t place_byte(int64_t lane) { return lane; }
static inline vec sums_of_pairs(const input *x) { return (vec)*(const floats *)x; }
#endif

typedef struct {
    const char *panels;      /* [panels, steps, PANEL, PAIR]: numbers of `bits` bits */
    const void *scales;      /* [panels, groups, PANEL]: float16 or float */
    const int8_t *offsets;   /* [panels, groups, PANEL]: added to the numbers. NULL: none are */
    const uint16_t *shifts;  /* [panels, groups, PANEL]: float16, added to the weights. NULL: none are */
    const float *bias;       /* [outs], or NULL */
    int64_t bits, has_half_scales, ins, steps, group_steps, outs;
} Quantized;

const int64_t linear_pair = PAIR;
const int64_t quantized_grain = GRAIN;
const int64_t quantized_span = SPAN * PAIR; /* a group has a divisor of this, or a multiple, of inputs */
const int64_t quantized_panel = PANEL;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t step_bytes(int64_t bits) { return PANEL * PAIR * bits / 8; }
static int64_t groups_of(const Quantized *l) { return (l->steps + l->group_steps - 1) / l->group_steps; }

static inline void pack_number(char *step, int8_t number, int64_t output, int64_t i, int bits) {
    int64_t vector = output / LANES, lane = output % LANES * PAIR + i;
    if (bits == 8) step[place_byte(output) * PAIR + i] = pack_byte(number);
    else step[lane * VECS / 2 + vector / 2] |= (number + 8) << vector % 2 * 4;
}

typedef struct {
    char *panels;
    const int8_t *numbers;
    int64_t ins, outs, steps;
    int bits;
} Packing;

static void pack_panels(const void *loop, int64_t first, int64_t end) {
    const Packing *p = loop;
    int64_t bytes = step_bytes(p->bits);
    for (int64_t o = first * PANEL; o < smaller(p->outs, end * PANEL); o++)
        for (int64_t i = 0; i < p->ins; i++) {
            char *to = p->panels + (o / PANEL * p->steps + i / PAIR) * bytes;
            pack_number(to, p->numbers[o * p->ins + i], o % PANEL, i % PAIR, p->bits);
        }
}

/* Pack a matrix [outs, ins] of numbers into panels, which hold zeros before: `steps` steps each. */
void quantized_pack(char *panels, const int8_t *numbers, int64_t ins, int64_t outs, int64_t steps, int bits) {
    run_loop(pack_panels, &(Packing){panels, numbers, ins, outs, steps, bits}, (outs + PANEL - 1) / PANEL,
             ins * outs > WORTH_THREADS);
}

/* Begin to load what lies AHEAD steps after a step. */
static inline void fetch(const char *step, const int bits) {
    for (int64_t i = 0; i < step_bytes(bits); i += 64) __builtin_prefetch(step + AHEAD * step_bytes(bits) + i, 0, 2);
}

/* Multiply `rows` rows, `stride` inputs apart, with some steps of a panel. Add to `to` if `is_more`. If `kept` is not
   NULL, also write the widened weights there, for the rows that come next. */
INLINE void multiply(Sums *to, const input *x, int64_t stride, const char *panel, int64_t steps, int is_more,
                     char *kept, const int rows, const int bits) {
    vec sums[ROWS][VECS] = {0};
    if (is_more) load_sums(sums, to, rows);
    for (int64_t k = 0; k < steps; k++, panel += bits == 16 ? (int64_t)(VECS * sizeof(weights)) : step_bytes(bits)) {
        weights w[VECS];
        read_weights(w, panel, bits);
        if (bits != 16 && kept) {
            fetch(panel, bits);
            write_wide(kept + k * sizeof(w), w);
        }
        add_step(sums, w, x + k, stride, rows);
    }
    store_sums(to, sums, rows);
}

#define MULTIPLY(rows)                                                                     \
    case rows:                                                                             \
        if (bits == 16) multiply(to, x, stride, panel, steps, is_more, NULL, rows, 16);    \
        else if (bits == 8) multiply(to, x, stride, panel, steps, is_more, kept, rows, 8); \
        else multiply(to, x, stride, panel, steps, is_more, kept, rows, 4);                \
        break;

static void multiply_rows(Sums *to, const input *x, int64_t stride, const char *panel, int64_t steps, int is_more,
                          char *kept, int64_t rows, int64_t bits) {
    switch (rows) { EACH_ROWS(MULTIPLY) }
}

#if AMX
#define ADD_TILE(sum, weight, vector) _tile_loadd(weight, panel + vector * 64, STRIDE); _tile_dpbf16ps(sum, 4, weight);
INLINE void widen(char *to, const char *from, int64_t steps, const int bits) {
    for (int64_t k = 0; k < steps; k++) {
        weights w[VECS];
        read_weights(w, from + k * step_bytes(bits), bits);
        fetch(from + k * step_bytes(bits), bits);
        write_wide(to + k * sizeof(w), w);
    }
}

/* As `multiply`, for up to 16 rows and widened weights. */
static void multiply_tiles(Sums *to, const input *x, int64_t stride, const char *panel, int64_t steps, int is_more) {
    float *sums = *to;
    before_tiles();
    if (is_more) {
        _tile_loadd(0, sums, STRIDE); _tile_loadd(1, sums + 16, STRIDE);
        _tile_loadd(2, sums + 32, STRIDE); _tile_loadd(3, sums + 48, STRIDE);
    } else {
        _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    }
    for (int64_t k = 0; k < steps; k += DEPTH, panel += DEPTH * STRIDE) {
        _tile_loadd(4, x + k, stride * sizeof(input));
        ADD_TILE(0, 6, 0) ADD_TILE(1, 7, 1) ADD_TILE(2, 6, 2) ADD_TILE(3, 7, 3)
    }
    _tile_stored(0, sums, STRIDE); _tile_stored(1, sums + 16, STRIDE);
    _tile_stored(2, sums + 32, STRIDE); _tile_stored(3, sums + 48, STRIDE);
}
#else
static void widen(char *to, const char *from, int64_t steps, int bits) {}
static void multiply_tiles(Sums *to, const input *x, int64_t stride, const char *panel, int64_t steps, int is_more) {}
#endif

static inline float load_half(uint16_t x) {
    union { uint32_t bits; float value; } u = {(uint32_t)(x & 0x7fff) << 13};
    return (x & 0x8000 ? -0x1p112f : 0x1p112f) * u.value;
}
static inline vec load_halves(const uint16_t *x) {
#if defined __AVX512F__
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x));
#elif defined __F16C__
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)x));
#else
    vec y;
    for (int i = 0; i < LANES; i++) y[i] = load_half(x[i]);
    return y;
#endif
}
/* Add the sums times the scales at `at`. `ends` are the rows' sums of the group's inputs where the group ends. */
static void add_scaled(const Quantized *l, Sums *totals, const Sums *sums, int64_t rows, int64_t at,
                       const float *ends, int64_t groups) {
    vec scales[VECS], offsets[VECS] = {0};
    for (int v = 0; v < VECS; v++) {
        int64_t i = at + v * LANES;
        vec scale = l->has_half_scales ? load_halves((const uint16_t *)l->scales + i)
                                       : (vec)*(const floats *)((const float *)l->scales + i);
        vec offset = l->offsets ? load_bytes(l->offsets + i) : (vec){0};
        scales[v] = l->bits == 4 ? scale * UNIT(v) : scale;
        if (ends) offsets[v] = scale * (l->bits == 4 ? offset - BIAS : offset);
        if (l->shifts) offsets[v] += load_halves(l->shifts + i);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int v = 0; v < VECS; v++) {
            floats *to = (floats *)(totals[r] + v * LANES);
            vec sum = fused((vec)*(const floats *)(sums[r] + v * LANES), scales[v], (vec)*to);
            if (ends) sum = fused(offsets[v], (vec){0} + ends[r * groups], sum);
            *to = (floats)sum;
        }
}

/* Add the products of some rows with the steps from `k` to `end`, which are `at`, or widened `at`. If `kept` is not
   NULL, also write them there, widened. */
static void add_steps(const Quantized *l, Sums *totals, Sums *sums, const input *x, const float *row_sums, int64_t rows,
                      int64_t p, int64_t k, int64_t end, const char *at, int64_t bits, char *kept) {
    int64_t groups = groups_of(l), bytes = bits == 16 ? (int64_t)(VECS * sizeof(weights)) : step_bytes(bits);
    for (int64_t next, from = k; k < end; at += (next - k) * bytes, k = next) {
        int64_t group = k / l->group_steps, first = group * l->group_steps;
        int64_t group_end = smaller(first + l->group_steps, l->steps);
        int64_t span_end = smaller(group_end, first + (k - first) / SPAN * SPAN + SPAN);
        next = smaller(span_end, end);
        int is_more = (k - first) % SPAN != 0;
        if (has_tiles) multiply_tiles(sums, x + k, l->steps, at, next - k, is_more);
        else multiply_rows(sums, x + k, l->steps, at, next - k, is_more,
                           kept ? kept + (k - from) * VECS * sizeof(weights) : NULL, rows, bits);
        if (next == span_end)
            add_scaled(l, totals, sums, rows, (p * groups + group) * PANEL,
                       row_sums && next == group_end ? row_sums + group : NULL, groups);
    }
}

/* Multiply up to BAND rows with panel `p`. `row_sums` is [rows, groups]. */
static void add_panel(const Quantized *l, Sums *totals, const input *x, const float *row_sums, int64_t rows,
                      int64_t p) {
    char wide[SPAN * VECS * sizeof(weights)] __attribute__((aligned(64)));
    Sums sums[FEW] __attribute__((aligned(64)));
    int64_t shaped = 0, most = has_tiles ? 16 : ROWS, bytes = step_bytes(l->bits);
    int is_few = rows <= FEW;
    const char *panel = l->panels + p * l->steps * bytes;
    for (int64_t k = 0, end; k < l->steps; k = end) {
        const char *at = panel + k * bytes;
        end = smaller(k + (is_few ? RUN : SPAN), l->steps);
        if (has_tiles && l->bits == 8) widen(wide, at, end - k, 8);
        else if (has_tiles) widen(wide, at, end - k, 4);
        for (int64_t r = 0; r < rows; r += most) {
            int64_t count = smaller(rows - r, most);
            int is_widened = has_tiles || r > 0;
            if (has_tiles && count != shaped) shape_tiles(shaped = count);
            add_steps(l, totals + r, is_few ? sums + r : sums, x + r * l->steps,
                      row_sums ? row_sums + r * groups_of(l) : NULL, count, p, k, end, is_widened ? wide : at,
                      is_widened ? 16 : l->bits, !is_widened && rows > most ? wide : NULL);
        }
    }
    if (has_tiles) release_tiles();
}

static float sum_of(const input *x, int64_t steps) {
    vec sums = {0};
    for (int64_t k = 0; k < steps; k += LANES) sums += sums_of_pairs(x + k);
    return total_of(sums);
}

/* The sum of each group of each row's inputs, [tokens, groups]. NULL if there is no memory. */
static float *sums_of_groups(const Quantized *l, const input *x, int64_t tokens) {
    int64_t groups = groups_of(l);
    float *sums = malloc((tokens * groups + 1) * sizeof(float));
    for (int64_t i = 0; sums && i < tokens * groups; i++) {
        int64_t first = i % groups * l->group_steps;
        sums[i] = sum_of(x + i / groups * l->steps + first, smaller(l->group_steps, l->steps - first));
    }
    return sums;
}

typedef struct {
    const Quantized *l;
    scalar *out;
    const input *x;
    const scalar *residual;
    const float *row_sums; /* [tokens, groups], or NULL */
    int64_t tokens, bands, panels;
} Product;

/* A unit is a band of rows and a panel. */
static void multiply_units(const void *loop, int64_t first_unit, int64_t end_unit) {
    const Product *product = loop;
    const Quantized *l = product->l;
    for (int64_t unit = first_unit; unit < end_unit; unit++) {
        Sums totals[BAND] __attribute__((aligned(64)));
        int64_t b = unit / product->panels, p = unit % product->panels, o = p * PANEL;
        int64_t first = product->tokens * b / product->bands;
        int64_t rows = product->tokens * (b + 1) / product->bands - first;
        memset(totals, 0, rows * sizeof(Sums));
        const float *of_rows = product->row_sums ? product->row_sums + first * groups_of(l) : NULL;
        add_panel(l, totals, product->x + first * l->steps, of_rows, rows, p);
        for (int64_t r = 0; r < rows; r++) {
            int64_t at = (first + r) * l->outs + o;
            finish(product->out + at, totals[r], l->bias ? l->bias + o : NULL,
                   product->residual ? product->residual + at : NULL, l->outs - o);
        }
    }
}

int quantized_linear(const void *matrix, scalar *out, const scalar *x, const scalar *residual, int64_t tokens) {
    const Quantized *l = matrix;
    Inputs inputs;
    if (!prepare_inputs(&inputs, x, tokens, l->ins, l->steps)) return 0;
    int needs_sums = l->offsets || l->shifts || (BIAS && l->bits == 4);
    float *row_sums = needs_sums ? sums_of_groups(l, inputs.rows, tokens) : NULL;
    int has_memory = row_sums || !needs_sums;
    int64_t bands = (tokens + BAND - 1) / BAND, panels = (l->outs + PANEL - 1) / PANEL;
    Product product = {l, out, inputs.rows, residual, row_sums, tokens, bands, panels};
    if (has_memory) run_loop(multiply_units, &product, bands * panels, l->steps * l->outs > WORTH_THREADS);
    free(row_sums);
    free(inputs.copy);
    return has_memory;
}
