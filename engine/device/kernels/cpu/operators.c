/* A decoder's operators on a CPU, except matrix multiplications and attention.

   protocol.py says what each computes. Sums are kept in float. The compiler vectorises the loops over elements. Threads
   share loops over rows if they are long (pool.c). */

#include "operators.h"
#include "pool.h"
#include "vector_math.h"

/* As a scalar holds it. */
static inline vec rounded(vec x) {
    scalar y[LANES];
    store_vec(y, x);
    return load_vec(y);
}

/* `out` may be `x`, so the compiler would not vectorise loops over elements. */
void norm_row(scalar *out, const scalar *x, const scalar *weight, int64_t dim, float eps) {
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
