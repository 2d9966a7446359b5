// The two sides of a chain in one process, as `bench chain` times them.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "cli/units.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"
#include "deltawire/tensor_replica.h"
#include "lab/bench/data.h"

namespace deltawire::cli {

inline std::vector<PublishTensor> tensors_of(const BenchData& data, bool after) {
  std::vector<PublishTensor> tensors;
  for (const BenchTensor& tensor : data.tensors) {
    const Bytes bytes = after ? tensor.after : tensor.before;
    const uint64_t elements = bytes.size() * 8 / dtype_bits(tensor.dtype);
    tensors.push_back({{tensor.name, tensor.dtype, {elements}, bytes}, {}});
  }
  return tensors;
}

// A model in memory for a TensorReplica to keep.
class HostModel {
 public:
  explicit HostModel(const BenchData& data) {
    for (const BenchTensor& tensor : data.tensors) {
      bytes_.emplace_back(tensor.before.begin(), tensor.before.end());
      const uint64_t elements = tensor.before.size() * 8 / dtype_bits(tensor.dtype);
      tensors_.push_back({tensor.name, tensor.dtype, {elements}, bytes_.back()});
    }
  }
  const std::vector<LiveTensor>& tensors() const { return tensors_; }
  bool holds(const BenchData& data, bool after) const {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const Bytes wanted = after ? data.tensors[i].after : data.tensors[i].before;
      if (!std::equal(wanted.begin(), wanted.end(), bytes_[i].begin())) return false;
    }
    return true;
  }

 private:
  std::deque<std::vector<uint8_t>> bytes_;
  std::vector<LiveTensor> tensors_;
};

// What a replica in a thread of its own saw, on the clock of now_seconds().
struct Followed {
  Status status;
  double seen = 0, applied = 0, durable = 0;
  PullReport report;
};

// Looks until a version after `held` is there, then brings the replica to it.
template <class AnyReplica>
Followed follow_once(AnyReplica* replica, uint64_t held) {
  Followed out;
  const auto run = [&]() -> Status {
    std::optional<uint64_t> head;
    while (true) {
      DW_ASSIGN_OR_RETURN(head, replica->head());
      out.seen = now_seconds();
      if (head && *head != held) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    DW_RETURN_IF_ERROR(replica->prepare(head).status());
    DW_ASSIGN_OR_RETURN(out.report, replica->commit());
    out.applied = now_seconds();
    if constexpr (std::is_same_v<AnyReplica, Replica>) {
      DW_RETURN_IF_ERROR(replica->settle(&out.report));
    }
    out.durable = now_seconds();
    return {};
  };
  out.status = run();
  return out;
}

}  // namespace deltawire::cli
