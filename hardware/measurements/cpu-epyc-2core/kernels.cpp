// Times single matrix products of ggml's CPU backend: the lines of kernels.csv.
//
//   g++ -O2 -I LLAMA/ggml/include kernels.cpp libggml.a libggml-cpu.a libggml-base.a -fopenmp -ldl -o kernels
//   ./kernels avx512 1 >> kernels.csv        (a name for the build, threads)

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static const ggml_type TYPES[] = {
    GGML_TYPE_F32,    GGML_TYPE_F16,    GGML_TYPE_BF16,    GGML_TYPE_Q4_0,  GGML_TYPE_Q4_1,   GGML_TYPE_Q5_0,
    GGML_TYPE_Q5_1,   GGML_TYPE_Q8_0,   GGML_TYPE_Q2_K,    GGML_TYPE_Q3_K,  GGML_TYPE_Q4_K,   GGML_TYPE_Q5_K,
    GGML_TYPE_Q6_K,   GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS,  GGML_TYPE_IQ3_S, GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ2_S,
    GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ1_S,  GGML_TYPE_IQ1_M, GGML_TYPE_MXFP4,  GGML_TYPE_TQ2_0,
    GGML_TYPE_TQ1_0,
};
static const int64_t ROW = 2048;     // weights a row
static const int     EXPERTS = 8;    // each gets an eighth of the rows, and of the columns
static const int64_t RANDOM_ROWS = 64;

struct Shape { int64_t rows, columns; };
static const Shape SHAPES[] = {{2048, 512}, {2048, 128}, {2048, 16}, {2048, 8}, {2048, 4}, {2048, 2}, {1024, 1}, {65536, 1}};

static std::vector<float> random_values(int64_t number) {
    std::vector<float> values(number);
    for (float & value : values) value = (std::rand() % 2001 - 1000) / 1000.0f;
    return values;
}

// A few random rows, quantised, over and over: what a kernel does, does not depend on the values.
static std::vector<uint8_t> random_weights(ggml_type type, size_t bytes, int64_t rows) {
    const int64_t made = std::min(rows, RANDOM_ROWS);
    const std::vector<float> values = random_values(ROW * made), importance(ROW, 1.0f);
    std::vector<uint8_t> part(ggml_row_size(type, ROW) * made), all(bytes);
    if (type == GGML_TYPE_F32) std::memcpy(part.data(), values.data(), part.size());
    else ggml_quantize_chunk(type, values.data(), part.data(), 0, made, ROW, importance.data());
    for (size_t at = 0; at < bytes; at += part.size()) std::memcpy(all.data() + at, part.data(), std::min(part.size(), bytes - at));
    return all;
}

static ggml_backend_buffer_type_t interleaving(ggml_backend_t backend) {
    ggml_backend_dev_t device = ggml_backend_get_device(backend);
    auto extra = (ggml_backend_dev_get_extra_bufts_t) ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts");
    for (auto * type = extra ? extra(device) : nullptr; type && *type; ++type)
        if (std::strcmp(ggml_backend_buft_name(*type), "CPU_REPACK") == 0) return *type;
    return nullptr;
}

// Lower quartile of the times of at least five products and a quarter of a second.
static double seconds(ggml_backend_t backend, ggml_cgraph * graph) {
    using clock = std::chrono::steady_clock;
    const auto since = [](clock::time_point start) { return std::chrono::duration<double>(clock::now() - start).count(); };
    ggml_backend_graph_compute(backend, graph);
    std::vector<double> times;
    const auto begin = clock::now();
    while (times.size() < 5 || (since(begin) < 0.25 && times.size() < 400)) {
        const auto start = clock::now();
        ggml_backend_graph_compute(backend, graph);
        times.push_back(since(start));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 4];
}

// GFLOP/s of one product; 0 if weights of the type are not interleaved in `buffer_type`.
static double gflop_per_s(ggml_backend_t backend, ggml_backend_buffer_type_t buffer_type, ggml_type type, Shape shape,
                          bool experts, bool interleaved) {
    const ggml_init_params params = {16 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
    ggml_context * held = ggml_init(params), * computed = ggml_init(params);
    ggml_tensor * weights = experts ? ggml_new_tensor_3d(held, type, ROW, shape.rows / EXPERTS, EXPERTS)
                                    : ggml_new_tensor_2d(held, type, ROW, shape.rows);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(held, buffer_type), others = nullptr;
    double rate = 0.0;
    if (!interleaved || weights->extra) {
        const std::vector<uint8_t> data = random_weights(type, ggml_nbytes(weights), shape.rows);
        ggml_backend_tensor_set(weights, data.data(), 0, data.size());
        ggml_tensor * columns = experts ? ggml_new_tensor_3d(computed, GGML_TYPE_F32, ROW, 1, shape.columns)
                                        : ggml_new_tensor_2d(computed, GGML_TYPE_F32, ROW, shape.columns);
        ggml_tensor * chosen = experts ? ggml_new_tensor_2d(computed, GGML_TYPE_I32, 1, shape.columns) : nullptr;
        ggml_tensor * product = experts ? ggml_mul_mat_id(computed, weights, columns, chosen)
                                        : ggml_mul_mat(computed, weights, columns);
        others = ggml_backend_alloc_ctx_tensors(computed, backend);
        const std::vector<float> values = random_values(ROW * shape.columns);
        ggml_backend_tensor_set(columns, values.data(), 0, ggml_nbytes(columns));
        if (chosen) {
            std::vector<int32_t> expert(shape.columns);
            for (size_t column = 0; column < expert.size(); column++) expert[column] = column % EXPERTS;
            ggml_backend_tensor_set(chosen, expert.data(), 0, ggml_nbytes(chosen));
        }
        ggml_cgraph * graph = ggml_new_graph(computed);
        ggml_build_forward_expand(graph, product);
        const int64_t rows = experts ? shape.rows / EXPERTS : shape.rows;
        rate = 2e-9 * ROW * rows * shape.columns / seconds(backend, graph);
    }
    ggml_backend_buffer_free(buffer);
    if (others) ggml_backend_buffer_free(others);
    ggml_free(held);
    ggml_free(computed);
    return rate;
}

int main(int count, char ** arguments) {
    if (count != 3) return std::fprintf(stderr, "usage: kernels BUILD THREADS\n"), 2;
    const int threads = std::atoi(arguments[2]);
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, threads);
    for (const ggml_type type : TYPES)
        for (const bool experts : {false, true})
            for (const bool interleaved : {false, true})
                for (const Shape shape : SHAPES) {
                    auto * buffer_type = interleaved ? interleaving(backend) : ggml_backend_cpu_buffer_type();
                    if (!buffer_type || (experts && shape.columns == 1)) continue;
                    const double rate = gflop_per_s(backend, buffer_type, type, shape, experts, interleaved);
                    if (rate == 0.0) continue;
                    std::string name = ggml_type_name(type);
                    std::transform(name.begin(), name.end(), name.begin(), ::toupper);
                    std::printf("%s,%s,%s,%d,%d,%lld,%lld,%lld,%.4g\n", arguments[1], name.c_str(), interleaved ? "yes" : "no",
                                experts ? EXPERTS : 0, threads, (long long) ROW,
                                (long long) (experts ? shape.rows / EXPERTS : shape.rows), (long long) shape.columns, rate);
                    std::fflush(stdout);
                }
    return 0;
}
