#include "store/pieces.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "base/guard.h"
#include "base/text.h"

namespace deltawire {
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
        return retry_unavailable(policy, retries.clock, [&] { return move(i, &cancelled); });
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

namespace {

// Checks that all pieces come from the same object.
class OneObject {
 public:
  std::string etag() const {
    const std::lock_guard lock(mutex_);
    return etag_;
  }
  Status check(std::string_view etag) {
    const std::lock_guard lock(mutex_);
    if (etag_.empty()) etag_ = etag;
    return etag_ == etag ? Status() : replaced();
  }
  // Retrying one piece cannot help; the whole download must start again.
  static Status replaced() { return conflict("the object was replaced while it was read"); }

 private:
  mutable std::mutex mutex_;
  std::string etag_;
};

struct Range {
  uint64_t first, last;
};

Status too_short(uint64_t size, const Range& range) {
  return corruption("the object ends at byte " + std::to_string(size) + ", expected " +
                    std::to_string(range.last + 1));
}

Status check_size(uint64_t size, uint64_t expected, const Range& range) {
  if (expected != kAnySize && size != expected) {
    return corruption("expected " + std::to_string(expected) + " bytes, got " +
                      std::to_string(size));
  }
  return size <= range.last ? too_short(size, range) : Status();
}

// Checks, before the body is used, that the answer has the requested range.
Status check_range(const HttpAnswer& head, const Range& asked, uint64_t object_size) {
  uint64_t first = 0, last = 0, size = 0;
  if (head.status == 200) {  // the whole object, from a server without ranges
    const std::string length(head.header("content-length"));
    if (asked.first == 0 && std::sscanf(length.c_str(), "%" SCNu64, &size) == 1 &&
        size == asked.last + 1) {
      return check_size(size, object_size, asked);
    }
    return unsupported("the server does not support range requests");
  }
  const std::string range(head.header("content-range"));
  if (std::sscanf(range.c_str(), "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &first, &last, &size) !=
      3) {
    return corruption("the answer has no valid Content-Range");
  }
  DW_RETURN_IF_ERROR(check_size(size, object_size, asked));
  if (first != asked.first || last != asked.last) {
    return corruption("asked for bytes " + std::to_string(asked.first) + " to " +
                      std::to_string(asked.last) + ", got " + std::to_string(first) + " to " +
                      std::to_string(last));
  }
  return {};
}

// "bytes */1234" of a 416: how large the object is.
Status out_of_range(const HttpAnswer& answer, const Range& asked, uint64_t object_size) {
  uint64_t size = 0;
  const std::string range(answer.header("content-range"));
  if (std::sscanf(range.c_str(), "bytes */%" SCNu64, &size) == 1) {
    DW_RETURN_IF_ERROR(check_size(size, object_size, asked));
  }
  return corruption("the object ends before byte " + std::to_string(asked.first));
}

Status fetch(const RangeSource& source, const Range& asked, uint64_t object_size,
             uint64_t sink_offset, OneObject* identity, const std::atomic<bool>* cancelled,
             Sink* sink) {
  const uint64_t length = asked.last - asked.first + 1;
  uint64_t taken = 0;
  RangeSource::Headers headers = {
      {"range", "bytes=" + std::to_string(asked.first) + "-" + std::to_string(asked.last)}};
  std::string etag = identity->etag();
  if (etag.size() > 2 && etag.front() == '"' && etag.back() == '"') {
    headers.emplace_back("if-match", source.quotes_etag ? etag : etag.substr(1, etag.size() - 2));
  }
  const auto on_bytes = [&](const HttpAnswer& head, std::span<const uint8_t> bytes) -> Status {
    if (taken == 0) {
      DW_RETURN_IF_ERROR(identity->check(head.header("etag")));
      DW_RETURN_IF_ERROR(check_range(head, asked, object_size));
    }
    if (bytes.size() > length - taken)
      return corruption("the answer is longer than the requested range");
    DW_RETURN_IF_ERROR(sink->write(sink_offset + taken, bytes));
    taken += bytes.size();
    return {};
  };
  DW_ASSIGN_OR_RETURN(const HttpAnswer answer,
                      source.send(std::move(headers), length, on_bytes, cancelled));
  if (answer.status == 412) return OneObject::replaced();
  if (answer.status == 416) return out_of_range(answer, asked, object_size);
  if (!answer.ok()) return source.failure(answer);
  if (taken != length) {
    return unavailable("the connection ended after " + std::to_string(taken) + " of " +
                       std::to_string(length) + " bytes");
  }
  return {};
}

}  // namespace

Status download_in_pieces(const RangeSource& source, Slots* slots, uint64_t offset,
                          const Pieces& pieces, uint64_t object_size, unsigned workers,
                          const PieceRetries& retries, Sink* sink) {
  OneObject identity;
  const auto take = [&](uint64_t i, const std::atomic<bool>* cancelled) {
    const Slots::Slot slot(slots);
    if (*cancelled) return deltawire::cancelled("given up");
    const uint64_t first = offset + pieces.offset(i);
    return fetch(source, {first, first + pieces.length(i) - 1}, object_size, pieces.offset(i),
                 &identity, cancelled, sink);
  };
  const Status status = move_pieces(pieces, workers, retries, take);
  return status.code() == Code::kConflict ? unavailable(status.message()) : status;
}

Status SpanSink::write(uint64_t offset, std::span<const uint8_t> bytes) {
  std::memcpy(out_.data() + offset, bytes.data(), bytes.size());
  return {};
}

Result<uint64_t> content_length(const HttpAnswer& answer) {
  uint64_t size = 0;
  if (parse_number(answer.header("content-length"), &size)) return size;
  return corruption("the answer has no Content-Length");
}

RangeSource::OnBytes take_text(uint64_t max_bytes, std::string* text) {
  return [max_bytes, text](const HttpAnswer& head, std::span<const uint8_t> bytes) -> Status {
    const Result<uint64_t> told = content_length(head);
    const uint64_t size = std::max<uint64_t>(told.ok() ? *told : 0, text->size() + bytes.size());
    if (size > max_bytes) {
      return corruption(std::to_string(size) + " bytes is over the limit of " +
                        std::to_string(max_bytes));
    }
    text->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  };
}

}  // namespace deltawire
