/* The keys and values of a tile: PANEL consecutive positions of a sequence, laid out as panels (panels.h). */

#define PIECE (PAIR * LANES) /* elements in a vector of LANES steps */
#define MAX_STEPS (MAX_DIM / PAIR)
#define MAX_PANELS ((MAX_DIM + PANEL - 1) / PANEL)
#define KEY_STEPS (PANEL / PAIR) /* steps through a tile's keys */

typedef struct {
    vec keys[MAX_STEPS][VECS]; /* [steps of dim, PANEL keys] */
    vec values[MAX_PANELS][KEY_STEPS][VECS]; /* [panels of dim, steps of keys, PANEL elements] */
} TilePanels;

/* The steps of a row of `dim` elements: whole vectors, padded with zeros. */
static inline int64_t steps_of(int64_t dim) { return (dim + PIECE - 1) / PIECE * LANES; }
static inline int64_t panels_of(int64_t dim) { return (dim + PANEL - 1) / PANEL; }

/* LANES steps of a row, of which `left` elements exist. The others are zeros. */
static inline vec load_steps(const scalar *from, int64_t left) {
    scalar some[PIECE];
    if (left < PIECE) from = memcpy(memset(some, 0, sizeof(some)), from, left * sizeof(scalar));
#if PAIR == 2
    return (vec)_mm512_loadu_ps(from);
#else
    return load_vec(from);
#endif
}

/* LANES vectors of LANES words each. */
static inline void transpose(vec *x) {
#if defined __AVX512F__
    __m512i y[16], *z = (__m512i *)x;
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(z[i], z[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(z[i], z[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        z[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        z[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        z[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        z[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        __m512i a = _mm512_shuffle_i32x4(z[i], z[i + 4], 0x88), b = _mm512_shuffle_i32x4(z[i], z[i + 4], 0xdd);
        __m512i c = _mm512_shuffle_i32x4(z[i + 8], z[i + 12], 0x88);
        __m512i d = _mm512_shuffle_i32x4(z[i + 8], z[i + 12], 0xdd);
        y[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        y[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        y[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
    for (int i = 0; i < 16; i++) z[i] = y[i];
#elif defined __AVX__
    __m256 y[8], z[8];
    for (int i = 0; i < 8; i += 2) {
        y[i] = _mm256_unpacklo_ps((__m256)x[i], (__m256)x[i + 1]);
        y[i + 1] = _mm256_unpackhi_ps((__m256)x[i], (__m256)x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        z[i] = _mm256_shuffle_ps(y[i], y[i + 2], 0x44);
        z[i + 1] = _mm256_shuffle_ps(y[i], y[i + 2], 0xee);
        z[i + 2] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0x44);
        z[i + 3] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        x[i] = (vec)_mm256_permute2f128_ps(z[i], z[i + 4], 0x20);
        x[i + 4] = (vec)_mm256_permute2f128_ps(z[i], z[i + 4], 0x31);
    }
#else
    vec y[LANES];
    memcpy(y, x, sizeof(y));
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < LANES; j++) x[i][j] = y[j][i];
#endif
}

/* Reads the keys at `from`, of which there are `count`. Meanwhile `ahead` begins to come, which may be NULL. */
static void load_keys(TilePanels *tile, const scalar *const *from, int64_t count, const scalar *const *ahead,
                      int64_t dim) {
    for (int64_t v = 0; v * LANES < count; v++) {
        int64_t left = count - v * LANES;
        if (ahead) for (int64_t t = 0; t < LANES; t++) fetch(ahead[v * LANES + t], dim);
        for (int64_t i = 0; i < dim; i += PIECE) {
            vec x[LANES];
            for (int64_t t = 0; t < LANES; t++)
                x[t] = t < left ? load_steps(from[v * LANES + t] + i, dim - i) : (vec){0};
            transpose(x);
            for (int64_t t = 0; t < LANES; t++) tile->keys[i / PAIR + t][v] = x[t];
        }
    }
}

/* As `load_keys`, for values. Fills `steps` steps. */
static void load_values(TilePanels *tile, const scalar *const *from, int64_t count, int64_t steps,
                        const scalar *const *ahead, int64_t dim) {
    for (int64_t t = 0; t < steps * PAIR; t += PAIR) {
        if (ahead) for (int64_t i = 0; i < PAIR; i++) fetch(ahead[t + i], dim);
        for (int64_t i = 0; i < dim; i += PIECE) {
            vec *to = tile->values[i / PANEL][t / PAIR] + i % PANEL / LANES;
            vec x = t < count ? load_steps(from[t] + i, dim - i) : (vec){0};
#if PAIR == 2
            static const uint16_t order[64] = {
                0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45,
                14, 46, 15, 47, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26,
                58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
            vec y = t + 1 < count ? load_steps(from[t + 1] + i, dim - i) : (vec){0};
            __m512i low = _mm512_loadu_si512(order), high = _mm512_loadu_si512(order + 32);
            to[0] = (vec)_mm512_permutex2var_epi16((__m512i)x, low, (__m512i)y);
            to[1] = (vec)_mm512_permutex2var_epi16((__m512i)x, high, (__m512i)y);
#else
            to[0] = x;
#endif
        }
    }
}
