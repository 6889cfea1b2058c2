/* Rows times a panel by AMX: one instruction multiplies 16 rows of 16 steps with 16 outputs.

   It takes as long for one row as the weights take to read, and adds in the same order for any number of rows. It adds
   the first inputs of a tile's pairs, then the second ones, so its sums differ from those of `multiply` in the last
   bits. */

static inline const char *prefetch(const char *ahead, int64_t lines) {
    for (int64_t i = 0; i < lines; i++, ahead += 64) __builtin_prefetch(ahead, 0, 2);
    return ahead;
}

static void multiply_few(float *to, const input *x, int64_t steps, const char *panel, const char *ahead,
                         int64_t lines) {
    _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    for (int64_t k = 0; k < steps; k += DEPTH, panel += DEPTH * STRIDE) {
        ahead = prefetch(ahead, lines * DEPTH);
        _tile_loadd(4, x + k, steps * sizeof(input));
        _tile_loadd(6, panel, STRIDE); _tile_loadd(7, panel + 64, STRIDE);
        _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(6, panel + 128, STRIDE); _tile_loadd(7, panel + 192, STRIDE);
        _tile_dpbf16ps(2, 4, 6); _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, to, STRIDE); _tile_stored(1, to + 16, STRIDE);
    _tile_stored(2, to + 32, STRIDE); _tile_stored(3, to + 48, STRIDE);
}

static void multiply_more(float *to, const input *x, int64_t steps, const char *panel, const char *ahead,
                          int64_t lines) {
    const input *second = x + TILE_ROWS * steps;
    float *to_second = to + TILE_ROWS * PANEL;
    _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    for (int64_t k = 0; k < steps; k += DEPTH, panel += DEPTH * STRIDE) {
        ahead = prefetch(ahead, lines * DEPTH);
        _tile_loadd(4, x + k, steps * sizeof(input)); _tile_loadd(6, panel, STRIDE);
        _tile_loadd(7, panel + 64, STRIDE); _tile_loadd(5, second + k, steps * sizeof(input));
        _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, STRIDE); _tile_stored(1, to + 16, STRIDE);
    _tile_stored(2, to_second, STRIDE); _tile_stored(3, to_second + 16, STRIDE);
}

/* As `multiply`, for up to 32 rows of bfloat16. `to` is [rows, PANEL]. `shaped` is the number of rows that the thread's
   tiles are shaped for, or 0. */
static void multiply_tiles(float *to, const input *x, int64_t steps, const char *panel, const char *ahead,
                           int64_t lines, int64_t rows, int64_t *shaped) {
    if (*shaped != rows) shape_tiles(*shaped = rows);
    if (rows <= TILE_ROWS) multiply_few(to, x, steps, panel, ahead, lines);
    else {
        /* The first half of a panel does not read whole lines, so the processor does not prefetch by itself. */
        if (!lines) ahead = panel + 2 * DEPTH * STRIDE, lines = STRIDE / 64;
        multiply_more(to, x, steps, panel, ahead, lines);
        multiply_more(to + PANEL / 2, x, steps, panel + STRIDE / 2, ahead, 0);
    }
}
