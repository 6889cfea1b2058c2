/* Attention of a chunk by instructions that multiply pairs of bfloat16: AMX's, or else those of AVX-512. Scores are
   [keys, rows], so that a vector has one key for 16 rows. Sums are float. A row's result does not depend on the other
   rows. */

#define KEYS 64         /* keys that are weighed together */
#define ROWS LANES      /* rows in a tile */
#define PAIRED_BAND 128 /* rows of a chunk that share a tile of keys */
#define FEWEST -1e30f   /* below every score */
#define TOGETHER 8      /* rows whose sums are kept in registers */

typedef struct {
    uint32_t query[PAIRED_BAND / ROWS][MAX_DIM / 2][ROWS]; /* pairs of a query's elements */
    scalar key[KEYS][MAX_DIM];                      /* [KEYS, dim] */
    uint32_t value[KEYS / 2][MAX_DIM];              /* [KEYS / 2, dim]: pairs of keys */
    vec score[KEYS];
    __m512i weight[KEYS / 2]; /* [KEYS / 2, ROWS]: pairs of keys */
    float sum[PAIRED_BAND * MAX_DIM]; /* [PAIRED_BAND, dim] */
    vec max[PAIRED_BAND / ROWS], total[PAIRED_BAND / ROWS];
} BandMemory;

static inline void transpose_words(__m512i *x) {
    __m512i y[16];
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        __m512i a = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88), b = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        __m512i c = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        __m512i d = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
        y[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        y[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        y[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
    memcpy(x, y, sizeof(y));
}

/* Words with one bfloat16 of `low` and one of `high`. */
static inline __m512i pair_up(vec low, vec high) {
    static const uint16_t order[32] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(order), both);
}

INLINE void load_keys(BandMemory *m, const Shape *s, const Layer *layer, const int64_t *table, int64_t begin,
                      int64_t count, int64_t kv_head, const int64_t dim) {
    int64_t offset[KEYS];
    const __m256i zero = _mm256_setzero_si256();
    places(offset, s, table, begin, count, kv_head);
    for (int64_t t = 0; t < KEYS; t++)
        if (t < count) memcpy((scalar *)m->key + t * dim, layer->keys + offset[t], dim * sizeof(scalar));
        else memset((scalar *)m->key + t * dim, 0, dim * sizeof(scalar));
    for (int64_t t = 0; t < KEYS; t += 2) {
        const scalar *even = layer->values + offset[t < count ? t : 0];
        const scalar *odd = layer->values + offset[t + 1 < count ? t + 1 : 0];
        for (int64_t i = 0; i < dim; i += 16) {
            __m256i a = t < count ? _mm256_loadu_si256((const __m256i *)(even + i)) : zero;
            __m256i b = t + 1 < count ? _mm256_loadu_si256((const __m256i *)(odd + i)) : zero;
            __m512i pair = _mm512_or_si512(_mm512_cvtepu16_epi32(a), _mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
            _mm512_storeu_si512((uint32_t *)m->value + t / 2 * dim + i, pair);
        }
    }
}

#if AMX
INLINE void score_keys_by_tiles(BandMemory *m, int64_t tile, const int64_t dim) {
    const scalar *key = (const scalar *)m->key;
    before_tiles();
    _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    for (int64_t i = 0; i < dim; i += 32) {
        _tile_loadd(4, m->query[tile][i / 2], 64);
        _tile_loadd(5, key + i, dim * 2); _tile_loadd(6, key + 16 * dim + i, dim * 2);
        _tile_dpbf16ps(0, 5, 4); _tile_dpbf16ps(1, 6, 4);
        _tile_loadd(5, key + 32 * dim + i, dim * 2); _tile_loadd(6, key + 48 * dim + i, dim * 2);
        _tile_dpbf16ps(2, 5, 4); _tile_dpbf16ps(3, 6, 4);
    }
    _tile_stored(0, m->score, 64); _tile_stored(1, m->score + 16, 64);
    _tile_stored(2, m->score + 32, 64); _tile_stored(3, m->score + 48, 64);
}

INLINE void add_values_by_tiles(BandMemory *m, int64_t tile, const int64_t dim) {
    float *sum = m->sum + tile * ROWS * dim;
    const uint32_t *value = (const uint32_t *)m->value;
    transpose_words(m->weight);
    transpose_words(m->weight + 16);
    before_tiles();
    _tile_loadd(6, m->weight, 64); _tile_loadd(7, m->weight + 16, 64);
    for (int64_t i = 0; i < dim; i += 32) {
        _tile_loadd(0, sum + i, dim * 4); _tile_loadd(1, sum + i + 16, dim * 4);
        _tile_loadd(4, value + i, dim * 4); _tile_loadd(5, value + i + 16, dim * 4);
        _tile_dpbf16ps(0, 6, 4); _tile_dpbf16ps(1, 6, 5);
        _tile_loadd(4, value + 16 * dim + i, dim * 4); _tile_loadd(5, value + 16 * dim + i + 16, dim * 4);
        _tile_dpbf16ps(0, 7, 4); _tile_dpbf16ps(1, 7, 5);
        _tile_stored(0, sum + i, dim * 4); _tile_stored(1, sum + i + 16, dim * 4);
    }
}
#else
#define score_keys_by_tiles(m, tile, dim)
#define add_values_by_tiles(m, tile, dim)
#endif

static inline vec add_pairs(vec sum, __m512i x, uint32_t y) {
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)_mm512_set1_epi32(y));
}

INLINE void score_keys_by_vectors(BandMemory *m, int64_t tile, const int64_t dim) {
    for (int64_t t = 0; t < KEYS; t += 16) {
        const uint32_t *key = (const uint32_t *)((const scalar *)m->key + t * dim);
        vec score[16] = {0};
        for (int64_t i = 0; i < dim / 2; i++) {
            __m512i query = _mm512_loadu_si512(m->query[tile][i]);
            for (int64_t k = 0; k < 16; k++) score[k] = add_pairs(score[k], query, key[k * dim / 2 + i]);
        }
        for (int64_t k = 0; k < 16; k++) m->score[t + k] = score[k];
    }
}

INLINE void add_values_by_vectors(BandMemory *m, int64_t tile, const int64_t dim) {
    for (int64_t row = 0; row < ROWS; row += TOGETHER)
        for (int64_t i = 0; i < dim; i += 2 * LANES) {
            float *to = m->sum + (tile * ROWS + row) * dim + i;
            const uint32_t *value = (const uint32_t *)m->value + i, *weight = (const uint32_t *)m->weight + row;
            vec sum[2][TOGETHER];
            for (int64_t r = 0; r < TOGETHER; r++) sum[0][r] = *(vec *)(to + r * dim);
            for (int64_t r = 0; r < TOGETHER; r++) sum[1][r] = *(vec *)(to + r * dim + LANES);
            for (int64_t t = 0; t < KEYS / 2; t++) {
                __m512i first = _mm512_loadu_si512(value + t * dim);
                __m512i second = _mm512_loadu_si512(value + t * dim + LANES);
                for (int64_t r = 0; r < TOGETHER; r++) sum[0][r] = add_pairs(sum[0][r], first, weight[t * ROWS + r]);
                for (int64_t r = 0; r < TOGETHER; r++) sum[1][r] = add_pairs(sum[1][r], second, weight[t * ROWS + r]);
            }
            for (int64_t r = 0; r < TOGETHER; r++) *(vec *)(to + r * dim) = sum[0][r];
            for (int64_t r = 0; r < TOGETHER; r++) *(vec *)(to + r * dim + LANES) = sum[1][r];
        }
}

/* Gives the scores of one tile of rows, before they are scaled. */
INLINE void score_keys(BandMemory *m, int64_t tile, const int64_t dim) {
    if (has_tiles) score_keys_by_tiles(m, tile, dim);
    else score_keys_by_vectors(m, tile, dim);
}

/* Adds the values, each times its weight, to the sums of one tile of rows. */
INLINE void add_values(BandMemory *m, int64_t tile, const int64_t dim) {
    if (has_tiles) add_values_by_tiles(m, tile, dim);
    else add_values_by_vectors(m, tile, dim);
}

/* Turns the scores of one tile of rows into weights. Lane i sees the keys from `from[i]` to `last[i]`. */
static inline void weigh_keys(BandMemory *m, int64_t tile, __m512i from, __m512i last, int sees_all, float scale,
                              int64_t dim) {
    vec top = m->max[tile], total = {0};
    for (int t = 0; t < KEYS; t++) {
        vec x = m->score[t] * scale;
        if (!sees_all) {
            __m512i key = _mm512_set1_epi32(t);
            __mmask16 seen = _mm512_cmple_epi32_mask(key, last) & _mm512_cmpge_epi32_mask(key, from);
            x = (vec)_mm512_mask_blend_ps(seen, _mm512_set1_ps(-INFINITY), (__m512)x);
        }
        m->score[t] = x;
        top = (vec)_mm512_max_ps((__m512)top, (__m512)x);
    }
    vec rescale = exp_vec(m->max[tile] - top);
    for (int t = 0; t < KEYS; t += 2) {
        vec even = exp_vec(m->score[t] - top), odd = exp_vec(m->score[t + 1] - top);
        total += even;
        total += odd;
        m->weight[t / 2] = pair_up(even, odd);
    }
    m->total[tile] = m->total[tile] * rescale + total;
    m->max[tile] = top;
    if (_mm512_cmpneq_ps_mask((__m512)rescale, _mm512_set1_ps(1)))
        for (int64_t i = 0; i < ROWS; i++) {
            vec *row = (vec *)(m->sum + (tile * ROWS + i) * dim);
            for (int64_t v = 0; v < dim / LANES; v++) row[v] *= rescale[i];
        }
}

INLINE void attend_by_pairs(const Shape *s, const Layer *layer, const scalar *qkv, scalar *out, const int64_t *table,
                            int64_t position, int64_t tokens, int64_t kv_head, const int64_t dim) {
    BandMemory memory __attribute__((aligned(64))), *m = &memory;
    int64_t group = s->num_heads / s->num_kv_heads, rows = tokens * group, tiles = (rows + ROWS - 1) / ROWS;
    int64_t stride = (s->num_heads + 2 * s->num_kv_heads) * dim;
    int64_t first = layer->window && position >= layer->window ? position - layer->window + 1 : 0;
    float scale = 1.0f / sqrtf((float)dim);
    if (has_tiles) set_tiles((const uint8_t[]){16, 16, 16, 16, 16, 16, 16, 16});
    for (int64_t tile = 0; tile < tiles; tile++) {
        m->max[tile] = (vec)_mm512_set1_ps(FEWEST);
        m->total[tile] = (vec){0};
        for (int64_t i = 0; i < dim; i += 32) {
            __m512i words[ROWS] = {0};
            for (int64_t row = tile * ROWS; row < rows && row < (tile + 1) * ROWS; row++)
                words[row % ROWS] = _mm512_loadu_si512(
                    qkv + row / group * stride + (kv_head * group + row % group) * dim + i);
            transpose_words(words);
            memcpy(m->query[tile][i / 2], words, sizeof(words));
        }
    }
    memset(m->sum, 0, tiles * ROWS * dim * sizeof(float));
    for (int64_t begin = first / KEYS * KEYS; begin < position + tokens; begin += KEYS) {
        int64_t end = position + tokens, left = end - begin, next[KEYS];
        int64_t count = left < KEYS ? left : KEYS, later = left - count < KEYS ? left - count : KEYS;
        int sees_all = begin + KEYS <= position + 1 && (!layer->window || end - layer->window <= begin);
        places(next, s, table, begin + count, later, kv_head);
        load_keys(m, s, layer, table, begin, count, kv_head, dim);
        for (int64_t tile = 0; tile < tiles; tile++) {
            for (int64_t t = later * tile / tiles; t < later * (tile + 1) / tiles; t++) {
                fetch(layer->keys + next[t], dim);
                fetch(layer->values + next[t], dim);
            }
            int32_t from[ROWS], last[ROWS];
            for (int64_t i = 0; i < ROWS; i++) {
                last[i] = position - begin + (tile * ROWS + i) / group;
                from[i] = layer->window ? last[i] - layer->window + 1 : INT32_MIN;
            }
            score_keys(m, tile, dim);
            weigh_keys(m, tile, _mm512_loadu_si512(from), _mm512_loadu_si512(last), sees_all, scale, dim);
            add_values(m, tile, dim);
        }
    }
    if (has_tiles) release_tiles();
    for (int64_t row = 0; row < rows; row++) {
        const float *from = m->sum + row * dim, share = 1.0f / m->total[row / ROWS][row % ROWS];
        scalar *to = out + (row / group * s->num_heads + kv_head * group + row % group) * dim;
        for (int64_t i = 0; i < dim; i++) to[i] = store(from[i] * share);
    }
}
