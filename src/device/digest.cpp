// Digests of arrays on the device. sum128 is computed there, and xxh3-128 up to the last kilobyte
// of each array, which the host looks at; for other kinds the bytes come here.
#include <algorithm>
#include <array>

#include "codec/cuda/carve.h"
#include "device/arrays.h"
#include "device/context.h"
#include "device/sums.h"
#include "digest/finish_sums.h"
#include "digest/xxh3_parts.h"
#include "kernels/cuda/digest.h"

namespace deltawire::cuda {
namespace {

constexpr uint64_t kHashedPiece = uint64_t{16} << 20;  // that is fetched at a time

uint64_t ceiling(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// What the device keeps for each array, whatever its size.
constexpr uint64_t kArrayBytes = sizeof(DigestArray) + sizeof(xxh3::Lanes) + kDigestTail;

// Arrays whose chains run side by side.
class Batch {
 public:
  Batch(Context::Impl& impl, std::span<const DigestArray> arrays, Stream stream)
      : impl_(impl), arrays_(arrays.begin(), arrays.end()), stream_(stream) {}

  Status run(Digest* out) {
    plan_turns();
    DW_RETURN_IF_ERROR(lay_out());
    DW_RETURN_IF_ERROR(run_turns());
    return finish(out);
  }

 private:
  // As few turns as the sums of two of them fit: one is chained while the next is summed.
  void plan_turns() {
    uint64_t blocks = 0;
    for (const DigestArray& array : arrays_) blocks += array.num_blocks;
    const uint64_t room = impl_.scratch_bytes() / 2 / 2 / kSumBytes;  // half is for the rest
    // Each array's share is rounded up.
    turns_ = blocks <= room ? 1 : ceiling(blocks, room - std::min(room / 2, arrays_.size()));
    for (DigestArray& array : arrays_) {
      array.per_turn = ceiling(array.num_blocks, turns_);
      array.first_sum = num_sums_;
      num_sums_ += array.per_turn;
    }
  }

  Status lay_out() {
    const auto carve_all = [&](Carve carve) {
      arrays_at_ = carve.take<DigestArray>(arrays_.size());
      secret_at_ = carve.take<uint64_t>(xxh3::secret().size());
      work_.lanes = carve.take<uint64_t>(arrays_.size() * xxh3::kLanes);
      work_.tails = carve.take<uint8_t>(arrays_.size() * kDigestTail);
      for (uint64_t*& sums : sums_) sums = carve.take<uint64_t>(num_sums_ * xxh3::kLanes);
      return carve.size();
    };
    DW_ASSIGN_OR_RETURN(uint8_t* const scratch,
                        impl_.workspace.get(Workspace::kSlots, carve_all(Carve(nullptr))));
    carve_all(Carve(scratch));
    work_.arrays = arrays_at_;
    work_.num_arrays = uint32_t(arrays_.size());
    work_.num_sums = num_sums_;
    work_.secret = secret_at_;
    const std::vector<xxh3::Lanes> start(arrays_.size(), xxh3::kStart);
    DW_RETURN_IF_ERROR(
        copy(arrays_at_, arrays_.data(), arrays_.size() * sizeof(DigestArray), stream_));
    DW_RETURN_IF_ERROR(copy(secret_at_, xxh3::secret().data(), sizeof(xxh3::Secret), stream_));
    return copy(work_.lanes, start.data(), start.size() * sizeof(xxh3::Lanes), stream_);
  }

  Status run_turns() {
    DW_ASSIGN_OR_RETURN(const Stream chain, impl_.workspace.stream(0));
    DW_RETURN_IF_ERROR(sum_blocks(work_, 0, sums_[0], stream_));
    for (uint64_t turn = 0; turn < turns_; ++turn) {
      DW_RETURN_IF_ERROR(order_after(chain, stream_));
      if (turn + 1 < turns_) {
        // Over the sums of the turn before this one, which must have been chained.
        DW_RETURN_IF_ERROR(order_after(stream_, chain));
        DW_RETURN_IF_ERROR(sum_blocks(work_, turn + 1, sums_[(turn + 1) % 2], stream_));
      }
      DW_RETURN_IF_ERROR(chain_blocks(work_, turn, sums_[turn % 2], chain));
    }
    DW_RETURN_IF_ERROR(copy_tails(work_, stream_));
    return order_after(stream_, chain);
  }

  Status finish(Digest* out) {
    const size_t num = arrays_.size(), lanes_bytes = num * sizeof(xxh3::Lanes);
    DW_ASSIGN_OR_RETURN(uint8_t* const host, impl_.workspace.get(Workspace::kHostBytes,
                                                                 lanes_bytes + num * kDigestTail));
    DW_RETURN_IF_ERROR(copy(host, work_.lanes, lanes_bytes, stream_));
    DW_RETURN_IF_ERROR(copy(host + lanes_bytes, work_.tails, num * kDigestTail, stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    parallel_for(&impl_.pool, num, [&](size_t i, unsigned) {
      const uint64_t size = arrays_[i].num_bytes;
      const auto lanes = load_le<xxh3::Lanes>(host + i * sizeof(xxh3::Lanes));
      out[i] = xxh3::finish(
          lanes, {host + lanes_bytes + i * kDigestTail, std::min(size, kDigestTail)}, size);
    });
    return {};
  }

  Context::Impl& impl_;
  std::vector<DigestArray> arrays_;
  const Stream stream_;
  uint64_t turns_ = 1, num_sums_ = 0;
  DigestWork work_{};
  DigestArray* arrays_at_ = nullptr;
  uint64_t* secret_at_ = nullptr;
  uint64_t* sums_[2] = {};
};

// With `copies`, one for each, that is also where their bytes go.
Status sum_whole(Context::Impl& impl, std::span<const DigestArray> arrays,
                 std::span<uint8_t* const> copies, Stream stream, Digest* out) {
  std::vector<SumArray> opened;
  for (size_t i = 0; i < arrays.size(); ++i) {
    opened.push_back({arrays[i].data,
                      arrays[i].num_bytes,
                      0,
                      arrays[i].kind,
                      {},
                      copies.empty() ? nullptr : copies[i]});
  }
  std::vector<std::array<uint64_t, 2>> lanes(opened.size());
  const SumPass pass = copies.empty() ? SumPass::kSum : SumPass::kCopy;
  DW_RETURN_IF_ERROR(sum_arrays(impl, std::move(opened), pass, stream, lanes.data()));
  for (size_t i = 0; i < lanes.size(); ++i) out[i] = finish_sums(lanes[i], arrays[i].num_bytes);
  return {};
}

Result<Digest> hash_on_host(Context::Impl& impl, DigestKind kind, const Contents& contents,
                            Stream stream) {
  Hasher hasher(kind);
  DW_ASSIGN_OR_RETURN(
      uint8_t* const host,
      impl.workspace.get(Workspace::kHostBytes, std::min(kHashedPiece, contents.size_bytes)));
  for (uint64_t at = 0; at < contents.size_bytes; at += kHashedPiece) {
    const std::span<uint8_t> piece(host, std::min(kHashedPiece, contents.size_bytes - at));
    DW_RETURN_IF_ERROR(fetch_bytes(impl.lane(), contents, at, piece, stream));
    hasher.update(piece);
  }
  return hasher.finish();
}

Result<std::vector<DigestArray>> open_arrays(std::span<const Contents> arrays) {
  std::vector<DigestArray> opened;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Contents& contents = arrays[i];
    const std::string place = "array " + std::to_string(i);
    Result<NewKind> kind = kind_of(contents.array.dtype, contents.as);
    if (!kind.ok()) return std::move(kind).status().at(place);
    DW_RETURN_IF_ERROR(
        check_memory(contents.as, contents.array.data, contents.size_bytes).at(place));
    opened.push_back({contents.array.data, contents.size_bytes,
                      xxh3::num_blocks(contents.size_bytes), 0, 0, *kind});
  }
  return opened;
}

}  // namespace

Result<std::vector<Digest>> digests_of(Context::Impl& impl, DigestKind kind,
                                       std::span<const Contents> arrays, Stream stream) {
  const UseDevice use(impl.device);
  DW_ASSIGN_OR_RETURN(const std::vector<DigestArray> opened, open_arrays(arrays));
  if (!digest_available(kind)) return unsupported(std::string(digest_name(kind)) + " digests");
  std::vector<Digest> out(arrays.size());
  if (kind != DigestKind::kXxh3_128 && kind != DigestKind::kSum128) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      DW_ASSIGN_OR_RETURN(out[i], hash_on_host(impl, kind, arrays[i], stream));
    }
    return out;
  }
  const size_t most = impl.scratch_bytes() / 4 / kArrayBytes;
  for (size_t begin = 0; begin < opened.size(); begin += most) {
    const size_t count = std::min(most, opened.size() - begin);
    const auto some = std::span(opened).subspan(begin, count);
    DW_RETURN_IF_ERROR(kind == DigestKind::kSum128
                           ? sum_whole(impl, some, {}, stream, out.data() + begin)
                           : Batch(impl, some, stream).run(out.data() + begin));
  }
  return out;
}

Result<std::vector<Digest>> copy_summed(Context::Impl& impl, std::span<const Contents> arrays,
                                        std::span<uint8_t* const> copies, Stream stream) {
  const UseDevice use(impl.device);
  DW_ASSIGN_OR_RETURN(const std::vector<DigestArray> opened, open_arrays(arrays));
  std::vector<Digest> out(arrays.size());
  const size_t most = impl.scratch_bytes() / 4 / kArrayBytes;
  for (size_t begin = 0; begin < opened.size(); begin += most) {
    const size_t count = std::min(most, opened.size() - begin);
    DW_RETURN_IF_ERROR(sum_whole(impl, std::span(opened).subspan(begin, count),
                                 copies.subspan(begin, count), stream, out.data() + begin));
  }
  return out;
}

Result<std::vector<Digest>> Context::digests(DigestKind kind, std::span<const Contents> arrays,
                                             Stream stream) {
  return digests_of(*impl_, kind, arrays, stream);
}

}  // namespace deltawire::cuda
