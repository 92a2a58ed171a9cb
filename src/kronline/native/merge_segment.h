// One lane of KF-TBPTT's segment, backwards: P_k <- I and P_t-1 <- P_t H_t; then the k terms
// h_t (x) P_t D_t and the p old pairs u_i (x) P_0 A_i are merged into p, in place
// (traces/segment_merge.py; traces/ok.py for k = 1).

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gemm.h"
#include "jacobian.h"
#include "mix.h"

namespace kronline {
namespace {

// Inner products of K vectors, which come piece by piece.
template <typename T>
class Gram {
  using Vec = typename Lanes<T>::Vec;
  static constexpr int kTile = 4;
  int64_t K, tiles;
  std::vector<T> sums;

 public:
  explicit Gram(int64_t K)
      : K(K), tiles(ceil_div(K, kTile)), sums(tiles * (tiles + 1) / 2 * kTile * kTile * Lanes<T>::kWidth) {}

  // How many vectors there must be room for.
  static int64_t padded(int64_t K) { return ceil_div(K, kTile) * kTile; }

  // A piece of each of the vectors, zero where there are fewer than `padded`; `length` is a multiple
  // of a vector register's.
  void add(const T* x, int64_t length) {
    T* at = sums.data();
    for (int64_t I = 0; I < tiles; ++I)
      for (int64_t J = 0; J <= I; ++J, at += kTile * kTile * Lanes<T>::kWidth) {
        const T *a = x + I * kTile * length, *b = x + J * kTile * length;
        Vec sum[kTile][kTile];
        for (int i = 0; i < kTile * kTile; ++i) sum[i / kTile][i % kTile] = load(at + i * Lanes<T>::kWidth);
        for (int64_t z = 0; z < length; z += Lanes<T>::kWidth) {
          Vec right[kTile];
          for (int j = 0; j < kTile; ++j) right[j] = load(b + j * length + z);
#pragma GCC unroll 4
          for (int i = 0; i < kTile; ++i) {
            const Vec left = load(a + i * length + z);
            for (int j = 0; j < kTile; ++j) sum[i][j] += left * right[j];
          }
        }
        for (int i = 0; i < kTile * kTile; ++i) store(at + i * Lanes<T>::kWidth, sum[i / kTile][i % kTile]);
      }
  }

  // `exponents`: of the powers of two that the vectors were divided by.
  std::vector<double> matrix(double scale, const std::vector<int>& exponents) const {
    std::vector<double> G(K * K);
    const T* at = sums.data();
    for (int64_t I = 0; I < tiles; ++I)
      for (int64_t J = 0; J <= I; ++J)
        for (int64_t i = I * kTile; i < (I + 1) * kTile; ++i)
          for (int64_t j = J * kTile; j < (J + 1) * kTile; ++j, at += Lanes<T>::kWidth)
            if (i < K && j < K)
              G[i * K + j] = G[j * K + i] =
                  std::ldexp(scale * sum<T>(load(at)), exponents[i] + exponents[j]);
    return G;
  }
};

// One lane of `merge_segment`: k steps, p pairs. Steps older than the last reset are out of reach.
template <typename T>
struct MergeSegment {
  const T *WT, *D, *E, *U, *signs, *delta;  // U (k + p, m): the left factors of all terms
  T *A, *U_new, *info, *dA;                 // A (N, p, r, n) is overwritten
  int64_t k, p, m, first, sample;           // first: the oldest step in reach; sample: rows
  bool cut;                                 // by a reset: the old pairs are out of reach
  bool start;                               // d.A at the start, not at the end
  T* Ps;                                    // P_t of all steps (k + 1, N, N), the last step first

  const T* D_at(const Shape& s, int64_t t) const { return D + t * s.q * s.C(); }
  const T* E_at(const Shape& s, int64_t t) const { return E + t * s.q * s.N(); }
  T* P_at(const Shape& s, int64_t t) const { return Ps + (k - 1 - t) * (s.N() * s.N() + pad()); }
  static constexpr int64_t pad() { return 3 * Lanes<T>::kCols; }  // not all in one part of a cache
  static int64_t Ps_size(const Shape& s, int64_t k) { return (k + 1) * (s.N() * s.N() + pad()); }

  // Rows [from, to) of every P_t.
  void push(const Shape& s, int64_t from, int64_t to) const {
    const int64_t N = s.N();
    T* P = P_at(s, k - 1) + from * N;
    std::fill(P, P + (to - from) * N, T(0));
    for (int64_t row = from; row < to; ++row, P += N) P[row] = 1;
    T* panels = scratch<T>(0, panels_size<T>(s));
    for (int64_t t = k - 1; t >= (cut ? first + 1 : 0); --t) {
      build_panels(s, WT, D_at(s, t), E_at(s, t), panels);
      T* next = P_at(s, t - 1) + from * N;
      if (t == k - 1) {
        rows_of_H(s, panels, E_at(s, t), from, to - from, next);
      } else {
        times_H(s, panels, E_at(s, t), P_at(s, t) + from * N, to - from, next);
      }
    }
  }

  // A <- P_0 A: columns [from, to) of all pairs together; from is a multiple of a panel.
  void columns(const Shape& s, int64_t from, int64_t to) const {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    const int64_t N = s.N(), C = p * s.C();
    if (cut) {
      if (start && from == 0) pull_all(s);
      return;
    }
    const T* P = P_at(s, -1);
    constexpr int64_t kPanels = 4;  // packed together: longer pieces of a row
    T* panels = scratch<T>(1, kPanels * N * L::kCols);
    for (int64_t c = from; c < to; c += kPanels * L::kCols) {
      const int64_t last = std::min(to, c + kPanels * L::kCols);
      for (int64_t row = 0; row < N; ++row)
        for (int64_t j = c; j < last; j += L::kCols)
          pack_row(panels + (j - c) * N + row * L::kCols, A + row * C + j, T(1),
                   std::min<int64_t>(L::kCols, last - j));
      for (int64_t j = c; j < last; j += L::kCols) {
        const T* panel = panels + (j - c) * N;
        const int64_t width = std::min<int64_t>(L::kCols, last - j);
        if (start) pull(N, panel, dA + j, width);
        for (int64_t R = 0; R < N; R += kRows) {
          auto done = [&](int m, Vec v0, Vec v1) __attribute__((always_inline)) {
            store_row(A + (R + m) * C + j, v0, v1, width);
          };
          blocks<T>(std::min<int64_t>(kRows, N - R), N, P + R * N, N, 1, panel, done);
        }
      }
    }
  }

  // One panel of delta A.
  void pull(int64_t N, const T* panel, T* out, int64_t width) const {
    using L = Lanes<T>;
    typename L::Vec v0 = {}, v1 = {};
    for (int64_t row = 0; row < N; ++row, panel += L::kCols) {
      v0 += delta[row] * load(panel);
      v1 += delta[row] * load(panel + L::kWidth);
    }
    store_row(out, v0, v1, width);
  }

  // The right factors of all terms in some of their rows, and from these how terms are mixed.
  void choose(const Shape& s, T* right) const {
    const int64_t n = s.n, N = s.N(), C = s.C(), K = k + p;
    const int64_t width = Lanes<T>::kWidth, length = ceil_div(std::max(C, m), width) * width;
    T* x = scratch<T>(2, Gram<T>::padded(K) * length);
    std::fill(x, x + Gram<T>::padded(K) * length, T(0));
    auto left = [&](int64_t) {
      for (int64_t i = 0; i < K; ++i) std::copy_n(U + i * m, m, x + i * length);
    };
    const std::vector<double> Gu = inner(x, length, 1, 1, left);
    std::fill(x, x + K * length, T(0));
    auto right_rows = [&](int64_t z) {
      const int64_t row = (2 * z + 1) * N / (2 * sample);
      for (int64_t t = first; t < k; ++t)
        for (int64_t g = 0; g < s.r; ++g) {
          T* __restrict b = x + t * length + g * n;
          const T *P = P_at(s, t) + row * N, *d = D_at(s, t) + g * n;
          for (int64_t j = 0; j < n; ++j) b[j] = P[j] * d[j];
          for (int64_t a = 1; a < s.q; ++a)
            for (int64_t j = 0; j < n; ++j) b[j] += P[a * n + j] * d[a * C + j];
        }
      for (int64_t i = 0; i < p && !cut; ++i)
        std::copy_n(A + (row * p + i) * C, C, x + (k + i) * length);
    };
    const std::vector<double> Gb = inner(x, length, sample, double(N) / double(sample), right_rows);
    kronline::Mixer mixer(K, p);
    mixer.mix(Gu, Gb, signs);
    std::copy(mixer.right.begin(), mixer.right.end(), right);
    std::fill(U_new, U_new + p * m, T(0));
    for (int64_t i = 0; i < p; ++i)
      for (int64_t j = 0; j < K; ++j) {
        const T weight = T(mixer.left[j * p + i]);
        for (int64_t z = 0; z < m; ++z) U_new[i * m + z] += weight * U[j * m + z];
      }
    double has = 0, energy = 0;  // |G'|^2 of the old pairs, and of the new ones
    for (int64_t i = k; i < K; ++i)
      for (int64_t j = k; j < K; ++j) has += Gu[i * K + j] * Gb[i * K + j];
    std::vector<double> u = reduced(mixer.left, Gu), b = reduced(mixer.right, Gb);
    for (int64_t i = 0; i < p * p; ++i) energy += u[i] * b[i];
    const double most = std::numeric_limits<T>::max();
    info[0] = T(std::min(mixer.variance, most));
    info[1] = T(std::min(has, most)), info[2] = T(std::min(energy, most));
  }

  // Inner products of k + p vectors, of which piece(z) puts piece z into x. Where a square of T
  // overflows, once more with each vector divided by a power of two.
  template <typename Piece>
  std::vector<double> inner(T* x, int64_t length, int64_t pieces, double scale, Piece piece) const {
    const int64_t K = k + p;
    std::vector<int> exponents(K);
    auto products = [&] {
      Gram<T> gram(K);
      for (int64_t z = 0; z < pieces; ++z) {
        piece(z);
        for (int64_t i = 0; i < K; ++i)
          if (exponents[i])
            for (int64_t j = 0; j < length; ++j)
              x[i * length + j] = std::ldexp(x[i * length + j], -exponents[i]);
        gram.add(x, length);
      }
      return gram.matrix(scale, exponents);
    };
    std::vector<double> G = products();
    if (std::all_of(G.begin(), G.end(), [](double g) { return std::isfinite(g); })) return G;
    std::vector<T> most(K);
    for (int64_t z = 0; z < pieces; ++z) {
      piece(z);
      for (int64_t i = 0; i < K; ++i)
        for (int64_t j = 0; j < length; ++j)
          most[i] = std::max(most[i], std::abs(x[i * length + j]));
    }
    for (int64_t i = 0; i < K; ++i)
      if (most[i] > 1 && std::isfinite(most[i])) exponents[i] = std::ilogb(most[i]);
    return products();
  }

  // X^T G X
  std::vector<double> reduced(const std::vector<double>& X, const std::vector<double>& G) const {
    const int64_t K = k + p;
    std::vector<double> GX(K * p), out(p * p);
    for (int64_t a = 0; a < K; ++a)
      for (int64_t b = 0; b < K; ++b)
        for (int64_t i = 0; i < p; ++i) GX[a * p + i] += G[a * K + b] * X[b * p + i];
    for (int64_t a = 0; a < K; ++a)
      for (int64_t j = 0; j < p; ++j)
        for (int64_t i = 0; i < p; ++i) out[j * p + i] += X[a * p + j] * GX[a * p + i];
    return out;
  }

  // A_i <- sum_t right_ti P_t D_t + sum_j right_ji (P A_j), for rows [from, to)
  void combine(const Shape& s, const T* right, int64_t from, int64_t to) const {
    T* mixed = scratch<T>(3, 4 * p * s.C());
    int64_t row = from;
    for (; p < 4 && row + 4 <= to; row += 4) combined<4>(s, right, row, mixed);
    for (; row + 2 <= to; row += 2) combined<2>(s, right, row, mixed);
    for (; row < to; ++row) combined<1>(s, right, row, mixed);
  }

  template <int Rows>
  void combined(const Shape& s, const T* right, int64_t row, T* mixed) const {
    const int64_t C = s.C();
    int64_t i = 0;
    for (; i + 8 <= p; i += 8) combined<Rows, 8>(s, right, row, i, mixed);
    for (; i + 4 <= p; i += 4) combined<Rows, 4>(s, right, row, i, mixed);
    for (; i < p; ++i) combined<Rows, 1>(s, right, row, i, mixed);
    std::memcpy(A + row * p * C, mixed, Rows * p * C * sizeof(T));
  }

  template <int Rows, int Pairs>
  void combined(const Shape& s, const T* right, int64_t row, int64_t i, T* mixed) const {
    using L = Lanes<T>;
    const int64_t n = s.n, N = s.N(), C = s.C();
    for (int64_t g = 0; g < s.r; ++g) {
      int64_t j = 0;
      for (; j + L::kWidth <= n; j += L::kWidth) {
        typename L::Vec sum[Rows][Pairs] = {};
        auto add = [&](int64_t term, const typename L::Vec* x) __attribute__((always_inline)) {
#pragma GCC unroll 8
          for (int z = 0; z < Pairs; ++z)
            for (int m = 0; m < Rows; ++m) sum[m][z] += right[term * p + i + z] * x[m];
        };
        for (int64_t t = k - 1; t >= first; --t) {
          const T *at = P_at(s, t) + row * N + j, *d = D_at(s, t) + g * n + j;
          typename L::Vec x[Rows] = {};
          for (int64_t a = 0; a < s.q; ++a)
            for (int m = 0; m < Rows; ++m) {
              // more streams than the machine follows by itself
              if (g == 0) __builtin_prefetch(at + m * N + a * n + 2 * L::kWidth);
              x[m] += load(at + m * N + a * n) * load(d + a * C);
            }
          add(t, x);
        }
        for (int64_t z = 0; z < p && !cut; ++z) {
          typename L::Vec x[Rows];
          for (int m = 0; m < Rows; ++m) x[m] = load(A + ((row + m) * p + z) * C + g * n + j);
          add(k + z, x);
        }
        for (int m = 0; m < Rows; ++m)
          for (int z = 0; z < Pairs; ++z)
            store(mixed + (m * p + i + z) * C + g * n + j, sum[m][z]);
      }
      for (; j < n; ++j)  // the units that do not fill a vector
        for (int m = 0; m < Rows; ++m)
          for (int z = 0; z < Pairs; ++z) {
            T sum = 0;
            for (int64_t t = k - 1; t >= first; --t)
              for (int64_t a = 0; a < s.q; ++a)
                sum += right[t * p + i + z] * P_at(s, t)[(row + m) * N + a * n + j] *
                       D_at(s, t)[a * C + g * n + j];
            for (int64_t y = 0; y < p && !cut; ++y)
              sum += right[(k + y) * p + i + z] * A[((row + m) * p + y) * C + g * n + j];
            mixed[(m * p + i + z) * C + g * n + j] = sum;
          }
    }
  }

  // dA_i = delta A_i
  void pull_all(const Shape& s) const {
    const int64_t C = p * s.C();
    std::fill(dA, dA + C, T(0));
    for (int64_t row = 0; row < s.N(); ++row)
      if (delta[row] != 0)  // or A may be anything
        for (int64_t c = 0; c < C; ++c) dA[c] += delta[row] * A[row * C + c];
  }
};

}  // namespace
}  // namespace kronline
