/* Attention on a CPU: queries and keys are normed and rotated, keys and values stored, and each token attends.

   A step's single tokens and its chunks are cut into spans, which all attend by the same code (attention_span.h). */

#include <omp.h>
#include "operators.h"
#include "pool.h"
#include "vector_math.h"
#include "panels.h"
#if AMX
#include "tiles.h"
#endif

#define MAX_DIM 256  /* elements of a head */
#define MAX_GROUP 16 /* query heads that share a key head */
#define SHORT 8      /* single tokens of a span at most: a step of few tokens has work for each thread */

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

#include "attention_tile.h"
#include "attention_span.h"

typedef struct {
    const Shape *s;
    const Layer *layer;
    const Step *step;
    scalar *qkv, *out;
    const Span *spans; /* those of the first key head */
} Attention;

static int64_t stride_of(const Shape *s) { return (s->num_heads + 2 * s->num_kv_heads) * s->head_dim; }

static void prepare_tokens(const void *loop, int64_t first, int64_t end) {
    const Attention *a = loop;
    for (int64_t i = first; i < end; i++)
        prepare_token(a->s, a->layer, a->qkv + i * stride_of(a->s), a->step->positions[i], a->step->slots[i]);
}

/* A unit is a span and a key head. */
static Span span_of(const Attention *a, int64_t unit) {
    Span span = a->spans[unit / a->s->num_kv_heads];
    span.kv_head = unit % a->s->num_kv_heads;
    return span;
}

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

/* The span of the step's tokens from `first` to before `end`. */
static Span make_span(const Attention *a, int64_t first, int64_t end, const int64_t *table) {
    return (Span){a->qkv + first * stride_of(a->s), a->out + first * a->s->num_heads * a->s->head_dim, table,
                  a->step->positions[first], end - first, 0};
}

/* Whether a single token comes right after the one before it in the flat row, in the same sequence. */
static inline int follows(const Shape *s, const Step *step, int64_t i) {
    const int64_t *table = step->block_tables + i * step->table_width;
    return step->positions[i] == step->positions[i - 1] + 1 &&
           !memcmp(table, table - step->table_width, (step->positions[i] / s->block_size + 1) * sizeof(*table));
}

/* Cuts a step's tokens into spans: single tokens into spans of at most `most`, chunks into spans of at most `band`. Returns
   the number of spans. */
static int64_t cut_into_spans(Span *spans, const Attention *a, int64_t most, int64_t band) {
    const Step *step = a->step;
    int64_t count = 0;
    for (int64_t i = 0, end; i < step->num_singles; i = end) {
        for (end = i + 1; end < step->num_singles && end - i < most && follows(a->s, step, end);) end++;
        spans[count++] = make_span(a, i, end, step->block_tables + i * step->table_width);
    }
    for (const Chunk *chunk = step->chunks; chunk < step->chunks + step->num_chunks; chunk++)
        for (int64_t i = chunk->start, end; i < chunk->end; i = end) {
            end = i + band < chunk->end ? i + band : chunk->end;
            spans[count++] = make_span(a, i, end, chunk->block_table);
        }
    return count;
}

void attend(const Shape *s, const Layer *layer, const Step *step, scalar *qkv, scalar *out) {
    int64_t band = BAND / (s->num_heads / s->num_kv_heads), num_keys = 0;
    int64_t most = step->num_singles * s->num_kv_heads / omp_get_max_threads(); /* each thread gets a unit */
    Span spans[step->num_singles + step->num_chunks + step->num_tokens / band + 1];
    Attention a = {s, layer, step, qkv, out, spans};
    most = most < SHORT ? most : SHORT;
    int64_t count = cut_into_spans(spans, &a, most < 1 ? 1 : most < band ? most : band, band);
    for (int64_t i = 0; i < step->num_tokens; i++) num_keys += step->positions[i] + 1;
    run_loop(prepare_tokens, &a, step->num_tokens, step->num_tokens * stride_of(s) > WORTH_THREADS);
    if (count)
        run_loop(attend_spans, &a, count * s->num_kv_heads, num_keys * s->num_heads * s->head_dim > WORTH_THREADS);
}
