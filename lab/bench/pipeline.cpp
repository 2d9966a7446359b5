#include "lab/bench/pipeline.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "codec/choose.h"
#include "codec/elements.h"

namespace deltawire::cli {
namespace {

Status check_digest(const Wire& wire, const Digest& got) {
  if (got == wire.digest) return {};
  return corruption("digest after the patch: expected " + wire.digest.hex() + ", got " + got.hex());
}

// `codec` null: auto.
class CodecPipeline : public Pipeline {
 public:
  CodecPipeline(std::string name, const Codec* codec)
      : Pipeline(std::move(name), false), codec_(codec) {}

  Status publish(const BenchTensor& tensor, Worker worker, Wire* wire) const override {
    Choice choice;
    if (codec_ == nullptr) {
      DW_ASSIGN_OR_RETURN(
          choice, encode_smallest(tensor.layout, tensor.before, tensor.after, worker.inner));
    } else {
      choice.codec = codec_->id();
      DW_ASSIGN_OR_RETURN(choice.encoded,
                          codec_->encode(tensor.layout, tensor.before, tensor.after, worker.inner));
    }
    wire->changed = choice.encoded.num_changed != 0;
    wire->codec = choice.codec;
    if (wire->changed) wire->payload = std::move(choice.encoded.payload);
    return {};
  }

  Status apply(const BenchTensor& tensor, const Wire& wire, Worker worker) const override {
    return find_codec(wire.codec)->apply(tensor.layout, wire.payload, tensor.work, worker.inner);
  }

 private:
  const Codec* const codec_;
};

class DigestedTightPipeline final : public CodecPipeline {
 public:
  DigestedTightPipeline() : CodecPipeline(kDigestedTightName, find_codec(CodecId::kTight)) {}

  // As `diff` and `apply` do it: hashed on the way.
  Status publish(const BenchTensor& tensor, Worker worker, Wire* wire) const override {
    Hasher hasher(DigestKind::kSum128);
    const Codec& codec = *find_codec(CodecId::kTight);
    DW_ASSIGN_OR_RETURN(Encoded encoded,
                        codec.encode_hashed(tensor.layout, tensor.before, tensor.after,
                                            {nullptr, &hasher}, worker.inner));
    wire->changed = encoded.num_changed != 0;
    wire->codec = codec.id();
    wire->payload = std::move(encoded.payload);
    wire->digest = hasher.finish();
    return {};
  }

  Status apply(const BenchTensor& tensor, const Wire& wire, Worker worker) const override {
    Hasher hasher(wire.digest.kind);
    DW_RETURN_IF_ERROR(
        find_codec(wire.codec)
            ->apply_hashed(tensor.layout, wire.payload, tensor.work, &hasher, worker.inner));
    return check_digest(wire, hasher.finish());
  }
};

// ---- what peers do, in plain C++ with buffers that are kept: faster than their own Python, so
// that a comparison is about formats and algorithms. File headers, names and checksums of files are
// left out on both sides.

// Calls body(position, value) for each element that differs. Eight bytes at a time: nearly all are
// equal.
template <class Element, class Body>
void for_each_change(const BenchTensor& tensor, const Body& body) {
  constexpr size_t kPerWord = sizeof(uint64_t) / sizeof(Element);
  const uint8_t* before = tensor.before.data();
  const uint8_t* after = tensor.after.data();
  const size_t n = tensor.after.size() / sizeof(Element);
  const auto compare = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const auto value = load_le<Element>(after + i * sizeof(Element));
      if (value != load_le<Element>(before + i * sizeof(Element))) body(i, value);
    }
  };
  size_t i = 0;
  for (; i + kPerWord <= n; i += kPerWord) {
    const auto word = load_le<uint64_t>(after + i * sizeof(Element));
    if (word != load_le<uint64_t>(before + i * sizeof(Element))) compare(i, i + kPerWord);
  }
  compare(i, n);
}

Status check_int32_positions(const BenchTensor& tensor) {
  if (tensor.after.size() / tensor.layout.width <= size_t{std::numeric_limits<int32_t>::max()}) {
    return {};
  }
  return unsupported("its positions are int32");
}

void append(const void* data, size_t size, uint8_t** out) {
  std::memcpy(*out, data, size);
  *out += size;
}

// TRL v1: int32 positions, then values. No digest.
class TrlPipeline final : public Pipeline {
 public:
  TrlPipeline() : Pipeline("trl-v1", true) {}

  Status publish(const BenchTensor& tensor, Worker worker, Wire* wire) const override {
    DW_RETURN_IF_ERROR(check_int32_positions(tensor));
    with_element(tensor.layout.width, [&]<class Element>(Element) {
      const size_t n = tensor.after.size() / sizeof(Element);
      auto* positions = reinterpret_cast<int32_t*>(worker.scratch->buffer(0, n * sizeof(int32_t)));
      auto* values = reinterpret_cast<Element*>(worker.scratch->buffer(1, n * sizeof(Element)));
      size_t count = 0;
      for_each_change<Element>(tensor, [&](size_t position, Element value) {
        positions[count] = int32_t(position);
        values[count++] = value;
      });
      wire->changed = count != 0;
      wire->payload.resize(count * (sizeof(int32_t) + sizeof(Element)));
      uint8_t* out = wire->payload.data();
      append(positions, count * sizeof(int32_t), &out);
      append(values, count * sizeof(Element), &out);
    });
    return {};
  }

  Status apply(const BenchTensor& tensor, const Wire& wire, Worker) const override {
    with_element(tensor.layout.width, [&]<class Element>(Element) {
      const size_t count = wire.payload.size() / (sizeof(int32_t) + sizeof(Element));
      const uint8_t* positions = wire.payload.data();
      const uint8_t* values = positions + count * sizeof(int32_t);
      for (size_t i = 0; i < count; ++i) {
        const auto at = size_t(load_le<int32_t>(positions + i * sizeof(int32_t)));
        std::memcpy(tensor.work.data() + at * sizeof(Element), values + i * sizeof(Element),
                    sizeof(Element));
      }
    });
    return {};
  }
};

// out = a ^ b; true when any bit is set.
bool xor_into(const uint8_t* a, const uint8_t* b, size_t size, uint8_t* out) {
  uint64_t any = 0;
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
    const uint64_t word = load_le<uint64_t>(a + i) ^ load_le<uint64_t>(b + i);
    store_le(out + i, word);
    any |= word;
  }
  for (; i < size; ++i) any |= out[i] = a[i] ^ b[i];
  return any != 0;
}

// slime now: XOR of the whole tensor in one zstd frame of level 1, xxh3-128 of the new tensor. An
// unchanged tensor is neither compressed nor hashed.
class SlimePipeline final : public Pipeline {
 public:
  SlimePipeline() : Pipeline(kSlimeName, true) {}

  Status publish(const BenchTensor& tensor, Worker worker, Wire* wire) const override {
    const size_t size = tensor.after.size(), room = ZSTD_compressBound(size);
    uint8_t* content = worker.scratch->buffer(0, size);
    uint8_t* frame = worker.scratch->buffer(1, room);
    wire->changed = xor_into(tensor.before.data(), tensor.after.data(), size, content);
    if (!wire->changed) return {};
    const size_t used =
        ZSTD_compressCCtx(worker.scratch->compressor(), frame, room, content, size, 1);
    if (ZSTD_isError(used) != 0) return internal_error(ZSTD_getErrorName(used));
    wire->payload.assign(frame, frame + used);
    wire->digest = digest_of(DigestKind::kXxh3_128, tensor.after);
    return {};
  }

  Status apply(const BenchTensor& tensor, const Wire& wire, Worker worker) const override {
    const size_t size = tensor.work.size();
    uint8_t* content = worker.scratch->buffer(0, size);
    const size_t got = ZSTD_decompressDCtx(worker.scratch->decompressor(), content, size,
                                           wire.payload.data(), wire.payload.size());
    if (ZSTD_isError(got) != 0 || got != size) return corruption("zstd frame");
    xor_into(tensor.work.data(), content, size, tensor.work.data());
    return check_digest(wire, digest_of(wire.digest.kind, tensor.work));
  }
};

}  // namespace

uint8_t* Scratch::buffer(size_t which, size_t size) {
  Buffer& buffer = buffers_[which];
  if (buffer.size < size) {
    buffer.bytes.reset();
    buffer.bytes = std::make_unique_for_overwrite<uint8_t[]>(size);
    buffer.size = size;
  }
  return buffer.bytes.get();
}

ZSTD_CCtx_s* Scratch::compressor() {
  if (compressor_ == nullptr) compressor_.reset(ZSTD_createCCtx());
  return compressor_.get();
}

ZSTD_DCtx_s* Scratch::decompressor() {
  if (decompressor_ == nullptr) decompressor_.reset(ZSTD_createDCtx());
  return decompressor_.get();
}

void Scratch::Free::operator()(ZSTD_CCtx_s* context) const noexcept { ZSTD_freeCCtx(context); }
void Scratch::Free::operator()(ZSTD_DCtx_s* context) const noexcept { ZSTD_freeDCtx(context); }

Pipelines all_pipelines() {
  Pipelines all;
  all.push_back(std::make_unique<CodecPipeline>("auto", nullptr));
  for (const Codec* codec : all_codecs()) {
    all.push_back(std::make_unique<CodecPipeline>(std::string(codec->name()), codec));
  }
  all.push_back(std::make_unique<TrlPipeline>());
  all.push_back(std::make_unique<SlimePipeline>());
  all.push_back(std::make_unique<DigestedTightPipeline>());
  return all;
}

}  // namespace deltawire::cli
