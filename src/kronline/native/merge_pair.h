// One lane of KF-RTRL's merge: u (x) A <- one pair for u (x) HA + h (x) D, in place (traces/kf.py),
// with |HA| and d.HA from the same pass over A.
//
// Takes sparse weights, too (linearised/blocks.py): units in blocks, of which block i reads blocks
// i + o only, the same offsets o for all.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "gemm.h"
#include "jacobian.h"

namespace kronline {
namespace {

// sqrt(a/b) where both are positive, else 1.
template <typename T>
T safe_sqrt_ratio(T a, T b) {
  return a > 0 && b > 0 ? std::sqrt(a / b) : T(1);
}

// One lane of `merge_pair`: what it works on, and the scalars that are known before HA is.
template <typename T>
struct MergePair {
  const T *W, *D, *E, *h, *delta;  // h: the feature vector, m numbers
  int64_t m;
  T c;                        // the sign
  T *u, *A, *norm_A, *dA;     // all but dA are read, then overwritten
  T* squares;                 // |HA|^2 of each column panel
  T norm_u, sigma, norm_h, norm_D;
  bool alive;

  // u and A trade a power of two, so that they stay of a size.
  void prepare(const Shape& s) {
    norm_u = norm(u, m);
    alive = norm_u != 0;  // true for NaN, which must stay visible
    sigma = std::exp2(std::nearbyint(std::log2(safe_sqrt_ratio(norm_u, *norm_A))));
    norm_u /= sigma;
    norm_h = norm(h, m);
    norm_D = norm(D, s.q * s.C());
  }

  // Columns [from, to) of HA, in place; from is a multiple of a panel.
  void columns(const Shape& s, int64_t from, int64_t to) const {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    const int64_t n = s.n, N = s.N(), K = s.K(), C = s.C();
    if (!alive) {
      for (int64_t R = 0; R < N; ++R) std::fill(A + R * C + from, A + R * C + to, T(0));
      std::fill(dA + from, dA + to, T(0));
      return;
    }
    T* H = scratch<T>(0, ceil_div(N, kRows) * kRows * s.met());
    T* panel = scratch<T>(1, N * L::kCols);
    s.count ? build_rows(s, W, D, E, H) : build_strips(s, W, D, E, H);
    // the columns of H that are diagonal only: one number per row and slot that is not read
    const int64_t unread = s.q - s.b;
    T* diagonals = scratch<T>(2, unread * N);
    for (int64_t b = 0, u = 0; b < s.q; ++b) {
      if (s.read(b)) continue;
      for (int64_t a = 0; a < s.q; ++a)
        std::copy_n(E + (a * s.q + b) * n, n, diagonals + u * N + a * n);
      ++u;
    }

    for (int64_t c = from; c < to; c += L::kCols) {
      const int64_t width = std::min<int64_t>(L::kCols, to - c);
      // the slots that are read come first, in the order of H's columns
      T* at = panel;
      auto pack = [&](int64_t slot) {
        for (int64_t i = 0; i < n; ++i, at += L::kCols)
          pack_row(at, A + (slot * n + i) * C + c, sigma, width);
      };
      for (int64_t b = 0; b < s.b; ++b) pack(s.reads[b]);
      for (int64_t b = 0; b < s.q; ++b)
        if (!s.read(b)) pack(b);

      Vec square[2] = {}, dot[2] = {};
      auto strip = [&](int64_t R, int rows, const T* const* runs) {
        const int64_t first = R % n;
        auto done = [&](int m, Vec v0, Vec v1) __attribute__((always_inline)) {
          const int64_t row = R + m;
          if (unread > 0) {
            int64_t i = first + m;  // the row's unit, without a division
            while (i >= n) i -= n;
            for (int64_t b = 0; b < unread; ++b) {
              const T* p = panel + (K + b * n + i) * L::kCols;
              v0 += diagonals[b * N + row] * load(p);
              v1 += diagonals[b * N + row] * load(p + L::kWidth);
            }
          }
          square[0] += v0 * v0;
          square[1] += v1 * v1;
          dot[0] += delta[row] * v0;
          dot[1] += delta[row] * v1;
          store_row(A + row * C + c, v0, v1, width);
        };
        if (runs) {
          blocks_of_runs<T>(rows, s.b * s.count, s.size, H + R * s.met(), s.met(), runs, done);
        } else {
          blocks<T>(rows, K, H + R * K, 1, kRows, panel, done);
        }
      };
      if (s.count) {
        sparse(s, panel, strip);
      } else {
        for (int64_t R = 0; R < N; R += kRows) strip(R, std::min<int64_t>(kRows, N - R), nullptr);
      }
      store_row(dA + c, dot[0], dot[1], width);
      squares[c / L::kCols] = sum<T>(square[0] + square[1]);
    }
  }

  // Strips of rows that lie in one block of units, as even as they can be, with what they read.
  template <typename Strip>
  void sparse(const Shape& s, const T* panel, Strip strip) const {
    const int64_t B = s.size, blocks = s.n / B, rows = ceil_div(B, ceil_div(B, kRows));
    std::vector<const T*> runs(s.b * s.count);
    for (int64_t i = 0; i < blocks; ++i) {
      for (int64_t b = 0; b < s.b; ++b)
        for (int64_t o = 0; o < s.count; ++o)
          runs[b * s.count + o] =
              panel + (b * s.n + (i + s.offsets[o]) % blocks * B) * Lanes<T>::kCols;
      for (int64_t a = 0; a < s.q; ++a)
        for (int64_t at = 0; at < B; at += rows)
          strip(a * s.n + i * B + at, std::min(rows, B - at), runs.data());
    }
  }

  // Once all columns are there: A <- HA + a D, u <- u + h/a, with a = c p1/p2.
  void finish(const Shape& s, bool before) const {
    T norm_HA = 0;
    if (alive)
      for (int64_t p = 0; p < ceil_div(s.C(), Lanes<T>::kCols); ++p) norm_HA += squares[p];
    norm_HA = std::sqrt(norm_HA);
    // a term with a zero factor is dropped; the other is then exact
    const bool old = norm_HA > 0, fresh = norm_h > 0 && norm_D > 0;
    T a = 0;
    if (fresh) {
      a = old ? c * safe_sqrt_ratio(norm_h, norm_u * norm_D) * std::sqrt(norm_HA)
              : safe_sqrt_ratio(norm_h, norm_D);
    }
    for (int64_t i = 0; i < m; ++i) u[i] = (old ? u[i] / sigma : 0) + (a != 0 ? h[i] / a : 0);
    *norm_A = std::sqrt(norm_HA * norm_HA + a * norm_D * a * norm_D);
    for (int64_t x = 0; x < s.q; ++x)
      for (int64_t k = 0; k < s.r; ++k)
        for (int64_t i = 0; i < s.n; ++i) {
          const T d = a * D[(x * s.r + k) * s.n + i];
          A[((x * s.n + i) * s.r + k) * s.n + i] += d;
          if (!before) dA[k * s.n + i] += delta[x * s.n + i] * d;
        }
    if (before)
      for (int64_t j = 0; j < s.C(); ++j) dA[j] /= sigma;
  }
};

}  // namespace
}  // namespace kronline
