#include "lab/bench/pipeline.h"

#include <zstd.h>

#include "codec/choose.h"

namespace deltawire::cli {
namespace {

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

Pipelines codec_pipelines() {
  Pipelines pipelines;
  pipelines.push_back(std::make_unique<CodecPipeline>("auto", nullptr));
  for (const Codec* codec : all_codecs()) {
    pipelines.push_back(std::make_unique<CodecPipeline>(std::string(codec->name()), codec));
  }
  return pipelines;
}

std::unique_ptr<const Pipeline> digested_tight_pipeline() {
  return std::make_unique<DigestedTightPipeline>();
}

Status check_digest(const Wire& wire, const Digest& got) {
  if (got == wire.digest) return {};
  return corruption("digest after the patch: expected " + wire.digest.hex() + ", got " + got.hex());
}

}  // namespace deltawire::cli
