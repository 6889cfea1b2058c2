/* The elements and vectors that all kernels use.

   The sources are compiled once for each element type: bfloat16 with SCALAR_BF16, or float. */

#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h> /* for instructions that the compiler does not find by itself */
#endif

#if defined __AVX512F__ /* LANES: floats in a register */
#define LANES 16
#elif defined __AVX__
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline)) /* for loops whose lengths are constants of the caller */

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef float floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#ifdef SCALAR_BF16
typedef uint16_t scalar;
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef uint32_t unaligned_words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
static inline vec load_vec(const scalar *x) {
#ifdef __AVX512F__
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)x)), 16);
#elif defined __AVX2__
    return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x)), 16);
#else
    return (vec)(__builtin_convertvector(*(const halves *)x, words) << 16);
#endif
}
static inline float load(scalar x) {
    union { uint32_t bits; float value; } u = {(uint32_t)x << 16};
    return u.value;
}
static inline scalar store(float x) { /* rounds to the nearest, ties to even; NaN stays NaN */
    union { float value; uint32_t bits; } u = {x};
    uint32_t rounded = (u.bits + 0x7fff + ((u.bits >> 16) & 1)) >> 16;
    return x == x ? (scalar)rounded : 0x7fc0;
}
static inline void store_vec(scalar *to, vec x) {
#ifdef __AVX512BF16__ /* denormal numbers become zero */
    _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh((__m512)x));
#elif defined __AVX2__
    words bits = (words)x, is_number = (words)(x == x);
    words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    rounded = (rounded & is_number) | (~is_number & 0x7fc0);
#if defined __AVX512F__
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16((__m512i)rounded));
#else
    __m256i narrow = _mm256_packus_epi32((__m256i)rounded, (__m256i)rounded); /* in each half, twice */
    _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(_mm256_permute4x64_epi64(narrow, 8)));
#endif
#else
    for (int i = 0; i < LANES; i++) to[i] = store(x[i]);
#endif
}
#else
typedef float scalar;
static inline vec load_vec(const scalar *x) { return *(const floats *)x; }
static inline float load(scalar x) { return x; }
static inline scalar store(float x) { return x; }
static inline void store_vec(scalar *to, vec x) { *(floats *)to = x; }
#endif

/* x * y + sum. Where the processor rounds this once, it does so for every row: the compiler would decide at each place. */
static inline vec fused(vec x, vec y, vec sum) {
#if defined __AVX512F__
    return (vec)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)sum);
#elif defined __AVX__ && defined __FMA__
    return (vec)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)sum);
#else
    return x * y + sum;
#endif
}

static inline float total_of(vec x) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}
