/* A decoder's operators on a CPU, except matrix multiplications.

   protocol.py says what each computes. Sums are kept in float. The compiler vectorises the loops over elements. Threads
   share loops over rows if they are long (pool.c). */

#include <omp.h>
#include "operators.h"
#include "pool.h"

#define MAX_DIM 256   /* elements of a head */
#define MAX_GROUP 16  /* query heads that share a key head */
#define TILE 32       /* keys that are weighed together */
#define STRIP 4       /* vectors of a sum that are kept in registers */
#define BAND 64       /* rows of a chunk that share a tile; a row is the query of a token and a head */
#define MAX_VECS (MAX_DIM / LANES)
#if defined SCALAR_BF16 && defined __AVX512BF16__ && defined __AVX512BW__
#define PAIRS 1 /* one instruction multiplies pairs of bfloat16 */
#else
#define PAIRS 0
#endif

static inline float total_of(vec x) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

/* One vector with the totals of LANES vectors. */
static inline vec totals_of(const vec *x) {
    vec y;
#ifdef __AVX512F__
    __m512 pair[8], quad[4], half[2];
    for (int i = 0; i < 8; i++) {
        __m512 a = (__m512)x[2 * i], b = (__m512)x[2 * i + 1];
        pair[i] = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    }
    for (int i = 0; i < 4; i++) {
        __m512d a = (__m512d)pair[2 * i], b = (__m512d)pair[2 * i + 1];
        quad[i] = _mm512_add_ps((__m512)_mm512_unpacklo_pd(a, b), (__m512)_mm512_unpackhi_pd(a, b));
    }
    for (int i = 0; i < 2; i++) {
        __m512 a = quad[2 * i], b = quad[2 * i + 1];
        half[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    }
    y = (vec)_mm512_add_ps(_mm512_shuffle_f32x4(half[0], half[1], 0x88),
                           _mm512_shuffle_f32x4(half[0], half[1], 0xdd));
#else
    for (int i = 0; i < LANES; i++) y[i] = total_of(x[i]);
#endif
    return y;
}

/* exp(x) for x <= 0, to 2 units in the last place: 2^n * 2^f, with a polynomial for the fraction f. */
static inline float exp_negative(float x) {
    float y = (x > -87.0f ? x : -87.0f) * 1.44269504f;
    float n = nearbyintf(y), f = y - n;
    float p = 1.53533619e-4f;
    p = p * f + 1.33988744e-3f;
    p = p * f + 9.61843736e-3f;
    p = p * f + 5.55033125e-2f;
    p = p * f + 2.40226479e-1f;
    p = p * f + 6.93147182e-1f;
    p = p * f + 1.0f;
    union { int32_t bits; float value; } u = {((int32_t)n + 127) << 23};
    return p * u.value;
}

/* `exp_negative` of each lane. */
static inline vec exp_vec(vec x) {
    ints is_less = x < -87.0f;
    vec y = (vec)((is_less & (ints)((vec){0} - 87.0f)) | (~is_less & (ints)x)) * 1.44269504f;
    ints n = __builtin_convertvector(y - 0.5f, ints);
    vec f = y - __builtin_convertvector(n, vec);
    vec p = 1.53533619e-4f * f + 1.33988744e-3f;
    p = p * f + 9.61843736e-3f;
    p = p * f + 5.55033125e-2f;
    p = p * f + 2.40226479e-1f;
    p = p * f + 6.93147182e-1f;
    p = p * f + 1.0f;
    return p * (vec)((n + 127) << 23);
}

/* As a scalar holds it. */
static inline vec rounded(vec x) {
    scalar y[LANES];
    store_vec(y, x);
    return load_vec(y);
}

/* `out` may be `x`. The compiler would not vectorise it then. */
static void norm_row(scalar *out, const scalar *x, const scalar *weight, int64_t dim, float eps) {
    int64_t whole = dim / LANES * LANES;
    vec squares = {0};
    for (int64_t i = 0; i < whole; i += LANES) squares += load_vec(x + i) * load_vec(x + i);
    float sum = total_of(squares);
    for (int64_t i = whole; i < dim; i++) sum += load(x[i]) * load(x[i]);
    float scale = 1.0f / sqrtf(sum / dim + eps);
    for (int64_t i = 0; i < whole; i += LANES)
        store_vec(out + i, rounded(load_vec(x + i) * scale) * load_vec(weight + i));
    for (int64_t i = whole; i < dim; i++) out[i] = store(load(store(load(x[i]) * scale)) * load(weight[i]));
}

typedef struct {
    scalar *out;
    const scalar *x, *weight;
    int64_t dim;
    float eps;
} Rows;

static void norm_rows(const void *loop, int64_t first, int64_t end) {
    const Rows *r = loop;
    for (int64_t row = first; row < end; row++)
        norm_row(r->out + row * r->dim, r->x + row * r->dim, r->weight, r->dim, r->eps);
}

void rms_norm(scalar *out, const scalar *x, const scalar *weight, int64_t rows, int64_t dim, float eps) {
    run_loop(norm_rows, &(Rows){out, x, weight, dim, eps}, rows, rows * dim > WORTH_THREADS);
}

static void silu_and_mul_rows(const void *loop, int64_t first, int64_t end) {
    const Rows *r = loop;
    const int64_t dim = r->dim;
    for (int64_t row = first; row < end; row++) {
        const scalar *gate = r->x + 2 * row * dim, *up = gate + dim;
        scalar *to = r->out + row * dim;
        for (int64_t i = 0; i < dim; i++) {
            float x = load(gate[i]), e = exp_negative(-fabsf(x));
            float silu = x * (x < 0 ? e : 1.0f) / (1.0f + e);
            to[i] = store(load(store(silu)) * load(up[i]));
        }
    }
}

void silu_and_mul(scalar *out, const scalar *gate_up, int64_t rows, int64_t dim) {
    run_loop(silu_and_mul_rows, &(Rows){out, gate_up, .dim = dim}, rows, rows * dim > WORTH_THREADS);
}

typedef struct {
    float *scores;
    const int64_t *slots;
    const scalar *x;
    const float *weight, *bias;
    int64_t dim, columns;
} Scores;

static void score_rows(const void *loop, int64_t first, int64_t end) {
    const Scores *s = loop;
    for (int64_t row = first; row < end; row++) {
        float *to = s->scores + s->slots[row] * s->columns;
        for (int64_t c = 0; c < s->columns; c++) {
            float sum = s->bias ? s->bias[c] : to[c];
            for (int64_t i = 0; i < s->dim; i++) sum += load(s->x[row * s->dim + i]) * s->weight[c * s->dim + i];
            to[c] = sum;
        }
    }
}

/* Scores of probes: for each row of `x` [rows, dim], its products with the rows of `weight` [columns, dim]. They begin
   with the bias, or with the scores of the row's slot if there is none, and go to this place. */
void score(float *scores, const int64_t *slots, const scalar *x, const float *weight, const float *bias, int64_t rows,
           int64_t dim, int64_t columns) {
    run_loop(score_rows, &(Scores){scores, slots, x, weight, bias, dim, columns}, rows,
             rows * dim * columns > WORTH_THREADS);
}

static void rotate(scalar *x, const float *rope, int64_t dim) {
    int64_t half = dim / 2, whole = half / LANES * LANES;
    for (int64_t i = 0; i < whole; i += LANES) {
        vec a = load_vec(x + i), b = load_vec(x + i + half);
        vec c = *(const floats *)(rope + i), s = *(const floats *)(rope + i + half);
        store_vec(x + i, a * c - b * s);
        store_vec(x + i + half, b * c + a * s);
    }
    for (int64_t i = whole; i < half; i++) {
        float a = load(x[i]), b = load(x[i + half]), c = rope[i], s = rope[i + half];
        x[i] = store(a * c - b * s);
        x[i + half] = store(b * c + a * s);
    }
}

/* The index where a head's part of a token's keys begins. */
static inline int64_t place(const Shape *s, const int64_t *table, int64_t position, int64_t kv_head) {
    int64_t block = table[position / s->block_size] * s->num_kv_heads + kv_head;
    return (block * s->block_size + position % s->block_size) * s->head_dim;
}

/* `place` for `count` consecutive positions. Positions of one block lie one after the other. */
static inline void places(int64_t *to, const Shape *s, const int64_t *table, int64_t position, int64_t count,
                          int64_t kv_head) {
    int64_t left = 0;
    for (int64_t t = 0; t < count; t++, left--) {
        if (!left) left = s->block_size - (position + t) % s->block_size;
        to[t] = t && left < s->block_size ? to[t - 1] + s->head_dim : place(s, table, position + t, kv_head);
    }
}

/* Begin to load `dim` elements into the cache: they are read soon. */
static inline void fetch(const scalar *from, int64_t dim) {
    for (int64_t i = 0; i < dim * (int64_t)sizeof(scalar); i += 64) __builtin_prefetch((const char *)from + i, 0, 2);
}

static void prepare_token(const Shape *s, const Layer *layer, scalar *qkv, int64_t position, int64_t slot) {
    int64_t dim = s->head_dim, width = s->num_kv_heads * dim, block = slot / s->block_size;
    scalar *key = qkv + s->num_heads * dim, *value = key + width;
    for (scalar *head = qkv; head < value; head += dim) {
        const scalar *norm = head < key ? layer->q_norm : layer->k_norm;
        if (norm) norm_row(head, head, norm, dim, s->eps);
        rotate(head, s->rope + position * dim, dim);
    }
    for (int64_t h = 0; h < s->num_kv_heads; h++) {
        int64_t to = place(s, &block, slot % s->block_size, h);
        memcpy(layer->keys + to, key + h * dim, dim * sizeof(scalar));
        memcpy(layer->values + to, value + h * dim, dim * sizeof(scalar));
    }
}

static inline void widen(vec *to, const scalar *from, int64_t dim) {
    int64_t whole = dim / LANES;
    for (int64_t i = 0; i < whole; i++) to[i] = load_vec(from + i * LANES);
    if (dim % LANES) {
        to[whole] = (vec){0};
        for (int64_t i = 0; i < dim % LANES; i++) to[whole][i] = load(from[whole * LANES + i]);
    }
}

#include "attention_span.h"

/* Attention of up to BAND rows of a chunk: consecutive tokens, with the query heads of one key head. All rows use a
   tile of keys that is transposed, so that one register holds one dimension of LANES keys. */
static inline __attribute__((always_inline)) void attend_band(const Shape *s, const Layer *layer,
                                                              const scalar *qkv, scalar *out,
                                                              const int64_t *table, int64_t position,
                                                              int64_t tokens, int64_t kv_head, const int64_t dim) {
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

#if PAIRS
#include "amx.h"
#include "attention_pairs.h"
#else
#define PAIRED_BAND BAND
#define attend_by_pairs attend_band
#endif

#define ATTEND_BAND(dim)                                                                                    \
    if (PAIRS && dim % 32 == 0) attend_by_pairs(s, layer, qkv, out, table, position, tokens, kv_head, dim); \
    else attend_band(s, layer, qkv, out, table, position, tokens, kv_head, dim)

static void attend_tokens(const Shape *s, const Layer *layer, const scalar *qkv, scalar *out,
                          const int64_t *table, int64_t position, int64_t tokens, int64_t kv_head) {
    switch (s->head_dim) {
    case 64: ATTEND_BAND(64); break;
    case 128: ATTEND_BAND(128); break;
    default: ATTEND_BAND(s->head_dim);
    }
}

typedef struct {
    const Shape *s;
    const Layer *layer;
    const Step *step;
    const Chunk *chunk;
    scalar *qkv, *out;
    int64_t band; /* tokens of a chunk whose attention is one unit for each key head */
    const int64_t *spans; /* the first token of each span, and the end of the last */
} Attention;

static int64_t stride_of(const Shape *s) { return (s->num_heads + 2 * s->num_kv_heads) * s->head_dim; }

static void prepare_tokens(const void *loop, int64_t first, int64_t end) {
    const Attention *a = loop;
    for (int64_t i = first; i < end; i++)
        prepare_token(a->s, a->layer, a->qkv + i * stride_of(a->s), a->step->positions[i], a->step->slots[i]);
}

static Span span_of(const Attention *a, int64_t unit) {
    int64_t i = a->spans[unit / a->s->num_kv_heads], end = a->spans[unit / a->s->num_kv_heads + 1];
    return (Span){a->qkv + i * stride_of(a->s), a->out + i * a->s->num_heads * a->s->head_dim,
                  a->step->block_tables + i * a->step->table_width, a->step->positions[i], end - i,
                  unit % a->s->num_kv_heads};
}

/* A unit is a span of single tokens and a key head. */
static void attend_spans(const void *loop, int64_t first, int64_t end) {
    const Attention *a = loop;
    Span span = span_of(a, first);
    for (int64_t unit = first + 1; unit < end; unit++) {
        Span next = span_of(a, unit);
        attend_span(a->s, a->layer, &span, &next);
        span = next;
    }
    attend_span(a->s, a->layer, &span, NULL);
}

/* A unit is a band of a chunk's tokens and a key head. */
static void attend_chunk(const void *loop, int64_t first, int64_t end) {
    const Attention *a = loop;
    const Shape *s = a->s;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t i = a->chunk->start + unit / s->num_kv_heads * a->band, left = a->chunk->end - i;
        attend_tokens(s, a->layer, a->qkv + i * stride_of(s), a->out + i * s->num_heads * s->head_dim,
                      a->chunk->block_table, a->step->positions[i], left < a->band ? left : a->band,
                      unit % s->num_kv_heads);
    }
}

void attend(const Shape *s, const Layer *layer, const Step *step, scalar *qkv, scalar *out) {
    int64_t dim = s->head_dim, num_keys = 0, spans[step->num_singles + 1];
    int64_t most = step->num_singles * s->num_kv_heads / omp_get_max_threads(); /* each thread gets a unit */
    int64_t num_spans = cut_into_spans(spans, s, step, most < 1 ? 1 : most < SPAN ? most : SPAN);
    int64_t band = (PAIRS && dim % 32 == 0 ? PAIRED_BAND : BAND) / (s->num_heads / s->num_kv_heads);
    Attention a = {s, layer, step, step->chunks, qkv, out, band, spans};
    for (int64_t i = 0; i < step->num_singles; i++) num_keys += step->positions[i] + 1;
    run_loop(prepare_tokens, &a, step->num_tokens, step->num_tokens * stride_of(s) > WORTH_THREADS);
    if (num_spans)
        run_loop(attend_spans, &a, num_spans * s->num_kv_heads, num_keys * s->num_heads * dim > WORTH_THREADS);
    for (; a.chunk < step->chunks + step->num_chunks; a.chunk++)
        run_loop(attend_chunk, &a, (a.chunk->end - a.chunk->start + band - 1) / band * s->num_kv_heads, 1);
}
