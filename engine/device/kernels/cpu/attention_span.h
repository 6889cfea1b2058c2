/* Attention of single tokens, and of the tokens of a short span. Those of a span read each tile of keys one after the
   other, while it is in the first cache. A token's result does not depend on the other tokens.

   A token weighs keys tile by tile, and rescales its sums when a greater score comes (Milakov and Gimelshein, 2018).
   There is a function for each usual `dim` and number of rows: its loops then have constant lengths, and what it
   computes stays in registers. A row is the query of a token and a head. */

#define SPAN 8  /* tokens that share a tile of keys */
#define HEADS 4 /* rows of a token that are computed together */

/* Elements are read in pieces, which are wider than registers of float: a piece in float has PARTS vectors. */
#ifdef SCALAR_BF16
#define PARTS 2
typedef uint32_t loose_words __attribute__((vector_size(4 * LANES), aligned(2), may_alias));
/* The even elements come first. */
static inline void widen_piece(vec *to, const scalar *from) {
    words pairs = *(const loose_words *)from;
    to[0] = (vec)(pairs << 16);
    to[1] = (vec)(pairs & 0xffff0000);
}
#else
#define PARTS 1
static inline void widen_piece(vec *to, const scalar *from) { to[0] = load_vec(from); }
#endif
#define PIECE (PARTS * LANES)
#define MAX_PIECES (MAX_DIM / PIECE)
#define PIECES(dim) (((dim) + PIECE - 1) / PIECE)

#if PAIRS
typedef __m512bh piece;
static inline piece load_piece(const scalar *from) { return (piece)_mm512_loadu_si512(from); }
static inline vec add_products(vec sum, piece x, piece y) { return (vec)_mm512_dpbf16_ps((__m512)sum, x, y); }
#else
typedef struct { vec part[PARTS]; } piece;
static inline piece load_piece(const scalar *from) {
    piece x;
    widen_piece(x.part, from);
    return x;
}
static inline vec add_products(vec sum, piece x, piece y) {
    for (int i = 0; i < PARTS; i++) sum += x.part[i] * y.part[i];
    return sum;
}
#endif

typedef struct {
    piece query[SPAN * MAX_GROUP * MAX_PIECES];     /* [rows, pieces] */
    vec sum[SPAN * MAX_GROUP * MAX_PIECES * PARTS]; /* [rows, pieces, PARTS] */
    vec total[SPAN * MAX_GROUP];                    /* its lanes are not added yet */
    float max[SPAN * MAX_GROUP];
} SpanMemory;

typedef struct {
    const scalar *key[TILE], *value[TILE];
    const scalar *next_key[TILE], *next_value[TILE]; /* of the tile that is read next */
    int is_fetched;                                  /* whether these are on their way */
} Tile;

/* The piece of `dim` elements that begins with element `i`. Its elements beyond `dim` are zeros in `some`. */
INLINE const scalar *piece_at(scalar *some, const scalar *from, int64_t i, const int64_t dim) {
    if (dim - i >= PIECE) return from + i;
    memset(some, 0, PIECE * sizeof(scalar));
    return memcpy(some, from + i, (dim - i) * sizeof(scalar));
}

/* Scores of `rows` queries with a tile of keys, before they are scaled. */
INLINE void score_tile(float (*score)[TILE], const piece *query, const Tile *tile, int fetches, const int64_t dim,
                       const int rows) {
    const int pieces = PIECES(dim), keys = LANES / rows;
    for (int t = 0; t < TILE; t += keys) {
        vec dot[LANES], total;
#pragma GCC unroll 16
        for (int k = 0; k < keys; k++) {
            if (fetches) fetch(tile->next_key[t + k], dim);
            for (int r = 0; r < rows; r++) dot[r * keys + k] = (vec){0};
#pragma GCC unroll 16
            for (int i = 0; i < pieces; i++) {
                scalar some[PIECE];
                piece key = load_piece(piece_at(some, tile->key[t + k], i * PIECE, dim));
                for (int r = 0; r < rows; r++)
                    dot[r * keys + k] = add_products(dot[r * keys + k], query[r * pieces + i], key);
            }
        }
        total = totals_of(dot);
        for (int r = 0; r < rows; r++)
            memcpy(score[r] + t, (const float *)&total + r * keys, keys * sizeof(float));
    }
}

/* Turns the scores of a row, which sees the keys from `from` to before `end`, into weights. Returns the factor by which
   its sums so far are rescaled. */
static inline float weigh_tile(float *score, float *max, vec *total, int from, int end, float scale) {
    vec top = (vec){0} + *max, part = {0};
    for (int t = 0; t < from; t++) score[t] = -INFINITY;
    for (int t = end; t < TILE; t++) score[t] = -INFINITY;
    for (int t = 0; t < TILE; t += LANES) {
        vec x = *(const floats *)(score + t) * scale;
        top = greater_of(x, top);
        *(floats *)(score + t) = x;
    }
    float greatest = greatest_of(top), rescale = exp_negative(*max - greatest);
    for (int t = 0; t < TILE; t += LANES) {
        vec weight = exp_vec(*(const floats *)(score + t) - greatest);
        *(floats *)(score + t) = weight;
        part += weight;
    }
    *max = greatest;
    *total = *total * rescale + part;
    return rescale;
}

/* Adds the values from `from` to before `end`, times their weights, to the sums of `rows` rows. */
INLINE void add_tile(vec *sum, float (*weight)[TILE], const float *rescale, const Tile *tile, int from, int end,
                     const int64_t dim, const int rows) {
    const int pieces = PIECES(dim), strip = 16 / PARTS / rows; /* so many pieces of each row stay in registers */
    for (int i = 0; i < pieces; i += strip) {
        const int vecs = (pieces - i < strip ? pieces - i : strip) * PARTS;
        vec part[HEADS][16];
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vecs; v++) part[r][v] = sum[(r * pieces + i) * PARTS + v] * rescale[r];
        for (int t = from; t < end; t++) {
            vec value[16];
            scalar some[PIECE];
            if (!i && !tile->is_fetched) fetch(tile->next_value[t], dim);
            for (int v = 0; v < vecs; v += PARTS)
                widen_piece(value + v, piece_at(some, tile->value[t], i * PIECE + v * LANES, dim));
            for (int r = 0; r < rows; r++)
                for (int v = 0; v < vecs; v++) part[r][v] += weight[r][t] * value[v];
        }
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vecs; v++) sum[(r * pieces + i) * PARTS + v] = part[r][v];
    }
}

INLINE void attend_tile(SpanMemory *m, int64_t row, Tile *tile, int from, int end, float scale, const int64_t dim,
                        const int rows) {
    const int pieces = PIECES(dim);
    float weight[HEADS][TILE] __attribute__((aligned(64))), rescale[HEADS];
    for (int r = 0; r < rows; r += 2) {
        int fetches = !r && !tile->is_fetched;
        if (rows - r == 1) score_tile(weight + r, m->query + (row + r) * pieces, tile, fetches, dim, 1);
        else score_tile(weight + r, m->query + (row + r) * pieces, tile, fetches, dim, 2);
    }
    for (int r = 0; r < rows; r++)
        rescale[r] = weigh_tile(weight[r], m->max + row + r, m->total + row + r, from, end, scale);
    add_tile(m->sum + row * pieces * PARTS, weight, rescale, tile, from, end, dim, rows);
    tile->is_fetched = 1;
}

typedef void AttendTile(SpanMemory *m, int64_t row, Tile *tile, int from, int end, float scale, int64_t dim);

/* They are not inlined: a compiler takes three times as long for one function of all of them. */
#define FOR_ROWS(name, length, rows) \
    static __attribute__((noinline)) void attend_tile_##name##_##rows(SpanMemory *m, int64_t row, Tile *tile, \
                                                                      int from, int end, float scale, int64_t dim) { \
        attend_tile(m, row, tile, from, end, scale, length, rows); \
    }
#define FOR_DIM(name, length) \
    FOR_ROWS(name, length, 1) FOR_ROWS(name, length, 2) FOR_ROWS(name, length, 3) FOR_ROWS(name, length, 4) \
    static AttendTile *const attend_tile_##name[HEADS] = {attend_tile_##name##_1, attend_tile_##name##_2, \
                                                          attend_tile_##name##_3, attend_tile_##name##_4};
FOR_DIM(64, 64)
FOR_DIM(128, 128)
FOR_DIM(any, dim)

/* Consecutive tokens of a sequence, at most SPAN, and a key head. */
typedef struct {
    const scalar *qkv; /* of the first token */
    scalar *out;
    const int64_t *table;
    int64_t position, tokens, kv_head;
} Span;

/* The first position of the first tile that a span reads. */
static inline int64_t beginning(const Layer *layer, const Span *span) {
    int64_t unseen = layer->window ? span->position - layer->window + 1 : 0;
    return unseen > 0 ? unseen / TILE * TILE : 0;
}

/* Finds a span's keys and values from position `begin` on. It names the last one in the place of those that do not
   exist. */
static inline void find_keys(const scalar **key, const scalar **value, const Shape *s, const Layer *layer,
                             const Span *span, int64_t begin) {
    int64_t offset[TILE], left = span->position + span->tokens - begin, count = left < TILE ? left : TILE;
    places(offset, s, span->table, begin, count, span->kv_head);
    for (int64_t t = 0; t < TILE; t++) {
        int64_t at = offset[t < count ? t : count - 1];
        key[t] = layer->keys + at;
        value[t] = layer->values + at;
    }
}

INLINE void attend_rows(const Shape *s, const Layer *layer, const Span *span, const Span *next, const int64_t dim,
                        AttendTile *const *of_rows) {
    SpanMemory memory, *m = &memory;
    const int64_t pieces = PIECES(dim), group = s->num_heads / s->num_kv_heads, rows = span->tokens * group;
    const int64_t stride = (s->num_heads + 2 * s->num_kv_heads) * dim;
    int64_t end_of_span = span->position + span->tokens;
    float scale = 1.0f / sqrtf((float)dim);
    for (int64_t row = 0; row < rows; row++) {
        const scalar *query = span->qkv + row / group * stride + (span->kv_head * group + row % group) * dim;
        scalar some[PIECE];
        for (int64_t i = 0; i < pieces; i++)
            m->query[row * pieces + i] = load_piece(piece_at(some, query, i * PIECE, dim));
        m->max[row] = -INFINITY;
        m->total[row] = (vec){0};
        for (int64_t v = 0; v < pieces * PARTS; v++) m->sum[row * pieces * PARTS + v] = (vec){0};
    }
    Tile tile;
    for (int64_t begin = beginning(layer, span); begin < end_of_span; begin += TILE) {
        find_keys(tile.key, tile.value, s, layer, span, begin);
        if (begin + TILE < end_of_span) find_keys(tile.next_key, tile.next_value, s, layer, span, begin + TILE);
        else if (next) find_keys(tile.next_key, tile.next_value, s, layer, next, beginning(layer, next));
        tile.is_fetched = begin + TILE >= end_of_span && !next;
        for (int64_t i = 0; i < span->tokens; i++) {
            int64_t end = span->position + i + 1 - begin, from = layer->window ? end - layer->window : 0;
            from = from > 0 ? from : 0;
            end = end < TILE ? end : TILE;
            for (int64_t head = 0; from < end && head < group; head += HEADS) {
                int64_t heads = group - head < HEADS ? group - head : HEADS;
                of_rows[heads - 1](m, i * group + head, &tile, from, end, scale, dim);
            }
        }
    }
    for (int64_t row = 0; row < rows; row++) {
        const float *from = (const float *)(m->sum + row * pieces * PARTS), share = 1.0f / total_of(m->total[row]);
        scalar *to = span->out + (row / group * s->num_heads + span->kv_head * group + row % group) * dim;
        for (int64_t i = 0; i < dim; i++)
            to[i] = store(from[i / PIECE * PIECE + i % PARTS * LANES + i % PIECE / PARTS] * share);
    }
}

/* Attention of a span, for the query heads of its key head. It begins to load what the span `next`, or NULL, reads. */
static void attend_span(const Shape *s, const Layer *layer, const Span *span, const Span *next) {
    switch (s->head_dim) {
    case 64: attend_rows(s, layer, span, next, 64, attend_tile_64); break;
    case 128: attend_rows(s, layer, span, next, 128, attend_tile_128); break;
    default: attend_rows(s, layer, span, next, s->head_dim, attend_tile_any);
    }
}

/* Whether a single token comes right after the one before it in the flat row, in the same sequence. */
static inline int follows(const Shape *s, const Step *step, int64_t i) {
    const int64_t *table = step->block_tables + i * step->table_width;
    return step->positions[i] == step->positions[i - 1] + 1 &&
           !memcmp(table, table - step->table_width, (step->positions[i] / s->block_size + 1) * sizeof(*table));
}

/* Cuts a step's single tokens into spans of at most `most` tokens. `begins` gets the first token of each span, and the
   end of the last one. Returns the number of spans. */
static int64_t cut_into_spans(int64_t *begins, const Shape *s, const Step *step, int64_t most) {
    int64_t count = 0;
    for (int64_t i = 0; i < step->num_singles; i++)
        if (!i || i - begins[count - 1] == most || !follows(s, step, i)) begins[count++] = i;
    begins[count] = step->num_singles;
    return count;
}
