/* A layer of a decoder in one call. Between its operators, threads neither sleep nor wait for the interpreter. */

#include "operators.h"

typedef struct {
    Multiply *multiply;
    const void *weights;
    int64_t outs;
} Matrix;

typedef struct {
    const Layer *attention;
    const scalar *input_norm, *post_attention_norm; /* [hidden] */
    Matrix qkv, o, gate_up, down;
} DecoderLayer;

static int multiply(const Matrix *m, scalar *out, const scalar *x, const scalar *residual, int64_t tokens) {
    return m->multiply(m->weights, out, x, residual, tokens);
}

static void gather(scalar *to, const scalar *from, const int64_t *rows, int64_t num_rows, int64_t dim) {
    for (int64_t row = 0; row < num_rows; row++) memcpy(to + row * dim, from + rows[row] * dim, dim * sizeof(scalar));
}

static int64_t greater(int64_t x, int64_t y) { return x > y ? x : y; }

/* The elements of `scratch` for one token. */
int64_t layer_scratch(const Shape *s, const DecoderLayer *l) {
    return l->o.outs + greater(l->qkv.outs, l->gate_up.outs) + greater(s->num_heads * s->head_dim, l->gate_up.outs / 2);
}

/* [tokens, hidden] to [num_rows, hidden]. `rows`: the tokens that go on when all keys and values are stored; NULL: all of
   them. Returns whether there was memory for it. */
int run_layer(const DecoderLayer *l, const Shape *s, const Step *step, scalar *out, const scalar *x,
              const int64_t *rows, int64_t num_rows, scalar *scratch) {
    const int64_t hidden = l->o.outs, heads = s->num_heads * s->head_dim, most = greater(step->num_tokens, num_rows);
    scalar *normed = scratch, *wide = normed + most * hidden;
    scalar *narrow = wide + most * greater(l->qkv.outs, l->gate_up.outs);
    rms_norm(normed, x, l->input_norm, step->num_tokens, hidden, s->eps);
    if (!multiply(&l->qkv, wide, normed, NULL, step->num_tokens)) return 0;
    attend(s, l->attention, step, wide, narrow);
    const scalar *attended = narrow, *residual = x;
    if (rows) {
        gather(wide, narrow, rows, num_rows, heads);
        gather(out, x, rows, num_rows, hidden);
        attended = wide;
        residual = out;
    }
    if (!multiply(&l->o, out, attended, residual, num_rows)) return 0;
    rms_norm(normed, out, l->post_attention_norm, num_rows, hidden, s->eps);
    if (!multiply(&l->gate_up, wide, normed, NULL, num_rows)) return 0;
    silu_and_mul(narrow, wide, num_rows, l->gate_up.outs / 2);
    return multiply(&l->down, out, narrow, out, num_rows);
}
