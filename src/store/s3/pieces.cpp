#include "store/s3/pieces.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#include "base/guard.h"

namespace deltawire::s3 {
namespace {

uint64_t divide_up(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

}  // namespace

Pieces Pieces::cut(uint64_t size, unsigned connections, uint64_t min_piece, uint64_t max_piece,
                   uint64_t max_count) {
  const uint64_t share = divide_up(size, std::max(1U, connections));
  const uint64_t wanted = std::clamp(share, min_piece, std::max(min_piece, max_piece));
  return {size, std::max(wanted, divide_up(size, max_count))};
}

void Slots::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return free_ > 0; });
  --free_;
}

void Slots::give_back() {
  {
    const std::lock_guard lock(mutex_);
    ++free_;
  }
  changed_.notify_one();
}

Status move_pieces(
    const Pieces& pieces, unsigned workers, const PieceRetries& retries,
    const std::function<Status(uint64_t index, const std::atomic<bool>* cancelled)>& move) {
  std::atomic<uint64_t> next{0};
  std::atomic<bool> cancelled{false};
  std::mutex mutex;
  Status first;
  RetryPolicy policy = retries.policy;
  if (pieces.count() == 1) policy.retries = 0;  // the transfer is the piece
  const auto work = [&] {
    for (uint64_t i; !cancelled && (i = next.fetch_add(1)) < pieces.count();) {
      Status status = guard_memory("moving a piece", [&] {
        return retry_unavailable(
            policy, retries.clock, [&] { return move(i, &cancelled); }, retries.before_retry);
      });
      if (status.ok()) continue;
      const std::lock_guard lock(mutex);
      if (first.ok()) first = std::move(status);
      cancelled = true;
    }
  };
  std::vector<std::thread> others;
  const uint64_t wanted = std::min<uint64_t>(workers, pieces.count());
  try {
    while (others.size() + 1 < wanted) others.emplace_back(work);
  } catch (const std::system_error&) {
    // As many as the system lets us have: the caller's thread alone is enough.
  }
  work();
  for (std::thread& other : others) other.join();
  return first;
}

}  // namespace deltawire::s3
