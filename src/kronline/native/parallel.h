// Work on all free threads of XLA's pool.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>
#if defined(__SSE__)
#include <immintrin.h>
#endif

#include "xla/ffi/api/ffi.h"

namespace kronline {
namespace {

namespace ffi = xla::ffi;

// Numbers too small for a full mantissa count as zero, as XLA has it: they are slow.
struct FlushDenormals {
#if defined(__SSE__)
  unsigned before = _mm_getcsr();
  FlushDenormals() { _mm_setcsr(before | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before); }
#endif
};

// Runs work(0), ..., work(items - 1) on the calling thread and on whatever others of `threads` are
// free; one thread is the calling one, and nobody is woken.
// A thread begins with the share that it had the last time, which its cache may still hold, and
// helps with the others' when it is done.
template <typename Work>
void parallel(ffi::ThreadPool& pool, int64_t threads, int64_t items, const Work& work) {
  if (items == 0) return;
  if (threads == 1 || items == 1) {
    FlushDenormals flush;
    for (int64_t i = 0; i < items; ++i) work(i);
    return;
  }
  struct Share {
    alignas(64) std::atomic<int64_t> next{0};
    std::atomic<bool> taken{false};
  };
  struct Shared {
    explicit Shared(int64_t count) : shares(count) {}
    std::vector<Share> shares;
    alignas(64) std::atomic<int64_t> finished{0};
  };
  const int64_t count = std::clamp<int64_t>(threads, 1, items);
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

}  // namespace
}  // namespace kronline
