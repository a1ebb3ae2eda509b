// How long a score of flash attention takes on one core when a head's rows of K and V lie a cell apart.
// Build: gcc -O3 -march=native strides.c -o strides -lm (AVX-512). Prints the rows of strides.csv.
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint16_t half;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static __m512 load(const half *x) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)x)); }

// As ggml's loops: 64 values a step, four registers side by side (simd-mappings.h: GGML_F16_STEP).
static float dot(const half *q, const half *k, int dim) {
    __m512 sums[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int i = 0; i < dim; i += 64)
        for (int j = 0; j < 4; j++) sums[j] = _mm512_fmadd_ps(load(q + i + 16 * j), load(k + i + 16 * j), sums[j]);
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])));
}

static void accumulate(half *y, const half *v, int dim, float p) {
    for (int i = 0; i < dim; i += 64)
        for (int j = i; j < i + 64; j += 16)
            _mm256_storeu_si256((__m256i *)(y + j),
                                _mm512_cvtps_ph(_mm512_fmadd_ps(load(v + j), _mm512_set1_ps(p), load(y + j)), 0));
}

// One pass over the rows of a head: score, online softmax, weighted sum.
static float attend(const half *q, const half *k, const half *v, half *y, int rows, size_t step, int dim) {
    float most = -INFINITY, total = 0;
    memset(y, 0, dim * sizeof *y);
    for (int i = 0; i < rows; i++) {
        float score = dot(q, k + i * step, dim), p = 1;
        if (score > most) most = score; else p = expf(score - most);
        accumulate(y, v + i * step, dim, p);
        total += p;
    }
    return total;
}

int main(void) {
    enum { DIM = 128, REPETITIONS = 5 };
    puts("kv_heads,cell_bytes,rows,sharers,ns_per_score");
    for (int rows = 1024; rows <= 4096; rows *= 4)
        for (int heads = 1; heads <= 16; heads *= 2)
            for (int sharers = 1; sharers <= 2; sharers++) {
                size_t step = (size_t)heads * DIM, cell = 2 * step * sizeof(half);  // K and V of a position
                int layers = (int)(400e6 / (rows * cell)) + 1;                      // more than caches hold
                size_t values = layers * rows * step;
                half *k = malloc(values * sizeof(half)), *v = malloc(values * sizeof(half)), q[DIM], y[DIM];
                memset(k, 1, values * sizeof(half));
                memset(v, 1, values * sizeof(half));
                memset(q, 1, sizeof q);
                double best = INFINITY;
                volatile float sink = 0;
                for (int repetition = 0; repetition < REPETITIONS; repetition++) {
                    double start = now();
                    for (int l = 0; l < layers; l++)
                        for (int h = 0; h < heads; h++)
                            for (int s = 0; s < sharers; s++) {  // query heads that read the same rows
                                size_t at = (size_t)l * rows * step + (size_t)h * DIM;
                                sink += attend(q, k + at, v + at, y, rows, step, DIM);
                            }
                    best = fmin(best, (now() - start) / ((double)layers * heads * sharers * rows));
                }
                printf("%d,%zu,%d,%d,%.1f\n", heads, cell, rows, sharers, best * 1e9);
                free(k);
                free(v);
            }
}
