#include "publish/codec_sample.h"

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "base/guard.h"
#include "codec/codec.h"
#include "format/layout.h"
#include "publish/rounding.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Large enough that what `tight` does once for each tensor counts about as little as it should.
constexpr uint64_t kSliceBytes = uint64_t{2} << 20;
constexpr uint64_t kMaxSlices = 4;
constexpr uint64_t kShareOfWeights = 64;
constexpr uint64_t kDeviceBytes = uint64_t{256} << 20;  // a GPU needs more to show its speed
// Smaller than this share of the weights, `gaps` beats `raw` in every way.
constexpr double kRawPays = 0.25;

// A tensor, or box of one, that is compared with what the snapshot has of it.
struct Compared {
  const PublishTensor* tensor;
  OldPiece old;
  uint64_t size_bytes;
};

struct Comparisons {
  std::vector<Compared> on_host, on_device;
  uint64_t host_bytes = 0, device_bytes = 0;
};

Result<Comparisons> comparisons_of(const DiffJob& job) {
  Comparisons all;
  for (const PublishTensor& tensor : job.tensors) {
    if (taken_as_unchanged(job, tensor)) continue;
    DW_ASSIGN_OR_RETURN(std::optional<OldPiece> old, job.snapshot.find(tensor.view, tensor.box));
    const uint64_t size = published_bytes(tensor);
    if (!old || size == 0) continue;
    const bool there = on_device(tensor);
    (there ? all.device_bytes : all.host_bytes) += size;
    (there ? all.on_device : all.on_host).push_back({&tensor, std::move(*old), size});
  }
  return all;
}

struct SampleSlice {
  const Compared* of;
  uint64_t begin, size_bytes;
};

// Evenly spaced in the bytes of all tensors.
std::vector<SampleSlice> choose_slices(const std::vector<Compared>& all, uint64_t total) {
  const uint64_t count = std::clamp<uint64_t>(total / kShareOfWeights / kSliceBytes, 1, kMaxSlices);
  std::vector<SampleSlice> slices;
  size_t next = 0;
  uint64_t before = 0;  // bytes of the tensors before `next`
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = total / count * i + total / count / 2;
    while (before + all[next].size_bytes <= at) before += all[next++].size_bytes;
    const uint64_t size = std::min(all[next].size_bytes, kSliceBytes);
    // Elements are up to eight bytes wide; a slice that is a whole tensor begins at 0 anyway.
    const uint64_t begin = std::min(at - before, all[next].size_bytes - size) / 8 * 8;
    slices.push_back({&all[next], begin, size});
  }
  return slices;
}

// What the codecs took for one slice, in the order of kTried.
constexpr std::array kTried = {CodecId::kTight, CodecId::kGaps, CodecId::kRaw};
struct Tried {
  std::array<SampledCodec, kTried.size()> codecs;
  bool raw_pays = false;
};

// What publisher and replica do with a slice, on copies: others may write to the tensors.
Status try_codec(const Codec& codec, Layout layout, Bytes before, Bytes after, bool hash_old,
                 SampledCodec* out) {
  Hasher old_hasher(DigestKind::kSum128), new_hasher(DigestKind::kSum128);
  const double begin = thread_seconds();
  DW_ASSIGN_OR_RETURN(
      const Encoded encoded,
      codec.encode_hashed(layout, before, after, {hash_old ? &old_hasher : nullptr, &new_hasher},
                          nullptr));
  const double encoded_at = thread_seconds();
  out->encode_seconds = encoded_at - begin;
  if (encoded.num_changed == 0) return {};
  Sums sums;
  DW_RETURN_IF_ERROR(codec.decode_summed(layout, encoded.payload, before, nullptr, &sums).status());
  out->apply_seconds = thread_seconds() - encoded_at;
  out->payload_bytes = double(encoded.payload.size());
  return {};
}

Status try_slice(const SampleSlice& slice, bool hash_old, Tried* out) {
  const PublishTensor& tensor = *slice.of->tensor;
  const Layout layout = layout_of(tensor.view.dtype);
  std::vector<uint8_t> before(slice.size_bytes);
  DW_RETURN_IF_ERROR(slice.of->old.body()->read(slice.begin, before));
  std::vector<uint8_t> after(slice.size_bytes);
  DW_RETURN_IF_ERROR(read_published(tensor, slice.begin, after));
  for (size_t i = 0; i < kTried.size(); ++i) {
    if (kTried[i] == CodecId::kRaw) {
      const SampledCodec& gaps = out->codecs[i - 1];
      out->raw_pays = gaps.payload_bytes > kRawPays * double(slice.size_bytes);
      if (gaps.payload_bytes == 0) out->codecs[i] = gaps;  // unchanged: nothing travels either way
      if (!out->raw_pays) break;
    }
    DW_RETURN_IF_ERROR(
        try_codec(*find_codec(kTried[i]), layout, before, after, hash_old, &out->codecs[i]));
  }
  return {};
}

Status sample_on_host(const DiffJob& job, const Comparisons& all, ThreadPool* pool,
                      CodecSample* sample) {
  const std::vector<SampleSlice> slices = choose_slices(all.on_host, all.host_bytes);
  const bool hash_old = job.snapshot.hashing() != Hashing::kChanged;
  std::vector<Tried> tried(slices.size());
  DW_RETURN_IF_ERROR(
      parallel_try("trying codecs", pool, slices.size(), [&](size_t i, unsigned) -> Status {
        return try_slice(slices[i], hash_old, &tried[i])
            .at("tensor " + quote(slices[i].of->tensor->view.name));
      }));
  std::array<SampledCodec, kTried.size()> sums;
  bool raw_pays = false, raw_loses = false;
  for (size_t i = 0; i < tried.size(); ++i) {
    raw_pays = raw_pays || tried[i].raw_pays;
    raw_loses = raw_loses || (!tried[i].raw_pays && tried[i].codecs[1].payload_bytes != 0);
    sample->sampled_bytes += double(slices[i].size_bytes);
    for (size_t c = 0; c < sums.size(); ++c) {
      sums[c].encode_seconds += tried[i].codecs[c].encode_seconds;
      sums[c].apply_seconds += tried[i].codecs[c].apply_seconds;
      sums[c].payload_bytes += tried[i].codecs[c].payload_bytes;
    }
  }
  for (size_t c = 0; c < sums.size(); ++c) {
    if (kTried[c] == CodecId::kRaw && (raw_loses || !raw_pays)) continue;
    sums[c].codec = find_codec(kTried[c])->name();
    sample->codecs.push_back(sums[c]);
  }
  sample->weights_bytes = double(all.host_bytes);
  sample->threads = num_workers(pool);
  return {};
}

// Whole tensors, because a device holds the committed ones whole. How quickly a replica applies is
// not known here; it reads and writes about what encoding does.
Status sample_on_device(const DiffJob& job, const Comparisons& all, CodecSample* sample) {
  std::vector<PublishDevice::Comparison> pairs;
  const size_t step = std::max<size_t>(1, size_t(all.device_bytes / kDeviceBytes));
  for (size_t i = 0; i < all.on_device.size() && sample->sampled_bytes < double(kDeviceBytes);
       i += step) {
    pairs.push_back({all.on_device[i].old.on_device.get(), all.on_device[i].tensor});
    sample->sampled_bytes += double(all.on_device[i].size_bytes);
  }
  for (const CodecId id : {CodecId::kTight, CodecId::kGaps}) {
    SampledCodec one;
    one.codec = find_codec(id)->name();
    const double begin = steady_seconds();
    DW_ASSIGN_OR_RETURN(const std::vector<cuda::Coded> coded, job.device->encode(one.codec, pairs));
    one.encode_seconds = one.apply_seconds = steady_seconds() - begin;
    for (const cuda::Coded& tensor : coded) one.payload_bytes += double(tensor.payload.size());
    sample->codecs.push_back(std::move(one));
  }
  sample->weights_bytes = double(all.device_bytes);
  return {};
}

}  // namespace

// Where tensors are on both sides, those that are more are tried.
Result<CodecSample> sample_codecs(const DiffJob& job, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(const Comparisons all, comparisons_of(job));
  CodecSample sample;
  if (all.device_bytes > all.host_bytes) {
    DW_RETURN_IF_ERROR(sample_on_device(job, all, &sample));
  } else if (all.host_bytes != 0) {
    DW_RETURN_IF_ERROR(sample_on_host(job, all, pool, &sample));
  }
  return sample;
}

std::vector<CodecForecast> forecast_codecs(const CodecSample& sample, const CodecRates& rates) {
  std::vector<CodecForecast> forecasts;
  if (sample.sampled_bytes == 0) return forecasts;
  const double grown = sample.weights_bytes / sample.sampled_bytes;
  for (const SampledCodec& one : sample.codecs) {
    const double share = grown / sample.threads;
    forecasts.push_back({one.codec,
                         share * one.encode_seconds + rates.overhead() * sample.weights_bytes,
                         share * one.apply_seconds, grown * one.payload_bytes});
  }
  return forecasts;
}

}  // namespace deltawire
