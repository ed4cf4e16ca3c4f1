// A loop over batch elements, shared among the caller and the threads of XLA's pool.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace tcgen05 {

// Runs body(first, last) over pieces of [0, count). The caller works too and waits only for pieces that
// another thread has begun, so a busy or absent pool cannot stop it. The first exception is rethrown.
template <typename Schedule>
void parallel_for(int64_t count, int64_t helpers, const Schedule& schedule,
                  std::function<void(int64_t, int64_t)> body) {
  struct State {
    std::function<void(int64_t, int64_t)> body;
    int64_t count, piece;
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::condition_variable idle;
    int64_t running = 0;
    std::exception_ptr error;

    void work() {
      for (;;) {
        {
          std::lock_guard<std::mutex> lock(mutex);
          if (error || next >= count) return;
          ++running;
        }
        const int64_t first = next.fetch_add(piece);
        try {
          if (first < count) body(first, first + piece < count ? first + piece : count);
        } catch (...) {
          std::lock_guard<std::mutex> lock(mutex);
          if (!error) error = std::current_exception();
        }
        std::lock_guard<std::mutex> lock(mutex);
        if (--running == 0) idle.notify_all();
      }
    }
  };
  auto state = std::make_shared<State>();
  state->body = std::move(body);
  state->count = count;
  // A few pieces per thread balance the load; a piece shares one set-up of the workspace.
  state->piece = count / (4 * (helpers + 1)) + 1;
  for (int64_t i = 0; i < helpers && i + 1 < count; ++i) schedule([state] { state->work(); });
  state->work();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->idle.wait(lock, [&] { return state->running == 0; });
  if (state->error) std::rethrow_exception(state->error);
}

}  // namespace tcgen05
