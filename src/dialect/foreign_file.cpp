#include "dialect/foreign_file.h"

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "deltawire/digest.h"

namespace deltawire {

std::optional<uint64_t> parse_padded_number(std::string_view text, size_t min_digits) noexcept {
  if (text.size() < min_digits || (text.size() > min_digits && text.starts_with('0'))) return {};
  uint64_t number = 0;
  return parse_number(text, &number) ? std::optional(number) : std::nullopt;
}

std::optional<uint64_t> parse_numbered_name(std::string_view text, std::string_view prefix,
                                            size_t min_digits, std::string_view suffix) noexcept {
  if (text.size() < prefix.size() + suffix.size()) return {};
  if (!text.starts_with(prefix) || !text.ends_with(suffix)) return {};
  text.remove_prefix(prefix.size());
  text.remove_suffix(suffix.size());
  return parse_padded_number(text, min_digits);
}

namespace {

// Pieces come in any order, from any thread; the store keeps them inside the object's size.
class ObjectSink final : public Sink {
 public:
  explicit ObjectSink(uint8_t* to) : to_(to) {}
  Status write(uint64_t offset, Bytes bytes) override {
    std::ranges::copy(bytes, to_ + offset);  // unlike memcpy, allows null for no bytes
    return {};
  }

 private:
  uint8_t* to_;
};

constexpr uint64_t kSampleBytes = 4096, kMostSamples = 256;

}  // namespace

Result<ForeignFile> ForeignFile::open(Store& store, const ObjectInfo& info) {
  ForeignFile file;
  file.where_ = store.url() + "/" + info.name;
  if (const std::string folder = store.local_folder(); !folder.empty()) {
    auto mapped = MappedFile::open(std::filesystem::path(folder) / info.name);
    if (!mapped.ok()) return mapped.status();
    file.mapped_ = std::move(*mapped);
    file.bytes_ = file.mapped_->bytes();
    return file;
  }
  DW_ASSIGN_OR_RETURN(auto memory, located(allocate_bytes(info.size_bytes), file.where_));
  file.fetched_ = std::move(memory);
  ObjectSink sink(file.fetched_.get());
  DW_RETURN_IF_ERROR(store.download(info.name, info.size_bytes, &sink));
  file.bytes_ = {file.fetched_.get(), info.size_bytes};
  return file;
}

std::string ForeignFile::sample() const {
  Hasher hasher(DigestKind::kXxh3_128);
  if (bytes_.size() <= kSampleBytes * kMostSamples) {
    hasher.update(bytes_);
  } else {
    const uint64_t last = bytes_.size() - kSampleBytes;
    for (uint64_t i = 0; i < kMostSamples; ++i) {
      hasher.update(bytes_.subspan(last / (kMostSamples - 1) * i, kSampleBytes));
    }
  }
  return hasher.finish().hex();
}

}  // namespace deltawire
