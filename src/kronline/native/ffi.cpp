// What XLA calls: the products of KF-RTRL and KF-TBPTT on a CPU, for unit-wise cells.
//
//   merge_pair:     merge_pair.h, one pair of KF-RTRL
//   rmm:            jacobian.h, P <- P H, in place
//   merge_segment:  merge_segment.h, a segment of KF-TBPTT, or a step of OK
//   mix:            mix.h, how K products become r, from their Gram matrices
//   push_traces:    push_traces.h, the exact traces of a layer over a segment
//   push_traces_added: the same, with what is read added up over lanes
//
// One work item is one lane (or some columns of one lane, where lanes are few).

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "jacobian.h"
#include "merge_pair.h"
#include "merge_segment.h"
#include "mix.h"
#include "parallel.h"
#include "push_traces.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace kronline {
namespace {

constexpr int64_t kRowsAdded = 26;  // of `push_traces_added`, at a time

using Any = ffi::AnyBuffer;
using Out = ffi::Result<ffi::AnyBuffer>;

// Lanes are split where they are too few for the threads.
int64_t parts_of_a_lane(int64_t lanes, int64_t threads, int64_t most) {
  return std::clamp<int64_t>(ceil_div(threads, lanes), 1, most);
}

// How many of the pool's threads so many multiplications are worth: to wake one takes longer than
// 2^16 of them.
int64_t threads_for(const ffi::ThreadPool& pool, int64_t work) {
  return std::clamp<int64_t>(work >> 16, 1, pool.num_threads());
}

Shape shape_of(Any D, ffi::Span<const int64_t> reads) {
  auto d = D.dimensions();
  const int64_t rank = d.size(), n = d[rank - 1], r = d[rank - 2], q = d[rank - 3];
  const int64_t lanes = static_cast<int64_t>(D.element_count()) / (q * r * n);
  return {lanes, q, static_cast<int64_t>(reads.size()), r, n, reads.begin()};
}

// Lane l's part of an array that has `count` numbers per lane.
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
ffi::Error merge_pair(ffi::ThreadPool pool, ffi::Span<const int64_t> reads,
                      ffi::Span<const int64_t> offsets, int64_t size, bool before, Any W, Any D,
                      Any E, Any h, Any delta, Any c, Any u, Any A, Any norm_A, Out u_out,
                      Out A_out, Out norm_out, Out dA) {
  Shape s = shape_of(D, reads);
  s.size = size, s.count = offsets.size(), s.offsets = offsets.begin();
  const int64_t panels = ceil_div(s.C(), Lanes<T>::kCols), m = h.dimensions().back();
  in_place(u, u_out), in_place(A, A_out), in_place(norm_A, norm_out);

  std::vector<T> squares(s.lanes * panels);
  auto lane = [&](int64_t l) {
    return MergePair<T>{
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
  parallel(pool, pool.num_threads(), s.lanes * parts, [&](int64_t item) {
    const int64_t l = item / parts, from = item % parts * per_part;
    MergePair<T> m = lane(l);
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
  parallel(pool, pool.num_threads(), s.lanes * parts, [&](int64_t item) {
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
ffi::Error merge_segment(ffi::ThreadPool pool, ffi::Span<const int64_t> reads, int64_t sample,
                         bool start, Any WT, Any D, Any E, Any resets, Any signs, Any delta, Any U,
                         Any A, Out A_out, Out U_out, Out info, Out dA) {
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
    return MergeSegment<T>{
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
    parallel(pool, pool.num_threads(), s.lanes, [&](int64_t l) {
      MergeSegment<T> w = lane(l);
      w.Ps = scratch<T>(4, MergeSegment<T>::Ps_size(s, k));
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
  T* Ps = scratch<T>(4, MergeSegment<T>::Ps_size(s, k));
  std::vector<T> right(K * p);
  for (int64_t l = 0; l < s.lanes; ++l) {
    MergeSegment<T> w = lane(l);
    w.Ps = Ps;
    const int64_t parts = std::clamp<int64_t>(ceil_div(N, 64), 1, pool.num_threads());
    auto rows = [&](auto work) {
      parallel(pool, pool.num_threads(), parts, [&](int64_t i) { work(i * N / parts, (i + 1) * N / parts); });
    };
    rows([&](int64_t from, int64_t to) { w.push(s, from, to); });
    parallel(pool, pool.num_threads(), ceil_div(p * C, 4 * cols), [&](int64_t c) {
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

ffi::Error merge_pair_any(ffi::ThreadPool pool, ffi::Span<const int64_t> reads,
                          ffi::Span<const int64_t> offsets, int64_t size, bool before, Any W, Any D,
                          Any E, Any h, Any delta, Any c, Any u, Any A, Any norm_A, Out u_out,
                          Out A_out, Out norm_out, Out dA) {
  return by_type(merge_pair<float>, merge_pair<double>, pool, reads, offsets, size, before, W, D, E,
                 h, delta, c, u, A, norm_A, u_out, A_out, norm_out, dA);
}

ffi::Error rmm_any(ffi::ThreadPool pool, ffi::Span<const int64_t> reads, Any WT, Any D, Any E,
                   Any P, Out P_out) {
  return by_type(rmm<float>, rmm<double>, pool, reads, WT, D, E, P, P_out);
}

ffi::Error merge_segment_any(ffi::ThreadPool pool, ffi::Span<const int64_t> reads, int64_t sample,
                             bool start, Any WT, Any D, Any E, Any resets, Any signs, Any delta,
                             Any U, Any A, Out A_out, Out U_out, Out info, Out dA) {
  return by_type(merge_segment<float>, merge_segment<double>, pool, reads, sample, start, WT, D, E,
                 resets, signs, delta, U, A, A_out, U_out, info, dA);
}

template <typename T>
ffi::Error mix(ffi::ThreadPool pool, int64_t r, Any Gu, Any Gb, Any signs, Out left, Out right,
               Out variance) {
  const int64_t K = Gu.dimensions().back(), items = Gu.element_count() / (K * K);
  parallel(pool, pool.num_threads(), items, [&](int64_t item) {
    const T *u = at<T>(Gu, item, K * K), *b = at<T>(Gb, item, K * K);
    Mixer mixer(K, r);
    mixer.mix(std::vector<double>(u, u + K * K), std::vector<double>(b, b + K * K),
              static_cast<const T*>(at<T>(signs, item, K - 1)));
    std::copy(mixer.left.begin(), mixer.left.end(), at<T>(*left, item, K * r));
    std::copy(mixer.right.begin(), mixer.right.end(), at<T>(*right, item, K * r));
    *at<T>(*variance, item, 1) = static_cast<T>(mixer.variance);
  });
  return ffi::Error::Success();
}

ffi::Error mix_any(ffi::ThreadPool pool, int64_t r, Any Gu, Any Gb, Any signs, Out left, Out right,
                   Out variance) {
  return by_type(mix<float>, mix<double>, pool, r, Gu, Gb, signs, left, right, variance);
}

// What `push_traces` and `push_traces_added` have in common: lanes, and what is to be done for each.
template <typename T>
struct PushLanes {
  Any h, SD, S, cut, delta;
  T* e;
  int64_t n, g, c, k, m, lanes;

  PushLanes(Any h, Any SD, Any S, Any cut, Any delta, Any e, Out e_out)
      : h(h), SD(SD), S(S), cut(cut), delta(delta), e(static_cast<T*>(e_out->untyped_data())) {
    auto d = SD.dimensions();
    const int64_t rank = d.size();
    n = d[rank - 1], g = d[rank - 2], c = d[rank - 3], k = d[rank - 4];
    m = h.dimensions().back(), lanes = h.element_count() / (k * m);
    in_place(e, e_out);
  }

  int64_t threads(const ffi::ThreadPool& pool) const {
    return threads_for(pool, lanes * m * (c + k) * c * g * n);
  }

  // Rows and units of lane l.
  void push(int64_t l, int64_t first, int64_t end, int64_t from, int64_t to, int64_t* steps,
            T* read, T* odd) const {
    const T* d = at<T>(delta, l, c * n);
    const bool silent = std::all_of(d, d + c * n, [](T x) { return x == 0; });
    const PushTraces<T> push{at<T>(h, l, k * m),
                             at<T>(SD, l, k * c * g * n),
                             at<T>(S, l, c * c * n),
                             d,
                             silent,
                             *at<T>(cut, l, 1) != 0,
                             k,
                             m,
                             g,
                             n,
                             e + l * m * c * g * n,
                             read,
                             odd};
    switch (c) {
      case 1: return push.template rows<1>(first, end, from, to, steps);
      case 2: return push.template rows<2>(first, end, from, to, steps);
      case 3: return push.template rows<3>(first, end, from, to, steps);
      default: push.template rows<4>(first, end, from, to, steps);  // at most so many slots
    }
  }
};

template <typename T>
ffi::Error push_traces(ffi::ThreadPool pool, Any h, Any SD, Any S, Any cut, Any delta, Any e,
                       Out e_out, Out read) {
  const PushLanes<T> all(h, SD, S, cut, delta, e, e_out);
  const int64_t m = all.m, threads = all.threads(pool);
  const int64_t parts = parts_of_a_lane(all.lanes, threads, m);
  parallel(pool, threads, all.lanes * parts, [&](int64_t item) {
    const int64_t l = item / parts, part = item % parts;
    std::vector<int64_t> steps(all.k);
    all.push(l, part * m / parts, (part + 1) * m / parts, 0, all.n, steps.data(),
             at<T>(*read, l, m * all.g * all.n), nullptr);
  });
  return ffi::Error::Success();
}

// One work item is a few rows, or some units of these, of all lanes, one after another: the sum
// does not depend on the threads.
template <typename T>
ffi::Error push_traces_added(ffi::ThreadPool pool, Any h, Any SD, Any S, Any cut, Any delta, Any e,
                             Out e_out, Out sum, Out odd) {
  const PushLanes<T> all(h, SD, S, cut, delta, e, e_out);
  const int64_t m = all.m, n = all.n, lanes = all.lanes, threads = all.threads(pool);
  const int64_t tile = PushTraces<T>::kTile, tiles = ceil_div(n, tile);
  const int64_t rows = std::min<int64_t>(kRowsAdded, m), blocks = ceil_div(m, rows);
  const int64_t parts = std::clamp<int64_t>(ceil_div(threads, blocks), 1, tiles);
  std::vector<T> found(blocks * parts * lanes);
  parallel(pool, threads, blocks * parts, [&](int64_t item) {
    const int64_t block = item / parts, part = item % parts;
    const int64_t first = block * rows, end = std::min(first + rows, m);
    const int64_t from = part * tiles / parts * tile;
    const int64_t to = std::min((part + 1) * tiles / parts * tile, n);
    T* out = at<T>(*sum, 0, 0);
    for (int64_t i = first * all.g; i < end * all.g; ++i)
      std::fill(out + i * n + from, out + i * n + to, T(0));
    std::vector<int64_t> steps(all.k);
    for (int64_t l = 0; l < lanes; ++l)
      all.push(l, first, end, from, to, steps.data(), out, &found[item * lanes + l]);
  });
  T* each = at<T>(*odd, 0, 0);
  std::fill(each, each + lanes, T(0));
  for (size_t i = 0; i < found.size(); ++i) each[i % lanes] += found[i];
  return ffi::Error::Success();
}

ffi::Error push_traces_any(ffi::ThreadPool pool, Any h, Any SD, Any S, Any cut, Any delta, Any e,
                           Out e_out, Out read) {
  return by_type(push_traces<float>, push_traces<double>, pool, h, SD, S, cut, delta, e, e_out,
                 read);
}

ffi::Error push_traces_added_any(ffi::ThreadPool pool, Any h, Any SD, Any S, Any cut, Any delta,
                                 Any e, Out e_out, Out sum, Out odd) {
  return by_type(push_traces_added<float>, push_traces_added<double>, pool, h, SD, S, cut, delta,
                 e, e_out, sum, odd);
}

}  // namespace
}  // namespace kronline

using namespace kronline;  // NOLINT: the handlers below are C symbols

extern "C" const char* kronline_vector() {
  return kBytes == 64 ? "AVX-512" : kBytes == 32 ? "AVX2" : "plain C++";
}

#ifndef KRONLINE_ORIGIN
#define KRONLINE_ORIGIN ""  // a wheel's kernel says what it was made from (recipe.py)
#endif

extern "C" const char* kronline_origin() { return KRONLINE_ORIGIN; }

XLA_FFI_DEFINE_HANDLER_SYMBOL(kronline_merge_pair, merge_pair_any,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<ffi::Span<const int64_t>>("reads")
                                  .Attr<ffi::Span<const int64_t>>("offsets")  // none: dense
                                  .Attr<int64_t>("size")                      // units per block
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

XLA_FFI_DEFINE_HANDLER_SYMBOL(kronline_merge_segment, merge_segment_any,
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

XLA_FFI_DEFINE_HANDLER_SYMBOL(kronline_mix, mix_any,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Attr<int64_t>("pairs")  // r
                                  .Arg<Any>()              // Gu (lanes, K, K)
                                  .Arg<Any>()              // Gb (lanes, K, K)
                                  .Arg<Any>()              // signs (lanes, K - 1)
                                  .Ret<Any>()              // left (lanes, K, r)
                                  .Ret<Any>()              // right (lanes, K, r)
                                  .Ret<Any>()              // variance (lanes,)
);

XLA_FFI_DEFINE_HANDLER_SYMBOL(kronline_push_traces, push_traces_any,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Any>()  // h (lanes, k, m)
                                  .Arg<Any>()  // S_t D_t (lanes, k, c, g, n); c <= 4
                                  .Arg<Any>()  // S_0 (lanes, c, c, n)
                                  .Arg<Any>()  // cut (lanes,), not 0 where the past is
                                  .Arg<Any>()  // delta (lanes, c, n)
                                  .Arg<Any>()  // e (lanes, m, c, g, n)
                                  .Ret<Any>()  // e, the same memory
                                  .Ret<Any>()  // d.e (lanes, m, g, n), of the old e
);

XLA_FFI_DEFINE_HANDLER_SYMBOL(kronline_push_traces_added, push_traces_added_any,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Any>()  // h, S_t D_t, S_0, cut, delta, e, as above
                                  .Arg<Any>()
                                  .Arg<Any>()
                                  .Arg<Any>()
                                  .Arg<Any>()
                                  .Arg<Any>()
                                  .Ret<Any>()  // e, the same memory
                                  .Ret<Any>()  // the sum of d.e over lanes (m, g, n)
                                  .Ret<Any>()  // (lanes,): 0, or NaN where d.e is not finite
);
