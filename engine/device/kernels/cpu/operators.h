/* A decoder's operators, and what they read. native_kernels.py fills the structures. */

#include "vectors.h"

typedef struct {
    int64_t num_heads, num_kv_heads, head_dim, block_size;
    float eps;
    const float *rope; /* [positions, head_dim]: cosines, then sines */
} Shape;

typedef struct {
    const scalar *q_norm, *k_norm; /* [head_dim], or NULL */
    scalar *keys, *values;         /* [blocks, num_kv_heads, block_size, head_dim] */
    int64_t window;                /* tokens that a token sees, itself included; 0: all before it */
} Layer;

typedef struct {
    int64_t start, end; /* the chunk's tokens in the flat row */
    const int64_t *block_table;
} Chunk;

typedef struct {
    int64_t num_tokens, num_singles, num_chunks, table_width;
    const int64_t *positions, *slots, *block_tables;
    const Chunk *chunks;
} Step;

void norm_row(scalar *out, const scalar *x, const scalar *weight, int64_t dim, float eps);
void rms_norm(scalar *out, const scalar *x, const scalar *weight, int64_t rows, int64_t dim, float eps);
void silu_and_mul(scalar *out, const scalar *gate_up, int64_t rows, int64_t dim);
void attend(const Shape *s, const Layer *layer, const Step *step, scalar *qkv, scalar *out);

/* [tokens, ins] to [tokens, outs]: the product plus bias and residual, in float, then rounded. `out` may be `residual`.
   Returns whether there was memory for it. */
typedef int Multiply(const void *matrix, scalar *out, const scalar *x, const scalar *residual, int64_t tokens);
Multiply linear;           /* `matrix` is a Linear */
Multiply quantized_linear; /* `matrix` is a Quantized */
