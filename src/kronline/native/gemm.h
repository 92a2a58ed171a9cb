// Small matrix products in registers and cache, in the compiler's vector extensions: one source for
// AVX-512, AVX2 and anything else.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kronline {
namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64, kRows = 14;  // 28 of 32 registers hold sums
#elif defined(__AVX2__)
constexpr int kBytes = 32, kRows = 6;  // 12 of 16
#else
constexpr int kBytes = 16, kRows = 4;
#endif

#define INLINE inline __attribute__((always_inline))

template <typename T>
struct Lanes {
  typedef T Vec __attribute__((vector_size(kBytes)));
  static constexpr int kWidth = kBytes / sizeof(T);
  static constexpr int kCols = 2 * kWidth;  // a register block is kRows x kCols
};

template <typename T>
INLINE typename Lanes<T>::Vec load(const T* p) {
  typename Lanes<T>::Vec v;
  std::memcpy(&v, p, kBytes);
  return v;
}

template <typename T>
INLINE void store(T* p, typename Lanes<T>::Vec v) {
  std::memcpy(p, &v, kBytes);
}

// One row of a panel: the `width` (nearly always all) of kCols numbers that exist, times x.
template <typename T>
INLINE void pack_row(T* to, const T* from, T x, int64_t width) {
  if (width == Lanes<T>::kCols) {
    store(to, x * load(from));
    store(to + Lanes<T>::kWidth, x * load(from + Lanes<T>::kWidth));
  } else {
    for (int64_t j = 0; j < Lanes<T>::kCols; ++j) to[j] = j < width ? x * from[j] : 0;
  }
}

template <typename T>
INLINE void store_row(T* to, typename Lanes<T>::Vec v0, typename Lanes<T>::Vec v1, int64_t width) {
  T row[Lanes<T>::kCols];
  if (width == Lanes<T>::kCols) {
    store(to, v0);
    store(to + Lanes<T>::kWidth, v1);
  } else {
    store(row, v0);
    store(row + Lanes<T>::kWidth, v1);
    std::memcpy(to, row, width * sizeof(T));
  }
}

constexpr int kScratches = 5;

// kBytes-aligned memory that a thread keeps for its next item.
template <typename T>
T* scratch(int which, size_t count) {
  static thread_local std::vector<char> memory[kScratches];
  std::vector<char>& m = memory[which];
  if (m.size() < count * sizeof(T) + kBytes) m.resize(count * sizeof(T) + kBytes);
  uintptr_t at = (reinterpret_cast<uintptr_t>(m.data()) + kBytes - 1) / kBytes * kBytes;
  return reinterpret_cast<T*>(at);
}

// `left` (M x K, element (m, k) at m * step_m + k * step_k) times `right` (K x kCols, packed);
// each finished row m goes to `done(m, v0, v1)`.
template <typename T, int M, typename Done>
INLINE void block(int64_t K, const T* left, int64_t step_m, int64_t step_k, const T* right,
                  Done done) {
  using L = Lanes<T>;
  typename L::Vec sum[M][2] = {};
  for (int64_t k = 0; k < K; ++k) {
    const auto r0 = load(right + k * L::kCols), r1 = load(right + k * L::kCols + L::kWidth);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const T x = left[m * step_m + k * step_k];
      sum[m][0] += x * r0;
      sum[m][1] += x * r1;
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) done(m, sum[m][0], sum[m][1]);
}

// Its sums, written down: for fewer rows than kRows, compiled once for all that call it.
template <typename T, int M>
__attribute__((noinline)) void block_into(int64_t K, const T* left, int64_t step_m, int64_t step_k,
                                          const T* right, T* out) {
  using L = Lanes<T>;
  block<T, M>(K, left, step_m, step_k, right, [&](int m, auto v0, auto v1) {
    store_row(out + m * L::kCols, v0, v1, L::kCols);
  });
}

// f(constant) for the constant that equals rows, 1 to Most.
template <int Most, typename F>
INLINE void with_constant(int rows, F f) {
  if constexpr (Most > 0) {
    if (rows == Most) {
      f(std::integral_constant<int, Most>());
    } else {
      with_constant<Most - 1>(rows, f);
    }
  }
}

template <typename T, typename Done>
INLINE void each_row(int rows, const T* from, Done done) {
  using L = Lanes<T>;
  for (int m = 0; m < rows; ++m)
    done(m, load(from + m * L::kCols), load(from + m * L::kCols + L::kWidth));
}

// `block` for any number of rows up to kRows.
template <typename T, typename Done>
INLINE void blocks(int rows, int64_t K, const T* left, int64_t step_m, int64_t step_k,
                   const T* right, Done done) {
  if (rows == kRows) return block<T, kRows>(K, left, step_m, step_k, right, done);
  T out[kRows * Lanes<T>::kCols];
  with_constant<kRows - 1>(rows, [&](auto M) {
    block_into<T, decltype(M)::value>(K, left, step_m, step_k, right, out);
  });
  each_row(rows, out, done);
}

// `block` with the rows of `right` in runs of `length`, each somewhere else.
template <typename T, int M>
__attribute__((noinline)) void runs_into(int64_t runs, int64_t length, const T* left,
                                         int64_t step_m, const T* const* right, T* out) {
  using L = Lanes<T>;
  typename L::Vec sum[M][2] = {};
  for (int64_t run = 0; run < runs; ++run, left += length)
    for (int64_t k = 0; k < length; ++k) {
      const T* at = right[run] + k * L::kCols;
      const auto r0 = load(at), r1 = load(at + L::kWidth);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) {
        const T x = left[m * step_m + k];
        sum[m][0] += x * r0;
        sum[m][1] += x * r1;
      }
    }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m) store_row(out + m * L::kCols, sum[m][0], sum[m][1], L::kCols);
}

template <typename T, typename Done>
INLINE void blocks_of_runs(int rows, int64_t runs, int64_t length, const T* left, int64_t step_m,
                           const T* const* right, Done done) {
  T out[kRows * Lanes<T>::kCols];
  with_constant<kRows>(rows, [&](auto M) {
    runs_into<T, decltype(M)::value>(runs, length, left, step_m, right, out);
  });
  each_row(rows, out, done);
}

template <typename T>
T sum(typename Lanes<T>::Vec v) {
  T total = 0;
  for (int i = 0; i < Lanes<T>::kWidth; ++i) total += v[i];
  return total;
}

template <typename T>
T norm(const T* x, int64_t count) {
  typename Lanes<T>::Vec squares = {};
  int64_t i = 0;
  for (; i + Lanes<T>::kWidth <= count; i += Lanes<T>::kWidth) squares += load(x + i) * load(x + i);
  T total = sum<T>(squares);
  for (; i < count; ++i) total += x[i] * x[i];
  return std::sqrt(total);
}

}  // namespace
}  // namespace kronline
