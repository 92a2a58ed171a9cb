// The exact traces of a layer over a segment (traces/in_layer.py), in one pass over e:
//
//   read[i,g,j] = sum_a delta[a,j] e[i,a,g,j], and 0 where delta is, whatever e is
//   e[i,a,g,j] <- sum_b S[a,b,j] e[i,b,g,j] + sum_t h[t,i] SD[t,a,g,j]
//
// Steps in which h[t,i] is zero cost nothing: with symbols only one row is added to per step.
//
// Where only the sum of read over lanes is wanted, every lane adds to the same numbers, which stay in
// the cache, and keeps `odd`: 0, or NaN if a number of its own was not finite.

#pragma once

#include <algorithm>
#include <cstdint>

namespace kronline {

template <typename T>
struct PushTraces {
  const T* h;      // (k, m)
  const T* SD;     // (k, c, g, n)
  const T* S;      // (c, c, n)
  const T* delta;  // (c, n)
  bool silent;     // whether delta is 0
  bool cut;        // after a reset the old e counts as zero, even where it is not finite
  int64_t k, m, g, n;
  T* e;     // (m, c, g, n), in place
  T* read;  // (m, g, n)
  T* odd;   // where read is added to; else null

  // Rows from `first` to `end`, units from `from` to `to`; C slots.
  template <int C>
  void rows(int64_t first, int64_t end, int64_t from, int64_t to, int64_t* steps) const {
    T nan[kTile] = {};
    for (int64_t i = first; i < end; ++i) {
      int64_t count = 0;
      for (int64_t t = 0; t < k; ++t)
        if (h[t * m + i] != 0) steps[count++] = t;
      for (int64_t gate = 0; gate < g; ++gate)
        for (int64_t j = from; j < to; j += kTile)
          if (to - j >= kTile)
            tile<C, kTile>(i, gate, j, kTile, steps, count, nan);
          else
            tile<C, 0>(i, gate, j, to - j, steps, count, nan);
    }
    for (int64_t x = 0; x < kTile && odd; ++x) *odd += nan[x];
  }

  static constexpr int64_t kTile = 32;

 private:

  // `Width` units, or `rest` of them where that is 0, from unit j.
  template <int C, int Width>
  void tile(int64_t i, int64_t gate, int64_t j, int64_t rest, const int64_t* steps,
            int64_t count, T* nan) const {
    const int64_t width = Width ? Width : rest, slot = g * n;
    T* mine = e + i * C * slot + gate * n + j;
    T sum[C][kTile], seen[kTile] = {};
    for (int a = 0; a < C; ++a)
      for (int64_t x = 0; x < width; ++x) sum[a][x] = 0;
    for (int b = 0; b < C; ++b) {
      const T *old = mine + b * slot, *d = delta + b * n + j;
      for (int64_t x = 0; x < width && !silent; ++x) seen[x] += d[x] * old[x];
      if (cut) continue;
      for (int a = 0; a < C; ++a) {
        const T* s = S + (a * C + b) * n + j;
        for (int64_t x = 0; x < width; ++x) sum[a][x] += s[x] * old[x];
      }
    }
    for (int64_t c = 0; c < count; ++c) {
      const int64_t t = steps[c];
      const T factor = h[t * m + i], *add = SD + t * C * slot + gate * n + j;
      for (int a = 0; a < C; ++a)
        for (int64_t x = 0; x < width; ++x) sum[a][x] += factor * add[a * slot + x];
    }
    for (int a = 0; a < C; ++a) std::copy_n(sum[a], width, mine + a * slot);
    T* out = read + (i * g + gate) * n + j;
    if (!odd) {
      std::copy_n(seen, width, out);
    } else if (!silent) {
      for (int64_t x = 0; x < width; ++x) out[x] += seen[x];
      for (int64_t x = 0; x < width; ++x) nan[x] += seen[x] - seen[x];
    }
  }
};

}  // namespace kronline
