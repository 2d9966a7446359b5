// `gaps` from a device: diff, look at the counts, write, fetch; in `adaptive` the
// host codes what was fetched. Where it takes several batches, differences of one are found while
// lists of the one before cross the bus, and those before that are copied to where they stay.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/guard.h"
#include "codec/cuda/adaptive_payloads.h"
#include "codec/cuda/device_parts.h"
#include "codec/cuda/lists_batch.h"
#include "codec/cuda/workspace.h"

namespace deltawire::cuda {
namespace {

// Of the elements, how many changes are made room for at first. More is found out and done again.
constexpr uint64_t kExpectedShare = 24;
constexpr uint64_t kListFetchBytes = uint64_t{16} << 20;  // at a time
constexpr uint64_t kMostInFlight = uint64_t{32} << 20;    // of a batch that is fetched in one piece
constexpr uint64_t kSliceBytes = uint64_t{1} << 18;       // that a thread copies at a time

// Makes room behind the heads. New memory is a page fault for every page: one thread would take
// longer over that than the bus over all of the lists, and many take longer than they like.
Status make_room(const DeviceOptions& options, const std::vector<ListsBody>& bodies,
                 std::span<DeviceEncoded> out) {
  std::vector<size_t> order(bodies.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return bodies[a].size() > bodies[b].size(); });
  return parallel_try("encoding", options.pool, order.size(), [&](size_t k, unsigned) -> Status {
    std::vector<uint8_t>& payload = out[order[k]].payload;
    const size_t size = payload.size() + bodies[order[k]].size();
    if (options.spare == nullptr) {
      payload.resize(size);
      return {};
    }
    std::vector<uint8_t> room = options.spare->take(size);
    std::copy(payload.begin(), payload.end(), room.begin());
    payload = std::move(room);
    return {};
  });
}

// Bytes [begin, end) of the lists, which are at `here`, each to its place at the end of a payload.
void copy_out(const DeviceOptions& options, const std::vector<ListsBody>& bodies,
              const uint8_t* here, uint64_t begin, uint64_t end, std::span<DeviceEncoded> out) {
  struct Slice {
    uint8_t* to;
    const uint8_t* from;
    uint64_t size;
  };
  std::vector<Slice> slices;
  for (size_t i = 0; i < bodies.size(); ++i) {
    const ListsBody& body = bodies[i];
    if (body.end <= begin || body.begin >= end) continue;
    uint8_t* const to = out[i].payload.data() + out[i].payload.size() - body.size();
    const uint64_t stop = std::min(body.end, end);
    for (uint64_t at = std::max(body.begin, begin); at < stop; at += kSliceBytes) {
      slices.push_back(
          {to + (at - body.begin), here + (at - begin), std::min(kSliceBytes, stop - at)});
    }
  }
  parallel_for(options.pool, slices.size(), [&](size_t k, unsigned) {
    std::memcpy(slices[k].to, slices[k].from, slices[k].size);
  });
}

// Lists have become payloads, or are what those are made of.
Status finish_payloads(CodecId codec, std::span<const DevicePair> pairs,
                       const DeviceOptions& options, std::span<DeviceEncoded> out) {
  return codec == CodecId::kAdaptive ? code_adaptive(pairs, options, out) : Status();
}

// Lists of a batch, each to the end of its payload. They come through pinned memory: one half is
// filled while the other is copied to where it stays.
Status fetch_lists(const ListsBatch& batch, Stream stream, std::span<DeviceEncoded> out) {
  const DeviceOptions& options = batch.pass().options;
  const uint64_t size = batch.list_bytes(), half = std::min(kListFetchBytes, size);
  DW_ASSIGN_OR_RETURN(uint8_t* const host, options.workspace->get(Workspace::kHostBytes, 2 * half));
  const auto fetch = [&](uint64_t begin, uint64_t turn) {
    return copy(host + turn % 2 * half, batch.lists() + begin, std::min(half, size - begin),
                stream);
  };
  DW_RETURN_IF_ERROR(fetch(0, 0));
  DW_RETURN_IF_ERROR(make_room(options, batch.bodies(), out));
  for (uint64_t begin = 0, turn = 0; begin < size; begin += half, ++turn) {
    const uint64_t end = std::min(begin + half, size);
    DW_RETURN_IF_ERROR(wait(stream));
    if (end < size) DW_RETURN_IF_ERROR(fetch(end, turn + 1));
    copy_out(options, batch.bodies(), host + turn % 2 * half, begin, end, out);
  }
  return finish_payloads(batch.pass().codec, batch.pass().pairs, options, out);
}

// One batch by itself, with room for `capacity` changes. `*needed` says how many there are; where
// that is more, nothing is returned.
Result<std::vector<DeviceEncoded>> encode_alone(const ListsPass& pass, uint64_t capacity,
                                                uint64_t* needed) {
  Workspace& workspace = *pass.options.workspace;
  ListsBatch batch(pass, capacity);
  if (pass.options.within_scratch && batch.device_bytes() > pass.options.scratch_bytes) {
    return out_of_memory("lists of changes on the device");
  }
  DW_ASSIGN_OR_RETURN(uint8_t* const device,
                      workspace.get(Workspace::kSlots, batch.device_bytes()));
  DW_ASSIGN_OR_RETURN(
      uint8_t* const host,
      workspace.get(Workspace::kHostCounts, ListsBatch::host_bytes(pass.pairs.size())));
  DW_RETURN_IF_ERROR(batch.start(device, host));
  DW_RETURN_IF_ERROR(batch.count());
  *needed = batch.needed();
  if (!batch.had_room()) return std::vector<DeviceEncoded>();
  uint8_t* lists = nullptr;
  if (!batch.lists_fit()) {
    if (pass.options.within_scratch) return out_of_memory("lists of changes on the device");
    DW_ASSIGN_OR_RETURN(lists, workspace.get(Workspace::kTables, batch.list_bytes()));
  }
  DW_RETURN_IF_ERROR(batch.write(lists));
  std::vector<DeviceEncoded> out = batch.take_heads();
  if (batch.list_bytes() != 0) {
    DW_RETURN_IF_ERROR(fetch_lists(batch, pass.stream, out));
  }
  return out;
}

// Arrays that are worked on together.
struct BatchPlan {
  size_t begin, end;
  uint64_t elements = 0;
  uint64_t most = 0;  // changes that there can be room for
  uint64_t expected() const {
    return std::min({elements, std::max(elements / kExpectedShare, uint64_t{4096}), most});
  }
};

// As many at a time as `num_bytes` of device memory are thought to have room for.
std::vector<BatchPlan> plan_batches(CodecId codec, std::span<const DevicePair> pairs,
                                    uint64_t num_bytes) {
  std::vector<BatchPlan> plans;
  const unsigned width = pairs.empty() ? 1 : pairs[0].layout.width;
  for (size_t begin = 0; begin < pairs.size(); begin = plans.back().end) {
    BatchPlan plan{begin, begin};
    uint64_t tables = 0;
    const auto fits_with = [&](const DevicePair& next) {
      return (plan.elements + next.num_elements) / kExpectedShare <=
             most_changes(codec, width, tables + lists_table_bytes(next), num_bytes);
    };
    do {
      plan.elements += pairs[plan.end].num_elements;
      tables += lists_table_bytes(pairs[plan.end]);
      plan.most = most_changes(codec, width, tables, num_bytes);
      ++plan.end;
    } while (plan.end < pairs.size() && fits_with(pairs[plan.end]));
    plans.push_back(plan);
  }
  return plans;
}

// All of the scratch for some arrays, however many changes they have.
Result<std::vector<DeviceEncoded>> encode_some(const ListsPass& pass) {
  std::vector<DeviceEncoded> all;
  for (const BatchPlan& plan : plan_batches(pass.codec, pass.pairs, pass.options.scratch_bytes)) {
    const ListsPass part{pass.pairs.subspan(plan.begin, plan.end - plan.begin), pass.codec,
                         pass.options, pass.stream};
    uint64_t needed = 0;
    DW_ASSIGN_OR_RETURN(std::vector<DeviceEncoded> batch,
                        encode_alone(part, plan.expected(), &needed));
    if (batch.empty() && needed > plan.most && part.pairs.size() > 1) {
      // Denser than thought: one by one, so that each needs as little as it can.
      for (const DevicePair& pair : part.pairs) {
        DW_ASSIGN_OR_RETURN(std::vector<DeviceEncoded> one,
                            encode_some({{&pair, 1}, pass.codec, pass.options, pass.stream}));
        batch.push_back(std::move(one[0]));
      }
    } else if (batch.empty()) {
      DW_ASSIGN_OR_RETURN(batch, encode_alone(part, needed, &needed));
    }
    for (DeviceEncoded& encoded : batch) all.push_back(std::move(encoded));
  }
  return all;
}

// Several batches, each in one half of the scratch in turn.
class ListsPipeline {
 public:
  ListsPipeline(const ListsPass& pass, uint64_t half_bytes)
      : pass_(pass),
        half_bytes_(half_bytes),
        piece_bytes_(std::min(kMostInFlight, half_bytes)),
        plans_(plan_batches(pass.codec, pass.pairs, half_bytes)),
        out_(pass.pairs.size()) {}

  Result<std::vector<DeviceEncoded>> run() {
    DW_ASSIGN_OR_RETURN(copies_, pass_.options.workspace->stream(0));
    DW_RETURN_IF_ERROR(start(0));
    for (size_t k = 0; k < plans_.size(); ++k) {
      ListsBatch& batch = *batches_[k % 2];
      const bool started = batch.device_bytes() <= half_bytes_;
      if (started) DW_RETURN_IF_ERROR(batch.count());
      DW_RETURN_IF_ERROR(wait(copies_));  // of the batch before, whose half the next one takes
      if (!started || !batch.had_room() || !batch.lists_fit()) {
        // All of the scratch is for this one.
        DW_RETURN_IF_ERROR(settle());
        DW_RETURN_IF_ERROR(encode_again(k));
        DW_RETURN_IF_ERROR(start(k + 1));
        continue;
      }
      DW_RETURN_IF_ERROR(batch.write(nullptr));
      DW_RETURN_IF_ERROR(order_after(copies_, pass_.stream));
      DW_RETURN_IF_ERROR(start(k + 1));
      DW_RETURN_IF_ERROR(fetch(k));
    }
    DW_RETURN_IF_ERROR(wait(copies_));
    DW_RETURN_IF_ERROR(settle());
    return std::move(out_);
  }

 private:
  // Lists in pinned memory, or on their way there.
  struct Arriving {
    std::vector<ListsBody> bodies;
    const uint8_t* lists;
    std::span<const DevicePair> pairs;
    std::span<DeviceEncoded> out;
  };

  ListsPass pass_of(size_t k) const {
    return {pass_.pairs.subspan(plans_[k].begin, plans_[k].end - plans_[k].begin), pass_.codec,
            pass_.options, pass_.stream};
  }
  std::span<DeviceEncoded> out_of(size_t k) {
    return std::span(out_).subspan(plans_[k].begin, plans_[k].end - plans_[k].begin);
  }

  // One whose tables alone are larger than its half is not started.
  Status start(size_t k) {
    if (k >= plans_.size()) return {};
    Workspace& workspace = *pass_.options.workspace;
    const size_t host_bytes = ListsBatch::host_bytes(pass_.pairs.size());
    std::optional<ListsBatch>& batch = batches_[k % 2];
    batch.emplace(pass_of(k), plans_[k].expected());
    if (batch->device_bytes() > half_bytes_) return {};
    DW_ASSIGN_OR_RETURN(uint8_t* const device, workspace.get(Workspace::kSlots, 2 * half_bytes_));
    DW_ASSIGN_OR_RETURN(uint8_t* const host, workspace.get(Workspace::kHostCounts, 2 * host_bytes));
    return batch->start(device + k % 2 * half_bytes_, host + k % 2 * host_bytes);
  }

  // Sends lists of batch k on their way, and puts those of the batch before in their place.
  Status fetch(size_t k) {
    ListsBatch& batch = *batches_[k % 2];
    const std::span<DeviceEncoded> out = out_of(k);
    std::vector<DeviceEncoded> heads = batch.take_heads();
    std::move(heads.begin(), heads.end(), out.begin());
    const uint64_t size = batch.list_bytes();
    if (size > piece_bytes_) {
      DW_RETURN_IF_ERROR(settle());
      return fetch_lists(batch, copies_, out);
    }
    DW_ASSIGN_OR_RETURN(uint8_t* const host,
                        pass_.options.workspace->get(Workspace::kHostBytes, 2 * piece_bytes_));
    uint8_t* const to = host + k % 2 * piece_bytes_;
    DW_RETURN_IF_ERROR(copy(to, batch.lists(), size, copies_));
    DW_RETURN_IF_ERROR(settle());
    if (size != 0) arriving_ = Arriving{batch.bodies(), to, batch.pass().pairs, out};
    return {};
  }

  // Of lists that have arrived.
  Status settle() {
    if (!arriving_) return {};
    const Arriving here = std::move(*arriving_);
    arriving_.reset();
    DW_RETURN_IF_ERROR(make_room(pass_.options, here.bodies, here.out));
    copy_out(pass_.options, here.bodies, here.lists, 0, here.bodies.back().end, here.out);
    return finish_payloads(pass_.codec, here.pairs, pass_.options, here.out);
  }

  Status encode_again(size_t k) {
    DW_ASSIGN_OR_RETURN(std::vector<DeviceEncoded> again, encode_some(pass_of(k)));
    std::move(again.begin(), again.end(), out_of(k).begin());
    return {};
  }

  const ListsPass pass_;
  const uint64_t half_bytes_, piece_bytes_;
  const std::vector<BatchPlan> plans_;
  Stream copies_ = nullptr;
  std::optional<ListsBatch> batches_[2];
  std::optional<Arriving> arriving_;
  std::vector<DeviceEncoded> out_;
};

}  // namespace

Result<std::vector<DeviceEncoded>> encode_lists(CodecId codec, std::span<const DevicePair> pairs,
                                                const DeviceOptions& options, Stream stream) {
  const ListsPass pass{pairs, codec, options, stream};
  if (plan_batches(codec, pairs, options.scratch_bytes).size() <= 1) {
    return encode_some(pass);
  }
  const uint64_t half_bytes = options.scratch_bytes / 2 / kCarveAlign * kCarveAlign;
  return ListsPipeline(pass, half_bytes).run();
}

}  // namespace deltawire::cuda
