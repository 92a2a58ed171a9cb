// The products of KF-RTRL and KF-TBPTT on a CPU, for unit-wise cells, with H built in cache:
//
//   merge:  u (x) A <- one pair for u (x) HA + h (x) D, in place (kf.py's `merge`), with |HA| and
//           d.HA from the same pass over A
//   rmm:    P <- P H, in place
//   walk:   a segment of k steps backwards, P_k <- I and P_t-1 <- P_t H_t; then the k terms
//           h_t (x) P_t D_t and the p old pairs u_i (x) P_0 A_i are merged into p, in place
//           (tail.py; ok.py for k = 1)
//
//   H[(a,i),(b,j)] = sum_k D[a,k,i] W[(b,j),k,i] + [i=j] E[a,b,i]
//
// The first term exists only for the slots b that the linear maps read; the other columns of H are
// diagonal. Shapes: q slots, of which b are read; r gates; n units; N = qn, K = bn, C = rn.
//
// merge takes sparse weights, too (jacobians_sparse.py's BlockH): units in blocks, of which block i
// reads blocks i + o only, the same offsets o for all.
//
// One work item is one lane (or some columns of one lane, where lanes are few). Written in the
// compiler's vector extensions: one source for AVX-512, AVX2 and anything else.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>
#if defined(__SSE__)
#include <immintrin.h>
#endif

#include "mix.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

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

// Numbers too small for a full mantissa count as zero, as XLA has it: they are slow.
struct FlushDenormals {
#if defined(__SSE__)
  unsigned before = _mm_getcsr();
  FlushDenormals() { _mm_setcsr(before | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before); }
#endif
};

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

// Runs work(0), ..., work(items - 1) on the calling thread and on whatever threads are free.
// A thread begins with the share that it had the last time, which its cache may still hold, and
// helps with the others' when it is done.
template <typename Work>
void parallel(ffi::ThreadPool& pool, int64_t items, const Work& work) {
  if (items == 0) return;
  struct Share {
    alignas(64) std::atomic<int64_t> next{0};
    std::atomic<bool> taken{false};
  };
  struct Shared {
    explicit Shared(int64_t count) : shares(count) {}
    std::vector<Share> shares;
    alignas(64) std::atomic<int64_t> finished{0};
  };
  const int64_t count = std::clamp<int64_t>(pool.num_threads(), 1, items);
  auto shared = std::make_shared<Shared>(count);
  for (int64_t s = 0; s < count; ++s) shared->shares[s].next = s * items / count;
  const Work* w = &work;  // outlives every item, not every task: a late task finds no item left
  auto run = [shared, w, items, count] {
    static thread_local int64_t mine = 0;
    FlushDenormals flush;
    int64_t first = mine;
    for (int64_t s = 0; s < count; ++s, ++first)
      if (!shared->shares[first % count].taken.exchange(true)) break;
    mine = first % count;
    for (int64_t s = mine; s < mine + count; ++s) {
      const int64_t end = (s % count + 1) * items / count;
      for (int64_t i; (i = shared->shares[s % count].next.fetch_add(1)) < end;) {
        (*w)(i);
        shared->finished.fetch_add(1, std::memory_order_release);
      }
    }
  };
  for (int64_t s = 1; s < count; ++s) pool.Schedule(std::decay_t<decltype(run)>(run));
  run();
  for (int spins = 0; shared->finished.load(std::memory_order_acquire) < items; ++spins) {
    if (spins > 2000) std::this_thread::yield();  // the other thread may be waiting for this core
#if defined(__SSE__)
    _mm_pause();
#endif
  }
}

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

// sqrt(a/b) where both are positive, else 1.
template <typename T>
T safe_sqrt_ratio(T a, T b) {
  return a > 0 && b > 0 ? std::sqrt(a / b) : T(1);
}

// One lane of `merge`: what it works on, and the scalars that are known before HA is.
template <typename T>
struct Merge {
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
    alive = norm_u != 0;  // a NaN is not to be forgotten
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
    // the columns of H that are diagonal only: one number a row and slot that is not read
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

// One lane of `walk`: k steps, p pairs. Steps older than the last reset are out of reach.
template <typename T>
struct Walk {
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

// -- what XLA calls -------------------------------------------------------------------------------

using Any = ffi::AnyBuffer;
using Out = ffi::Result<ffi::AnyBuffer>;

// Lanes are split where they are too few for the threads.
int64_t parts_of_a_lane(int64_t lanes, int64_t threads, int64_t most) {
  return std::clamp<int64_t>(ceil_div(threads, lanes), 1, most);
}

Shape shape_of(Any D, ffi::Span<const int64_t> reads) {
  auto d = D.dimensions();
  const int64_t rank = d.size(), n = d[rank - 1], r = d[rank - 2], q = d[rank - 3];
  const int64_t lanes = static_cast<int64_t>(D.element_count()) / (q * r * n);
  return {lanes, q, static_cast<int64_t>(reads.size()), r, n, reads.begin()};
}

// Lane l's part of an array that has `count` numbers a lane.
template <typename T>
T* at(const Any& x, int64_t l, int64_t count) {
  return static_cast<T*>(x.untyped_data()) + l * count;
}

// Lane l's weights: W is one for all lanes, or one for every so many of them.
template <typename T>
const T* weight(const Any& W, const Shape& s, int64_t l) {
  const int64_t count = s.met() * s.C(), weights = W.element_count() / count;
  return at<T>(W, l * weights / s.lanes, count);
}

// XLA hands over the same memory for both, where it can.
void in_place(const Any& in, Out out) {
  if (out->untyped_data() != in.untyped_data())
    std::memcpy(out->untyped_data(), in.untyped_data(), in.size_bytes());
}

template <typename T>
ffi::Error merge(ffi::ThreadPool pool, ffi::Span<const int64_t> reads,
                 ffi::Span<const int64_t> offsets, int64_t size, bool before, Any W, Any D, Any E,
                 Any h, Any delta, Any c, Any u, Any A, Any norm_A, Out u_out, Out A_out,
                 Out norm_out, Out dA) {
  Shape s = shape_of(D, reads);
  s.size = size, s.count = offsets.size(), s.offsets = offsets.begin();
  const int64_t panels = ceil_div(s.C(), Lanes<T>::kCols), m = h.dimensions().back();
  in_place(u, u_out), in_place(A, A_out), in_place(norm_A, norm_out);

  std::vector<T> squares(s.lanes * panels);
  auto lane = [&](int64_t l) {
    return Merge<T>{
        weight<T>(W, s, l),
        at<T>(D, l, s.q * s.C()),
        at<T>(E, l, s.q * s.N()),
        at<T>(h, l, m),
        at<T>(delta, l, s.N()),
        m,
        *at<T>(c, l, 1),
        at<T>(*u_out, l, m),
        at<T>(*A_out, l, s.N() * s.C()),
        at<T>(*norm_out, l, 1),
        at<T>(*dA, l, s.C()),
        squares.data() + l * panels,
    };
  };
  const int64_t most = ceil_div(s.C(), 256);  // H is built for each part: not too small
  const int64_t parts = parts_of_a_lane(s.lanes, pool.num_threads(), most);
  const int64_t per_part = ceil_div(panels, parts) * Lanes<T>::kCols;
  std::vector<std::atomic<int64_t>> done(s.lanes);
  for (auto& d : done) d = 0;
  parallel(pool, s.lanes * parts, [&](int64_t item) {
    const int64_t l = item / parts, from = item % parts * per_part;
    Merge<T> m = lane(l);
    m.prepare(s);
    if (from < s.C()) m.columns(s, from, std::min(from + per_part, s.C()));
    if (done[l].fetch_add(1) == parts - 1) m.finish(s, before);
  });
  return ffi::Error::Success();
}

template <typename T>
ffi::Error rmm(ffi::ThreadPool pool, ffi::Span<const int64_t> reads, Any WT, Any D, Any E, Any P,
               Out P_out) {
  const Shape s = shape_of(D, reads);
  const int64_t p = P.dimensions()[P.dimensions().size() - 2];
  in_place(P, P_out);

  const int64_t parts = parts_of_a_lane(s.lanes, pool.num_threads(), ceil_div(p, 256));
  const int64_t per_part = ceil_div(ceil_div(p, kRows), parts) * kRows;
  parallel(pool, s.lanes * parts, [&](int64_t item) {
    const int64_t l = item / parts, from = item % parts * per_part;
    if (from >= p) return;
    const T* E_l = at<T>(E, l, s.q * s.N());
    T* panels = scratch<T>(0, panels_size<T>(s));
    build_panels(s, weight<T>(WT, s, l), at<T>(D, l, s.q * s.C()), E_l, panels);
    rmm_rows(s, panels, E_l, at<T>(*P_out, l, p * s.N()), from, std::min(from + per_part, p));
  });
  return ffi::Error::Success();
}

template <typename T>
ffi::Error walk(ffi::ThreadPool pool, ffi::Span<const int64_t> reads, int64_t sample, bool start,
                Any WT, Any D, Any E, Any resets, Any signs, Any delta, Any U, Any A, Out A_out,
                Out U_out, Out info, Out dA) {
  Shape s = shape_of(D, reads);
  const int64_t k = resets.dimensions().back(), p = U_out->dimensions()[U.dimensions().size() - 2];
  const int64_t m = U.dimensions().back(), K = k + p, cols = Lanes<T>::kCols;
  s.lanes /= k;  // D has one for every step
  in_place(A, A_out);

  const int64_t N = s.N(), C = s.C();
  auto lane = [&](int64_t l) {
    const T* reset = at<T>(resets, l, k);
    int64_t first = k - 1;
    while (first > 0 && reset[first] == 0) --first;
    return Walk<T>{
        weight<T>(WT, s, l),
        at<T>(D, l, k * s.q * C),
        at<T>(E, l, k * s.q * N),
        at<T>(U, l, K * m),
        at<T>(signs, l, K - 1),
        at<T>(delta, l, N),
        at<T>(*A_out, l, N * p * C),
        at<T>(*U_out, l, p * m),
        at<T>(*info, l, 3),
        at<T>(*dA, l, p * C),
        k,
        p,
        m,
        first,
        sample,
        reset[first] != 0,
        start,
        nullptr,
    };
  };
  if (s.lanes >= pool.num_threads()) {
    parallel(pool, s.lanes, [&](int64_t l) {
      Walk<T> w = lane(l);
      w.Ps = scratch<T>(4, Walk<T>::Ps_size(s, k));
      w.push(s, 0, N);
      w.columns(s, 0, p * C);
      std::vector<T> right(K * p);
      w.choose(s, right.data());
      w.combine(s, right.data(), 0, N);
      if (!start) w.pull_all(s);
    });
    return ffi::Error::Success();
  }
  // fewer lanes than threads: these share each lane's work
  T* Ps = scratch<T>(4, Walk<T>::Ps_size(s, k));
  std::vector<T> right(K * p);
  for (int64_t l = 0; l < s.lanes; ++l) {
    Walk<T> w = lane(l);
    w.Ps = Ps;
    const int64_t parts = std::clamp<int64_t>(ceil_div(N, 64), 1, pool.num_threads());
    auto rows = [&](auto work) {
      parallel(pool, parts, [&](int64_t i) { work(i * N / parts, (i + 1) * N / parts); });
    };
    rows([&](int64_t from, int64_t to) { w.push(s, from, to); });
    parallel(pool, ceil_div(p * C, 4 * cols), [&](int64_t c) {
      w.columns(s, c * 4 * cols, std::min((c + 1) * 4 * cols, p * C));
    });
    w.choose(s, right.data());
    rows([&](int64_t from, int64_t to) { w.combine(s, right.data(), from, to); });
    if (!start) w.pull_all(s);
  }
  return ffi::Error::Success();
}

bool is_of(ffi::DataType type, const Any& x) { return x.element_type() == type; }
bool is_of(ffi::DataType type, Out x) { return x->element_type() == type; }
template <typename T>
bool is_of(ffi::DataType, const T&) {
  return true;  // not an array
}

template <typename F32, typename F64, typename... Args>
ffi::Error by_type(F32 f32, F64 f64, Args... args) {
  if ((is_of(ffi::DataType::F32, args) && ...)) return f32(args...);
  if ((is_of(ffi::DataType::F64, args) && ...)) return f64(args...);
  return ffi::Error::InvalidArgument("kronline's kernel takes all float32 or all float64");
}

ffi::Error merge_any(ffi::ThreadPool pool, ffi::Span<const int64_t> reads,
                     ffi::Span<const int64_t> offsets, int64_t size, bool before, Any W, Any D,
                     Any E, Any h, Any delta, Any c, Any u, Any A, Any norm_A, Out u_out, Out A_out,
                     Out norm_out, Out dA) {
  return by_type(merge<float>, merge<double>, pool, reads, offsets, size, before, W, D, E, h, delta,
                 c, u, A, norm_A, u_out, A_out, norm_out, dA);
}

ffi::Error rmm_any(ffi::ThreadPool pool, ffi::Span<const int64_t> reads, Any WT, Any D, Any E,
                   Any P, Out P_out) {
  return by_type(rmm<float>, rmm<double>, pool, reads, WT, D, E, P, P_out);
}

ffi::Error walk_any(ffi::ThreadPool pool, ffi::Span<const int64_t> reads, int64_t sample, bool start,
                    Any WT, Any D, Any E, Any resets, Any signs, Any delta, Any U, Any A, Out A_out,
                    Out U_out, Out info, Out dA) {
  return by_type(walk<float>, walk<double>, pool, reads, sample, start, WT, D, E, resets, signs,
                 delta, U, A, A_out, U_out, info, dA);
}

}  // namespace

extern "C" const char* kronline_vector() {
  return kBytes == 64 ? "AVX-512" : kBytes == 32 ? "AVX2" : "plain C++";
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(kronline_merge, merge_any,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("reads")
                                  .Attr<ffi::Span<const int64_t>>("offsets")  // none: dense
                                  .Attr<int64_t>("size")                      // units a block
                                  .Attr<bool>("before")  // d.HA instead of d.A
                                  .Arg<Any>()            // W (lanes, K, r, n) or (1, K, r, n)
                                  .Arg<Any>()            // D (lanes, q, r, n)
                                  .Arg<Any>()            // E (lanes, q, q, n)
                                  .Arg<Any>()            // h (lanes, m)
                                  .Arg<Any>()            // delta (lanes, N)
                                  .Arg<Any>()            // c (lanes,)
                                  .Arg<Any>()            // u (lanes, m)
                                  .Arg<Any>()            // A (lanes, N, r, n)
                                  .Arg<Any>()            // |A| (lanes,)
                                  .Ret<Any>()            // u, the same memory
                                  .Ret<Any>()            // A, the same memory
                                  .Ret<Any>()            // |A|, the same memory
                                  .Ret<Any>()            // d.A (lanes, r, n)
);

XLA_FFI_DEFINE_HANDLER_SYMBOL(kronline_rmm, rmm_any,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("reads")
                                  .Arg<Any>()  // WT (lanes, r, n, K) or (1, r, n, K)
                                  .Arg<Any>()  // D (lanes, q, r, n)
                                  .Arg<Any>()  // E (lanes, q, q, n)
                                  .Arg<Any>()  // P (lanes, p, N)
                                  .Ret<Any>()  // P, the same memory
);

XLA_FFI_DEFINE_HANDLER_SYMBOL(kronline_walk, walk_any,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("reads")
                                  .Attr<int64_t>("sample")  // rows in which terms are compared
                                  .Attr<bool>("start")      // d.A at the start, or at the end
                                  .Arg<Any>()               // WT (lanes, r, n, K) or (1, r, n, K)
                                  .Arg<Any>()               // D (lanes, k, q, r, n)
                                  .Arg<Any>()               // E (lanes, k, q, q, n)
                                  .Arg<Any>()  // resets (lanes, k), not 0 where there is one
                                  .Arg<Any>()  // signs (lanes, k + p - 1)
                                  .Arg<Any>()  // delta (lanes, N)
                                  .Arg<Any>()  // U (lanes, k + p, m)
                                  .Arg<Any>()  // A (lanes, N, p, r, n)
                                  .Ret<Any>()  // A, the same memory
                                  .Ret<Any>()  // U (lanes, p, m)
                                  .Ret<Any>()  // (lanes, 3): variance, |G'|^2 before and after
                                  .Ret<Any>()  // d.A (lanes, p, r, n)
);
