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
INLINE vec load_steps(const scalar *from, int64_t left) {
    scalar some[PIECE];
    if (left < PIECE) from = memcpy(memset(some, 0, sizeof(some)), from, left * sizeof(scalar));
#if PAIR == 2
    return (vec)_mm512_loadu_ps(from);
#else
    return load_vec(from);
#endif
}

/* LANES vectors of LANES words each. */
INLINE void transpose(vec *x) {
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

/* A tile's keys and values in the cache. Those after the `count` that exist are the last one once more. */
typedef struct {
    const scalar *key[PANEL], *value[PANEL];
    int64_t count;
} Tile;

/* Begin to load a vector's keys of the tile `ahead`, or nothing if it is NULL. */
static inline void fetch_keys(const Tile *ahead, int64_t v, int64_t dim) {
    if (ahead) for (int64_t t = 0; t < LANES; t++) fetch(ahead->key[v * LANES + t], dim);
}
static inline void fetch_values(const Tile *ahead, int64_t step, int64_t dim) {
    if (ahead) for (int64_t i = 0; i < PAIR; i++) fetch(ahead->value[step * PAIR + i], dim);
}

/* LANES steps of LANES keys, from element `i` on. */
INLINE void read_keys(vec *to, const Tile *tile, int64_t v, int64_t i, int64_t dim) {
    const scalar *const *key = tile->key + v * LANES;
    if (dim - i < PIECE) for (int64_t t = 0; t < LANES; t++) to[t] = load_steps(key[t] + i, dim - i);
    else {
#pragma GCC unroll 16
        for (int64_t t = 0; t < LANES; t++) to[t] = load_steps(key[t] + i, PIECE);
    }
    transpose(to);
}

/* A step of values: PIECE elements from element `i` on, in PAIR vectors. A key that does not exist has zeros. */
INLINE void read_values(vec *to, const Tile *tile, int64_t step, int64_t i, int64_t dim) {
    int64_t t = step * PAIR;
    vec x = t < tile->count ? load_steps(tile->value[t] + i, dim - i) : (vec){0};
#if PAIR == 2
    static const uint16_t order[64] = {
        0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46,
        15, 47, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28,
        60, 29, 61, 30, 62, 31, 63};
    vec y = t + 1 < tile->count ? load_steps(tile->value[t + 1] + i, dim - i) : (vec){0};
    to[0] = (vec)_mm512_permutex2var_epi16((__m512i)x, _mm512_loadu_si512(order), (__m512i)y);
    to[1] = (vec)_mm512_permutex2var_epi16((__m512i)x, _mm512_loadu_si512(order + 32), (__m512i)y);
#else
    to[0] = x;
#endif
}

static void load_keys(TilePanels *to, const Tile *tile, const Tile *ahead, int64_t dim) {
    for (int64_t v = 0; v * LANES < tile->count; v++) {
        fetch_keys(ahead, v, dim);
        for (int64_t i = 0; i < dim; i += PIECE) {
            vec x[LANES];
            read_keys(x, tile, v, i, dim);
            for (int64_t t = 0; t < LANES; t++) to->keys[i / PAIR + t][v] = x[t];
        }
    }
}

static void load_values(TilePanels *to, const Tile *tile, int64_t steps, const Tile *ahead, int64_t dim) {
    for (int64_t k = 0; k < steps; k++) {
        fetch_values(ahead, k, dim);
        for (int64_t i = 0; i < dim; i += PIECE)
            read_values(to->values[i / PANEL][k] + i % PANEL / LANES, tile, k, i, dim);
    }
}

/* As `multiply` of rows with the panels that these functions load, for rows that are the only ones to read the tile. The
   panels are never written. */
INLINE void multiply_keys(Sums *to, const input *x, int64_t stride, const Tile *tile, const Tile *ahead, int64_t dim,
                          const int rows) {
    for (int64_t i = 0; i < dim; i += PIECE)
        for (int64_t v = 0; v * LANES < tile->count; v++) {
            vec keys[LANES], sums[ROWS] = {0};
            if (!i) fetch_keys(ahead, v, dim);
            read_keys(keys, tile, v, i, dim);
            if (i) for (int r = 0; r < rows; r++) sums[r] = *(const floats *)(to[r] + v * LANES);
#pragma GCC unroll 16
            for (int t = 0; t < LANES; t++)
                for (int r = 0; r < rows; r++)
                    sums[r] = multiply_add(sums[r], (weights)keys[t], x[r * stride + i / PAIR + t]);
            for (int r = 0; r < rows; r++) *(floats *)(to[r] + v * LANES) = sums[r];
        }
}

/* `begin` is the panel's first element. */
INLINE void multiply_values(Sums *to, const input *x, const Tile *tile, int64_t steps, const Tile *ahead,
                            int64_t begin, int64_t dim, const int rows) {
    vec sums[ROWS][VECS] = {0};
    for (int64_t k = 0; k < steps; k++) {
        vec values[VECS];
        weights w[VECS];
        if (!begin) fetch_values(ahead, k, dim);
        for (int v = 0; v < VECS; v += PAIR) {
            int64_t i = begin + v * LANES;
            if (i < dim) read_values(values + v, tile, k, i, dim);
            else for (int j = 0; j < PAIR; j++) values[v + j] = (vec){0};
        }
        for (int v = 0; v < VECS; v++) w[v] = (weights)values[v];
        add_step(sums, w, x + k, KEY_STEPS, rows);
    }
    store_sums(to, sums, rows);
}
