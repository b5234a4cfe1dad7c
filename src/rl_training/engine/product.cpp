// Matrix products for compiled updates: (batch, m, k) @ (batch, k, n) in float32, of tensors with any strides.
//
// Every element is the sum of chains of fused multiply-adds, one for each DEPTH of k, in the order of k. So it does not
// depend on the number of threads, on the width of the processor's vectors, or on the rows and matrices beside it.
#include <immintrin.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace {

#ifdef __AVX512F__
using Vector = __m512;
constexpr int LANES = 16, ROWS = 8;  // of a tile: 16 of 32 registers hold its sums
inline Vector load(const float* from) { return _mm512_loadu_ps(from); }
inline void store(float* to, Vector value) { _mm512_storeu_ps(to, value); }
inline Vector filled(float value) { return _mm512_set1_ps(value); }
inline Vector plus(Vector a, Vector b) { return _mm512_add_ps(a, b); }
inline Vector multiply_add(Vector a, Vector b, Vector sum) { return _mm512_fmadd_ps(a, b, sum); }
#else
using Vector = __m256;
constexpr int LANES = 8, ROWS = 6;  // 12 of 16 registers
inline Vector load(const float* from) { return _mm256_loadu_ps(from); }
inline void store(float* to, Vector value) { _mm256_storeu_ps(to, value); }
inline Vector filled(float value) { return _mm256_set1_ps(value); }
inline Vector plus(Vector a, Vector b) { return _mm256_add_ps(a, b); }
inline Vector multiply_add(Vector a, Vector b, Vector sum) { return _mm256_fmadd_ps(a, b, sum); }
#endif
constexpr int COLUMNS = 2 * LANES;           // of a panel
constexpr int64_t DEPTH = 256;               // of k: a panel of this depth fills the first cache at most
constexpr int64_t CHUNK = 256;               // rows that one task computes: they fit the second cache
constexpr int64_t MIN_ROWS = 32;             // of a task, where there are more threads than chunks
constexpr int64_t MIN_PARALLEL = 1 << 19;    // multiplications, below which threads cost more than they save

struct Matrix {
  const float* data;
  int64_t batch_stride, row_stride, column_stride;
  const float* at(int64_t batch, int64_t row, int64_t column) const {
    return data + batch * batch_stride + row * row_stride + column * column_stride;
  }
};

// Sums of `depth` products for `rows` rows and a panel of 1 or 2 vectors, added to those of earlier depths, if any.
template <int rows, int vectors>
void tile(const float* a, const Matrix& strides, const float* panel, float* to, int64_t width, int64_t depth, bool add) {
  Vector sums[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) sums[i][j] = filled(0.0f);
  for (int64_t p = 0; p < depth; ++p) {
    Vector factors[vectors];
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) factors[j] = load(panel + (p * vectors + j) * LANES);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const Vector factor = filled(a[i * strides.row_stride + p * strides.column_stride]);
#pragma GCC unroll 2
      for (int j = 0; j < vectors; ++j) sums[i][j] = multiply_add(factor, factors[j], sums[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) {
      float* place = to + i * width + j * LANES;
      store(place, add ? plus(load(place), sums[i][j]) : sums[i][j]);
    }
}

template <int vectors, int rows = ROWS>
void tile_of(int64_t count, const float* a, const Matrix& strides, const float* panel, float* to, int64_t width,
             int64_t depth, bool add) {
  if (count == rows) {
    tile<rows, vectors>(a, strides, panel, to, width, depth, add);
  } else if constexpr (rows > 1) {
    tile_of<vectors, rows - 1>(count, a, strides, panel, to, width, depth, add);
  }
}

// `depth` rows and `columns` columns of b as (depth, width), filled up with zeros.
void pack(float* panel, const float* b, const Matrix& strides, int64_t depth, int64_t columns, int64_t width) {
  if (columns < width) std::memset(panel, 0, sizeof(float) * depth * width);
  if (strides.column_stride == 1) {
    for (int64_t p = 0; p < depth; ++p) std::memcpy(panel + p * width, b + p * strides.row_stride, sizeof(float) * columns);
    return;
  }
  constexpr int64_t BLOCK = 16;  // numbers read from a column at once: a line of the cache
  for (int64_t first = 0; first < depth; first += BLOCK)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t p = first; p < std::min(depth, first + BLOCK); ++p)
        panel[p * width + j] = b[p * strides.row_stride + j * strides.column_stride];
}

struct Sizes {
  int64_t batch, m, k, n;
};

// One task: rows [first, last) and some columns of one matrix.
template <int vectors>
void compute(const Matrix& a, const Matrix& b, float* c, const Sizes& of, int64_t matrix, int64_t first, int64_t last,
             int64_t column, int64_t columns) {
  constexpr int64_t WIDTH = vectors * LANES;
  alignas(64) float panel[DEPTH * WIDTH];
  alignas(64) float edge[ROWS * WIDTH];
  for (int64_t start = 0; start < of.k; start += DEPTH) {
    const int64_t depth = std::min(DEPTH, of.k - start);
    const bool add = start > 0;
    pack(panel, b.at(matrix, start, column), b, depth, columns, WIDTH);
    for (int64_t row = first; row < last; row += ROWS) {
      const int64_t rows = std::min<int64_t>(ROWS, last - row);
      float* to = c + (matrix * of.m + row) * of.n + column;
      const float* from = a.at(matrix, row, start);
      if (columns == WIDTH) {
        tile_of<vectors>(rows, from, a, panel, to, of.n, depth, add);
        continue;
      }
      for (int64_t i = 0; i < rows && add; ++i) std::memcpy(edge + i * WIDTH, to + i * of.n, sizeof(float) * columns);
      tile_of<vectors>(rows, from, a, panel, edge, WIDTH, depth, add);
      for (int64_t i = 0; i < rows; ++i) std::memcpy(to + i * of.n, edge + i * WIDTH, sizeof(float) * columns);
    }
  }
}

void multiply(const Matrix& a, const Matrix& b, float* c, const Sizes& of, int threads) {
  if (of.batch * of.m * of.n == 0) return;
  if (of.k == 0) std::fill_n(c, of.batch * of.m * of.n, 0.0f);
  if (of.batch * of.m * of.k * of.n < MIN_PARALLEL) threads = 1;
  const auto parts = [](int64_t whole, int64_t part) { return (whole + part - 1) / part; };
  const int64_t panels = parts(of.n, COLUMNS), per_thread = parts(threads, std::max<int64_t>(1, of.batch * panels));
  const int64_t chunks = std::max(parts(of.m, CHUNK), std::min(per_thread, parts(of.m, MIN_ROWS)));
  const int64_t rows = parts(parts(of.m, chunks), ROWS) * ROWS;  // whole tiles
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t matrix = 0; matrix < of.batch; ++matrix)
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      for (int64_t number = 0; number < panels; ++number) {
        const int64_t first = chunk * rows, last = std::min(of.m, first + rows), column = number * COLUMNS;
        const int64_t columns = std::min<int64_t>(COLUMNS, of.n - column);
        (columns > LANES ? compute<2> : compute<1>)(a, b, c, of, matrix, first, last, column, columns);
      }
}

void check(AOTITorchError error) {
  if (error != AOTI_TORCH_SUCCESS) throw std::runtime_error("rl_training::product: torch rejected a tensor");
}

// A tensor that is deleted with its owner, also when a check fails.
using Owner = std::unique_ptr<AtenTensorOpaque, decltype(&aoti_torch_delete_tensor_object)>;
Owner owned(AtenTensorHandle tensor) { return {tensor, aoti_torch_delete_tensor_object}; }

struct Argument {
  Matrix matrix;
  int64_t batch, rows, columns;
};

// A tensor of `axes` axes, which are two or three.
Argument argument(AtenTensorHandle tensor, int64_t axes) {
  void* data;
  int64_t found, *sizes, *strides;
  int32_t dtype;
  check(aoti_torch_get_data_ptr(tensor, &data));
  check(aoti_torch_get_dtype(tensor, &dtype));
  check(aoti_torch_get_dim(tensor, &found));
  if (dtype != aoti_torch_dtype_float32()) throw std::runtime_error("rl_training::product: tensors must be float32");
  if (found != axes || axes < 2 || axes > 3)
    throw std::runtime_error("rl_training::product: tensors must both have two or three axes");
  check(aoti_torch_get_sizes(tensor, &sizes));
  check(aoti_torch_get_strides(tensor, &strides));
  const bool many = axes == 3;
  return {{static_cast<const float*>(data), many ? strides[0] : 0, strides[axes - 2], strides[axes - 1]},
          many ? sizes[0] : 1, sizes[axes - 2], sizes[axes - 1]};
}

AtenTensorHandle empty(const int64_t* sizes, int64_t axes) {
  const int64_t strides[] = {sizes[axes - 2] * sizes[axes - 1], sizes[axes - 1], 1};
  AtenTensorHandle tensor;
  check(aoti_torch_empty_strided(axes, sizes, strides + 3 - axes, aoti_torch_dtype_float32(),
                                 aoti_torch_device_type_cpu(), 0, &tensor));
  return tensor;
}

// rl_training::product(Tensor a, Tensor b, int threads) -> Tensor, as torch's dispatcher calls it.
void product(StableIValue* stack, uint64_t, uint64_t) {
  AtenTensorHandle handles[2];
  for (int i = 0; i < 2; ++i) std::memcpy(&handles[i], &stack[i], sizeof(handles[i]));
  const Owner left = owned(handles[0]), right = owned(handles[1]);
  int64_t axes;
  check(aoti_torch_get_dim(left.get(), &axes));
  const Argument a = argument(left.get(), axes), b = argument(right.get(), axes);
  if (a.batch != b.batch || a.columns != b.rows) throw std::runtime_error("rl_training::product: shapes do not match");
  const int64_t sizes[] = {a.batch, a.rows, b.columns};
  Owner result = owned(empty(sizes + 3 - axes, axes));
  void* data;
  check(aoti_torch_get_data_ptr(result.get(), &data));
  const Sizes of = {a.batch, a.rows, a.columns, b.columns};
  multiply(a.matrix, b.matrix, static_cast<float*>(data), of, static_cast<int>(stack[2]));
  const AtenTensorHandle given = result.release();  // to the caller
  stack[0] = 0;
  std::memcpy(&stack[0], &given, sizeof(given));
}

}  // namespace

extern "C" int register_product() {
  TorchLibraryHandle library;
  if (aoti_torch_library_init_impl("rl_training", "CPU", __FILE__, __LINE__, &library) != AOTI_TORCH_SUCCESS) return 1;
  return aoti_torch_library_impl(library, "product", product) != AOTI_TORCH_SUCCESS;
}
