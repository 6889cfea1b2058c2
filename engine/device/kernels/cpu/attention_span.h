/* Attention of a span: consecutive tokens of a sequence, with the query heads of one key head. A row is the query of a
   token and a head.

   A row weighs keys a tile at a time, and rescales its sums when a greater score comes (Milakov and Gimelshein, 2018). A
   tile begins at a multiple of PANEL, whatever the span. Scores, and the sums of weighed values, are products of rows and
   panels, which add in one order. All else is computed for one row after the other, by the same instructions. So a
   row's result depends neither on the other rows nor on how a text is cut into spans. */

#define BAND 128      /* rows of a span at most, and so the rows of a chunk that share a tile */
#define FEWEST -1e30f /* below every score */
#if AMX
#define STRIP 32 /* rows that are multiplied at a time, at most */
#else
#define STRIP ROWS
#endif

typedef struct {
    const scalar *qkv; /* of the first token */
    scalar *out;
    const int64_t *table;
    int64_t position, tokens, kv_head;
} Span;

typedef struct {
    TilePanels panels;
    input query[BAND * MAX_STEPS]; /* [rows, steps] */
    Sums sum[BAND * MAX_PANELS];   /* [rows, panels of dim] */
    vec total[BAND]; /* its lanes are not added yet */
    float max[BAND];
    /* Of a strip of rows: */
    Sums score[STRIP], part[STRIP];
    input weight[STRIP * KEY_STEPS];
    float rescale[STRIP];
    int64_t shaped; /* rows that the tiles of AMX are shaped for, or 0 */
} SpanMemory;

INLINE void multiply(Sums *to, const input *x, int64_t stride, const vec (*panel)[VECS], int64_t steps,
                     const int rows) {
    vec sums[ROWS][VECS] = {0};
    for (int64_t k = 0; k < steps; k++) {
        weights w[VECS];
        for (int v = 0; v < VECS; v++) w[v] = (weights)panel[k][v];
        add_step(sums, w, x + k, stride, rows);
    }
    store_sums(to, sums, rows);
}

#define MULTIPLY(rows) \
    case rows: return multiply(to, x, stride, panel, steps, rows);

/* Rows, `stride` inputs apart, times a panel. With AMX, `steps` is `stride`. */
static void multiply_strip(Sums *to, const input *x, int64_t stride, const vec (*panel)[VECS], int64_t steps,
                           int64_t rows, int64_t *shaped) {
#if AMX
    if (has_tiles) {
        before_tiles();
        multiply_tiles(*to, x, steps, (const char *)panel, (const char *)panel, 0, rows, shaped);
        return;
    }
#endif
    switch (rows) { EACH_ROWS(MULTIPLY) }
}

/* The lanes of `x` that belong to the keys from `from` to before `end`, and those of `other` in the place of all others.
   `x` has the keys from `first` on. */
static inline vec of_seen(vec x, vec other, int64_t first, int64_t from, int64_t end) {
#if defined __AVX512F__
    uint64_t seen = (end < 64 ? (1ULL << end) - 1 : ~0ULL) & (from < 64 ? ~0ULL << from : 0);
    return (vec)_mm512_mask_mov_ps((__m512)other, (__mmask16)(seen >> first), (__m512)x);
#else
    ints key;
    for (int i = 0; i < LANES; i++) key[i] = (int32_t)first + i;
    ints seen = (key >= (int32_t)from) & (key < (int32_t)end);
    return (vec)((seen & (ints)x) | (~seen & (ints)other));
#endif
}

/* Turns the scores of a row, which sees the keys from `from` to before `end`, into weights. Returns the factor by which
   its sums so far are rescaled. */
static __attribute__((noinline)) float weigh_keys(input *weight, const float *score, float *max, vec *total,
                                                  int64_t from, int64_t end, float scale) {
    vec x[VECS];
    for (int v = 0; v < VECS; v++)
        x[v] = of_seen(*(const floats *)(score + v * LANES), (vec){0} - INFINITY, v * LANES, from, end);
    float greatest = greatest_of(greater_of(greater_of(x[0], x[1]), greater_of(x[2], x[3]))) * scale, rescale;
    greatest = greatest > *max ? greatest : *max;
    rescale = exp_negative(*max - greatest);
    *max = greatest;
    for (int v = 0; v < VECS; v++)
        x[v] = of_seen(exp_vec(fused(x[v], (vec){0} + scale, (vec){0} - greatest)), (vec){0}, v * LANES, from, end);
    *total = fused(*total, (vec){0} + rescale, (x[0] + x[1]) + (x[2] + x[3]));
#if PAIR == 2
    for (int v = 0; v < VECS; v += 2)
        _mm512_storeu_si512(weight + v * LANES / 2, (__m512i)_mm512_cvtne2ps_pbh((__m512)x[v + 1], (__m512)x[v]));
#else
    for (int v = 0; v < VECS; v++) *(floats *)(weight + v * LANES) = x[v];
#endif
    return rescale;
}

static inline int is_any(ints x) {
#if defined __AVX512F__
    return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
#elif defined __AVX__
    return !_mm256_testz_si256((__m256i)x, (__m256i)x);
#else
    int32_t any = 0;
    for (int i = 0; i < LANES; i++) any |= x[i];
    return any != 0;
#endif
}

/* Whether some sums of a row are not numbers. */
static inline int is_broken(const float *sums) {
    ints broken = {0};
    for (int v = 0; v < VECS; v++) {
        vec x = *(const floats *)(sums + v * LANES);
        broken |= x != x;
    }
    return is_any(broken);
}

/* As `multiply_strip`, for one row that must not read the values of keys that it does not see: a weight of zero times a
   value that is no number is no number. */
static __attribute__((noinline)) void multiply_seen(Sums *to, const input *weight, const Tile *tile, int64_t steps,
                                                    int64_t p, int64_t from, int64_t end, int64_t dim,
                                                    int64_t *shaped) {
    vec seen[KEY_STEPS][VECS] = {0};
    for (int64_t k = 0; k < steps; k++)
        for (int64_t v = 0, i = p * PANEL; v < VECS && i < dim; v += PAIR, i += PIECE) {
            read_values(seen[k] + v, tile, k, i, dim);
            for (int64_t j = 0; j < PAIR; j++) {
                int64_t t = k * PAIR + j;
                int32_t is_seen = t >= from && t < end ? -1 : 0;
                if (PAIR == 1) seen[k][v] = (vec)((ints)seen[k][v] & is_seen);
                else for (int w = 0; w < PAIR; w++)
                    seen[k][v + w] = (vec)((ints)seen[k][v + w] & (is_seen | (int32_t)(0xffffu << 16 * !j)));
            }
        }
    multiply_strip(to, weight, KEY_STEPS, (const vec(*)[VECS])seen, steps, 1, shaped);
}

#define MULTIPLY_KEYS(rows) \
    case rows: multiply_keys(m->score, query, stride, tile, ahead, dim, rows); break;
#define MULTIPLY_VALUES(rows) \
    case rows: multiply_values(m->part, m->weight, tile, steps, ahead, p * PANEL, dim, rows); break;

static inline int64_t within(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }

/* Adds a tile to the sums of `rows` rows, which begin with row `row` of the span. `last` is the last key, counted from
   the tile's first, that the span's first token sees. If the rows are all of the span, `is_only`, they read the tile in
   the cache, and else its panels. */
static void attend_strip(SpanMemory *m, const Tile *tile, const Tile *ahead, int is_only, int64_t row, int64_t rows,
                         int64_t group, int64_t last, int64_t window, int64_t steps, float scale, int64_t dim) {
    const int64_t stride = steps_of(dim), panels = panels_of(dim);
    const input *query = m->query + row * stride;
    int sees_all = 1;
    int64_t from[STRIP], end[STRIP];
    if (is_only) switch (rows) { EACH_ROWS(MULTIPLY_KEYS) }
    else multiply_strip(m->score, query, stride, (const vec(*)[VECS])m->panels.keys, stride, rows, &m->shaped);
    for (int64_t r = 0; r < rows; r++) {
        int64_t seen = last + (row + r) / group + 1; /* keys of the tile, or fewer than none */
        from[r] = within(window ? seen - window : 0, tile->count);
        end[r] = within(seen, tile->count);
        sees_all &= !from[r] && end[r] == tile->count;
        m->rescale[r] = weigh_keys(m->weight + r * KEY_STEPS, m->score[r], m->max + row + r, m->total + row + r,
                                   from[r], end[r], scale);
    }
    for (int64_t p = 0; p < panels; p++) {
        if (is_only) switch (rows) { EACH_ROWS(MULTIPLY_VALUES) }
        else multiply_strip(m->part, m->weight, KEY_STEPS, (const vec(*)[VECS])m->panels.values[p], steps, rows,
                            &m->shaped);
        for (int64_t r = 0; r < rows; r++) {
            float *sum = m->sum[(row + r) * panels + p];
            if (!sees_all && is_broken(m->part[r]))
                multiply_seen(m->part + r, m->weight + r * KEY_STEPS, tile, steps, p, from[r], end[r], dim, &m->shaped);
            for (int v = 0; v < VECS; v++) {
                floats *to = (floats *)(sum + v * LANES);
                *to = (floats)fused((vec)*to, (vec){0} + m->rescale[r], *(const floats *)(m->part[r] + v * LANES));
            }
        }
    }
}

/* The first position of the first tile that a span reads. */
static inline int64_t beginning(const Layer *layer, const Span *span) {
    int64_t unseen = layer->window ? span->position - layer->window + 1 : 0;
    return unseen > 0 ? unseen / PANEL * PANEL : 0;
}

/* Finds the tile that begins at position `begin`. */
static inline void find_tile(Tile *tile, const Shape *s, const Layer *layer, const Span *span, int64_t begin) {
    int64_t offset[PANEL], left = span->position + span->tokens - begin;
    tile->count = left < PANEL ? left : PANEL;
    places(offset, s, span->table, begin, tile->count, span->kv_head);
    for (int64_t t = 0; t < PANEL; t++) {
        int64_t at = offset[t < tile->count ? t : tile->count - 1];
        tile->key[t] = layer->keys + at;
        tile->value[t] = layer->values + at;
    }
}

/* Attention of a span, for the query heads of its key head. It begins to load what the span `next`, or NULL, reads. */
static void attend_span(const Shape *s, const Layer *layer, const Span *span, const Span *next) {
    SpanMemory memory __attribute__((aligned(64))), *m = &memory;
    const int64_t dim = s->head_dim, steps = steps_of(dim), panels = panels_of(dim);
    const int64_t group = s->num_heads / s->num_kv_heads, rows = span->tokens * group;
    const int64_t stride = (s->num_heads + 2 * s->num_kv_heads) * dim, end = span->position + span->tokens;
    const int64_t most = has_tiles ? STRIP : ROWS, strips = (rows + most - 1) / most;
    const int is_only = strips == 1 && !has_tiles;
    float scale = 1.0f / sqrtf((float)dim);
    m->shaped = 0;
    for (int64_t row = 0; row < rows; row++) {
        const scalar *query = span->qkv + row / group * stride + (span->kv_head * group + row % group) * dim;
        for (int64_t i = 0; i < dim; i += PIECE)
            *(floats *)(m->query + row * steps + i / PAIR) = (floats)load_steps(query + i, dim - i);
        m->max[row] = FEWEST;
        m->total[row] = (vec){0};
    }
    memset(m->sum, 0, rows * panels * sizeof(Sums));
    if (dim % PANEL) memset(m->panels.values[panels - 1], 0, sizeof(m->panels.values[0]));
    Tile tiles[2];
    find_tile(tiles, s, layer, span, beginning(layer, span));
    for (int64_t begin = beginning(layer, span), i = 0; begin < end; begin += PANEL, i = !i) {
        const Tile *tile = tiles + i;
        Tile *ahead = tiles + !i;
        int64_t key_steps = has_tiles ? KEY_STEPS : (tile->count + PAIR - 1) / PAIR;
        if (begin + PANEL < end) find_tile(ahead, s, layer, span, begin + PANEL);
        else if (next) find_tile(ahead, s, layer, next, beginning(layer, next));
        else ahead = NULL;
        if (!is_only) {
            load_keys(&m->panels, tile, ahead, dim);
            load_values(&m->panels, tile, key_steps, ahead, dim);
        }
        for (int64_t t = 0; t < strips; t++) {
            int64_t row = rows * t / strips, strip = rows * (t + 1) / strips - row;
            attend_strip(m, tile, ahead, is_only, row, strip, group, span->position - begin, layer->window, key_steps,
                         scale, dim);
        }
    }
    if (m->shaped) release_tiles();
    for (int64_t row = 0; row < rows; row++) {
        const float *from = m->sum[row * panels], share = 1.0f / total_of(m->total[row]);
        scalar *to = span->out + (row / group * s->num_heads + span->kv_head * group + row % group) * dim;
        for (int64_t i = 0; i < dim; i++) to[i] = store(from[i] * share);
    }
}
