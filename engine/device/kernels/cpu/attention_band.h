/* Attention of up to BAND rows of a chunk: consecutive tokens, with the query heads of one key head. All rows use a
   tile of keys that is transposed, so that one register holds one dimension of LANES keys. */

#define BAND 64 /* rows of a chunk that share a tile; a row is the query of a token and a head */
#define STRIP 4 /* vectors of a sum that are kept in registers */
#define MAX_VECS (MAX_DIM / LANES)

static inline void widen(vec *to, const scalar *from, int64_t dim) {
    int64_t whole = dim / LANES;
    for (int64_t i = 0; i < whole; i++) to[i] = load_vec(from + i * LANES);
    if (dim % LANES) {
        to[whole] = (vec){0};
        for (int64_t i = 0; i < dim % LANES; i++) to[whole][i] = load(from[whole * LANES + i]);
    }
}

INLINE void attend_band(const Shape *s, const Layer *layer, const scalar *qkv, scalar *out, const int64_t *table,
                        int64_t position, int64_t tokens, int64_t kv_head, const int64_t dim) {
    const int64_t vecs = (dim + LANES - 1) / LANES, keys = TILE / LANES;
    int64_t group = s->num_heads / s->num_kv_heads, rows = tokens * group;
    int64_t stride = (s->num_heads + 2 * s->num_kv_heads) * dim;
    int64_t first = layer->window && position >= layer->window ? position - layer->window + 1 : 0;
    vec query[BAND * MAX_VECS], sum[BAND * MAX_VECS], tile[TILE * MAX_VECS], turned[MAX_DIM * TILE / LANES];
    vec weight[BAND * TILE / LANES];
    float max[BAND], total[BAND], scale = 1.0f / sqrtf((float)dim);
    for (int64_t row = 0; row < rows; row++) {
        widen(query + row * vecs, qkv + row / group * stride + (kv_head * group + row % group) * dim, dim);
        max[row] = -INFINITY;
        total[row] = 0;
        for (int64_t i = 0; i < vecs; i++) {
            query[row * vecs + i] *= scale;
            sum[row * vecs + i] = (vec){0};
        }
    }
    for (int64_t begin = first / TILE * TILE; begin < position + tokens; begin += TILE) {
        int64_t count = position + tokens - begin < TILE ? position + tokens - begin : TILE;
        for (int64_t t = 0; t < count; t++)
            widen(tile + t * vecs, layer->keys + place(s, table, begin + t, kv_head), dim);
        for (int64_t i = 0; i < dim; i++)
            for (int64_t t = 0; t < TILE; t++)
                ((float *)turned)[i * TILE + t] = t < count ? ((const float *)tile)[t * vecs * LANES + i] : 0;
        for (int64_t row = 0; row < rows; row += STRIP) {
            vec dot[STRIP][TILE / LANES] = {0};
            const float *from = (const float *)(query + row * vecs);
            for (int64_t i = 0; i < dim; i++)
                for (int64_t r = 0; r < STRIP; r++)
                    for (int64_t k = 0; k < keys; k++)
                        dot[r][k] += from[r * vecs * LANES + i] * turned[i * keys + k];
            memcpy(weight + row * keys, dot, sizeof(dot));
        }
        for (int64_t t = 0; t < count; t++)
            widen(tile + t * vecs, layer->values + place(s, table, begin + t, kv_head), dim);
        for (int64_t row = 0; row < rows; row++) {
            float *w = (float *)(weight + row * keys), top = max[row], part = 0;
            int64_t last = position + row / group - begin; /* the last of the tile's keys that it sees */
            int64_t from = layer->window ? last - layer->window + 1 : 0;
            for (int64_t t = 0; t < TILE; t++) {
                w[t] = t <= last && t >= from && t < count ? w[t] : -INFINITY;
                top = w[t] > top ? w[t] : top;
            }
            if (top == -INFINITY) {
                memset(w, 0, TILE * sizeof(float));
                continue;
            }
            float rescale = exp_negative(max[row] - top);
            max[row] = top;
            for (int64_t t = 0; t < TILE; t++) {
                w[t] = exp_negative(w[t] - top);
                part += w[t];
            }
            total[row] = total[row] * rescale + part;
            for (int64_t i = 0; i < vecs; i++) sum[row * vecs + i] *= rescale;
        }
        for (int64_t row = 0; row < rows; row += STRIP)
            for (int64_t i = 0; i < vecs; i += STRIP) {
                int64_t end = vecs - i < STRIP ? vecs - i : STRIP;
                vec part[STRIP][STRIP];
                const float *w = (const float *)(weight + row * keys);
                for (int64_t r = 0; r < STRIP; r++)
                    for (int64_t k = 0; k < end; k++) part[r][k] = sum[(row + r) * vecs + i + k];
                for (int64_t t = 0; t < count; t++)
                    for (int64_t r = 0; r < STRIP; r++)
                        for (int64_t k = 0; k < end; k++)
                            part[r][k] += w[r * TILE + t] * tile[t * vecs + i + k];
                for (int64_t r = 0; r < STRIP; r++)
                    for (int64_t k = 0; k < end; k++) sum[(row + r) * vecs + i + k] = part[r][k];
            }
    }
    for (int64_t row = 0; row < rows; row++) {
        const float *from = (const float *)(sum + row * vecs), share = 1.0f / total[row];
        scalar *to = out + (row / group * s->num_heads + kv_head * group + row % group) * dim;
        for (int64_t i = 0; i < dim; i++) to[i] = store(from[i] * share);
    }
}
