/* The passes over samples for which numpy would go through memory several times.
 *
 * passes.py calls them, and checks types, shapes and bounds before. Strides count elements. A block
 * is (n_blocks, n_samples, LANES) float32: LANES channels side by side, so that a filter's weight
 * meets all of them in a few instructions. Vectors are those of GCC and Clang, of any machine.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

typedef ptrdiff_t size;
typedef float vec4 __attribute__((vector_size(16), aligned(4), may_alias));
#ifdef __AVX__
typedef float vec __attribute__((vector_size(32), aligned(4), may_alias));
#else
typedef vec4 vec;
#endif

#define LANES 16
#define STEP ((size)(sizeof(vec) / sizeof(float)))
#define VECTORS (LANES / STEP)
#define OUTPUTS 4 /* of a product: their sums fit the registers */
#define RUN 128   /* samples that are transposed at once: they stay in the first cache */
#define ROW (RUN + 4) /* rows a power of two apart would share a part of it */
#define INLINE static inline __attribute__((always_inline))

#if defined(__clang__) || __GNUC__ >= 12
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t int4 __attribute__((vector_size(16)));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (int4){__VA_ARGS__})
#endif

/* Of which passes.c this was compiled: a library of another one would be called wrongly. */
const char source_digest[] = SOURCE_DIGEST;

/* Whether the library that was compiled for AVX2 may be used. */
int has_avx2(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d, state, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_FMA) || !(c & bit_OSXSAVE))
        return 0;
    __asm__("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
    if ((state & 6) != 6) /* the system keeps no wide registers */
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2) != 0;
#else
    return 0;
#endif
}

/* Four rows at `from` become four columns at `to`. */
INLINE void transpose4(const float *from, size from_stride, float *to, size to_stride)
{
    vec4 a = *(const vec4 *)from, b = *(const vec4 *)(from + from_stride);
    vec4 c = *(const vec4 *)(from + 2 * from_stride), d = *(const vec4 *)(from + 3 * from_stride);
    vec4 p = PICK(a, b, 0, 4, 1, 5), q = PICK(c, d, 0, 4, 1, 5);
    vec4 r = PICK(a, b, 2, 6, 3, 7), s = PICK(c, d, 2, 6, 3, 7);
    *(vec4 *)to = PICK(p, q, 0, 1, 4, 5);
    *(vec4 *)(to + to_stride) = PICK(p, q, 2, 3, 6, 7);
    *(vec4 *)(to + 2 * to_stride) = PICK(r, s, 0, 1, 4, 5);
    *(vec4 *)(to + 3 * to_stride) = PICK(r, s, 2, 3, 6, 7);
}

/* How many of `n` samples are no number, or beyond `largest`. */
static size unusable(const float *samples, size n, float largest)
{
    int32_t count = 0;
    for (int32_t i = 0; i < (int32_t)n; i++)
        count += !(__builtin_fabsf(samples[i]) <= largest);
    return count;
}

/* lanes_TYPE: raw samples less each channel's first, times its sign, in lanes; zeros in lanes
 * beyond the channels.
 *
 * One stride of `raw` is 1; `first` and `sign` have a value a lane. Returns how many of the
 * results are no number or beyond `largest`.
 */
#define LANES_OF(TYPE, WIDE)                                                                       \
    /* One channel's samples, into its lane. */                                                    \
    INLINE void along_##TYPE(const TYPE *restrict raw, size step, size n, double first,            \
                             float sign, float *restrict out, size out_step)                       \
    {                                                                                              \
        for (size i = 0; i < n; i++)                                                               \
            out[i * out_step] = (float)((WIDE)raw[i * step] - (WIDE)first) * sign;                 \
    }                                                                                              \
    /* One sample of LANES channels. */                                                            \
    INLINE void across_##TYPE(const TYPE *restrict raw, const WIDE *restrict first,                \
                              const float *restrict sign, float *restrict out)                     \
    {                                                                                              \
        for (size c = 0; c < LANES; c++)                                                           \
            out[c] = (float)((WIDE)raw[c] - first[c]) * sign[c];                                   \
    }                                                                                              \
    /* A run of LANES channels. */                                                                 \
    INLINE void run_##TYPE(const TYPE *raw, size channel_stride, size sample_stride, size n,       \
                           const double *first, const float *sign, float *out)                     \
    {                                                                                              \
        if (channel_stride == 1) {                                                                 \
            WIDE base[LANES];                                                                      \
            for (size c = 0; c < LANES; c++)                                                       \
                base[c] = (WIDE)first[c];                                                          \
            for (size t = 0; t < n; t++)                                                           \
                across_##TYPE(raw + t * sample_stride, base, sign, out + t * LANES);               \
            return;                                                                                \
        }                                                                                          \
        float rows[LANES][ROW];                                                                    \
        for (size c = 0; c < LANES; c++)                                                           \
            along_##TYPE(raw + c * channel_stride, 1, n, first[c], sign[c], rows[c], 1);           \
        size t = 0;                                                                                \
        for (; t + 4 <= n; t += 4)                                                                 \
            for (size c = 0; c < LANES; c += 4)                                                    \
                transpose4(&rows[c][t], ROW, out + t * LANES + c, LANES);                          \
        for (; t < n; t++)                                                                         \
            for (size c = 0; c < LANES; c++)                                                       \
                out[t * LANES + c] = rows[c][t];                                                   \
    }                                                                                              \
    size lanes_##TYPE(const TYPE *raw, size channel_stride, size sample_stride, size n_channels,   \
                      size n, const double *first, const float *sign, float largest, float *out,   \
                      size block_stride)                                                           \
    {                                                                                              \
        size bad = 0;                                                                              \
        for (size at = 0; at < n; at += RUN) {                                                     \
            size run = n - at < RUN ? n - at : RUN;                                                \
            for (size c = 0; c < n_channels; c += LANES) {                                         \
                const TYPE *from = raw + c * channel_stride + at * sample_stride;                  \
                float *to = out + c / LANES * block_stride + at * LANES;                           \
                if (n_channels - c >= LANES)                                                       \
                    run_##TYPE(from, channel_stride, sample_stride, run, first + c, sign + c, to); \
                else {                                                                             \
                    memset(to, 0, run * LANES * sizeof *to);                                       \
                    for (size k = 0; k < n_channels - c; k++)                                      \
                        along_##TYPE(from + k * channel_stride, sample_stride, run, first[c + k],  \
                                     sign[c + k], to + k, LANES);                                  \
                }                                                                                  \
                if ((TYPE)0.5 != 0)                                                                \
                    bad += unusable(to, run * LANES, largest);                                     \
            }                                                                                      \
        }                                                                                          \
        return bad;                                                                                \
    }

LANES_OF(int16_t, float)
LANES_OF(uint16_t, float)
LANES_OF(int32_t, double)
LANES_OF(float, float)
LANES_OF(double, double)

/* Lanes back to rows, a channel each. */
void rows_of_lanes(const float *block, size block_stride, size n_channels, size n, float *out,
                   size out_stride)
{
    for (size at = 0; at < n_channels; at += LANES, block += block_stride) {
        size lanes = n_channels - at < LANES ? n_channels - at : LANES;
        float *to = out + at * out_stride;
        size t = 0;
        if (lanes == LANES)
            for (; t + 4 <= n; t += 4)
                for (size c = 0; c < LANES; c += 4)
                    transpose4(block + t * LANES + c, LANES, to + c * out_stride + t, out_stride);
        for (; t < n; t++)
            for (size c = 0; c < lanes; c++)
                to[c * out_stride + t] = block[t * LANES + c];
    }
}

/* Products of OUTPUTS neighbouring outputs: a window of samples times (width, OUTPUTS) weights.
 *
 * Product p reads from sample start[p] on, with weights[which[p]]; what `ripple`, of the same
 * kind, makes of each lane's `constant` is added. `out` has a row a channel.
 */
void resample(const float *block, size block_stride, size n_channels, const int64_t *start,
              const int64_t *which, size n_products, const float *weights, size width,
              const float *ripple, const float *constant, float *out, size out_stride)
{
    for (size at = 0; at < n_channels; at += LANES, block += block_stride) {
        size lanes = n_channels - at < LANES ? n_channels - at : LANES;
        float *to = out + at * out_stride;
        for (size p = 0; p < n_products; p++, to += OUTPUTS) {
            const float *x = block + start[p] * LANES;
            const float *w = weights + which[p] * width * OUTPUTS;
            const float *r = ripple + which[p] * OUTPUTS;
            vec sums[OUTPUTS][VECTORS];
            for (size k = 0; k < OUTPUTS; k++)
                for (size v = 0; v < VECTORS; v++)
                    sums[k][v] = r[k] * *(const vec *)(constant + at + v * STEP);
            for (size t = 0; t < width; t++, x += LANES, w += OUTPUTS)
                for (size v = 0; v < VECTORS; v++) {
                    vec samples = *(const vec *)(x + v * STEP);
                    for (size k = 0; k < OUTPUTS; k++)
                        sums[k][v] += w[k] * samples;
                }
            float made[OUTPUTS][LANES];
            memcpy(made, sums, sizeof made);
            if (lanes == LANES)
                for (size c = 0; c < LANES; c += 4)
                    transpose4(&made[0][c], LANES, to + c * out_stride, out_stride);
            else
                for (size c = 0; c < lanes; c++)
                    for (size k = 0; k < OUTPUTS; k++)
                        to[c * out_stride + k] = made[k][c];
        }
    }
}

/* Codes: (sample - middle) * per_step + middle_code, to the nearest, halves to even. */
void quantise(const float *samples, size stride, size n_channels, size n, const float *middle,
              const float *per_step, const float *middle_code, int16_t *out, size out_stride)
{
    const float rounder = 12582912.0f; /* 1.5 * 2^23: of a sum with it no fraction is left */
    for (size c = 0; c < n_channels; c++, samples += stride, out += out_stride)
        for (size t = 0; t < n; t++) {
            float step = (samples[t] - middle[c]) * per_step[c] + middle_code[c] + rounder;
            int32_t bits;
            memcpy(&bits, &step, sizeof bits);
            out[t] = (int16_t)bits;
        }
}

#define LESS(a, b) ((a) < (b) ? (a) : (b))
#define MORE(a, b) ((a) > (b) ? (a) : (b))

/* Of each four columns the least of `low` and the greatest of `high`; n columns come out. */
void fold(const int16_t *low, const int16_t *high, size stride, size n_channels, size n,
          int16_t *out_low, int16_t *out_high, size out_stride)
{
    for (size c = 0; c < n_channels; c++) {
        for (size t = 0; t < n; t++) {
            const int16_t *a = low + 4 * t, *b = high + 4 * t;
            out_low[t] = LESS(LESS(a[0], a[1]), LESS(a[2], a[3]));
            out_high[t] = MORE(MORE(b[0], b[1]), MORE(b[2], b[3]));
        }
        low += stride, high += stride, out_low += out_stride, out_high += out_stride;
    }
}
