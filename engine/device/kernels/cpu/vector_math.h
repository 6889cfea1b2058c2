/* Sums, maxima and exponentials of vectors. */

#include "vectors.h"

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

static inline vec greater_of(vec x, vec y) {
#ifdef __AVX512F__
    return (vec)_mm512_max_ps((__m512)x, (__m512)y);
#else
    for (int i = 0; i < LANES; i++) y[i] = x[i] > y[i] ? x[i] : y[i];
    return y;
#endif
}

static inline float greatest_of(vec x) {
#ifdef __AVX512F__
    return _mm512_reduce_max_ps((__m512)x);
#else
    float y = x[0];
    for (int i = 1; i < LANES; i++) y = x[i] > y ? x[i] : y;
    return y;
#endif
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
