// Encodes pairs of arrays: on the device if it has the codec, else on the host.
#include "base/bytes.h"
#include "base/guard.h"
#include "codec/choose.h"
#include "codec/codec.h"
#include "device/context.h"

namespace deltawire::cuda {
namespace {

class Encoder {
 public:
  Encoder(const Lane& lane, NewDigests digests, std::span<const DevicePair> pairs, Stream stream)
      : lane_(lane), digests_(digests), pairs_(pairs), stream_(stream) {}

  Result<std::vector<Coded>> encode(const Codec& codec) {
    if (!has_codec(codec.name())) return encode_on_host(codec);
    DeviceOptions options = lane_.codec_options();
    options.new_digests = digests_ == NewDigests::kSum128;
    Result<std::vector<DeviceEncoded>> encoded = cuda::encode(codec.id(), pairs_, options, stream_);
    // Changes are too dense for the scratch: encode fewer arrays at a time, then on the host.
    const bool lacks_memory = encoded.status().code() == Code::kOutOfMemory;
    if (lacks_memory && !lane_.within_scratch) return encode_apart(codec);
    if (!encoded.ok()) return std::move(encoded).status();
    std::vector<Coded> out;
    for (DeviceEncoded& one : *encoded) {
      const std::optional<Digest> digest = one.new_digest;
      out.push_back(coded(codec, std::move(one), digest));
    }
    return out;
  }

  // `tight` nearly always wins; see encode_smallest() of the CPU.
  Result<std::vector<Coded>> encode_smallest() {
    DW_ASSIGN_OR_RETURN(std::vector<Coded> best, encode(*find_codec(CodecId::kTight)));
    std::vector<size_t> gaps, adaptive;
    for (size_t i = 0; i < best.size(); ++i) {
      const Layout layout = pairs_[i].layout;
      const uint64_t num_changed = best[i].num_changed;
      if (gaps_may_be_smaller(num_changed, best[i].payload.size(), layout)) gaps.push_back(i);
      if (adaptive_may_be_smaller(num_changed, layout)) adaptive.push_back(i);
    }
    DW_RETURN_IF_ERROR(try_codec(CodecId::kGaps, gaps, &best));
    DW_RETURN_IF_ERROR(try_codec(CodecId::kAdaptive, adaptive, &best));
    for (size_t i = 0; i < best.size(); ++i) {
      if (best[i].num_changed == 0 || best[i].payload.size() < size_bytes(i)) continue;
      best[i].codec = find_codec(CodecId::kRaw)->name();
      DW_ASSIGN_OR_RETURN(best[i].payload, fetch_new(i));
      best[i].new_digest = digest_of_new(best[i].payload);
    }
    return best;
  }

 private:
  // Uses the codec for those pairs that it makes smaller.
  Status try_codec(CodecId codec, std::span<const size_t> which, std::vector<Coded>* best) {
    if (which.empty()) return {};
    std::vector<DevicePair> some;
    for (const size_t i : which) some.push_back(pairs_[i]);
    DW_ASSIGN_OR_RETURN(std::vector<Coded> made,
                        Encoder(lane_, digests_, some, stream_).encode(*find_codec(codec)));
    for (size_t k = 0; k < made.size(); ++k) {
      Coded& to_beat = (*best)[which[k]];
      if (made[k].payload.size() < to_beat.payload.size()) to_beat = std::move(made[k]);
    }
    return {};
  }

  static Coded coded(const Codec& codec, Encoded encoded, const std::optional<Digest>& digest) {
    return {std::string(codec.name()), std::move(encoded.payload), encoded.num_changed, digest};
  }
  // The digest of an array that the host encodes, if requested.
  std::optional<Digest> digest_of_new(Bytes bytes) const {
    if (digests_ == NewDigests::kNone) return {};
    return digest_of(DigestKind::kSum128, bytes);
  }

  uint64_t size_bytes(size_t i) const { return pairs_[i].num_elements * pairs_[i].layout.width; }

  // Fetches a new array, converted to the old array's type.
  Result<std::vector<uint8_t>> fetch_new(size_t i) {
    const DevicePair& pair = pairs_[i];
    return guard_memory("encoding", [&]() -> Result<std::vector<uint8_t>> {
      std::vector<uint8_t> bytes(size_bytes(i));
      if (pair.kind != NewKind::kSame) {
        DW_RETURN_IF_ERROR(fetch_converted(lane_, pair.new_data, pair.kind, 0, bytes, stream_));
        return bytes;
      }
      DW_RETURN_IF_ERROR(copy(bytes.data(), pair.new_data, bytes.size(), stream_));
      DW_RETURN_IF_ERROR(wait(stream_));
      return bytes;
    });
  }

  Result<Coded> encode_on_host(const Codec& codec, size_t i) {
    DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> new_bytes, fetch_new(i));
    return guard_memory("encoding", [&]() -> Result<Coded> {
      std::vector<uint8_t> old_bytes(new_bytes.size());
      DW_RETURN_IF_ERROR(copy(old_bytes.data(), pairs_[i].old_data, old_bytes.size(), stream_));
      DW_RETURN_IF_ERROR(wait(stream_));
      DW_ASSIGN_OR_RETURN(Encoded encoded,
                          codec.encode(pairs_[i].layout, old_bytes, new_bytes, lane_.pool));
      return coded(codec, std::move(encoded), digest_of_new(new_bytes));
    });
  }

  // Encodes one pair after the other, so that only one is in host memory.
  Result<std::vector<Coded>> encode_on_host(const Codec& codec) {
    std::vector<Coded> out;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      DW_ASSIGN_OR_RETURN(Coded one, encode_on_host(codec, i));
      out.push_back(std::move(one));
    }
    return out;
  }

  Result<std::vector<Coded>> encode_apart(const Codec& codec) {
    if (pairs_.size() == 1) return encode_on_host(codec);
    std::vector<Coded> out;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      DW_ASSIGN_OR_RETURN(std::vector<Coded> one,
                          Encoder(lane_, digests_, pairs_.subspan(i, 1), stream_).encode(codec));
      out.push_back(std::move(one[0]));
    }
    return out;
  }

  const Lane lane_;
  const NewDigests digests_;
  const std::span<const DevicePair> pairs_;
  const Stream stream_;
};

}  // namespace

Result<std::vector<Coded>> encode_pairs(const Lane& lane, const EncodeAs& as,
                                        std::span<const DevicePair> pairs, Stream stream) {
  Encoder encoder(lane, as.digests, pairs, stream);
  if (as.codec == "auto") return encoder.encode_smallest();
  const Codec* const known = find_codec(as.codec);
  if (known == nullptr) return invalid_argument("no codec \"" + std::string(as.codec) + "\"");
  return encoder.encode(*known);
}

Result<std::vector<Coded>> encode_pinned(Context::Impl& impl, const EncodeAs& as,
                                         std::span<const DevicePair> pairs, Stream stream) {
  // Codecs of the host need no copy of the old arrays on the device.
  if (!has_codec(as.codec)) return encode_pairs(impl.lane(), as, pairs, stream);
  if (impl.lanes == nullptr) {
    impl.lanes =
        std::make_unique<Lanes>(impl.device, impl.scratch_bytes(), impl.pool.num_workers());
  }
  DW_ASSIGN_OR_RETURN(uint8_t* const memory,
                      impl.workspace.get(Workspace::kSlots, impl.lanes->sizes().memory()));
  std::vector<Coded> out(pairs.size());
  const auto encode = [&](const Lane& lane, size_t first, std::span<const DevicePair> group,
                          Stream own) -> Status {
    Lane with_spare = lane;
    with_spare.spare = impl.spare.get();
    DW_ASSIGN_OR_RETURN(std::vector<Coded> coded, encode_pairs(with_spare, as, group, own));
    std::move(coded.begin(), coded.end(), out.begin() + ptrdiff_t(first));
    return {};
  };
  DW_RETURN_IF_ERROR(impl.lanes->for_each_group(pairs, memory, stream, encode));
  return out;
}

Result<std::vector<Coded>> Context::encode(std::string_view codec, std::span<const Pair> pairs,
                                           Stream stream, NewDigests digests) {
  const UseDevice use(impl_->device);
  std::vector<DevicePair> device_pairs;
  for (size_t i = 0; i < pairs.size(); ++i) {
    Result<DevicePair> pair = device_pair(pairs[i]);
    if (!pair.ok()) return std::move(pair).status().at("pair " + std::to_string(i));
    device_pairs.push_back(*pair);
  }
  return encode_pairs(impl_->lane(), {codec, digests}, device_pairs, stream);
}

}  // namespace deltawire::cuda
