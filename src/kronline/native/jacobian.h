// H of a unit-wise cell, built in cache, and products with it:
//
//   H[(a,i),(b,j)] = sum_k D[a,k,i] W[(b,j),k,i] + [i=j] E[a,b,i]
//
// The first term exists only for the slots b that the linear maps read; the other columns of H are
// diagonal. Shapes: q slots, of which b are read; r gates; n units; N = qn, K = bn, C = rn.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gemm.h"

namespace kronline {
namespace {

struct Shape {
  int64_t lanes, q, b, r, n;
  const int64_t* reads;  // the slot of each read column block
  int64_t size = 0, count = 0;  // sparse: units a block, and how many blocks are read
  const int64_t* offsets = nullptr;
  int64_t N() const { return q * n; }
  int64_t K() const { return b * n; }
  int64_t C() const { return r * n; }
  int64_t met() const { return count ? b * count * size : K(); }  // numbers that a unit reads
  bool read(int64_t slot) const { return std::find(reads, reads + b, slot) != reads + b; }
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One slot's part of a column of H: h[i] = sum_k d[k,i] w[k,i].
template <typename T>
INLINE void column(int64_t r, int64_t n, const T* d, const T* w, T* __restrict h) {
  constexpr int kWidth = Lanes<T>::kWidth;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    typename Lanes<T>::Vec v = load(d + i) * load(w + i);
    for (int64_t k = 1; k < r; ++k) v += load(d + k * n + i) * load(w + k * n + i);
    store(h + i, v);
  }
  for (; i < n; ++i) {
    h[i] = 0;
    for (int64_t k = 0; k < r; ++k) h[i] += d[k * n + i] * w[k * n + i];
  }
}

// H's dense columns as strips of kRows rows, each strip column by column.
template <typename T>
void build_strips(const Shape& s, const T* W, const T* D, const T* E, T* strips) {
  constexpr int64_t kBatch = 8;  // columns that are made before they are dealt to the strips
  const int64_t n = s.n, N = s.N(), K = s.K(), C = s.C();
  T* columns = scratch<T>(2, kBatch * N);
  for (int64_t from = 0; from < K; from += kBatch) {
    const int64_t to = std::min(from + kBatch, K);
    T* h = columns;
    for (int64_t j = from; j < to; ++j)
      for (int64_t a = 0; a < s.q; ++a, h += n) {
        column(s.r, n, D + a * C, W + j * C, h);
        h[j % n] += E[(a * s.q + s.reads[j / n]) * n + j % n];
      }
    int64_t R = 0;
    for (; R + kRows <= N; R += kRows)
      for (int64_t j = from; j < to; ++j)
        std::memcpy(strips + R * K + j * kRows, columns + (j - from) * N + R, kRows * sizeof(T));
    for (int64_t j = from; R < N && j < to; ++j)
      std::memcpy(strips + R * K + j * kRows, columns + (j - from) * N + R, (N - R) * sizeof(T));
  }
}

// The same for sparse weights: row by row, the numbers that its unit reads. W: (blocks, r, size,
// met), its last axis by slot, offset and unit; offset 0 comes first.
template <typename T>
void build_rows(const Shape& s, const T* W, const T* D, const T* E, T* rows) {
  const int64_t n = s.n, met = s.met(), B = s.size;
  for (int64_t a = 0; a < s.q; ++a)
    for (int64_t i = 0; i < n; ++i, rows += met) {
      const T *w = W + (i / B * s.r * B + i % B) * met, *d = D + a * s.C() + i;
      for (int64_t j = 0; j < met; ++j) rows[j] = d[0] * w[j];
      for (int64_t k = 1; k < s.r; ++k)
        for (int64_t j = 0; j < met; ++j) rows[j] += d[k * n] * w[k * B * met + j];
      for (int64_t b = 0; b < s.b; ++b)
        rows[b * s.count * B + i % B] += E[(a * s.q + s.reads[b]) * n + i];
    }
}

// H's dense columns as panels of kCols columns, each panel row by row. WT: W as (r, n, K).
template <typename T>
void build_panels(const Shape& s, const T* WT, const T* D, const T* E, T* panels) {
  using L = Lanes<T>;
  const int64_t n = s.n, N = s.N(), K = s.K();
  T* h = panels;  // its row, in the first panel
  for (int64_t a = 0; a < s.q; ++a)
    for (int64_t i = 0; i < n; ++i, h += L::kCols) {
      const T *d = D + a * s.C() + i, *w = WT + i * K;  // of gate k: d[k n], w[k n K]
      int64_t c = 0;
      for (; c + L::kCols <= K; c += L::kCols) {
        auto v0 = d[0] * load(w + c), v1 = d[0] * load(w + c + L::kWidth);
        for (int64_t k = 1; k < s.r; ++k) {
          v0 += d[k * n] * load(w + k * n * K + c);
          v1 += d[k * n] * load(w + k * n * K + c + L::kWidth);
        }
        store(h + c * N, v0);
        store(h + c * N + L::kWidth, v1);
      }
      if (c < K) {
        std::fill_n(h + c * N, L::kCols, T(0));
        for (int64_t k = 0; k < s.r; ++k)
          for (int64_t j = c; j < K; ++j) h[c * N + j - c] += d[k * n] * w[k * n * K + j];
      }
      for (int64_t b = 0; b < s.b; ++b) {  // the diagonals
        const int64_t j = b * n + i, c = j / L::kCols * L::kCols;
        h[c * N + j - c] += E[(a * s.q + s.reads[b]) * n + i];
      }
    }
}

// `out` <- `left` H, for some rows of N numbers; panels are H's, each read once for all the rows.
template <typename T>
void times_H(const Shape& s, const T* panels, const T* E, const T* left, int64_t rows, T* out) {
  using L = Lanes<T>;
  using Vec = typename L::Vec;
  const int64_t n = s.n, N = s.N(), K = s.K();
  for (int64_t c = 0; c < K; c += L::kCols) {
    const int64_t last = std::min(K, c + L::kCols);
    const bool whole = last - c == L::kCols && c / n == (last - 1) / n;  // or it straddles two slots
    T* straight = out + s.reads[c / n] * n + c % n;
    for (int64_t R = 0; R < rows; R += kRows) {
      const int count = std::min<int64_t>(kRows, rows - R);
      auto done = [&](int m, Vec v0, Vec v1) __attribute__((always_inline)) {
        if (whole) {
          store_row(straight + (R + m) * N, v0, v1, L::kCols);
          return;
        }
        T row[L::kCols];
        store_row(row, v0, v1, L::kCols);
        for (int64_t j = c; j < last; ++j)
          out[(R + m) * N + s.reads[j / n] * n + j % n] = row[j - c];
      };
      blocks<T>(count, N, left + R * N, N, 1, panels + c * N, done);
    }
  }
  for (int64_t b = 0; b < s.q; ++b) {  // the diagonal columns
    if (s.read(b)) continue;
    for (int64_t m = 0; m < rows; ++m) {
      T* to = out + m * N + b * n;
      std::fill(to, to + n, T(0));
      for (int64_t a = 0; a < s.q; ++a)
        for (int64_t i = 0; i < n; ++i)
          to[i] += left[m * N + a * n + i] * E[(a * s.q + b) * n + i];
    }
  }
}

// `out` <- rows [from, from + rows) of H.
template <typename T>
void rows_of_H(const Shape& s, const T* panels, const T* E, int64_t from, int64_t rows, T* out) {
  const int64_t n = s.n, N = s.N(), K = s.K(), cols = Lanes<T>::kCols;
  for (int64_t j = 0, end; j < K; j = end) {  // columns that lie in one panel and one slot
    end = std::min({K, (j / cols + 1) * cols, (j / n + 1) * n});
    const T* panel = panels + j / cols * cols * N + j % cols;
    T* to = out + s.reads[j / n] * n + j % n;
    for (int64_t m = 0; m < rows; ++m)
      std::copy_n(panel + (from + m) * cols, end - j, to + m * N);
  }
  for (int64_t b = 0; b < s.q; ++b) {  // the diagonal columns
    if (s.read(b)) continue;
    for (int64_t m = 0; m < rows; ++m) {
      const int64_t a = (from + m) / n, i = (from + m) % n;
      std::fill_n(out + m * N + b * n, n, T(0));
      out[m * N + b * n + i] = E[(a * s.q + b) * n + i];
    }
  }
}

template <typename T>
int64_t panels_size(const Shape& s) {
  return ceil_div(s.K(), Lanes<T>::kCols) * Lanes<T>::kCols * s.N();
}

// P <- P H for rows [from, to) of one lane's P (p x N), in place.
template <typename T>
void rmm_rows(const Shape& s, const T* panels, const T* E, T* P, int64_t from, int64_t to) {
  const int64_t N = s.N(), most = 4 * kRows;  // rows that go over a panel while it is in cache
  T* left = scratch<T>(1, most * N);
  for (int64_t R = from; R < to; R += most) {
    const int64_t rows = std::min(most, to - R);
    std::memcpy(left, P + R * N, rows * N * sizeof(T));
    times_H(s, panels, E, left, rows, P + R * N);
  }
}

}  // namespace
}  // namespace kronline
