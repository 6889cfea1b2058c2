/* Attention on a CPU: queries and keys are normed and rotated, keys and values stored, and each token attends.

   A step has single tokens (attention_span.h), and chunks of several tokens, which are cut into bands. In a band,
   attention_pairs.h multiplies pairs of bfloat16 where the processor can, and attention_band.h everything else. */

#include <omp.h>
#include "operators.h"
#include "pool.h"
#include "vector_math.h"

#define MAX_DIM 256  /* elements of a head */
#define MAX_GROUP 16 /* query heads that share a key head */
#define TILE 32      /* keys that are weighed together */
#if defined SCALAR_BF16 && defined __AVX512BF16__ && defined __AVX512BW__
#define PAIRS 1 /* one instruction multiplies pairs of bfloat16 */
#else
#define PAIRS 0
#endif

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

#include "attention_span.h"
#include "attention_band.h"
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
